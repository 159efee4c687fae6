"""The presets of the text task."""

_MODEL = {"gamma": 0.5, "n_heads": 4, "d_model": 128, "d_head": 32, "d_mlp": 512}
_BYTES = {"d_vocab": 256, "n_ctx": 256}
_RECIPE = {"n_samples": 20_000, "batch_size": 32, "epochs": 1, "warmup_steps": 50, "eval_every": 250}
"""Our own model and recipe for figure 7D of 2501.08537, which states only the network, GPT-2 Medium."""

PRESETS = {"text": {"task": {"kind": "text"}, "model": _MODEL | _BYTES, "train": _RECIPE}}
