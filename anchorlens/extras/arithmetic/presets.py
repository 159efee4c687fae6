"""The presets of addition."""

_RECIPE = {"batch_size": 256, "steps": 2000}
"""Our own recipe for figure 7C of 2501.08537, which does not state a recipe."""

PRESETS = {
    "addition": {
        "task": {"kind": "addition", "mode": "number"},
        "model": {"gamma": 0.8, "d_head": 128, "d_mlp": 256, "d_vocab": 201, "n_ctx": 4},
        "train": _RECIPE,
    },
    "addition-reversed": {
        "task": {"kind": "addition", "mode": "reversed"},
        "model": {"gamma": 0.7, "n_heads": 4, "d_head": 32, "d_mlp": 256, "d_vocab": 13, "n_ctx": 9},
        "train": _RECIPE,
    },
}
