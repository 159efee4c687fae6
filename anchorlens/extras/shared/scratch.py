"""Temporary folders of one process: removed when it ends, or after a day if it was killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

LOCK = ".anchorlens-scratch"
"""The file in such a folder that its process holds locked; no folder without one is ever removed."""
DAY = 24 * 3600
"""Seconds before the folder of a killed process is removed: locks fail on some network file systems."""


@contextlib.contextmanager
def scratch_folder(prefix: str, parent: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """A new folder that only this user can enter; removes those of killed processes in the same place.

    Args:
        prefix: of its name.
        parent: where it is made; None for the system's temporary directory.

    Raises:
        OSError: it cannot be made.
    """
    import filelock  # imported late: few processes need it

    place = Path(tempfile.gettempdir() if parent is None else parent)
    for left in place.glob(f"{prefix}*/{LOCK}"):
        _remove_if_left(left)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
    try:
        with filelock.FileLock(folder / LOCK):
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_if_left(lock: Path) -> None:
    """Remove the folder of a lock that is this user's, a day old, and held by nobody."""
    import filelock

    with contextlib.suppress(OSError, filelock.Timeout):
        status, folder = lock.lstat(), lock.parent.lstat()
        if folder.st_uid == os.getuid() and time.time() - status.st_mtime > DAY:
            with filelock.FileLock(lock, timeout=0):
                shutil.rmtree(lock.parent)
