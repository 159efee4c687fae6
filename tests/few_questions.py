"""Fixtures that set how much `evaluate`, probes and the readings ask; each conftest.py imports them.

Ours is imported in the fixtures, once shapes are checked (`../conftest.py`).
"""

from contextlib import contextmanager
from inspect import unwrap

import pytest

FEW = {"n_noise": 2, "max_train": 512, "max_trials": 1000}
"""Of `evaluate`: fewer questions, which make standard errors larger."""
FEW_SEQUENCES = {"interchange": 20, "mask_key_token": 15, "first_layer_tsne": 200}
"""Probe -> `n_sequences`; the points of a t-SNE are what a report waits for."""


@contextmanager
def asked_less():
    """Let `evaluate` and some probes ask less than for users, and read at one position of the key."""
    from anchorlens import probes
    from anchorlens.tasks.two_anchor.behaviour import evaluate
    from anchorlens.verdict import readings

    with pytest.MonkeyPatch.context() as patch:
        for name, value in FEW.items():
            patch.setitem(unwrap(evaluate).__kwdefaults__, name, value)
        for name, number in FEW_SEQUENCES.items():
            patch.setitem(unwrap(getattr(probes, name)).__kwdefaults__, "n_sequences", number)
        all_positions = readings.reading_positions
        patch.setattr(readings, "reading_positions", lambda task: all_positions(task)[:1])
        yield patch


@pytest.fixture(scope="module", autouse=True)
def few_questions():
    """Few questions; a test that needs those of a user asks for `all_questions`."""
    with asked_less() as patch:
        yield patch


@pytest.fixture(scope="module")
def all_questions(few_questions):
    """As many questions as a user gets."""
    few_questions.undo()
    yield
