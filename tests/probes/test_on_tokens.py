"""Probes that need tokens alone, on HookedTransformers that were never trained on a task of ours."""

import json

import numpy as np
import pytest
import torch
from known_models import ARCHITECTURES, KEY, TASK, reasoning, user_built

from anchorlens import AnchorTask, ModelConfig, build_model
from anchorlens.extras.arithmetic.task import AdditionTask
from anchorlens.models import hooks
from anchorlens.probes import SHIPPED, activation_patching, apply, attention_patterns, needs_task

WITH_TOKENS = (attention_patterns, activation_patching)
CLEAN = [[7, 0, 3, 40], [7, 5, 3, 1]]
OTHER = [[7, 0, 3, 9], [7, 5, 3, 30]]  # the last token differs, and so nothing before it


def told_apart(model):
    """[sequence, 2] For each pair two tokens, of which the model prefers one after CLEAN, one after OTHER."""
    clean, other = (hooks.last_logits(model, torch.tensor(rows)) for rows in (CLEAN, OTHER))
    both = torch.minimum(clean[:, :, None] - clean[:, None], other[:, None] - other[:, :, None])
    best = both.flatten(1).argmax(dim=1)  # [sequence] of [right, wrong]
    return torch.stack([best // both.shape[1], best % both.shape[1]], dim=1)


def test_the_probes_that_take_tokens():
    with_tokens = {probe for probe in SHIPPED if needs_task(probe) and not needs_task(probe, ["tokens"])}
    assert with_tokens == set(WITH_TOKENS)


@pytest.mark.parametrize("task", [None, AdditionTask()], ids=["no task", "another task"])
def test_attention_of_any_sequence(task):
    model = user_built()
    result = apply(attention_patterns, model, task, tokens=CLEAN[0])
    _, cache = model.eval().run_with_cache(torch.tensor(CLEAN[:1]))
    for layer, pattern in enumerate(result.attention):
        assert np.allclose(pattern, cache["pattern", layer][0].numpy(), atol=1e-6)
    assert result.key_position is None and result.to_key_and_anchors is None
    assert result.tokens.tolist() == CLEAN[0] and result.plot().to_json() and "<div" in result.html()
    assert "looks most at position" in repr(result) and json.dumps(result.to_dict(), allow_nan=False)


def test_an_anchor_task_is_the_source_of_the_default():
    model = reasoning()
    by_task, given = attention_patterns(model, TASK), attention_patterns(model, TASK)
    assert by_task.key_position == KEY and by_task.to_dict() == given.to_dict()
    with pytest.raises(ValueError, match="must have number tokens"):
        attention_patterns(model, TASK, [0] * 9)  # with the task, tokens are a sequence of the task
    assert attention_patterns(model, tokens=[0] * 9).key_position is None


@pytest.mark.parametrize("fields", ARCHITECTURES.values(), ids=ARCHITECTURES)
def test_any_architecture_is_patched(fields):
    model = user_built(**fields)
    if not model.cfg.n_layers:
        pytest.skip("there is nothing to patch")
    try:
        result = activation_patching(model, tokens=CLEAN, corrupted=OTHER, targets=told_apart(model))
    except ValueError as error:  # a hook point that such a block does not have
        assert "hook_" in str(error)
        return
    n_sites = 2 if model.cfg.attn_only else 3
    assert result.recovered.shape == (1, n_sites, model.cfg.n_layers, 4)
    assert result.changes == ("tokens",) and result.n_sequences == 2 and result.plot().to_json()


def test_what_patches_bring_back():
    """What differs stands at the last position, in every layer."""
    model = user_built()
    targets = told_apart(model)
    result = activation_patching(model, tokens=CLEAN, corrupted=OTHER, targets=targets)
    for of_layer in result.recovered[0, 0]:  # of hook_resid_pre: [pos]
        assert of_layer.tolist() == pytest.approx([0, 0, 0, 1], abs=1e-5)
    assert result.carried_by_last == pytest.approx(1)
    assert result.carried_by_first_anchor is None and result.key_position is None
    assert "hook_resid_pre of layer" in repr(result) and "at position 3 brings back most" in repr(result)
    swapped = activation_patching(model, tokens=CLEAN, corrupted=OTHER, targets=targets.flip(1))
    assert np.isnan(swapped.recovered).all() and "no recovery" in repr(swapped)


def test_sequences_of_the_task_give_what_the_task_gives():
    """The same sequences, given: what the probe measures of its first change."""
    from anchorlens.probes.shared.interventions import sequences_that_differ

    model, by_task = reasoning(), activation_patching(reasoning(), TASK, n_sequences=4)
    pairs = sequences_that_differ(TASK, 1, KEY, 4, 0)
    targets = torch.stack([pairs.right, pairs.wrong], dim=1)
    given = activation_patching(model, tokens=pairs.clean, corrupted=pairs.corrupted, targets=targets)
    assert np.array_equal(given.recovered[0], by_task.recovered[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tokens": CLEAN}, r"must be whole numbers .*got None"),
        ({"tokens": CLEAN, "corrupted": OTHER[:1]}, r"must be whole numbers .*got None"),
        ({"tokens": CLEAN, "corrupted": OTHER[:1], "targets": [[1, 2]] * 2}, r"shape \[2, 4\] of tokens"),
        ({"tokens": CLEAN, "corrupted": OTHER, "targets": [1, 2]}, r"the shape \[2, 2\], got \[2, 4\] and"),
        (
            {"tokens": CLEAN, "corrupted": OTHER, "targets": [[1, 99]] * 2},
            r"targets must be in 0\.\.\d+, got",
        ),
        ({"tokens": [[1, 999]], "corrupted": [[1, 2]], "targets": [1, 2]}, r"tokens must be in 0\.\.\d+"),
        ({"tokens": [0.5], "corrupted": [1], "targets": [1, 2]}, "tokens must be whole numbers"),
        (
            {"tokens": [[1] * 99], "corrupted": [[1] * 99], "targets": [1, 2]},
            r"1 to 9 tokens \(n_ctx\), got 99",
        ),
        ({}, r"activation_patching.*two-anchor task"),
    ],
)
def test_what_does_not_fit_together(options, message):
    model = build_model(ModelConfig(n_layers=2, d_model=16, d_head=8, d_mlp=16, d_vocab=50, n_ctx=9))
    with pytest.raises(ValueError, match=message):
        activation_patching(model, **options)
    with pytest.raises(ValueError, match="must get the two-anchor task .* or tokens"):
        apply(activation_patching, model)
    with pytest.raises(ValueError, match="tokens must be whole numbers"):
        attention_patterns(model, tokens="text")


def test_the_papers_model_still_needs_no_tokens():
    model = build_model(ModelConfig(gamma=0.5))
    assert attention_patterns(model, AnchorTask()).key_position == 2
    assert activation_patching(model, AnchorTask()).changes == ("key", "anchor 1", "anchor 2")
