"""Memorised exceptions: which they are, what they leave as it was, and how they are asked."""

import dataclasses
import json
import pickle

import numpy as np
import pytest
from test_behaviour import oracle, rules

from anchorlens import preset
from anchorlens.extras.audit import mappings_of
from anchorlens.extras.audit.mappings import corrupted
from anchorlens.extras.sweep.cells import Cell, axes_of, metrics_of
from anchorlens.recipes.run_config import RunConfig, identity, recipe
from anchorlens.tasks.registry import logged_metrics, read_evaluation
from anchorlens.tasks.two_anchor.behaviour import evaluate
from anchorlens.tasks.two_anchor.task import AnchorTask

N = 40
TASKS = {
    "reasoning": AnchorTask(n_exceptions=N),
    "conflict": AnchorTask(regime="conflict", n_exceptions=N),
    "complexity": AnchorTask(complexity=2, n_exceptions=N, unseen_pairs=[(3, 4), (4, 3)]),
    "chains": AnchorTask(chain_length=3, key_min=30, n_exceptions=N),
    "few positions": AnchorTask(seq_len=3, split_modulus=7, n_exceptions=N),
}


def everything(task):
    """Every (pair, key), at the first position."""
    return task.product(task.pairs, task.keys, np.zeros_like(task.keys))


@pytest.fixture(params=TASKS.values(), ids=TASKS)
def task(request):
    return request.param


class TestWhichTheyAre:
    def test_they_alone_differ_from_the_task_without_them(self, task):
        without, trials = dataclasses.replace(task, n_exceptions=0), everything(task)
        listed = {(one.key, one.pair): one.answer for one in task.exceptions}
        assert len(listed) == N and not without.exceptions
        differs = task.targets(trials) != without.targets(trials)
        assert differs.sum() == N and (task.is_exception(trials) == differs).all()
        for row in np.flatnonzero(differs):
            pair, key = tuple(trials.pairs[row].tolist()), int(trials.keys[row])
            assert pair in task.seen_pairs
            assert listed[key, pair] == task.target(key, pair) == task.targets(trials)[row]
        for kind in ("inferential", "mirrored"):
            assert (task.targets(trials, kind=kind) == without.targets(trials, kind=kind)).all()
        assert task.inferential_target(50, task.pairs[0]) == without.inferential_target(50, task.pairs[0])

    def test_their_answers_are_among_the_trained_ones(self, task):
        without = dataclasses.replace(task, n_exceptions=0)
        seen = without.product(without.seen_pairs, without.keys, np.zeros_like(without.keys))
        assert {one.answer for one in task.exceptions} <= set(without.targets(seen).tolist())
        assert task.d_vocab == without.d_vocab

    def test_a_larger_number_adds_to_a_smaller_one(self, task):
        larger = dataclasses.replace(task, n_exceptions=2 * N)
        assert larger.exceptions[:N] == task.exceptions

    def test_broken_groups_move_none_of_them(self):
        places = [
            [(one.key, one.pair) for one in AnchorTask(complexity=k, n_exceptions=N).exceptions]
            for k in range(7)
        ]
        assert all(other == places[0] for other in places)

    def test_pairs_keys_and_answers_are_about_uniform(self):
        """Of 1,120 (key, pair) of 14 pairs 560 are drawn: 40 of each +- 4.4 standard errors, sqrt(20)."""
        drawn = AnchorTask(n_exceptions=560).exceptions
        counts = np.array([sum(one.pair == pair for one in drawn) for pair in AnchorTask().seen_pairs])
        assert abs(counts - 40).max() <= 4.4 * np.sqrt(20)
        assert abs(np.mean([one.key for one in drawn]) - 59.5) < 3  # 23.1 / sqrt(560) = .98 each
        assert len({one.answer for one in drawn}) > 80  # of 107

    def test_every_trained_place_can_be_one(self):
        all_of_them = AnchorTask(n_exceptions=1120)
        assert len({(one.key, one.pair) for one in all_of_them.exceptions}) == 1120
        trials = everything(all_of_them)
        seen = ~np.isin(
            all_of_them.pair_index(trials.pairs), all_of_them.pair_index(np.array(all_of_them.ood_pairs))
        )
        assert (all_of_them.is_exception(trials) == seen).all()

    def test_a_key_that_is_never_trained_has_none(self):
        """One position, 0: keys that m divides are held out there, so nothing of them is trained."""
        task = TASKS["few positions"]
        assert not any(one.key % 7 == 0 for one in task.exceptions)
        most = 14 * sum(key % 7 != 0 for key in range(20, 100))
        assert len(dataclasses.replace(task, n_exceptions=most).exceptions) == most
        with pytest.raises(ValueError, match=f"n_exceptions.*{most}, .*{most + 1}"):
            dataclasses.replace(task, n_exceptions=most + 1)

    def test_training_sequences_hold_them_at_every_position(self):
        task = AnchorTask(n_exceptions=N)
        batch, plain = task.training_set(20_000, 3), AnchorTask().training_set(20_000, 3)
        assert (batch.tokens == plain.tokens).all()
        asks = task.is_exception(batch.trials)
        assert ((batch.targets != plain.targets).numpy() == asks).all() and asks.sum() > 500
        assert set(batch.trials.positions[asks]) == set(range(7))
        some = np.flatnonzero(asks)[:5]
        assert (task.lazy_training_set(20_000, 3).take(some).targets == batch.targets[some]).all()

    def test_trials_are_every_trained_position_of_each(self):
        task = AnchorTask(n_exceptions=3)
        found = list(task.exception_trials)
        assert found == [
            (one.pair, one.key, position)
            for one in task.exceptions
            for position in range(7)
            if one.key % 9 != position % 9
        ]
        assert not len(AnchorTask().exception_trials)


