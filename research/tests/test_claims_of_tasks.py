"""Readings and effects of figures 6 and 7 by hand: cells that are as the paper says, or are not."""

import pytest

from claims import effects
from claims.side_claims_tasks import cogs, concept_graphs, in_order, prontoqa, scan, text


def cell(gamma, decay, ood, *, seed=0, n=200, lr=1e-3, fit=None):
    rank = {"stable_rank.w_q_normalized": 1 - gamma - decay / 4}
    own = {"gamma": gamma, "weight_decay": decay, "ood": ood, "seed": seed, "n_samples": n, "lr": lr}
    return {**own, **rank, "at_fit": {"step": None, "ood": fit}}


def cells(value, **changes):
    grid = [cell(g, d, value(g, d), **changes) for g in (0.3, 0.5, 0.7) for d in (0.0, 0.1, 1.0)]
    sizes = [cell(g, d, value(g, d), **{**changes, "n": 50}) for g, d in ((0.3, 0.0), (0.7, 0.1))]
    return [*grid, *sizes]


def parts(readings):
    """Every part of every reading."""
    return {part for reading in readings for own in reading.by_seed.values() for part in own}


def test_what_the_paper_says_is_so():
    found = scan({"cells": cells(lambda g, d: g + d / 4)})
    assert parts(found) == {True}
    assert [len(reading.by_seed["0"]) for reading in found] == [2, 0, 0, 3, 3, 1]


def test_its_opposite_is_not():
    assert parts(scan({"cells": cells(lambda g, d: 1 - g - d / 4)})) == {False}


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


def pair(n, large, small, **shared):
    """Two settings at one size: what each has beside its OOD accuracy."""
    rows = [cell(0.3, 0.0, large["ood"], n=n, **shared), cell(0.7, 0.1, small["ood"], n=n, **shared)]
    return [{**row, "lexical": own["ood"], **own} for row, own in zip(rows, (large, small), strict=True)]


def test_cogs_asks_equal_knowledge_apart():
    rows = pair(100, {"ood": 0.2, "id": 0.995}, {"ood": 0.3, "id": 0.999})
    rows += pair(50, {"ood": 0.4, "id": 0.5}, {"ood": 0.3, "id": 0.999})
    more, lexical, known, rates, rank = cogs({"cells": rows})
    assert known.by_seed == {"0": [False, True]}
    assert more.by_seed == lexical.by_seed == {"0": [False, True]}
    assert rates.by_seed == {"0": []}
    found = effects.cogs({"cells": rows, "network": {"seed": [0]}})
    assert found.by_seed == {"0": pytest.approx(0.1)}  # at the one size where both know
    assert rank.by_seed == {"0": [True, True]}


def fits(*steps):
    """Rows of one setting, a size each, by the updates that they took to fit."""
    return [
        {**cell(0.3, 0.0, 0.5, n=100 * 2**k), "id": 0.5, "at_fit": {"step": step}}
        for k, step in enumerate(steps)
    ]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ((100, 300, 200), [True]),
        ((100, 200, 300), [False]),
        ((100, None, 300), [True]),  # never fit: the most
        ((100, 200, None), [False]),
        ((100, 200), []),
        ((None, None, None), []),
    ],
)
def test_updates_that_grow_and_fall(steps, expected):
    assert prontoqa({"cells": fits(*steps)})[1].by_seed == {"0": expected}


def test_a_setting_that_never_fits_is_slower_than_one_that_does():
    rows = fits(500, None, None)
    small = [{**row, "gamma": 0.7, "weight_decay": 0.1, "id": 0.6} for row in rows]
    for row, step in zip(small, (400, 900, None), strict=True):
        row["at_fit"] = {"step": step}
    sooner, _ = prontoqa({"cells": rows + small})
    assert effects.prontoqa({"cells": rows + small, "network": {"seed": [0]}}).by_seed["0"] == pytest.approx(
        0.1
    )
    chance = [{**row, "id": 0.51} for row in small]
    assert effects.prontoqa({"cells": rows + chance, "network": {"seed": [0]}}).by_seed == {"0": None}
    assert sooner.by_seed == {"0": [True, True]}


def drawings(failures, *, train=0.97, seed=0):
    """Rows of one seed: gamma -> the failure rate."""
    return [
        {"gamma": gamma, "seed": seed, "failure": failure, "circles": 1 - failure, "train": train}
        for gamma, failure in failures.items()
    ]


@pytest.mark.parametrize(
    ("failures", "train", "expected"),
    [
        ({0.3: 1.0, 0.5: 0.9, 0.7: 0.5, 1.0: 0.1}, 0.97, [[True], [True] * 4]),
        (
            {0.3: 1.0, 0.5: 0.9, 0.7: 0.5, 1.0: 0.1},
            0.9,
            [[True], [False] * 4],
        ),  # trained tuples are not right
        ({0.3: 0.1, 0.5: 0.2, 0.7: 0.5, 1.0: 0.9}, 0.97, [[False], [True] * 4]),
    ],
)
def test_small_circles_over_gamma(failures, train, expected):
    found = concept_graphs({"cells": drawings(failures, train=train)})
    assert [reading.by_seed["0"] for reading in found] == expected


def test_what_is_no_triangle_is_not_yet_a_circle():
    """A dot or an empty image, of which a classifier says "circle"."""
    rows = drawings({0.5: 0.9, 0.8: 0.1})
    assert effects.concept_graphs({"cells": rows, "network": {"seed": [0]}}).by_seed["0"] == pytest.approx(
        0.8
    )
    dots = [{**row, "circles": 0.1} for row in rows]
    assert effects.concept_graphs({"cells": dots, "network": {"seed": [0]}}).by_seed == {"0": None}


def test_bits_over_gamma_at_each_weight_decay():
    bits = {0.01: (3.0, 2.8, 2.5), 0.1: (2.5, 2.8, 3.0)}
    cells = [
        {"gamma": gamma, "weight_decay": decay, "seed": 0, "validation_bits": value}
        for decay, values in bits.items()
        for gamma, value in zip((0.3, 0.5, 0.8), values, strict=True)
    ]
    assert [reading.by_seed["0"] for reading in text({"cells": cells})] == [[True, False], [True, False]]
