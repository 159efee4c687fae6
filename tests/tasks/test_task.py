import json
import pickle
import random
from dataclasses import replace

import numpy as np
import pytest

from anchorlens.tasks.two_anchor.anchor_functions import COMPLEXITY_SHIFTS
from anchorlens.tasks.two_anchor.sequences import SPLITS
from anchorlens.tasks.two_anchor.task import AnchorTask

TASKS = {
    "reasoning": AnchorTask(),
    "conflict": AnchorTask(regime="conflict"),
    "complexity": AnchorTask(complexity=4),
    "noise": AnchorTask(noise_obeys_split=True),
    "modulus": AnchorTask(split_modulus=5, seq_len=12),
    "chain": AnchorTask(chain_length=3, seq_len=7, key_min=30, key_max=50),
    "no noise": AnchorTask(seq_len=3, split_modulus=4),
    "overrides": AnchorTask(
        chain_length=3,
        anchors={1: 2, 5: lambda x: 7 * x % 31, 9: {x: 40 - x for x in range(60)}},
        key_min=12,
        key_max=20,
        unseen_pairs=[(9, 5, 1)],
        overrides={(5, 1, 9): 8, (1, 1, 1): lambda x: x * x, (9, 9, 9): dict.fromkeys(range(50), 3)},
    ),
    "tables": AnchorTask(anchors={0: lambda x: 5 * x % 97, 1: {x: 150 - x for x in range(-10, 140)}, 2: 3}),
}


def cells_of(task, split):
    return set(task.trials(split))


