"""Costly probes are applied if they could change the label, and `survival` twice near a limit."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from anchorlens import classify, load_checkpoint
from anchorlens.training import checkpoints
from anchorlens.verdict import calibration as calibrations
from anchorlens.verdict import probe_verdict as verdicts
from anchorlens.verdict.calibration import FeatureTerm, LogisticModel, QuestionFit
from anchorlens.verdict.probe_verdict import is_settled, probe_verdict
from anchorlens.verdict.readings import CHEAP

PATH = str(next(path for path in checkpoints.shipped() if path.stem == "phase3"))
WITH_WEIGHT = ("activation_patching", "holdout", "survival")
"""Those that have a weight in `reasoning`."""


def test_a_label_is_settled_if_no_value_of_the_other_readings_changes_it():
    """One question: a cheap log-odds of 1, and a costly reading that adds from -1.1 to 1.1."""
    votes = {
        "cheap": FeatureTerm(slope=1.0, neutral=0.0, low=-9.0, high=9.0, weight=1.0),
        "interchange.accuracy": FeatureTerm(slope=2.0, neutral=0.5, low=0.0, high=1.0, weight=1.1),
    }
    model = LogisticModel({"generalises": QuestionFit(0.0, votes)}, {})
    assert not is_settled(model, {"cheap": -1.0}, ["interchange"])  # the reading could make it +0.1
    assert is_settled(model, {"cheap": -1.0}, ["holdout"])  # which has no vote
    assert is_settled(model, {"cheap": -1.2}, ["interchange"])
    surer = replace(model, least_probability=0.75)  # a log-odds of 1.1 or more
    assert not is_settled(surer, {"cheap": -2.0}, ["interchange"])
    assert is_settled(surer, {"cheap": -2.3}, ["interchange"])
    assert not is_settled(surer, {"cheap": 0.0}, ["holdout"])  # no label, which is never settled


def test_every_end_of_a_range_counts():
    """Also with two votes of one reading, and at a distance, where the odds are nearer to even."""
    vote = FeatureTerm(slope=8.0, neutral=0.8, low=0.0, high=1.0, weight=1.0)
    votes = {"generalises": replace(vote, neutral=0.4), "composes": vote}
    both = {which: QuestionFit(0.0, {"survival.survival": one}) for which, one in votes.items()}
    assert not is_settled(LogisticModel(both, {}, 0.6), {}, ["survival"])
    near = {"composes": QuestionFit(3.0, {"survival.survival": vote})}  # log-odds from -3.4 to 4.6
    assert not is_settled(LogisticModel(near, {}, 0.6), {}, ["survival"])
    wide = LogisticModel({"composes": QuestionFit(9.0, {"survival.survival": vote}, 2.0)}, {}, 0.6)
    assert is_settled(wide, {}, ["survival"], distance=1)  # from 1.3
    assert not is_settled(wide, {}, ["survival"], distance=4)  # from 0.16


@pytest.fixture
def asked(monkeypatch):
    """What is measured, with a verdict by `holdout` and `survival` alone, and their values.

    The log-odds of composing are 4 (`survival` - 0.5), and a phase needs a probability of 0.6.
    """
    votes = {
        "generalises": {"holdout.holdout_ratio": FeatureTerm(slope=40, neutral=0.5, low=0, high=1, weight=1)},
        "composes": {"survival.survival": FeatureTerm(slope=4, neutral=0.5, low=0, high=1, weight=1)},
        "commutative": {},
    }
    by = LogisticModel(
        {which: QuestionFit(0.0, own) for which, own in votes.items()}, {"survival.survival": {}}, 0.6
    )
    both = replace(calibrations.calibration().regimes["reasoning"], by_probes=by)
    monkeypatch.setattr(calibrations.Calibration, "of", lambda self, task: both)
    found, values = [], {"holdout": 1.0, "survival": [[0.9, 0.9], [0.9, 0.9]]}

    def taken(model, task, names, training_set, seed=None):
        found.append(names if seed is None else f"{names[0]} {seed}")
        return {"holdout.holdout_ratio": values["holdout"]} if names == ["holdout"] else {}

    def repeated(model, task, names, seed):
        found.append(f"survival {seed}")
        ratios = np.array(values["survival"][seed % 2])
        return {"survival": [SimpleNamespace(survival=float(ratios.mean()), ratios=ratios)]}

    monkeypatch.setattr(verdicts, "take_readings", taken)
    monkeypatch.setattr(verdicts, "measurements", repeated)
    return found, values


@pytest.mark.parametrize(
    ("ratio", "quick", "then", "phase"),
    [
        (0.0, False, ["holdout 0"], 1),  # Phase 1 by `holdout`: `survival` could not change that
        (1.0, False, ["holdout 0", "survival 0"], 3),
        (1.0, True, [], None),
    ],
)
def test_the_cheapest_comes_first_and_none_that_could_not_change_the_label(asked, ratio, quick, then, phase):
    """`activation_patching` and `interchange` have no vote in this verdict."""
    measured, values = asked
    values["holdout"] = ratio
    checkpoint = load_checkpoint(PATH)
    found = probe_verdict(checkpoint.build_model(), checkpoint.task, quick=quick)
    assert measured == [CHEAP, *then] and found.phase.number == phase
    assert found.not_measured == ("holdout", "survival")[len(then) :]


@pytest.mark.parametrize(
    ("ratios", "n_measured", "phase"),
    [
        ([[0.9, 0.8], [0, 0]], 1, 3),  # 0.85 ± 0.05
        ([[0.2, 0.0], [1, 1]], 1, 2),
        ([[0.9, 0.4], [0.9, 0.4]], 2, 3),  # 0.65 ± 0.25, then ± 0.00, as both copies of each group agree
        ([[0.9, 0.4], [0.4, 0.9]], 2, None),  # 0.65 ± 0.18: Phase 3 at one end only
        ([[0.9, 0.4], [0.1, 0.0]], 2, None),  # 0.35 ± 0.17
    ],
)
def test_survival_is_measured_again_near_a_limit(asked, ratios, n_measured, phase):
    measured, values = asked
    values["survival"] = ratios
    checkpoint = load_checkpoint(PATH)
    found = probe_verdict(checkpoint.build_model(), checkpoint.task, seed=3)
    assert (
        measured[1:] == ["holdout 3", "survival 6", "survival 7"][: 1 + n_measured]
        and found.phase.number == phase
    )
    (reading,) = (one for one in found.evidence if one.probe == "survival")
    assert reading.value == pytest.approx(np.mean(ratios[:n_measured]))
    assert ("the mean of two measurements, ± 0." in reading.meaning) == (n_measured == 2)
    if phase is None:
        assert found.phase.cause == "ambiguous" and "error of survival, 0." in found.phase.reason


def test_a_model_that_has_not_fit_has_no_costly_readings(asked):
    checkpoint = load_checkpoint(PATH)
    model, task = checkpoint.build_model(), checkpoint.task
    train = replace(checkpoint.evaluate(**task.sampling).measure("train"), value=0.5)
    assert probe_verdict(model, task, train=train).phase.cause == "underfit"
    assert asked[0] == [CHEAP]  # no reading can give it a label


@pytest.mark.usefixtures("few_updates")  # of the copies, to be quick
def test_the_shipped_model_needs_all_and_quick_takes_none():
    quick, full = classify(PATH, quick=True), classify(PATH)
    assert quick.by_probes.not_measured == WITH_WEIGHT and full.by_probes.not_measured == ()
    kept = {one.reading: one.value for one in full.by_probes.evidence if one.probe not in WITH_WEIGHT}
    assert {one.reading: one.value for one in quick.by_probes.evidence} == kept
    assert len(kept) < len(full.by_probes.evidence)
    said = "Not measured: activation_patching, holdout, survival. Only quick"
    assert said in quick._repr_html_() and said not in full._repr_html_()
    memoriser = classify(checkpoints.shipped()[0])  # no reading changes its label
    assert memoriser.by_probes.not_measured == WITH_WEIGHT and memoriser.by_probes.phase.number == 1


@pytest.mark.usefixtures("all_questions")
@pytest.mark.system  # its probes train copies for two minutes
def test_survival_leaves_the_shipped_phase_3_open():
    """With one seed it is 0.27, with another 0.49, and either would give another label or none."""
    by_probes = classify(PATH).by_probes
    assert by_probes.phase.label == "undecided: ambiguous"
    assert by_probes.probabilities["Phase 3"] < 0.58
    (reading,) = (one for one in by_probes.evidence if one.probe == "survival")
    assert "the mean of two measurements" in reading.meaning and 0.3 < reading.value < 0.5
