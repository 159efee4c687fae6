"""Fixtures that set how much `evaluate`, probes and the readings ask; each conftest.py imports them.

Ours is imported in the fixtures, once shapes are checked (`../conftest.py`).
"""

from contextlib import contextmanager
from dataclasses import replace
from inspect import unwrap

import pytest

FEW = {"n_noise": 2, "max_train": 512, "max_trials": 1000}
"""Of `evaluate`: fewer questions, which make standard errors larger."""
FEW_OF_PROBES = {
    "interchange": {"n_sequences": 20},
    "mask_key_token": {"n_sequences": 15},
    "first_layer_tsne": {"n_sequences": 200},
    "holdout": {"n_copies": 1},
    "survival": {"n_copies": 2, "n_sequences": 64},
}
"""Of each probe; the points of a t-SNE are what a report waits for, and copies what a costly verdict does."""
FEW_OF_READINGS = {"information_flow": {"n_sequences": 3}, "gradient_sharing": {"n_sequences": 16}}
"""Of the dearest measurements of a verdict; the probes themselves ask as many as for users."""

FEWEST = {
    "mask_key_token": {"n_sequences": 4},
    "information_flow": {"n_sequences": 2},
    "activation_patching": {"n_sequences": 2},
    "first_layer_tsne": {"n_sequences": 40},
    "interchange": {"n_sequences": 4},
    "gradient_sharing": {"n_sequences": 4},
    "survival": {"n_copies": 1, "noise": 1, "batch_size": 8, "n_sequences": 16},
    "training_regime": {"n_sequences": 4},
    "holdout": {"n_copies": 1, "batch_size": 8, "lr": 1e-7},
    "expert_use": {"n_sequences": 64},
}
"""Options of each probe, for what holds of every one (`few_updates` besides)."""


def with_options(measured, options):
    """A measurement of the readings whose probe gets these options besides."""
    at = measured.at and (lambda task, position: {**measured.at(task, position), **options})
    return replace(measured, at=at, options={**measured.options, **options})


@contextmanager
def asked_less():
    """Let `evaluate` and some probes ask less than for users, and read at one position of the key."""
    from anchorlens import probes
    from anchorlens.tasks.two_anchor.behaviour import evaluate
    from anchorlens.verdict import readings

    with pytest.MonkeyPatch.context() as patch:
        for name, value in FEW.items():
            patch.setitem(unwrap(evaluate).__kwdefaults__, name, value)
        for name, options in FEW_OF_PROBES.items():
            for option, number in options.items():
                patch.setitem(unwrap(getattr(probes, name)).__kwdefaults__, option, number)
        patch.setattr(readings, "_N_MARGINS", 300)
        for name, options in FEW_OF_READINGS.items():
            patch.setitem(readings.MEASURED, name, with_options(readings.MEASURED[name], options))
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


def draw_little(patch):
    """Let the networks of concept graphs draw two images of each tuple, in two steps; norms see 16 images."""
    from anchorlens.extras.concept_graphs import diffusion, task

    sample = diffusion.Schedule.sample
    patch.setattr(diffusion.Schedule, "sample", lambda _, *given: sample(diffusion.Schedule(2), *given))
    patch.setattr(task, "_BN_BATCHES", 1)
    patch.setattr(task, "_BN_BATCH", 16)
    patch.setattr(task, "QUICKLY", 2)
    patch.setitem(unwrap(task.ConceptGraphsTask.evaluate).__kwdefaults__, "n_samples", 2)


@contextmanager
def measured_quickly():
    """Copies of `holdout` and `survival` that are hardly trained."""
    from anchorlens.probes.any_model import holdout
    from anchorlens.probes.two_anchor import survival

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(holdout, "UPDATES", (0, 2, 3, 4, 5))
        patch.setattr(survival, "EVERY", 3)
        patch.setattr(survival, "MOST_UPDATES", 6)
        yield


@pytest.fixture
def few_updates():
    """Such copies, for what holds of every probe and whatever they learn."""
    with measured_quickly():
        yield