class TestTargets:
    def test_the_papers_example(self):
        # (23, 1, 2, ...) -> 23 + 5 + 1 = 29
        assert AnchorTask().inferential_target(23, (1, 2)) == 29

    @pytest.mark.parametrize(
        ("pair", "total"), [((1, 1), 10), ((1, 4), -3), ((3, 4), -10), ((4, 3), -10), ((4, 4), -16)]
    )
    def test_shifts_add_up(self, pair, total):
        task = AnchorTask()
        assert all(task.inferential_target(x, pair) == x + total for x in (20, 57, 99))

    def test_conflict_trains_one_order_on_the_wrong_target(self):
        task = AnchorTask(regime="conflict")
        assert task.target(50, (3, 4)) == 44
        assert task.inferential_target(50, (3, 4)) == 40
        assert task.ood_pairs == ((4, 3),)
        trials = task.trials("ood")
        assert (task.targets(trials, kind="mirrored") == trials.keys - 6).all()
        assert (task.targets(trials, kind="inferential") == trials.keys - 10).all()

    @pytest.mark.parametrize("k", range(7))
    def test_complexity_breaks_the_first_k_groups(self, k):
        task = AnchorTask(complexity=k)
        assert task.ood_pairs == () and len(task.seen_pairs) == 16
        true = {(1, 2): 6, (1, 3): 3, (1, 4): -3, (2, 3): -1, (2, 4): -7, (3, 4): -10}
        for index, (pair, wrong) in enumerate(COMPLEXITY_SHIFTS):
            assert wrong != true[pair]
            shift = wrong if index < k else true[pair]
            assert task.target(60, pair) == task.target(60, pair[::-1]) == 60 + shift
            assert task.inferential_target(60, pair) == 60 + true[pair]

    def test_functions_beyond_shifts(self):
        task = AnchorTask(anchors={0: lambda x: 5 * x % 97, 1: {x: 150 - x for x in range(-10, 140)}, 2: 3})
        # 5 * 20 mod 97 = 3; 150 - 3 = 147
        assert task.inferential_target(20, (0, 1)) == 147
        # 20 + 3 = 23; 115 mod 97 = 18
        assert task.inferential_target(20, (2, 0)) == 18

    def test_chains_compose_in_order(self):
        task = AnchorTask(anchors={1: lambda x: 2 * x, 2: 1, 3: 0, 4: 7}, chain_length=3)
        assert task.inferential_target(20, (1, 2, 1)) == 82  # (2 * 20 + 1) * 2
        assert task.inferential_target(20, (2, 1, 1)) == 84  # (20 + 1) * 4

    def test_an_override_changes_training_only(self):
        task = AnchorTask(overrides={(1, 2): 9, (2, 1): lambda x: 2 * x})
        assert (task.target(30, (1, 2)), task.target(30, (2, 1))) == (39, 60)
        assert task.inferential_target(30, (1, 2)) == 36


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS.keys())
class TestTables:
    """What is computed for all chains and keys at once is what the definition says of each."""

    def test_targets_are_those_of_the_definition(self, task):
        composed = np.empty((len(task.pairs), len(task.keys)), dtype=np.int64)
        for row, pair in enumerate(task.pairs):
            for column, value in enumerate(task.keys.tolist()):
                for anchor in pair:
                    value = task.apply(anchor, value)
                composed[row, column] = value
        trained = composed.copy()
        for pair, function in task.trained_overrides.items():
            for column, key in enumerate(task.keys.tolist()):
                value = key + function if isinstance(function, int) else function[key]
                trained[task.pairs.index(pair), column] = value
        for row in range(0, len(task.pairs), 3):
            keys = task.keys[[0, -1]].tolist()
            assert [task.inferential_target(key, task.pairs[row]) for key in keys] == [
                *composed[row, [0, -1]]
            ]
            assert [task.target(key, task.pairs[row]) for key in keys] == [*trained[row, [0, -1]]]
        everything = task.product(task.pairs, task.keys, np.zeros_like(task.keys))
        assert task.targets(everything, kind="inferential").tolist() == composed.ravel().tolist()
        assert task.targets(everything).tolist() == trained.ravel().tolist()

    def test_anchors_are_tabulated_where_the_task_reaches(self, task):
        reached, tables = set(task.keys.tolist()), {anchor: {} for anchor in task.anchors}
        for _ in range(task.chain_length):
            found = {anchor: {x: task.apply(anchor, x) for x in reached} for anchor in task.anchors}
            for anchor, table in found.items():
                tables[anchor] |= table
            reached = {y for table in found.values() for y in table.values()}
        for anchor, function in task.anchors.items():
            if not isinstance(function, int):
                assert list(function.items()) == sorted(tables[anchor].items())

    @pytest.mark.parametrize("split", SPLITS)
    def test_cells_are_those_of_the_rule_in_order(self, task, split):
        pairs = task.ood_pairs if split == "ood" else task.seen_pairs
        rule = [
            (pair, key, position)
            for pair in pairs
            for key in task.keys.tolist()
            for position in task.positions.tolist()
            if split == "ood" or (key % task.modulus == position % task.modulus) == (split == "id")
        ]
        assert list(task.trials(split)) == rule and task.n_trials(split) == len(rule)
        which = np.random.default_rng(0).permutation(len(rule))[:50]
        assert list(task.some_trials(split, which)) == [rule[i] for i in which]


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS.keys())
class TestSplits:
    def test_no_two_splits_share_a_cell_and_together_they_are_everything(self, task):
        train, held_out, ood = (cells_of(task, split) for split in SPLITS)
        assert not train & held_out and not train & ood and not held_out & ood
        everything = {
            (pair, key, position)
            for pair in task.pairs
            for key in range(task.key_min, task.key_max + 1)
            for position in range(task.seq_len - task.chain_length)
        }
        assert train | held_out | ood == everything

    def test_the_rule_decides_every_cell(self, task):
        m = task.modulus
        assert all(x % m != i % m and p in task.seen_pairs for p, x, i in task.trials("train"))
        assert all(x % m == i % m and p in task.seen_pairs for p, x, i in task.trials("id"))
        assert all(p in task.ood_pairs for p, _, _ in task.trials("ood"))

    @pytest.mark.parametrize("split", SPLITS)
    def test_samples_say_what_their_cells_say(self, task, split):
        if split == "ood" and not task.ood_pairs:
            with pytest.raises(ValueError, match="empty"):
                task.sample(10, split=split)
            return
        batch = task.sample(4000, split=split, seed=1)
        allowed = cells_of(task, split)
        for tokens, target, (pair, key, position) in zip(
            batch.tokens.tolist(), batch.targets.tolist(), batch.trials, strict=True
        ):
            assert (pair, key, position) in allowed
            assert tokens[position] == key
            assert tuple(tokens[position + 1 : position + 1 + len(pair)]) == pair
            noise = tokens[:position] + tokens[position + 1 + len(pair) :]
            assert all(task.key_min <= token <= task.key_max for token in noise)
            value = key
            for anchor in pair:
                value = task.apply(anchor, value)
            if split != "ood" and pair in task.trained_overrides:
                value = task.target(key, pair)
            assert target == value

    def test_survives_json_and_pickle(self, task):
        assert AnchorTask.from_dict(json.loads(json.dumps(task.to_dict()))) == task
        assert pickle.loads(pickle.dumps(task)) == task


