"""The behaviour verdict: definition, and what is too near to a threshold."""

import math
from dataclasses import replace

import pytest

from anchorlens import AnchorTask, ModelConfig, build_model, evaluate
from anchorlens.tasks.phases import phase_by_definition
from anchorlens.tasks.two_anchor.behaviour import Accuracy
from anchorlens.verdict.borderline import phase_by_behaviour


@pytest.fixture(scope="module")
def measured():
    tiny = ModelConfig(n_layers=1, d_model=16, d_head=8, d_mlp=16)
    return evaluate(build_model(tiny), AnchorTask(), n_noise=2, max_cells=64)


def behaviour(measured, train=1.0, id=1.0, ood=0.0, commutativity=0.2, error=0.01):
    """A behaviour with these accuracies, all with the same standard error."""
    numbers = {"train": train, "id": id, "ood": ood, "commutativity": commutativity}
    accuracies = {n: None if v is None else Accuracy(v, error, 1000) for n, v in numbers.items()}
    return replace(measured, **accuracies, phase=phase_by_definition(**numbers), finite=True)


@pytest.mark.parametrize(
    ("numbers", "phase"),
    [
        ({"id": 0.5}, 1),
        ({"ood": 0.1}, 2),
        ({"ood": 0.9}, 3),
        ({"id": 0.87}, 1),  # three standard errors below .90
        ({"ood": 0.53}, 3),
    ],
)
def test_a_clear_case_is_the_definition(measured, numbers, phase):
    given = behaviour(measured, **numbers)
    assert phase_by_behaviour(given) == given.phase
    assert phase_by_behaviour(given).phase == phase


@pytest.mark.parametrize(
    ("numbers", "named"),
    [
        ({"ood": 0.49}, "OOD 0.490 ± 0.010 is within 2 standard errors of 0.50"),
        ({"ood": 0.52}, "OOD 0.520"),  # exactly two
        ({"id": 0.91}, "ID 0.910 ± 0.010 is within 2 standard errors of 0.90"),
        ({"train": 0.89, "id": 0.5}, "train 0.890"),
        ({"id": 0.88, "ood": 0.51}, "ID 0.880"),
    ],
)
def test_within_two_standard_errors_of_a_threshold_is_borderline(measured, numbers, named):
    given = behaviour(measured, **numbers)
    phase = phase_by_behaviour(given)
    assert phase.phase is None and phase.label == "undecided: borderline"
    assert named in phase.reason
    assert f"by definition {given.phase.label}" in phase.reason


def test_commutativity_alone_leaves_phase_2(measured):
    phase = phase_by_behaviour(behaviour(measured, commutativity=0.69))
    assert (phase.phase, phase.commutative, phase.label) == (2, None, "Phase 2")
    assert "commutativity 0.690 ± 0.010 is within 2 standard errors of 0.70" in phase.reason
    # in Phase 3 it decides nothing
    assert phase_by_behaviour(behaviour(measured, ood=0.9, commutativity=0.69)).phase == 3


def test_underfit_is_not_borderline_for_what_underfit_models_answer(measured):
    phase = phase_by_behaviour(behaviour(measured, train=0.5, id=0.5, ood=0.5))
    assert phase.label == "undecided: underfit"


def test_without_standard_error_only_the_threshold_itself_is_borderline(measured):
    assert phase_by_behaviour(behaviour(measured, ood=0.499, error=0.0)).phase == 2
    assert phase_by_behaviour(behaviour(measured, ood=0.5, error=0.0)).label == "undecided: borderline"


def test_no_unseen_pair_and_not_finite_keep_their_reason(measured):
    assert phase_by_behaviour(behaviour(measured, ood=None)).label == "undecided: no unseen pair"
    broken = replace(behaviour(measured), phase=phase_by_definition(math.nan, 1.0, 0.0, None), finite=False)
    assert phase_by_behaviour(broken).label == "undecided: not finite"
