"""The reader of anchorlens checkpoints and of the folders of anchorlens runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anchorlens.files import container
from anchorlens.files.checkpoint import from_contents
from anchorlens.files.importers.settings import Settings
from anchorlens.files.importers.source import Imported, Source
from anchorlens.safe import CheckpointError

KIND = "anchorlens"


def file_in(folder: Path, config: Settings) -> Path | None:
    """Find the last checkpoint of a run.

    Raises:
        CheckpointError: If the run has no checkpoint yet.
    """
    if config.values.get("format") != "anchorlens run":
        return None
    if (folder / "ckpt.pt").exists():
        return folder / "ckpt.pt"
    trajectory = sorted((folder / "checkpoints").glob("step_*.pt"))
    if not trajectory:
        raise CheckpointError(
            folder, "the run must have a checkpoint, got none yet. Wait for the first checkpoint"
        )
    return trajectory[-1]


def recognises(content: Mapping[str, Any]) -> bool:
    """Check whether `save_checkpoint` wrote the file."""
    return container.is_ours(content)


def read(source: Source) -> Imported:
    """Read a checkpoint in the format of anchorlens.

    Raises:
        CheckpointError: If the file is damaged, or has another format of anchorlens.
    """
    checkpoint = from_contents(source.file, source.content)
    notes = []
    if source.path.is_dir() and source.file.parent != source.path:
        notes.append(f"the run has not ended: this is its checkpoint of step {checkpoint.step}")
    if source.config is not None:
        notes.append(f"{source.config.path} was not needed: the checkpoint has its own configuration")
    return Imported(checkpoint, tuple(notes))
