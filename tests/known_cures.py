"""A run whose cure is known, a shipped Phase 3 model with W_Q and W_K times 0.6; and results made by hand."""

from dataclasses import replace
from inspect import unwrap

from anchorlens import load_checkpoint, save_checkpoint
from anchorlens.engine import architecture
from anchorlens.extras.control import Attempt, Control, Intervention, PhaseAnswers
from anchorlens.tasks.shared.phases import Phase
from anchorlens.training import checkpoints

DAMAGE = 0.6
SHORT = {
    "n_samples": 1000,
    "batch_size": 100,
    "steps": 4,
    "warmup_steps": 0,
    "n_checkpoints": 0,
    "threads": 1,
}
STILL = {"lr": 1e-30, "weight_decay": 0}
"""A recipe that moves no weight."""
IDLE = Intervention("idle", "Changes nothing.", "ours", STILL)
CURE = Intervention("cure", "Takes the damage back.", "ours", {**STILL, "rescale": f"qk={1 / DAMAGE!r}@0"})
HURT = Intervention("hurt", "Damages all.", "ours", {**STILL, "rescale": "all=0.01@0"}, steps=0.5)
ANEW = Intervention("anew", "Begins again.", "ours", added={"gamma": 0.1}, anew=True, baseline=True)


def ask_fewest(patch):
    """Fewer questions than `asked_less` of a model that is certain of its phase, and evaluated many times."""
    from anchorlens.tasks.two_anchor.behaviour import evaluate

    for name, number in {"max_train": 128, "max_trials": 250}.items():
        patch.setitem(unwrap(evaluate).__kwdefaults__, name, number)


def damaged(path, **metrics):
    """Write the checkpoint of such a run."""
    cured = load_checkpoint(next(one for one in checkpoints.shipped() if one.stem == "phase3"))
    parts = architecture(cured.model_config).parts()
    weights = {
        name: weight * (DAMAGE if parts.get(name) == "qk" else 1) for name, weight in cured.weights.items()
    }
    known = {"step": 4, "seconds": 0.4, **metrics}
    train = replace(cured.train_config, **SHORT)
    save_checkpoint(path, replace(cured, weights=weights, train_config=train, metrics=known))
    return path


def answers(number, ood):
    commutative = False if number == 2 else None
    return PhaseAnswers(Phase(number, commutative, "known"), 1.0, 0.5 if number == 1 else 1.0, ood)


def result(*attempts, before=2, halves=True):
    """A result made by hand; an attempt is (intervention, phase that chose, phase reported, minutes)."""
    made = tuple(
        Attempt(
            one.name,
            one.why,
            one.source,
            one.anew,
            one.baseline,
            "x 1",
            10,
            "finished",
            1.0,
            minutes,
            answers(chosen, 0.25 * chosen),
            answers(reported, 0.25 * reported - 0.01),
            f"out/{one.name}",
        )
        for one, chosen, reported, minutes in attempts
    )
    return Control("runs/a", "0" * 64, answers(before, 0.1), made, 20.0, 3.0, halves)