class TestSameness:
    """Tasks that are equal are the same task: they draw the same sequences."""

    def test_the_order_of_the_anchors_does_not_matter(self):
        anchors = {9: 5, 10: 1, 11: -2, 12: -8}
        tasks = [AnchorTask(anchors=anchors), AnchorTask(anchors=dict(reversed(anchors.items())))]
        tasks.append(AnchorTask.from_dict(json.loads(json.dumps(tasks[0].to_dict(), sort_keys=True))))
        batches = [task.sample(200, seed=1) for task in tasks]
        assert tasks[0] == tasks[1] == tasks[2] and len({hash(task) for task in tasks}) == 1
        assert all((batch.tokens == batches[0].tokens).all() for batch in batches)

    def test_a_task_cannot_be_changed(self):
        task = AnchorTask(anchors={1: lambda x: x, 2: 3}, overrides={(1, 1): 4})
        for table in (task.anchors, task.anchors[1], task.overrides, task.trained_overrides):
            with pytest.raises(TypeError, match="a task must not be changed"):
                table[1] = 50
        assert pickle.loads(pickle.dumps(task)) == task

    def test_a_variation_is_made_with_replace(self):
        assert replace(AnchorTask(), complexity=3) == AnchorTask(complexity=3)
        assert replace(AnchorTask(), regime="conflict").ood_pairs == ((4, 3),)
        assert replace(AnchorTask(), seq_len=12).modulus == 12

    def test_numpy_values_are_numbers_too(self):
        task = AnchorTask(key_min=np.int64(20), anchors={np.int64(1): np.int64(5), 2: 1, 3: -2, 4: -8})
        assert task == AnchorTask() and json.dumps(task.to_dict())
        trials = task.trials("id")
        assert task.target(trials.keys[0], trials.pairs[0]) == task.targets(trials)[0]
        assert len(task.sample(np.int64(3))) == 3

    def test_cells_of_another_key_range_are_refused(self):
        trials = AnchorTask(key_min=30).product([(1, 2)], np.array([10]), np.array([0]))
        with pytest.raises(ValueError, match=r"keys must be in 20..99, got 10..10"):
            AnchorTask().targets(trials)


class TestSampling:
    def test_same_seed_same_sequences(self):
        a, b, c = (AnchorTask().sample(100, seed=s) for s in (3, 3, 4))
        assert (a.tokens == b.tokens).all() and (a.tokens != c.tokens).any()

    def test_positions_and_pairs_are_uniform(self):
        batch = AnchorTask().sample(70_000, seed=0)
        counts = np.bincount(batch.trials.positions)
        assert len(counts) == 7
        assert abs(counts - 10_000).max() < 5 * np.sqrt(10_000)  # 5 sigma of a binomial
        pairs = np.unique(batch.trials.pairs, axis=0, return_counts=True)[1]
        assert len(pairs) == 14
        assert abs(pairs - 5_000).max() < 5 * np.sqrt(5_000)

    def test_keys_are_uniform_among_those_allowed(self):
        batch = AnchorTask().sample(200_000, split="train", seed=0)
        at_0 = batch.trials.keys[batch.trials.positions == 0]
        counts = np.bincount(at_0, minlength=100)[20:]
        allowed = np.arange(20, 100) % 9 != 0
        assert (counts[~allowed] == 0).all()
        expected = len(at_0) / allowed.sum()
        assert abs(counts[allowed] - expected).max() < 5 * np.sqrt(expected)

    @pytest.mark.parametrize("split", SPLITS)
    def test_noise_obeys_the_rule_only_where_asked(self, split):
        def broken(task):
            batch = task.sample(2000, split=split, seed=2)
            tokens = batch.tokens.numpy()
            rule = tokens % 9 == np.arange(9) % 9
            rows = np.arange(len(tokens))
            for offset in range(3):
                rule[rows, batch.trials.positions + offset] = False  # key and anchors are not noise
            return rule.sum()

        assert broken(AnchorTask(noise_obeys_split=True)) == 0
        assert broken(AnchorTask()) > 0

    def test_global_random_state_is_untouched(self):
        before = random.getstate(), np.random.get_state()[1].tolist()
        AnchorTask().sample(100)
        assert (random.getstate(), np.random.get_state()[1].tolist()) == before


