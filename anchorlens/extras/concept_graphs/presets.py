"""The presets of Concept Graphs."""

_RECIPE = {
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

PRESETS = {
    "concept_graphs": {
        "task": {"kind": "concept_graphs", "image_side": 24},
        "model": {"input_side": 24, "n_feat": 16, "gamma": 0.5},
        "train": _RECIPE | {"lr": 1e-3, "steps": 3000},
    },
    "paper-concept_graphs": {
        "task": {"kind": "concept_graphs", "image_side": 64, "n_diffusion_steps": 500, "centred": False},
        "model": {"input_side": 64, "n_feat": 256, "gamma": 0.5},
        "train": _RECIPE | {"lr": 1e-4, "steps": 23_700, "eval_every": 7900},
    },
}
