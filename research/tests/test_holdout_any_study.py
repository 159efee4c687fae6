"""The study of any torch module: its plan, labels under a rule, and a run that goes on where it stopped."""

import itertools
import json
from types import SimpleNamespace

import numpy as np
import pytest

import holdout_any_study as study
from anchorlens.probes.any_model.holdout import LEARNT_OF_MODULES
from anchorlens.verdict.probe_verdict import phase_by_holdout
from holdout import any_analysis
from holdout.any_analysis import Rule
from holdout.any_kinds import FIRST, KINDS, PLACES, RANDOM, SECOND, Prepared
from holdout.any_networks import perceptron


def seed(ratio, others=1.0, related=1.0, look_up=0.1):
    of_seed = {"holdout_ratio": ratio, "copies": [ratio] * 3, "others": others}
    return of_seed | {"related_ratio": related, "related_left_out": 0.9, "look_up": look_up}


def row(fresh, ratios, look_up=0.0, kind="encoder", **seeds):
    of_run = {"train": 1.0, "fresh": fresh, "fresh_chance": 0.1, "fresh_look_up": look_up}
    return of_run | {"kind": kind, "seeds": [seed(ratio, **seeds) for ratio in ratios]}


class TestPlan:
    def test_halves_share_no_kind(self):
        assert not set(FIRST) & set(SECOND)
        assert len([*study.runs("first"), *study.runs("second")]) == len(KINDS) * PLACES >= 150
        assert len(RANDOM) * 3 >= PLACES

    @pytest.mark.parametrize("kind", KINDS)
    def test_fresh_rows_are_no_training_rows(self, kind):
        for place in range(PLACES):
            run, again = study.prepared(kind, place), study.prepared(kind, place)
            assert (run.x == again.x).all() and (run.y == again.y).all()
            assert len(np.unique(run.x, axis=0)) >= 200 and len(run.x) == len(run.y)
            if "shared" not in kind:
                old = {one.tobytes() for one in run.x}
                assert not any(one.tobytes() in old for one in run.new_x)


class TestLabels:
    def test_a_learnt_run_that_a_look_up_answers_is_neither(self):
        assert any_analysis.truth(row(1.0, [1.0])) == "learnt"
        assert any_analysis.truth(row(1.0, [1.0], look_up=0.95)) == "looked up"
        assert any_analysis.truth(row(0.1, [1.0], look_up=0.95)) == "memorised"

    @pytest.mark.parametrize(
        ("changed", "label"),
        [
            ({}, 1),
            ({"ratio": 0.7}, -1),
            ({"ratio": 0.8}, 0),
            ({"ratio": 0.9, "others": 0.9}, 0),
            ({"ratio": 0.9, "others": 0.98}, 1),
            ({"related": 0.5}, 0),
            ({"look_up": 0.85}, 0),
        ],
    )
    def test_conditions(self, changed, label):
        assert any_analysis.named(seed(**{"ratio": 0.97} | changed), Rule()) == label

    def test_seeds_must_agree(self):
        of_run = row(0.1, [0.97, 0.97, 0.6])
        assert any_analysis.labels(of_run, Rule()) == [1, 1, -1]
        assert any_analysis.labels(of_run, Rule(n_seeds=2)) == [1, 0, 0]

    def test_wrong_labels_are_counted_by_kind(self):
        rows = [row(0.1, [0.5] * 8, kind="encoder")] * 20 + [
            row(0.1, [0.97] + [0.5] * 7, kind="GRU and LSTM")
        ]
        found = any_analysis.score([*rows, row(1.0, [0.97] * 7 + [0.6])], Rule())
        assert (found.memorised, found.wrong, found.learnt, found.right, found.missed) == (168, 1, 8, 7, 1)
        assert not any_analysis.is_admitted(rows, Rule()) and any_analysis.is_admitted(rows[:-1], Rule())
        assert next(any_analysis.admitted(rows)) == "the rule as it is: 0 of 1 admitted"
        assert "1 of 1 admitted, the best 1.000 with 0.84" in next(
            any_analysis.admitted([*rows[:-1], row(1.0, [0.97] * 8)])
        )


def test_the_page_has_the_rule_of_the_verdict():
    """The label of every ratio and accuracy is that of `phase_by_holdout`."""
    for ratio, others in itertools.product((0.7, 0.76, 0.83, 0.85, 0.93, 0.95), (0.9, 0.96, 0.98)):
        about = {"headline": str, "in_any_order": False, "learnt_from": LEARNT_OF_MODULES}
        of_seed = seed(ratio, others) | about
        phase = phase_by_holdout(SimpleNamespace(**of_seed))
        expected = {"learnt a rule": 1, "memorised": -1}.get(phase.solution or "", 0)
        assert any_analysis.named(of_seed, any_analysis.RULE) == expected


def test_a_run_is_kept_and_not_made_again(tmp_path, monkeypatch, capsys):
    """Parity of two signs, whose labels are those of the verdict."""

    def tiny(place, random):
        x = random.permutation(np.unique(random.choice(np.float32([-1, 1]), (900, 10)), axis=0))
        y = (x[:, 0] * x[:, 1] > 0).astype(int)
        return Prepared("tiny", x[:300], y[:300], x[300:], y[300:], lambda: perceptron(10, 32, 2), beyond=1.5)

    monkeypatch.setattr(study, "HALVES", {"first": {"tiny": tiny}, "second": {}})
    monkeypatch.setattr(study, "KINDS", {"tiny": tiny})
    monkeypatch.setattr(study, "TABLES", {half: tmp_path / half for half in ("first", "second")})
    monkeypatch.setattr(study, "PLACES", 1)
    monkeypatch.setattr("sys.argv", ["study"])
    study.main()
    made = (tmp_path / "first").read_text()
    found = json.loads(made)
    assert found["fresh"] > 0.9 and len(found["seeds"]) == 8
    assert set(any_analysis.by_seed(found, any_analysis.RULE)) <= {"L", "-"}
    study.main()
    assert (tmp_path / "first").read_text() == made
