"""The checkpoint that a run starts from: its file, and the hash by which a change is noticed."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

from anchorlens.safe import ordinary_file, safe_text


def checkpoint_in(path: str) -> Path:
    """The checkpoint file at a path: the path itself, or `ckpt.pt` in the folder of a run."""
    return Path(path, "ckpt.pt") if os.path.isdir(path) else Path(path)


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, 64 hexadecimal digits; a file is read again only if it has changed.

    Raises:
        ValueError: it does not exist, or is no file.
    """
    try:
        status = path.stat()
        return _sha256(path, status.st_mtime_ns, status.st_size)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(
            f"start must be a checkpoint or the folder of a run that has ended, got {safe_text(path)}: "
            f"{safe_text(reason)}"
        ) from None


@functools.lru_cache(maxsize=256)
def _sha256(path: Path, changed: int, size: int) -> str:
    with ordinary_file(path) as (file, _):
        digest = hashlib.sha256()
        while block := file.read(2**20):
            digest.update(block)
        return digest.hexdigest()
