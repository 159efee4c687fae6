"""What `control` aims at for a task without OOD."""

import pytest

from anchorlens.extras.control.result import Attempt, Control, PhaseAnswers
from anchorlens.extras.control.views import summary
from anchorlens.tasks.shared.phases import learnt_by_definition


def answers(id, mirrored=0.0):
    return PhaseAnswers(learnt_by_definition(1.0, id, mirrored), 1.0, id, None)


def control_of(*found):
    attempts = [
        Attempt(name, "", "", False, False, "", 10, "finished", chosen_by=one, answers=one, out=name)
        for name, one in zip("abc", found, strict=False)
    ]
    return Control("run", "0" * 64, answers(0.1), tuple(attempts), 5.0, 1.0, False)


@pytest.mark.parametrize(("id", "mirrored", "stage"), [(0.1, 0.1, 1), (0.5, 0.95, 2), (0.95, 0.95, 3)])
def test_stages_are_those_of_the_labels(id, mirrored, stage):
    assert answers(id, mirrored).stage == stage


def test_only_a_run_that_generalises_has_helped():
    found = control_of(answers(0.5, 0.95), answers(0.95, 0.95))
    assert (found.goal, found.goal_in_words) == (3, "generalises")
    assert (found.helped, found.best, found.reached) == (["b"], "b", 3)
    assert summary(found) == "b helped: memorises became generalises. Its run is in b."


def test_knowing_the_order_is_no_help():
    found = control_of(answers(0.5, 0.95), answers(0.2))
    assert found.helped == [] and found.best is None
    assert "none of 2 generalises. The best was a: knows that the order does not matter" in summary(found)
