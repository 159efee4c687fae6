"""A run whose cure is known: a shipped Phase 3 model with its MLPs times 1.5, which is in Phase 2 then."""

from dataclasses import replace

from anchorlens import checkpoints, load_checkpoint, save_checkpoint
from anchorlens.controlling import Intervention
from anchorlens.engine import architecture

DAMAGE = 1.5
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
CURE = Intervention("cure", "Takes the damage back.", "ours", {**STILL, "rescale": f"mlp={1 / DAMAGE!r}@0"})
HURT = Intervention("hurt", "Damages all.", "ours", {**STILL, "rescale": "all=0.01@0"}, steps=0.5)
ANEW = Intervention("anew", "Begins again.", "ours", added={"gamma": 0.1}, anew=True, baseline=True)


def damaged(path, **metrics):
    """Write the checkpoint of such a run."""
    cured = load_checkpoint(next(one for one in checkpoints.shipped() if one.stem == "phase3"))
    parts = architecture(cured.model_config).parts()
    weights = {
        name: weight * (DAMAGE if parts.get(name) == "mlp" else 1) for name, weight in cured.weights.items()
    }
    known = {"step": 4, "seconds": 0.4, **metrics}
    train = replace(cured.train_config, **SHORT)
    save_checkpoint(path, replace(cured, weights=weights, train_config=train, metrics=known))
    return path
