"""Values at the first anchor, on models whose values are made by hand."""

from pathlib import Path

import numpy as np
import pytest
import torch

import anchorlens
from anchorlens import AnchorTask, ModelConfig, build_model
from anchorlens.probes import v_similarity
from anchorlens.probes.shared.anchor_sequences import anchor_sequences

CHECKPOINTS = Path(anchorlens.__file__).parent / "training/checkpoints"

TASK = AnchorTask()
CONFIG = ModelConfig(n_layers=2, d_model=32, d_head=16, d_mlp=32)


def values_by(function):
    """A model whose hook_v of layer 1 is overwritten with a random vector for each function(x, a)."""
    model = build_model(CONFIG)
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(4000, 16, generator=generator)

    def overwrite(value, hook):
        tokens = overwrite.tokens
        for row, sequence in enumerate(tokens.tolist()):
            value[row, 3, 0] = table[function(sequence[2], sequence[3])]
        return value

    model.embed.register_forward_pre_hook(lambda module, args: setattr(overwrite, "tokens", args[0]))
    model.blocks[1].attn.hook_v.add_perma_hook(overwrite)
    return model


def test_values_that_say_g_have_gap_one_and_values_that_say_the_key_or_all_have_none():
    composes = v_similarity(values_by(lambda x, a: TASK.apply(a, x)), TASK)
    assert composes.cosines[0][composes.results[0][:, None] == composes.results[1][None]] == pytest.approx(1)
    assert composes.centred_gap > 0.9 and composes.gap > 0.9
    for other in (lambda x, a: x, lambda x, a: 100 * a + x, lambda x, a: a):
        assert abs(v_similarity(values_by(other), TASK).centred_gap) < 0.15


def test_centred_is_without_the_mean_vector():
    """A vector that all share lifts every raw cosine and no centred one."""
    plain, lifted = (values_by(lambda x, a: TASK.apply(a, x)) for _ in range(2))
    lifted.blocks[1].attn.hook_v.add_perma_hook(lambda value, hook: value + 50)
    low, high = v_similarity(plain, TASK), v_similarity(lifted, TASK)
    assert high.gap < 0.1 < low.gap and high.centred_gap == pytest.approx(low.centred_gap, abs=1e-3)


@pytest.mark.parametrize(("name", "saturated"), [("phase2-commutative", True), ("phase3", False)])
def test_a_saturated_map_says_why(name, saturated):
    found = v_similarity(CHECKPOINTS / f"{name}.pt")
    assert (found.centred_cosines[0].mean() < -0.8) == saturated
    why = "cells near -1: the values depend on the anchor, hardly on the key"
    assert found.headline().endswith(why) == saturated


def test_boxes_stand_at_row_first_anchor_and_column_second():
    """g(x; 1) = x + 5 = g(y; 2) = y + 1: y = x + 4, boxes above the diagonal, x to the right."""
    boxes = v_similarity(build_model(CONFIG), TASK).plot().layout.shapes
    assert len(boxes) == 7 and all(box.x0 - box.y0 == 4 for box in boxes)


def test_pairs_are_those_of_different_anchors_that_meet():
    """On 30..40 shifts 5 and -8 differ by 13 and never meet; the other five pairs do."""
    result = v_similarity(build_model(CONFIG), TASK)
    assert result.keys.tolist() == list(range(30, 41))
    assert result.pairs.tolist() == [[1, 2], [1, 3], [2, 3], [2, 4], [3, 4]]
    assert result.gap == pytest.approx(result.gaps.mean())
    assert result.cosines.shape == (5, 11, 11)


def test_it_is_what_the_cache_holds():
    model = build_model(CONFIG)
    result = v_similarity(model, TASK, keys=[50, 51])
    tokens = torch.tensor([[35, 63, x, a, 1, 38, 42, 36, 62] for a in (2, 3) for x in (50, 51)])
    u = model.run_with_cache(tokens)[1]["blocks.1.attn.hook_v"][:, 3, 0]
    found = v_similarity(model, TASK, keys=[50, 51, 53, 54])
    pair = found.pairs.tolist().index([2, 3])
    expected = torch.cosine_similarity(u[0], u[2], dim=0).item()
    assert found.cosines[pair, 0, 0] == pytest.approx(expected, abs=1e-6)
    assert result.pairs.tolist() == []  # 50 and 51 are too near for any two anchors to meet
    assert result.centred_gap is None and "no two anchors" in repr(result)
    result.plot()


def test_a_users_own_hooks_survive():
    model = build_model(CONFIG)
    seen = []
    model.blocks[1].attn.hook_v.add_hook(lambda value, hook: seen.append(1))
    v_similarity(model, TASK)
    assert seen and len(model.blocks[1].attn.hook_v.fwd_hooks) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keys": [19]}, "a key must be an integer >= 20 and <= 99"),
        ({"key_position": 7}, "key_position must be an integer >= 0 and <= 6"),
        ({"layer": 0}, "layer must be in 1..1"),
    ],
)
def test_bad_input_says_what_is_wrong(options, message):
    with pytest.raises(ValueError, match=message):
        v_similarity(build_model(CONFIG), TASK, **options)


def test_models_of_another_task_are_refused():
    for fields, message in (
        ({"d_vocab": 60}, "d_vocab of the model must be at least 110"),
        ({"n_ctx": 5}, "n_ctx of the model must be"),
    ):
        with pytest.raises(ValueError, match=message):
            v_similarity(build_model(ModelConfig(n_layers=2, d_model=16, d_head=8, d_mlp=16, **fields)), TASK)


def test_chains_and_short_sequences():
    task = AnchorTask(chain_length=3, seq_len=5, key_min=40)
    model = build_model(ModelConfig.for_task(task, n_layers=2, d_model=16, d_head=8, d_mlp=16))
    assert np.isfinite(v_similarity(model, task, key_position=0).centred_gap)


class TestSequences:
    def test_are_the_papers(self):
        assert anchor_sequences(TASK, [23], [(1, 2)]).tolist() == [[35, 63, 23, 1, 2, 38, 42, 36, 62]]
        moved = anchor_sequences(TASK, [23], [(1, 2)], key_position=6)
        assert moved.tolist() == [[35, 63, 38, 42, 36, 62, 23, 1, 2]]

    def test_noise_fits_the_task(self):
        tokens = anchor_sequences(AnchorTask(key_min=50, seq_len=6), [60], [(1, 2)])[0]
        assert tokens[2:5].tolist() == [60, 1, 2] and all(50 <= t <= 99 for t in tokens[[0, 1, 5]])

    def test_pairs_are_the_tasks(self):
        for pair in [(1, 9), (1,), (1, 2, 3)]:
            with pytest.raises(ValueError, match=r"pair must contain 2 of the anchors \[1, 2, 3, 4"):
                anchor_sequences(TASK, [23], [pair])


def test_values_that_overflow_are_an_error_and_no_nan():
    model = build_model(CONFIG)
    with torch.no_grad():
        for matrix in (model.embed.W_E, model.blocks[1].attn.W_V):
            matrix.fill_(3e38)
    with pytest.raises(ValueError, match=r"blocks.1.attn.hook_v must be finite"):
        v_similarity(model, TASK)
