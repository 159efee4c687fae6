"""The four models of `anchorlens demo`, two of them of Phase 2, shipped, and how to train them again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anchorlens.recipes.presets import preset
from anchorlens.recipes.run_config import RunConfig
from anchorlens.training.run import train_many

MODELS: Mapping[str, Mapping[str, Any]] = {
    "phase1": {},
    "phase2": {},
    "phase2-commutative": {"d_head": 32, "d_vocab": 110},
    "phase3": {},
}
"""Preset -> what is changed, to keep the file below 1.2 MB."""


def runs() -> dict[str, RunConfig]:
    """Return a map from the names of the four shipped runs to their configurations."""
    return {name: preset(name, seed=0, **fields) for name, fields in MODELS.items()}


def shipped() -> list[Path]:
    """Return the paths of the checkpoints that come with the package."""
    folder = Path(__file__).parent
    return [folder / f"{name}.pt" for name in MODELS]


def trained(out: Path, progress: bool | float | None = None) -> list[Path]:
    """Train the four shipped models. The training takes minutes.

    The function resumes unfinished runs in the folder, and reads finished runs.

    Args:
        out: the folder that contains the folders of the four runs.
        progress: the same argument as for `train`.

    Raises:
        ValueError: If a folder contains a run with a different configuration.
    """
    folders = [out / name for name in MODELS]
    train_many(runs().values(), outs=folders, resume=True, progress=progress)
    return [folder / "ckpt.pt" for folder in folders]
