"""The readings of figure 7A by hand: cells that are as the paper says, and cells that are not."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "examples/figures"))
from claims_tasks import in_order, scan  # noqa: E402
from readings import verdict  # noqa: E402


def cell(gamma, decay, ood, *, seed=0, n=200, lr=1e-3, fit=None):
    rank = {"stable_rank.w_q_normalized": 1 - gamma - decay / 4}
    own = {"gamma": gamma, "weight_decay": decay, "ood": ood, "seed": seed, "n_samples": n, "lr": lr}
    return {**own, **rank, "at_fit": {"step": None, "ood": fit}}


def cells(value, **changes):
    grid = [cell(g, d, value(g, d), **changes) for g in (0.3, 0.5, 0.7) for d in (0.0, 0.1, 1.0)]
    sizes = [cell(g, d, value(g, d), **{**changes, "n": 50}) for g, d in ((0.3, 0.0), (0.7, 0.1))]
    return [*grid, *sizes]


def test_what_the_paper_says_is_replicated():
    found = scan({"cells": cells(lambda g, d: g + d / 4)})
    assert verdict(found) == "replicated"
    assert [len(reading.by_seed["0"]) for reading in found] == [2, 0, 0, 3, 3, 1]


def test_its_opposite_is_not():
    assert verdict(scan({"cells": cells(lambda g, d: 1 - g - d / 4)})) == "not"


def test_the_best_rate_of_each_setting_decides():
    rows = cells(lambda g, d: g + d / 4)
    for large, holds in ((0.4, True), (0.9, False)):
        more = [cell(0.3, 0.0, large, lr=2e-3), cell(0.7, 0.1, 0.5, lr=2e-3)]
        assert scan({"cells": rows + more})[2].by_seed == {"0": [holds]}


def test_a_setting_that_has_not_fit_says_nothing_of_that_moment():
    rows = [cell(0.3, 0.0, 0.1, fit=0.2), cell(0.7, 0.1, 0.9, fit=0.1)]
    rows += [cell(0.3, 0.0, 0.1, n=50, fit=None), cell(0.7, 0.1, 0.9, n=50, fit=0.1)]
    assert scan({"cells": rows})[1].by_seed == {"0": [False]}


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([(1, 1), (2, 2), (3, 3)], True),
        ([(1, 3), (2, 2), (3, 1)], False),
        ([(1, 1), (1, 2)], None),
        ([(1, 1), (2, 3), (3, 2)], False),  # two of three rise, fewer than three quarters
    ],
)
def test_order_is_that_of_three_quarters_of_the_pairs(points, expected):
    assert in_order(points) is expected
