"""Costly probes are applied while no phase is assigned, by all options."""

from dataclasses import replace

import pytest

from anchorlens import classify, load_checkpoint
from anchorlens.training import checkpoints
from anchorlens.verdict import calibration as calibrations
from anchorlens.verdict import probe_verdict as verdicts
from anchorlens.verdict.calibration import FeatureTerm, LogisticModel, QuestionFit
from anchorlens.verdict.probe_verdict import assigns_phase, probe_verdict
from anchorlens.verdict.readings import CHEAP, COSTLY, READINGS

PATH = str(next(path for path in checkpoints.shipped() if path.stem == "phase3"))
WITH_WEIGHT = ("activation_patching", "holdout", "survival")
"""Those that have a weight in `reasoning`."""


def test_by_hand():
    """One question: a cheap log-odds of 1, which is a probability of 0.73 of no."""
    votes = {
        "cheap": FeatureTerm(slope=1.0, neutral=0.0, low=-9.0, high=9.0, weight=1.0),
        "interchange.accuracy": FeatureTerm(slope=2.0, neutral=0.5, low=0.0, high=1.0, weight=1.1),
    }
    model = LogisticModel({"generalises": QuestionFit(0.0, votes)}, {})
    assert assigns_phase(model, {"cheap": -1.0})  # though the costly reading could make it +0.1
    assert not assigns_phase(replace(model, least_probability=0.75), {"cheap": -1.0})
    assert not assigns_phase(replace(model, least_probability=0.75), {"cheap": -1.0}, distance=2.0)


@pytest.fixture
def asked(monkeypatch):
    """What is measured, with a verdict by `holdout` and `survival` alone, and readings of 1."""
    votes = {
        "generalises": {"holdout.holdout_ratio": FeatureTerm(slope=40, neutral=0.5, low=0, high=1, weight=1)},
        "composes": {"survival.survival": FeatureTerm(slope=4, neutral=0.5, low=0, high=1, weight=1)},
        "commutative": {},
    }
    by = LogisticModel({which: QuestionFit(0.0, own) for which, own in votes.items()}, {}, 0.6)
    both = replace(calibrations.calibration().regimes["reasoning"], by_probes=by)
    monkeypatch.setattr(calibrations.Calibration, "of", lambda self, task: both)
    found = []

    def taken(model, task, names, training_set):
        found.append(names)
        return {
            one.name: found_values[one.measurement]
            for one in READINGS
            if one.measurement in names and one.measurement in found_values
        }

    found_values = dict.fromkeys(COSTLY, 1.0)
    monkeypatch.setattr(verdicts, "take_readings", taken)
    return found, found_values


@pytest.mark.parametrize(
    ("ratio", "thorough", "then", "phase"),
    [
        (0.0, False, [["holdout"]], 1),  # Phase 1 by `holdout`: `survival` is not needed
        (1.0, False, [["holdout"], ["survival"]], 3),
        (0.0, True, [["holdout"], ["survival"]], 1),
        (1.0, None, [], None),
    ],
)
def test_the_cheapest_comes_first_and_none_after_a_phase(asked, ratio, thorough, then, phase):
    """`activation_patching` and `interchange` have no vote in this verdict."""
    measured, values = asked
    values["holdout"] = ratio
    checkpoint = load_checkpoint(PATH)
    found = probe_verdict(checkpoint.build_model(), checkpoint.task, thorough=thorough)
    assert measured == [CHEAP, *then] and found.phase.number == phase
    taken = {name for names in then for name in names}
    assert found.not_measured == tuple(name for name in ("holdout", "survival") if name not in taken)


def test_a_model_that_has_not_fit_has_no_costly_readings(asked):
    checkpoint = load_checkpoint(PATH)
    model, task = checkpoint.build_model(), checkpoint.task
    train = replace(checkpoint.evaluate(**task.sampling).measure("train"), value=0.5)
    assert probe_verdict(model, task, train=train).phase.cause == "underfit"
    assert asked[0] == [CHEAP]  # no reading can give it a label
    probe_verdict(model, task, train=train, thorough=True)
    assert asked[0] == [CHEAP, CHEAP, ["holdout"], ["survival"]]


@pytest.mark.usefixtures("few_updates")  # of the copies, to be quick
def test_the_shipped_model_needs_none_and_thorough_takes_all():
    quick, thorough = classify(PATH), classify(PATH, thorough=True)
    assert quick.by_probes.not_measured == WITH_WEIGHT and thorough.by_probes.not_measured == ()
    kept = {one.reading: one.value for one in thorough.by_probes.evidence if one.probe not in WITH_WEIGHT}
    assert {one.reading: one.value for one in quick.by_probes.evidence} == kept
    assert len(kept) < len(thorough.by_probes.evidence)
    said = "Not measured: activation_patching, holdout, survival. The option thorough"
    assert said in quick._repr_html_() and said not in thorough._repr_html_()
