"""The presets of modular arithmetic.

Sources: arXiv 2301.05217 and the demonstration of TransformerLens (`grokking`); the two quick presets are
ours.
"""

from typing import Any

_NETWORK = {"variant": "plain", "n_layers": 1, "n_heads": 4, "d_head": 32, "d_mlp": 512, "gamma": 0.5}
_RECIPE = {"beta2": 0.98, "clip_norm": 0, "warmup_steps": 10, "lr_end_factor": 1, "freeze": "biases"}


def _preset(p: int, share: float, **recipe: Any) -> dict[str, dict[str, Any]]:
    """Make a preset of addition modulo p, in which every trained pair is one sample."""
    return {
        "task": {"kind": "modular", "modulus": p, "trained_share": share},
        "model": _NETWORK | {"d_vocab": p + 1, "d_vocab_out": p, "n_ctx": 3},
        "train": _RECIPE | {"n_samples": round(share * p**2)} | recipe,
    }


PRESETS = {
    "grokking": _preset(113, 0.3, batch_size=3831, steps=25_000, weight_decay=1.0),
    "grokking-quick": _preset(59, 0.4, batch_size=410, steps=5000, weight_decay=2.0),
    "memorising-quick": _preset(59, 0.4, batch_size=410, steps=3000, weight_decay=0.0),
}
