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
    found = {name: pairs(task, name) for name in task.splits}
    assert all(each == mirrored(each) for each in found.values())
    assert sum(map(len, found.values())) == 100 * 100 == len(set().union(*found.values()))
    if split == "random":
        assert len(found["id"]) / 10_000 == pytest.approx(0.34, abs=0.01)  # the share, and 400 more
    else:
        assert (len(found["id"]), len(found["ood"])) == (400, 21 * 21)


def test_in_addition_itself_most_have_it():
    task = AdditionTask(mode="reversed", split="random")
    left_out, trained = pairs(task, "id"), pairs(task, "train")
    assert len(mirrored(left_out) & trained) / len(left_out) > 0.5


def test_another_seed_is_another_split():
    first, second = (AdditionBothOrders(split="random", split_seed=seed) for seed in (0, 1))
    assert pairs(first, "id") != pairs(second, "id")


def test_a_preset_becomes_one_of_both_orders():
    (run,) = grid(
        of_both_orders("addition-reversed"), {"seed": [0]}, steps=1, n_checkpoints=0, split="random"
    )
    assert isinstance(run.task, AdditionBothOrders)
    assert (run.task.mode, run.task.split) == ("reversed", "random")
