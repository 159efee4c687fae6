"""Addition whose held-out sums have no mirror in training."""

import pytest

from anchorlens.extras.arithmetic.task import AdditionTask
from anchorlens.extras.sweep import grid
from j7c_addition import of_both_orders
from shared.both_orders import AdditionBothOrders


def pairs(task, split):
    return {(a, b) for a, b in task.sums(split).tolist()}


def mirrored(found):
    return {(b, a) for a, b in found}


@pytest.mark.parametrize("split", ["square", "random"])
def test_no_sum_has_its_mirror_in_another_split(split):
    task = AdditionBothOrders(mode="reversed", split=split)
    found = {name: pairs(task, name) for name in ("train", "id", "ood")}
    assert all(each == mirrored(each) for each in found.values())
    assert sum(map(len, found.values())) == 100 * 100 == len(set().union(*found.values()))
    assert len(found["id"]) == 400
    share = len(found["ood"]) / 10_000
    assert share == pytest.approx(0.3, abs=0.01) if split == "random" else len(found["ood"]) == 21 * 21


def test_in_addition_itself_most_have_it():
    task = AdditionTask(mode="reversed", split="random")
    left_out, trained = pairs(task, "ood"), pairs(task, "train")
    assert len(mirrored(left_out) & trained) / len(left_out) > 0.5


def test_another_seed_is_another_split():
    first, second = (AdditionBothOrders(split="random", split_seed=seed) for seed in (0, 1))
    assert pairs(first, "ood") != pairs(second, "ood") and pairs(first, "id") != pairs(second, "id")


def test_a_preset_becomes_one_of_both_orders():
    (run,) = grid(
        of_both_orders("addition-reversed"), {"seed": [0]}, steps=1, n_checkpoints=0, split="random"
    )
    assert isinstance(run.task, AdditionBothOrders)
    assert (run.task.mode, run.task.split) == ("reversed", "random")
