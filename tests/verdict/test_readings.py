"""The readings: what they may look at, and that width does not show in them."""

from dataclasses import astuple

import numpy as np
import pytest
import torch
from known_models import TASK as HAND_TASK
from known_models import gathering, memorising, parallel, reasoning

from anchorlens import AnchorTask, ModelConfig, build_model, checkpoints, load_checkpoint
from anchorlens.probes.shared.checks import check_inputs
from anchorlens.verdict import READINGS, take_readings
from anchorlens.verdict.pooled_routes import pooled_routes
from anchorlens.verdict.readings import MEASURED, held_out_sequences

PAPER = AnchorTask()


def shipped(name):
    return load_checkpoint(next(path for path in checkpoints.shipped() if path.stem == name))


def test_names_are_unique_and_every_measurement_is_read():
    names = [reading.name for reading in READINGS]
    assert len(set(names)) == len(names)
    assert {reading.measurement for reading in READINGS} == set(MEASURED)


@pytest.mark.parametrize("task", [PAPER, AnchorTask(regime="conflict")], ids=["reasoning", "conflict"])
def test_answers_to_unseen_pairs_are_never_looked_at(task):
    model = shipped("phase3").build_model()
    expected = take_readings(model, task)
    unseen = torch.tensor(task.ood_pairs)
    changed = []

    def scramble(module, args, logits):  # of every sequence that holds an unseen pair
        if len(tokens[-1]) != len(logits):
            return None
        there = (tokens[-1].unfold(1, 2, 1)[:, :, None] == unseen).all(dim=-1).flatten(1).any(dim=1)
        changed.append(int(there.sum()))
        return torch.where(there[:, None, None], -logits.flip(-1) * 7, logits)

    tokens = []
    model.embed.register_forward_pre_hook(lambda module, args: tokens.append(args[0]))
    model.unembed.register_forward_hook(scramble)
    for position in range(3):  # the control: such sequences would be answered otherwise
        batch = task.sample(64, split="ood", seed=position)
        assert (model(batch.tokens)[:, -1].argmax(-1) != batch.targets).float().mean() > 0.9
    changed.clear()
    assert take_readings(model, task) == expected
    assert len(changed) > 5


def test_width_does_not_show_in_a_random_start():
    found = [
        take_readings(build_model(ModelConfig(d_model=d, d_head=d // 2, gamma=0.5)), PAPER) for d in (64, 256)
    ]
    for name in ("stable_rank.w_q_normalized", "q_condensation.mean_abs_cosine"):
        assert [reading[name] for reading in found] == pytest.approx([1, 1], abs=0.15)
    for reading in found:
        assert reading["information_flow.inferential_route of pooled anchors"] is None
        assert abs(reading["v_similarity.centred_gap"]) < 0.2


def test_what_composes_and_what_memorises_read_apart():
    nearest = "fusion_similarity.nearest_same of unseen pairs"
    composing, memorising = (
        take_readings(shipped(name).build_model(), PAPER) for name in ("phase3", "phase1")
    )
    assert composing["fusion_similarity.centred_gap of unseen pairs"] > 0.5
    assert memorising["fusion_similarity.centred_gap of unseen pairs"] < 0.2
    assert composing[nearest] > 0.5 > 0.2 > memorising[nearest]
    held_out = "information_flow.margin of held-out keys"
    assert composing[held_out] > 0 > memorising[held_out]


def test_pooled_routes_do_not_ask_for_each_anchor():
    """What is gathered at one anchor passes as inferential, unlike in the probe."""
    found = {
        model: pooled_routes(model(), HAND_TASK) for model in (reasoning, gathering, memorising, parallel)
    }
    assert astuple(found[reasoning]) == astuple(found[gathering]) == pytest.approx((1, 0), abs=1e-9)
    assert astuple(found[memorising]) == pytest.approx((0, 1), abs=1e-9)
    assert astuple(found[parallel]) == pytest.approx((0, 0), abs=1e-9)


def test_held_out_sequences_are_of_trained_pairs_with_held_out_keys():
    tokens = held_out_sequences(PAPER).numpy()
    keys, pairs = tokens[:, 2], {tuple(pair) for pair in tokens[:, 3:5].tolist()}
    assert pairs == set(PAPER.seen_pairs) and len(tokens) == 20 * 14
    assert (keys % 9 == 2).all() and len(np.unique(keys)) > 5


def test_a_model_that_a_probe_refuses_is_named():
    model = build_model(ModelConfig(n_layers=1, d_model=16, d_head=8, d_mlp=16))
    check_inputs(model, PAPER)
    with pytest.raises(ValueError, match="v_similarity: .*layer"):
        take_readings(model, PAPER)
