"""Rows that share their content: the kinds of data, their look-up and groups, and a run."""

import numpy as np
import pytest

import overlap_study
from anchorlens.probes.shared.look_up import LookUp
from holdout.overlaps import KINDS


def drawn(kind):
    return KINDS[kind](np.random.default_rng(0))


ALIKE = {"prefixes": 0.02, "sorted_lists": 0.1, "windows_of_a_period": 0.3}
"""The largest share of new sequences that the data hold too: short prefixes, equal lists, and periods."""


@pytest.mark.parametrize("kind", KINDS)
def test_new_sequences_are_new(kind):
    data = drawn(kind)
    assert len(data.tokens) == len(data.targets) >= 400 and len(data.new_tokens) == len(data.new_targets)
    old = set(map(tuple, data.tokens.tolist()))
    shared = sum(tuple(row) in old for row in data.new_tokens.tolist())
    assert shared <= ALIKE.get(kind, 0) * len(data.new_tokens)


@pytest.mark.parametrize(
    ("kind", "n"),
    [
        ("shifts", 300),
        ("orders", 400),
        ("synonyms", 300),
        ("noise_tokens", 300),
        ("unused_token", 300),
        ("prefixes", 150),
    ],
)
def test_a_look_up_answers_rows_and_no_groups(kind, n):
    """The groups are about those that the data were made of."""
    data = drawn(kind)
    look_up, rng = LookUp(data.tokens, data.targets), np.random.default_rng(0)
    tenth = rng.permutation(len(data.tokens)) < len(data.tokens) // 10
    groups = look_up.groups(rng)
    assert look_up.accuracy(tenth) > 0.85 and 0.85 * n < groups.n < 1.15 * n
    assert look_up.accuracy(groups.tenths(rng) == 0) < 0.4


def test_windows_of_one_text_have_no_groups():
    data = drawn("windows")
    look_up, rng = LookUp(data.tokens, data.targets), np.random.default_rng(0)
    groups = look_up.groups(rng)
    assert groups.n == len(data.tokens) and look_up.accuracy(groups.tenths(rng) == 0) > 0.95


def test_rows_without_relations_are_groups_of_their_own():
    rng = np.random.default_rng(0)
    look_up = LookUp(rng.integers(0, 25, (600, 5)), rng.integers(0, 25, 600))
    assert look_up.groups(rng).n == 600 and look_up.accuracy(np.arange(600) < 60) < 0.2


def test_numbers_are_looked_up_by_their_distance():
    rng = np.random.default_rng(0)
    centres, label = rng.normal(size=(10, 8)) * 5, rng.integers(0, 10, 500)
    look_up = LookUp(centres[label] + rng.normal(size=(500, 8)), label)
    assert look_up.accuracy(np.arange(500) < 50) > 0.9 and look_up.chance(np.arange(500) < 50) < 0.3


def test_a_memoriser_is_told_by_its_groups_alone():
    row = overlap_study.made("unused_token", 0)
    assert row["train"] > 0.95 and row["new"] < 0.2
    assert row["holdout_ratio"] > 0.84 and row["ratio_of_groups"] < 0.75
