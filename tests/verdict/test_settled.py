"""Costly readings are measured only where they could change a label."""

from dataclasses import replace

import numpy as np
import pytest

from anchorlens import classify, load_checkpoint
from anchorlens.training import checkpoints
from anchorlens.verdict import calibration as calibrations
from anchorlens.verdict import inside
from anchorlens.verdict.inside import is_settled, likeliest_phase, read_inside
from anchorlens.verdict.question_model import QuestionFit, QuestionModel, Vote
from anchorlens.verdict.readings import CHEAP, COSTLY_READINGS, MEASURED, READINGS

MODELS = {
    (regime, way): getattr(of, way)
    for regime, of in calibrations.calibration().regimes.items()
    for way in ("by_probes", "by_decoding")
}
COSTLY_PROBES = ("activation_patching", "interchange")
"""Those that have a vote in the calibration."""


def label(model, values, distance=0.0):
    return likeliest_phase(model.probabilities(values, distance), model.least_probability).label


def test_the_two_costly_probes():
    votes = {
        name for model in MODELS.values() for answer in model.questions.values() for name in answer.votes
    }
    costly = [one for one in READINGS if one.name in COSTLY_READINGS and one.name in votes]
    found = {MEASURED[one.measurement].probe.__name__ for one in costly}
    assert sorted(found) == list(COSTLY_PROBES)


@pytest.mark.parametrize("of", MODELS, ids=" ".join)
def test_no_value_of_a_costly_reading_changes_a_settled_label(of):
    random, model, n_settled, n_changed = np.random.default_rng(0), MODELS[of], 0, 0
    ends: dict = {}
    for answer in model.questions.values():
        for name, vote in answer.votes.items():
            ends.setdefault(name, []).extend((vote.low, vote.high))
    for _ in range(300):
        drawn = {name: random.uniform(min(both), max(both)) for name, both in ends.items()}
        cheap = {name: value for name, value in drawn.items() if name not in COSTLY_READINGS}
        distance = random.choice([0.0, 2.0])
        costly = [
            {name: random.uniform(-2, 2) for name in COSTLY_READINGS if random.random() < 0.8}
            for _ in range(20)
        ]
        labels = {label(model, cheap | some, distance) for some in costly}
        if is_settled(model, cheap, distance):
            n_settled += 1
            assert labels == {label(model, cheap, distance)} and "undecided" not in labels.pop()
        n_changed += len(labels) > 1
    assert n_settled > 20
    if any(name in answer.votes for answer in model.questions.values() for name in COSTLY_READINGS):
        assert of[1] == "by_decoding" or n_changed > 0  # the costly readings can change something


def test_by_hand():
    """One question: a cheap log-odds of 1, and a costly reading that adds -w to w."""

    def model(weight):
        votes = {
            "cheap": Vote(slope=1.0, neutral=0.0, low=-9.0, high=9.0, weight=1.0),
            "interchange.accuracy": Vote(slope=2.0, neutral=0.5, low=0.0, high=1.0, weight=weight),
        }
        return QuestionModel({"generalises": QuestionFit(0.0, votes)}, {})

    assert is_settled(model(0.9), {"cheap": -1.0})
    assert not is_settled(model(1.1), {"cheap": -1.0})  # it could become +0.1
    unsure = replace(model(0.1), least_probability=0.75)
    assert not is_settled(unsure, {"cheap": -1.0})  # 0.73: no label is assigned, so it is not settled


class TestClassify:
    PATH = str(next(path for path in checkpoints.shipped() if path.stem == "phase3"))

    def test_leaves_them_out_and_says_so(self):
        quick, thorough = classify(self.PATH), classify(self.PATH, thorough=True)
        assert quick.by_probes.not_measured == COSTLY_PROBES
        assert thorough.by_probes.not_measured == ()
        kept = {
            one.reading: one.value for one in thorough.by_probes.evidence if one.probe not in COSTLY_PROBES
        }
        assert {one.reading: one.value for one in quick.by_probes.evidence} == kept
        assert len(kept) < len(thorough.by_probes.evidence)
        for way in ("by_probes", "by_decoding"):
            assert getattr(quick, way).phase.label == getattr(thorough, way).phase.label
        said = "because they cannot change the label: activation_patching and interchange"
        assert said in quick._repr_html_() and said not in thorough._repr_html_()

    def test_measures_them_in_doubt(self, monkeypatch):
        """Where no probability is enough for a label, they are measured."""
        unsure = calibrations.calibration().regimes["reasoning"]
        unsure = replace(unsure, by_probes=replace(unsure.by_probes, least_probability=0.999))
        monkeypatch.setattr(calibrations.Calibration, "of", lambda self, task: unsure)
        checkpoint = load_checkpoint(self.PATH)
        model, task = checkpoint.build_model(), checkpoint.task
        train = checkpoint.evaluate(**task.sampling).measure("train")
        assert read_inside(model, task, train=train).by_probes.not_measured == ()

        unfit = read_inside(model, task, train=replace(train, value=0.5)).by_probes
        assert unfit.phase.cause == "underfit" and unfit.evidence  # no reading can give it a label
        assert unfit.not_measured == COSTLY_PROBES

    @pytest.mark.parametrize(("ratio", "then"), [(0.0, []), (1.0, [["survival"]])])
    def test_the_cheapest_comes_first_and_none_that_cannot_change_the_label(self, monkeypatch, ratio, then):
        """By `holdout` alone it is Phase 1, or `survival` is asked, too; the other two have no vote."""
        votes = {
            "generalises": {"holdout.holdout_ratio": Vote(slope=40, neutral=0.5, low=0, high=1, weight=1)},
            "composes": {"survival.survival": Vote(slope=4, neutral=0.5, low=0, high=1, weight=1)},
            "commutative": {},
        }
        by = QuestionModel({which: QuestionFit(0.0, own) for which, own in votes.items()}, {})
        both = replace(calibrations.calibration().regimes["reasoning"], by_probes=by, by_decoding=by)
        monkeypatch.setattr(calibrations.Calibration, "of", lambda self, task: both)
        asked = []

        def taken(model, task, names, training_set):
            asked.append(names)
            return {name: ratio for name in COSTLY_READINGS if name.split(".")[0] in names}

        monkeypatch.setattr(inside, "take_readings", taken)
        checkpoint = load_checkpoint(self.PATH)
        found = read_inside(checkpoint.build_model(), checkpoint.task)
        assert asked == [CHEAP, ["holdout"], *then]
        assert found.by_probes.phase.number == (3 if then else 1)
        assert found.by_probes.not_measured == (() if then else ("survival",))
