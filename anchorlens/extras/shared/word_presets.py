"""The presets of a task in words: our own small network, and the GPT-2 of the papers."""

from __future__ import annotations

from typing import Any

_SMALL = {"gamma": 0.7, "n_heads": 4, "d_head": 32, "d_mlp": 256}
_SMALL_RECIPE = {"batch_size": 64, "steps": 3000, "weight_decay": 0.1, "eval_every": 500}
"""Our own model and recipe for figures 7A, B and E of 2501.08537, which do not state a model or recipe."""

_GPT2 = {"n_layers": 12, "n_heads": 12, "d_model": 768, "d_head": 64, "d_mlp": 3072, "gamma": 0.7}
_GPT2_RECIPE = {
    "batch_size": 140,
    "lr": 5e-5,
    "lr_start_factor": 1.0,
    "lr_end_factor": 1.0,
    "warmup_steps": 0,
    "weight_decay": 0.1,
    "epochs": 200,
    "eval_every": 1000,
    "log_every": 100,
}
"""The shape, batch and constant learning rate come from the released code for these figures, which trains for
5,000 epochs. We chose gamma, weight decay and epochs."""


def word_presets(
    kind: str, *, d_vocab: int, n_ctx: int, n_samples: int, n_paper: int
) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the presets `KIND` and `paper-KIND`.

    Args:
        kind: the kind of the task.
        d_vocab: the size of the task's vocabulary.
        n_ctx: the length of the task's longest sequence, in tokens.
        n_samples: the number of training examples of our preset.
        n_paper: the number of training examples of the paper's preset.
    """
    sizes = {"d_vocab": d_vocab, "n_ctx": n_ctx}
    recipes = {kind: (_SMALL, _SMALL_RECIPE, n_samples), f"paper-{kind}": (_GPT2, _GPT2_RECIPE, n_paper)}
    return {
        name: {"task": {"kind": kind}, "model": model | sizes, "train": recipe | {"n_samples": n}}
        for name, (model, recipe, n) in recipes.items()
    }
