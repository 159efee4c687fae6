"""Presets of modular arithmetic."""

PRESETS = {
    "grokking-quick": {
        "task": {"kind": "modular"},
        "model": {"variant": "plain"},
        "train": {},
    },
}
