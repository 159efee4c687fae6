"""The checkpoint that a run starts from: its file, and the hash by which a change is noticed."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from anchorlens.safe import CheckpointError, Contents, check_inside, read_tensors


def checkpoint_in(path: str | os.PathLike[str]) -> Path:
    """Return the path of a checkpoint file, or of the file `ckpt.pt` in the folder of a run.

    Raises:
        ValueError: If a link leads out of the folder.
    """
    if not os.path.isdir(path):
        return Path(path)
    check_inside(path, Path(path, "ckpt.pt"))
    return Path(path, "ckpt.pt")


def read_start(path: Path) -> Contents:
    """Return the contents and the SHA-256 of the checkpoint that a run starts from.

    Raises:
        ValueError: If the file does not exist, or is not a checkpoint.
    """
    try:
        return read_tensors(path)
    except CheckpointError as error:
        raise ValueError(
            f"start must be a checkpoint or the folder of a run that has ended, got an error: {error}"
        ) from None


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a checkpoint, as 64 hexadecimal digits.

    The function reads a file again only if the file has changed.

    Raises:
        ValueError: If the file does not exist, or is not a checkpoint.
    """
    try:
        status = path.stat()
    except (OSError, ValueError):
        return read_start(path).sha256  # says why
    return _sha256(path, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=256)
def _sha256(path: Path, changed: int, size: int) -> str:
    return read_start(path).sha256