class TestWhatStaysAsItWas:
    def test_their_number_is_part_of_a_runs_identity(self):
        assert recipe(preset("phase3", n_exceptions=1))["task"]["n_exceptions"] == 1
        ids = {identity(preset("phase3", n_exceptions=n)) for n in (0, 1, 2)}
        assert len(ids) == 3 and identity(preset("phase3")) in ids

    def test_a_stored_task_of_before_is_read(self):
        stored = AnchorTask(complexity=2).to_dict()
        del stored["n_exceptions"]
        assert AnchorTask.from_dict(stored) == AnchorTask(complexity=2)

    def test_survives_json_and_pickle(self, task):
        for again in (
            AnchorTask.from_dict(json.loads(json.dumps(task.to_dict()))),
            pickle.loads(pickle.dumps(task)),
        ):
            assert again == task and again.exceptions == task.exceptions and again.metrics == task.metrics

    def test_a_task_without_them_measures_none(self):
        assert [metric.name for metric in AnchorTask().metrics] == [
            "train",
            "id",
            "ood",
            "symmetric",
            "commutativity",
        ]
        found = evaluate(oracle(rules), AnchorTask(), n_noise=2)
        assert not {"exceptions", "rules", "broken"} & {*found.headline(), *found.to_dict()["measures"]}
        assert "exceptions_accuracy" not in AnchorTask().measure(oracle(rules), AnchorTask().sample(100))
        assert "Exceptions" not in AnchorTask().describe()

    def test_an_evaluation_is_read_with_the_metrics_it_has(self, task):
        for one in (task, dataclasses.replace(task, n_exceptions=0)):
            answer = (lambda x, *_: x) if one.chain_length > 2 else rules
            found = evaluate(chained(answer) if one.chain_length > 2 else oracle(answer), one, n_noise=2)
            again = read_evaluation(json.loads(json.dumps(found.to_dict())))
            assert again.metrics == found.metrics == one.metrics
            assert again.measures == found.measures and again.phase.label == found.phase.label


def chained(answer):
    return oracle(lambda x, a, b, i, tokens: answer(x))


def knows(task, *, exceptions=True, broken=True):
    """A model that answers as the task is trained, but may ignore exceptions or broken groups."""
    listed = {(one.key, *one.pair): one.answer for one in task.exceptions} if exceptions else {}
    ruled = dataclasses.replace(task, n_exceptions=0)

    def answer(x, a, b, i, tokens):
        if (x, a, b) in listed:
            return listed[x, a, b]
        return ruled.target(x, (a, b)) if broken else task.inferential_target(x, (a, b))

    return oracle(answer)


