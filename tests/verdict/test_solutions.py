"""Where the training data conflict with the composition, a verdict names a solution."""

from dataclasses import replace

import pytest

from anchorlens import AnchorTask, classify, load_checkpoint
from anchorlens.tasks.shared.phases import MEMORISATION, SOLUTION_LABELS, Phase
from anchorlens.training import checkpoints
from anchorlens.verdict.explanation import explain
from anchorlens.verdict.verdict import ProbeVerdict


@pytest.fixture(scope="module")
def verdict(few_questions):
    """Of a model that composes, asked as if (3, 4) had been trained on something else; it says so itself."""
    path = next(path for path in checkpoints.shipped() if path.stem == "phase3")
    model = load_checkpoint(path).build_model()
    return classify(model, AnchorTask(regime="conflict"))


def test_behaviour_names_the_solution(verdict):
    assert verdict.behaviour.in_conflict and verdict.behaviour.solution == "inferential"
    assert verdict.phase.number is None and verdict.phase.label == "inferential solution"
    assert verdict.phase.is_named and "symmetric 0.0" in verdict.phase.reason


def test_the_inside_names_solutions_too(verdict):
    probabilities = verdict.by_probes.probabilities
    assert list(probabilities) == ["inferential", "symmetric", "mixed by position", "other"]
    assert sum(probabilities.values()) == pytest.approx(1)


def test_it_is_read_back_and_shown(verdict):
    stored = type(verdict).from_dict(verdict.to_dict())
    assert stored.phase == verdict.phase and stored.by_probes.phase == verdict.by_probes.phase
    assert "Probability of each solution" in verdict._repr_html_()


@pytest.mark.parametrize("solution", [one for one in SOLUTION_LABELS if one not in MEMORISATION])
def test_every_pair_of_solutions_has_a_sentence(solution):
    behaviour = Phase(None, None, "", solution="symmetric")
    agreement, text = explain(behaviour, ProbeVerdict(Phase(None, None, "", solution=solution), {}))
    assert agreement is (solution == "symmetric")
    assert text.count(".") == (1 if agreement else 2) and ("However" in text) is not agreement


def test_a_phase_and_a_solution_are_no_comparison():
    behaviour = Phase(None, None, "", solution="symmetric")
    agreement, _ = explain(behaviour, ProbeVerdict(Phase(3, None, ""), {}))
    assert agreement is None
    assert replace(behaviour, solution="other").label == "neither solution"
