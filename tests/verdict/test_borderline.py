"""The behaviour verdict: definition, and what is too near to a threshold."""

from dataclasses import replace

import pytest

from anchorlens import AnchorTask, ModelConfig, build_model, evaluate
from anchorlens.tasks.shared.measures import Accuracy
from anchorlens.tasks.shared.phases import phase_by_definition


@pytest.fixture(scope="module")
def measured():
    tiny = ModelConfig(n_layers=1, d_model=16, d_head=8, d_mlp=16)
    task = AnchorTask()
    return evaluate(build_model(tiny), task, training_set=task.sample(8, seed=0), n_noise=2, max_trials=64)


def behaviour(measured, train=1.0, id=1.0, ood=0.0, commutativity=0.2, error=0.01):
    """A behaviour with these accuracies, all with the same standard error."""
    numbers = {"train": train, "id": id, "ood": ood, "commutativity": commutativity}
    accuracies = {n: None if v is None else Accuracy(v, error, 1000) for n, v in numbers.items()}
    return replace(measured, measures=accuracies, finite=True)


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
    assert given.phase_if_clear() == given.phase
    assert given.phase.number == phase and given.phase.cause is None


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
    phase = given.phase_if_clear()
    assert phase.number is None and phase.label == "undecided: borderline"
    assert phase.cause == "borderline" != given.phase.cause
    assert named in phase.reason
    assert f"by definition {given.phase.label}" in phase.reason


def test_commutativity_alone_leaves_phase_2(measured):
    phase = behaviour(measured, commutativity=0.69).phase_if_clear()
    assert (phase.number, phase.commutative, phase.label) == (2, None, "Phase 2")
    assert "commutativity 0.690 ± 0.010 is within 2 standard errors of 0.70" in phase.reason
    # in Phase 3 it decides nothing
    assert behaviour(measured, ood=0.9, commutativity=0.69).phase_if_clear().number == 3


@pytest.mark.parametrize(
    ("train", "label"),
    [
        (0.5, "undecided: training data unknown"),
        (0.89, "undecided: training data unknown"),  # within a standard error
        (0.9, "undecided: borderline"),
        (0.95, "Phase 1"),
    ],
)
def test_with_fresh_noise_it_is_not_known_below_the_threshold_and_as_ever_above(measured, train, label):
    given = replace(behaviour(measured, train=train, id=0.5), train_source="fresh noise")
    phase = given.phase_if_clear()
    assert phase.label == label
    if phase.cause == "training data unknown":
        assert phase == given.phase and "train longer" not in phase.reason
        assert "training_set=(tokens, targets)" in phase.reason and "--train-data FILE" in phase.reason


def test_underfit_is_not_borderline_for_what_underfit_models_answer(measured):
    phase = behaviour(measured, train=0.5, id=0.5, ood=0.5).phase_if_clear()
    assert phase.label == "undecided: underfit"


def test_without_standard_error_only_the_threshold_itself_is_borderline(measured):
    assert behaviour(measured, ood=0.499, error=0.0).phase_if_clear().number == 2
    assert behaviour(measured, ood=0.5, error=0.0).phase_if_clear().label == "undecided: borderline"


def test_no_unseen_pair_and_not_finite_keep_their_reason(measured):
    assert behaviour(measured, ood=None).phase_if_clear().label == "undecided: no unseen pair"
    broken = replace(behaviour(measured), finite=False)
    assert broken.phase_if_clear().label == "undecided: not finite"


def test_as_many_standard_errors_as_one_asks_for():
    near = {"train": 1.0, "id": 1.0, "ood": Accuracy(0.52, 0.01, 600), "commutativity": 0.2}
    assert phase_by_definition(**near).number == 3
    assert phase_by_definition(**near, standard_errors=1.9).number == 3
    assert phase_by_definition(**near, standard_errors=2.5).cause == "borderline"
    assert "is within 2.5 standard errors of 0.50" in phase_by_definition(**near, standard_errors=2.5).reason
    # a plain number has no standard error: only the threshold itself is too near
    assert phase_by_definition(1.0, 1.0, 0.51, 0.2, standard_errors=2).number == 3
    assert phase_by_definition(0.90, 1.0, 0.51, 0.2, standard_errors=2).cause == "borderline"