class TestHowTheyAreAsked:
    @pytest.mark.parametrize(
        ("known", "exceptions", "rule", "broken"),
        [
            ({}, 1, 1, 1),
            ({"exceptions": False}, 0, 1, 1),
            ({"broken": False}, 1, 1, 0),
        ],
    )
    def test_each_kind_is_told_from_the_others(self, known, exceptions, rule, broken):
        task = TASKS["complexity"]
        found = evaluate(knows(task, **known), task, n_noise=2)
        values = [found.measure(name).value for name in ("exceptions", "rules", "broken")]
        assert values == [exceptions, rule, broken] and found.ood.value == 1

    def test_id_and_train_count_exceptions_as_they_were_trained(self):
        task = AnchorTask(n_exceptions=N)
        found = evaluate(knows(task, exceptions=False), task, n_noise=2)
        held_out, trained = (task.is_exception(task.trials(split)).mean() for split in ("id", "train"))
        assert found.id.value == pytest.approx(1 - held_out) and held_out > 0.02
        assert found.train_fresh.value == pytest.approx(1 - trained, abs=0.02)  # some of them
        assert found.measure("exceptions").n_sequences == 2 * len(task.exception_trials)
        assert found.measure("broken") is None and found.measure("rules").value == 1

    def test_symmetric_is_asked_without_them(self):
        """(3, 4) is trained on its composition but for exceptions: (4, 3) has no symmetric solution."""
        task = AnchorTask(unseen_pairs=[(4, 3)], n_exceptions=200)
        assert any(one.pair == (3, 4) for one in task.exceptions)
        assert evaluate(oracle(rules), task, n_noise=2).symmetric is None

    def test_many_are_asked_on_a_random_choice(self):
        task = AnchorTask(n_exceptions=400)
        found = evaluate(knows(task), task, n_noise=2, max_trials=100)
        assert found.measure("exceptions").n_sequences == 200 and found.measure("exceptions").value == 1

    def test_a_log_has_them(self):
        task = AnchorTask(n_exceptions=N)
        assert task.measure(knows(task), task.sample(100))["exceptions_accuracy"] == 1
        assert task.measure(oracle(rules), task.sample(100))["exceptions_accuracy"] == 0
        assert logged_metrics()["exceptions_accuracy"].title == "exceptions"

    def test_what_is_asked_at_most_counts_them(self):
        with_them, without = (AnchorTask(n_exceptions=n) for n in (N, 0))
        for quickly, times in ((True, 1), (False, 8)):
            more = with_them.sequences_asked(500, quickly=quickly) - without.sequences_asked(
                500, quickly=quickly
            )
            assert more == times * len(with_them.exception_trials)

    def test_the_phase_is_that_of_id_and_ood(self):
        task = AnchorTask(n_exceptions=N)
        assert evaluate(knows(task, exceptions=False), task, n_noise=2).phase.label == "Phase 3"

    def test_every_table_has_them(self):
        task = AnchorTask(n_exceptions=N)
        found = evaluate(knows(task), task, n_noise=2)
        assert "exceptions" in [title for title, _, _ in found.rows()]
        assert "exceptions 1.000" in repr(found)

    def test_a_sweep_over_their_number_has_the_metrics_of_all(self):
        base = preset("quick")
        cells = [
            Cell(RunConfig(AnchorTask(n_exceptions=n), base.model_config, base.train_config)) for n in (20, 0)
        ]
        assert [metric.name for metric in metrics_of(cells)][-3:] == ["exceptions", "rules", "broken"]
        assert [metric.name for metric in metrics_of(cells[1:])][-1] == "commutativity"
        assert axes_of(cells) == {"n_exceptions": (0, 20)}


class TestInWords:
    def test_a_task_says_them(self):
        lines = AnchorTask(n_exceptions=N).describe().split("\n")
        first = AnchorTask(n_exceptions=N).exceptions[0]
        assert lines[3].startswith("Exceptions: 40 of their (key, pair), the same in every run, on a random")
        assert f"{first.key} with {first.pair} -> {first.answer}" in lines[3]


class TestAudits:
    def test_an_exception_violates_the_rule(self):
        assert mappings_of(AnchorTask(n_exceptions=N)).violates.sum() == N

    def test_mappings_are_corrupted_beside_them(self):
        """5% of the 1,080 that obey are 54; the exceptions stay at their places."""
        before = AnchorTask(n_exceptions=N)
        after = corrupted(before, 0.05)
        assert mappings_of(after).violates.sum() == N + 54
        assert [(one.key, one.pair) for one in after.exceptions] == [
            (one.key, one.pair) for one in before.exceptions
        ]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_exceptions": -1}, "n_exceptions must be an integer >= 0, got -1"),
        ({"n_exceptions": 2.5}, "n_exceptions must be an integer >= 0, got 2.5"),
        ({"n_exceptions": True}, "n_exceptions must be an integer >= 0, got True"),
        ({"n_exceptions": None}, "n_exceptions must be an integer >= 0, got None"),
        ({"n_exceptions": 10**30}, "n_exceptions must be an integer >= 0"),
        (
            {"n_exceptions": 1121},
            "at most 1,120, the number of combinations",
        ),
        (
            {"anchors": {1: lambda x: 150, 2: lambda x: 150}, "n_exceptions": 1, "unseen_pairs": []},
            "n_exceptions must be 0 if",
        ),
    ],
)
def test_bad_numbers_say_what_is_wrong(fields, message):
    with pytest.raises(ValueError) as error:
        AnchorTask(**fields)
    assert message in str(error.value) and "\n" not in str(error.value)
