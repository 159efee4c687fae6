"""A verdict is data: read back from its dict it says what it said."""

import json
from dataclasses import replace
from typing import get_args

import pytest
from known_verdicts import bare_verdict, whole_verdict

from anchorlens.show.tables import verdict_table
from anchorlens.tasks.shared.phases import LABELS, Cause, Phase, phase_by_definition
from anchorlens.verdict import Verdict
from anchorlens.verdict.verdict import ProbeVerdict


def read_back(verdict):
    return Verdict.from_dict(json.loads(json.dumps(verdict.to_dict())))


def without_nan(content):
    return json.loads(json.dumps(content).replace("NaN", '"no number"'))


@pytest.mark.parametrize("made", [whole_verdict, bare_verdict])
def test_it_comes_back_as_it_was(made):
    verdict = made()
    stored = read_back(verdict)
    assert without_nan(stored.to_dict()) == without_nan(verdict.to_dict())
    assert stored.phase == verdict.phase and stored.by_probes.phase == verdict.by_probes.phase
    assert stored.trajectory == verdict.trajectory and stored.subject.step == verdict.subject.step


def test_phases_numbers_and_words():
    verdict = whole_verdict()
    stored = read_back(verdict)
    assert stored.phase.label == "undecided: underfit"
    assert stored.by_probes.probabilities == verdict.by_probes.probabilities
    assert stored.by_probes.evidence[:3] == verdict.by_probes.evidence[:3]
    assert stored.by_probes.evidence[3].value is None  # JSON has no NaN
    assert (stored.agreement, stored.explanation) == (None, verdict.explanation)
    assert stored.warnings == ("The model is small.",)
    assert repr(stored).startswith("Verdict(runs/a/ckpt.pt: undecided: underfit; by the probes: ")


def test_what_was_measured_on_answers():
    verdict = whole_verdict()
    stored = read_back(verdict).behaviour
    assert stored.id == verdict.behaviour.id and stored.symmetric is None
    assert stored.pairs == verdict.behaviour.pairs and stored.deviations == verdict.behaviour.deviations


def test_what_was_not_there_is_not_there():
    stored = read_back(bare_verdict())
    assert stored.by_probes.probabilities is None and stored.by_probes.evidence == ()
    assert stored.by_probes.phase.label == "undecided: not finite"
    assert stored.subject.step is stored.subject.path is None and stored.trajectory == ()


def test_it_has_a_notebook_view_and_no_report(tmp_path):
    stored = read_back(whole_verdict())
    assert "undecided: underfit" in stored._repr_html_()
    with pytest.raises(ValueError, match=r"from JSON \(runs/a/ckpt.pt\)"):
        stored.report(tmp_path / "report.html")
    assert not list(tmp_path.iterdir())


class TestPhase:
    @pytest.mark.parametrize("cause", get_args(Cause))
    def test_every_cause_comes_back(self, cause):
        phase = Phase.undecided(cause, "why")
        content = phase.to_dict()
        assert content["label"] == f"undecided: {cause}" and content["reason"] == f"{cause}: why"
        assert Phase.from_dict(content) == phase

    def test_a_phase_has_no_cause(self):
        phase = phase_by_definition(1.0, 1.0, 0.9, 0.9)
        content = phase.to_dict()
        assert Phase.from_dict(content) == phase and phase.cause is None


def test_a_model_that_is_there_is_not_stored():
    of = whole_verdict().subject
    content = of.to_dict()
    assert content["step"] == 10 and of.model_and_task() == (of.model, of.task)
    assert not {"model", "task", "checkpoint", "log"} & content.keys()


@pytest.mark.parametrize(
    ("commutative", "shown"), [(None, "Phase 2"), (True, "Phase 2 with commutativity (0.35)")]
)
def test_a_table_has_the_probability_of_a_form_of_phase_2_and_no_sum_of_both(commutative, shown):
    phase = Phase(2, commutative, "")
    inside = ProbeVerdict(phase, dict(zip(LABELS, (0.1, 0.4, 0.35, 0.15), strict=True)))
    one = replace(whole_verdict(), by_probes=inside)
    assert verdict_table([one], ["a"]).rows[0][1].text == shown
