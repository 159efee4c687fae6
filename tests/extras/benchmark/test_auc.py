"""The AUC of a reading, and its interval, which draws tasks."""

import numpy as np
import pytest

from anchorlens.extras.benchmark.result import N_DRAWS, auc_with_interval

HALF = np.arange(6) >= 3
TASKS = ["a", "b", "c"] * 2


def auc(values, is_yes=HALF, tasks=TASKS):
    return auc_with_interval(np.array(values, dtype=float), np.array(is_yes, dtype=bool), tasks)


def test_it_counts_pairs_and_ties_half():
    """Yes 2, 3 against no 1, 2: 2 > 1, 2 = 2, 3 > 1, 3 > 2, so (3 + .5) of 4."""
    assert auc([1, 2, 2, 3], [False, False, True, True], ["a", "b", "c", "d"]).auc == 3.5 / 4


def test_it_is_not_turned_round():
    assert auc([0, 1, 2, 3, 4, 5]) == (1, 1, 1)
    assert auc([5, 4, 3, 2, 1, 0]) == (0, 0, 0)
    assert auc([7] * 6) == (0.5, 0.5, 0.5)


def test_order_alone_matters():
    values = np.random.default_rng(0).normal(size=30)
    is_yes, tasks = np.arange(30) % 2 == 0, [f"task {k % 7}" for k in range(30)]
    assert auc(values, is_yes, tasks) == auc(np.exp(values), is_yes, tasks)
    turned = auc(-values, is_yes, tasks)
    assert turned.auc == pytest.approx(1 - auc(values, is_yes, tasks).auc)


@pytest.mark.parametrize("is_yes", [[True] * 6, [False] * 6])
def test_without_one_side_there_is_none(is_yes):
    assert auc(range(6), is_yes) == (None, None, None)
    assert auc([], [], []) == (None, None, None)


def test_of_fewer_than_three_tasks_there_is_no_interval():
    assert auc(range(6), tasks=["a", "a", "b"] * 2) == (1, None, None)
    assert auc(range(6), tasks=["a", "b", "c", "d", "d", "d"]).low is None


def test_the_interval_is_that_of_tasks_drawn_one_by_one():
    """The weights of a draw are how often its tasks are in it; here the models are put together instead."""
    random = np.random.default_rng(1)
    tasks = np.array([f"task {k % 5}" for k in range(40)])
    is_yes = np.arange(40) % 3 == 0
    values = random.normal(size=40) + 0.8 * is_yes + 1.5 * (tasks == "task 0") * is_yes
    found = auc(values, is_yes, tasks.tolist())
    names, drawn = np.unique(tasks), []
    for _ in range(N_DRAWS):
        rows = np.concatenate([np.flatnonzero(tasks == name) for name in random.choice(names, len(names))])
        drawn.append(auc(values[rows], is_yes[rows], ["one"] * len(rows)).auc)
    assert [found.low, found.high] == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.03)


def test_models_of_one_task_do_not_make_it_narrower():
    """Ten copies of every model say no more than one, where the copies are of the same task."""
    values, is_yes = [0.1, 0.9, 0.4, 0.5, 0.8, 0.3], [False, False, False, True, True, True]
    once = auc(values, is_yes, list("abcdef"))
    copied = auc(np.tile(values, 10), is_yes * 10, list("abcdef") * 10)
    assert copied == pytest.approx(once)
    independent = auc(np.tile(values, 10), is_yes * 10, list(map(str, range(60))))
    assert independent.high - independent.low < 0.5 * (once.high - once.low)