class TestDescription:
    def test_says_what_is_trained_and_held_out(self):
        words = AnchorTask(regime="conflict").describe()
        assert "15 of 16" in words and "(3, 4): x-6" in words and "Never seen (OOD test): (4, 3)" in words
        assert "x mod 9 equals position mod 9" in words

    def test_says_that_an_anchor_is_never_trained(self):
        pairs = [(a, b) for a in (1, 2, 3, 4) for b in (1, 2, 3, 4) if 4 in (a, b)]
        words = AnchorTask(unseen_pairs=pairs).describe()
        assert "No pair with anchor 4 is trained: OOD cannot be inferred." in words.splitlines()

    def test_says_that_nothing_is_unseen(self):
        assert "every pair is trained" in AnchorTask(complexity=2).describe()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"anchors": {1: 5}}, "anchors must hold at least 2 anchors, got 1"),
        ({"anchors": {1: 5, 30: 1}}, "an anchor must be outside the key range"),
        ({"anchors": {1: 5, -2: 1}}, "an anchor must be an integer >= 0, got -2"),
        ({"anchors": {1: 5, 10**13: 1}}, "an anchor must be an integer >= 0 and <= 1000000"),
        ({"anchors": {1: 5, 2: 10**30}}, "anchor 2, a shift, must be an integer >= -1000000 and <= 1000000"),
        ({"anchors": {1: 5, 2: lambda x: 10**30}}, "a value of anchor 2 must be an integer >= -1000000"),
        ({"unseen_pairs": 5}, "unseen_pairs must be a list of pairs, got 5"),
        ({"unseen_pairs": [([3], 4)]}, "unseen_pairs must contain 2 of the anchors"),
        ({"overrides": [(3, 4)]}, "overrides must be a table of pairs and functions"),
        ({"anchors": {1: 5, 2: "x"}}, "anchor 2 must be a shift, a table"),
        ({"anchors": {1: 5, 2: {20: 3}}}, "got a table without 79 values"),
        (
            {"anchors": {1: 5, 2: lambda x: x / 2}},
            "a value of anchor 2 must be an integer >= -1000000 and <= 1000000, got 10.0",
        ),
        (
            {"anchors": {1: 5, 2: -30}},
            "(1, 2) must be a token, got -5",
        ),
        ({"key_min": 30, "key_max": 20}, "key_max must be an integer >= 30, got 20"),
        ({"seq_len": 2}, "seq_len must be an integer >= 3, got 2"),
        ({"chain_length": 1}, "chain_length must be an integer >= 2, got 1"),
        ({"chain_length": 11, "seq_len": 20}, "number of chains must be at most 100,000"),
        ({"regime": "both"}, "regime must be one of reasoning"),
        ({"complexity": 7}, "complexity must be an integer >= 0 and <= 6, got 7"),
        ({"complexity": 1, "regime": "conflict"}, "complexity must be None unless"),
        (
            {"regime": "conflict", "anchors": {1: 1, 2: 2}},
            "four anchors in the regime 'conflict'",
        ),
        (
            {"unseen_pairs": [(1, 5)]},
            "unseen_pairs must contain 2",
        ),
        ({"unseen_pairs": [(1, 2, 3)]}, "unseen_pairs must contain 2 of the anchors"),
        ({"overrides": {(3, 4): 1}}, "in both overrides and unseen_pairs, got (3, 4)"),
        ({"split_modulus": 1}, "split_modulus must be an integer >= 2, got 1"),
        ({"split_modulus": 500}, "leave a key and a position in the id split"),
        ({"key_max": 10**12}, "key_max must be an integer >= 20"),
        ({"key_max": 10**6}, "keys must be at most 100,000, got 999,981 keys"),
        (
            {"key_max": 100_000, "seq_len": 100_000},
            "the number of keys times positions",
        ),
        ({"key_max": 300, "seq_len": 30_000}, "must be at most 20,000,000"),
        (
            {"key_min": 0, "key_max": 50_000, "anchors": dict.fromkeys(range(60_000, 60_007), 0)},
            "the number of chains times keys",
        ),
        ({"chain_length": 10**30}, "chain_length must be an integer >= 2"),
        ({"seq_len": 10**30}, "seq_len must be an integer >= 3"),
        ({"split_modulus": 10**30}, "split_modulus must be an integer >= 2"),
        ({"anchors": "x" * 5_000_000}, "anchors must be a table of tokens"),
        ({"seq_len": True}, "seq_len must be an integer"),
        ({"noise_obeys_split": 1}, "noise_obeys_split must be true or false, got 1"),
    ],
)
def test_bad_tasks_say_what_is_wrong(fields, message):
    with pytest.raises(ValueError) as error:
        AnchorTask(**fields)
    assert message in str(error.value) and len(str(error.value)) < 400


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"seqlen": 9}, "'seqlen'. Did you mean 'seq_len'?"),
        ({"anchors": {"one": 1}}, "the keys of anchors must be integers"),
        ({"overrides": {"3;4": 1}}, "keys of overrides must be integers"),
        ({"unseen_pairs": "3,4"}, "unseen_pairs must be a list of pairs"),
    ],
)
def test_bad_data_says_what_is_wrong(values, message):
    with pytest.raises(ValueError) as error:
        AnchorTask.from_dict(values)
    assert message in str(error.value)


def test_bad_questions_say_what_is_wrong():
    task = AnchorTask()
    with pytest.raises(ValueError, match="key must be an integer >= 20 and <= 99, got 19"):
        task.target(19, (1, 2))
    with pytest.raises(ValueError, match="pair must contain 2 of the anchors"):
        task.inferential_target(20, (1, 9))
    with pytest.raises(ValueError, match="split must be one of train, id, ood, got 'test'"):
        task.trials("test")
    with pytest.raises(ValueError, match="n must be an integer >= 1, got 0"):
        task.sample(0)
