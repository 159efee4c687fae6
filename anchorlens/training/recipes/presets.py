"""Named configurations of whole runs: the quick one, the papers', one for each phase, and other tasks'."""

from __future__ import annotations

from typing import Any

from anchorlens.configuration import check_choice
from anchorlens.training.recipes.run_config import Parts, RunConfig, merged, sorted_by_part

_PAPER = {
    "n_samples": 900_000,
    "batch_size": 2048,
    "epochs": 210,
    "warmup_epochs": 10,
    "lr_end_factor": 1 / 15,
    "lr_start_factor": 1 / 15,
    "lr": 1.5e-4,
    "eval_every": 1000,
    "log_every": 100,
    "n_checkpoints": 20,
}
"""The recipe of 2501.08537: a learning rate of 1e-5, warmed up to 15x and decayed back; 2405.05409 uses
25x."""

_TEN_LAYERS = {"n_layers": 10, "n_heads": 10, "d_model": 640, "d_head": 64, "d_mlp": 1280}
"""The larger network of 2501.08537, figures 3, 5C and 10; its released code uses the variant `released`."""

_ADDITION = {"batch_size": 256, "steps": 2000}
"""Our own recipe for figure 7C of 2501.08537, which states none."""

_WORDS = {"gamma": 0.7, "n_heads": 4, "d_head": 32, "d_mlp": 256}
_WORD_RECIPE = {"batch_size": 64, "steps": 3000, "weight_decay": 0.1, "eval_every": 500}
"""Our own model and recipe for figures 7A, B and E of 2501.08537, which state none."""

_GPT2_SMALL = {"n_layers": 12, "n_heads": 12, "d_model": 768, "d_head": 64, "d_mlp": 3072, "gamma": 0.7}
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
"""Shape, batch and constant learning rate are those of the released code for these figures, which trains for
5,000 epochs; gamma, weight decay and epochs are ours."""
_UNET_RECIPE = {
    "n_samples": 1120,
    "batch_size": 64,
    "lr_start_factor": 1.0,
    "lr_end_factor": 0.0,
    "lr_decay": "linear",
    "warmup_steps": 0,
    "weight_decay": 0.0,
    "clip_norm": 0.0,
    "eval_every": 500,
}
"""Adam with a linear decay over images, 280 of each trained tuple, as in the released code."""
_IN_WORDS = {
    "scan": (23, 59, 2222, 11_111),
    "cogs": (836, 543, 5000, 10_000),
    "prontoqa": (78, 179, 20_000, 20_000),
}
"""Task -> vocabulary size, longest sequence, training examples of our preset and of the paper's."""

_TEXT = {
    "gamma": 0.5,
    "n_heads": 4,
    "d_model": 128,
    "d_head": 32,
    "d_mlp": 512,
    "d_vocab": 256,
    "n_ctx": 256,
}
_TEXT_RECIPE = {"n_samples": 20_000, "batch_size": 32, "epochs": 1, "warmup_steps": 50}
_TEXT_RECIPE |= {"eval_every": 250}
"""Our own model and recipe for figure 7D of 2501.08537, which states only the network, GPT-2 Medium."""


def _in_words(kind: str, n_samples: int, model: dict[str, Any], recipe: dict[str, Any]) -> Parts:
    d_vocab, n_ctx, *_ = _IN_WORDS[kind]
    sizes = {"d_vocab": d_vocab, "n_ctx": n_ctx}
    return {"task": {"kind": kind}, "model": model | sizes, "train": recipe | {"n_samples": n_samples}}


PRESETS: dict[str, Parts] = {
    "quick": {},
    "paper-2l1h": {
        "model": {"variant": "postnorm", "d_model": 400, "d_head": 200, "d_mlp": 1200},
        "train": _PAPER,
    },
    "paper-gpt2": {"model": {"variant": "gpt2", **_TEN_LAYERS}, "train": _PAPER},
    "paper-released": {"model": {"variant": "released", **_TEN_LAYERS}, "train": _PAPER},
    # One preset for each phase, found on seeds 0 to 2 and 4 (docs/presets.md has their results).
    "phase1": {"model": {"gamma": 0.4}, "train": {"n_samples": 5_000, "steps": 1000}},
    "phase2": {"model": {"gamma": 0.4}, "train": {"n_samples": 20_000, "steps": 1000}},
    "phase2-commutative": {
        "model": {"variant": "released", "n_heads": 4, "gamma": 0.6},
        "train": {"steps": 700},
    },
    "phase3": {"model": {"gamma": 0.7}, "train": {"steps": 1000}},
    "addition": {
        "task": {"kind": "addition", "mode": "number"},
        "model": {"gamma": 0.8, "d_head": 128, "d_mlp": 256, "d_vocab": 201, "n_ctx": 4},
        "train": _ADDITION,
    },
    "addition-reversed": {
        "task": {"kind": "addition", "mode": "reversed"},
        "model": {"gamma": 0.7, "n_heads": 4, "d_head": 32, "d_mlp": 256, "d_vocab": 13, "n_ctx": 9},
        "train": _ADDITION,
    },
    "concept_graphs": {
        "task": {"kind": "concept_graphs", "image_side": 24},
        "model": {"input_side": 24, "n_feat": 16, "gamma": 0.5},
        "train": _UNET_RECIPE | {"lr": 1e-3, "steps": 3000},
    },
    "paper-concept_graphs": {
        "task": {"kind": "concept_graphs", "image_side": 64, "n_diffusion_steps": 500, "centred": False},
        "model": {"input_side": 64, "n_feat": 256, "gamma": 0.5},
        "train": _UNET_RECIPE | {"lr": 1e-4, "steps": 23_700, "eval_every": 7900},
    },
    "text": {"task": {"kind": "text"}, "model": _TEXT, "train": _TEXT_RECIPE},
    **{kind: _in_words(kind, n, _WORDS, _WORD_RECIPE) for kind, (*_, n, _) in _IN_WORDS.items()},
    **{f"paper-{kind}": _in_words(kind, n, _GPT2_SMALL, _GPT2_RECIPE) for kind, (*_, n) in _IN_WORDS.items()},
}
"""Preset -> the fields it changes. Other fields have their defaults, which are the `quick` preset's
values."""


def preset(name: str = "quick", **fields: Any) -> RunConfig:
    """A named run, with single fields of task, model or training replaced.

    Args:
        name: one of `PRESETS`.
        **fields: any field of the task, of ModelConfig or of TrainConfig by its name, and the task's `kind`.

    Returns:
        Task, model and training configuration; it unpacks into the arguments of `train`.

    Raises:
        ValueError: an unknown preset or field, or an unusable value.

    Example:
        >>> preset("quick", gamma=0.5, seed=3).train_config.seed
        3

    Source: models and recipe of arXiv 2405.05409 and 2501.08537; the phase presets are our own.
    """
    return RunConfig.from_dict(merged(preset_parts(name), sorted_by_part(fields)), is_new=True)


def preset_parts(name: str) -> Parts:
    """The fields that a preset changes.

    Raises:
        ValueError: no such preset.
    """
    check_choice("preset", name, tuple(PRESETS))
    return PRESETS[name]
