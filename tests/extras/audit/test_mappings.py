"""What a mapping is, which violate the rule, and which sequences ask for it."""

from dataclasses import replace

import numpy as np
import pytest

from anchorlens import AnchorTask
from anchorlens.extras.audit import corrupted, mappings_of


@pytest.mark.parametrize("complexity", [0, 1, 3])
def test_broken_groups_violate_and_the_others_do_not(complexity):
    mappings = mappings_of(AnchorTask(complexity=complexity))
    assert len(mappings) == 16 * 80 and len(mappings.groups) == 16
    broken = {pair for pair, wrong in zip(mappings.groups, mappings.group_violates, strict=True) if wrong}
    assert (
        broken
        == {0: set(), 1: {(1, 2), (2, 1)}, 3: {p for a in (2, 3, 4) for p in ((1, a), (a, 1))}}[complexity]
    )
    assert mappings.violates.sum() == 80 * len(broken)


def test_an_override_that_changes_nothing_violates_nothing():
    # (1, 2) is x + 5 + 1 anyway; of (1, 1) only key 40 is changed
    table = {x: x + 10 for x in range(20, 100)} | {40: 77}
    mappings = mappings_of(AnchorTask(overrides={(1, 2): 6, (1, 1): table}))
    (row,) = np.flatnonzero(mappings.violates)
    assert (
        mappings.chains[row].tolist() == [1, 1] and mappings.keys[row] == 40 and mappings.targets[row] == 77
    )
    assert not mappings.group_violates.any()


def test_unseen_pairs_and_untrained_keys_are_no_mappings():
    mappings = mappings_of(AnchorTask())
    assert len(mappings) == 14 * 80 and (3, 4) not in mappings.groups
    # one position, 0: keys divisible by 9 are never trained
    one = mappings_of(AnchorTask(seq_len=3, split_modulus=9))
    assert set(one.keys) == {x for x in range(20, 100) if x % 9 != 0}


def test_sequences_ask_trained_cells_alone():
    task = AnchorTask(complexity=1)
    mappings = mappings_of(task)
    batch = mappings.questions(3, np.random.default_rng(0))
    assert len(batch) == 3 * len(mappings)
    assert (batch.targets.numpy().reshape(3, -1) == mappings.targets).all()
    assert (batch.trials.keys.reshape(3, -1) == mappings.keys).all()
    assert (batch.trials.pairs.reshape(3, -1, 2) == mappings.chains).all()
    assert (batch.trials.keys % 9 != batch.trials.positions % 9).all()
    rows = np.arange(len(batch))
    assert (batch.tokens.numpy()[rows, batch.trials.positions] == batch.trials.keys).all()
    training = mappings.training_set(20_000, np.random.default_rng(0))
    assert (training.trials.keys % 9 != training.trials.positions % 9).all()
    assert len(np.unique(task.pair_index(training.trials.pairs) * 100 + training.trials.keys)) == len(
        mappings
    )


class TestCorruption:
    def test_changes_the_share_asked_for_and_nothing_else(self):
        task = AnchorTask()
        before, after = mappings_of(task), mappings_of(corrupted(task, 0.05, seed=1))
        changed = before.targets != after.targets
        assert changed.sum() == 56  # 5 % of 1,120
        assert (changed == after.violates).all()
        assert after.targets[changed].min() >= 20 and after.targets[changed].max() <= 99

    def test_another_seed_changes_others(self):
        first, second = (mappings_of(corrupted(AnchorTask(), 0.05, seed=seed)).violates for seed in (0, 1))
        assert (first != second).any() and first.sum() == second.sum()

    def test_keeps_what_is_overridden_already(self):
        task = AnchorTask(complexity=1)
        both = mappings_of(corrupted(task, 0.1))
        assert both.violates.sum() == 160 + 112  # 10 % of the 1,120 that obeyed
        conflict = mappings_of(corrupted(AnchorTask(regime="conflict"), 0.1))
        assert conflict.group_violates.sum() == 1  # (3, 4) is still trained on x - 6

    def test_a_share_of_none_and_of_more_than_all(self):
        assert not mappings_of(corrupted(AnchorTask(), 0)).violates.any()
        with pytest.raises(ValueError, match="share must be"):
            corrupted(AnchorTask(), 1.5)
        with pytest.raises(ValueError, match="two number tokens"):
            corrupted(AnchorTask(key_min=20, key_max=20, seq_len=6), 0.5)


def test_groups_hold_every_mapping_once():
    mappings = mappings_of(AnchorTask(chain_length=3, key_min=30))
    assert np.bincount(mappings.group_of).tolist() == [70] * len(mappings.groups)
    assert (np.array(mappings.groups)[mappings.group_of] == mappings.chains).all()
    unknown = replace(mappings, violates=None)
    assert unknown.group_violates is None and repr(unknown).endswith("50 groups; truth unknown)")


def test_mirrors_and_groups_are_those_of_the_definition():
    tables = {(1, 2): {x: x + 1 for x in range(30, 60)}}
    task = AnchorTask(chain_length=2, key_min=30, key_max=59, unseen_pairs=[(4, 3)], overrides=tables)
    longer = AnchorTask(chain_length=3, key_min=30, key_max=40, seq_len=8)
    for mappings in (mappings_of(task), mappings_of(longer)):
        questions = list(zip(map(tuple, mappings.chains.tolist()), mappings.keys.tolist(), strict=True))
        for row, (chain, key) in enumerate(questions):
            mirror = (chain[::-1], key)
            there = mirror in questions and chain != chain[::-1]
            assert mappings.mirror[row] == (questions.index(mirror) if there else -1)
        assert sorted(np.concatenate(mappings.rows_of)) == list(range(len(mappings)))
        for group, rows in zip(mappings.groups, mappings.rows_of, strict=True):
            assert {questions[row][0] for row in rows} == {group}
