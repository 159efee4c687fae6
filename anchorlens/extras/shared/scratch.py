"""Temporary folders of one process. Each is removed when the process ends, or a day after it was killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

LOCK = ".anchorlens-scratch"
"""The lock file of a scratch folder, held by its process. Folders without this file are never removed."""
DAY = 24 * 3600
"""The seconds before the folder of a killed process is removed; locks fail on some network file systems."""


@contextlib.contextmanager
def scratch_folder(prefix: str, parent: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """Make a folder that only this user can enter, and remove the folders of killed processes.

    Args:
        prefix: the start of the folder's name.
        parent: the folder in which the new folder is made. Default: the system's temporary directory.

    Raises:
        OSError: If the folder cannot be made.
    """
    import filelock  # imported late: few processes need it

    place = Path(tempfile.gettempdir() if parent is None else parent)
    for lock in place.glob(f"{prefix}*/{LOCK}"):  # left by killed processes
        with contextlib.suppress(OSError, filelock.Timeout):
            is_ours = lock.parent.lstat().st_uid == os.getuid()
            if is_ours and time.time() - lock.lstat().st_mtime > DAY:
                with filelock.FileLock(lock, timeout=0):
                    shutil.rmtree(lock.parent)
    made = tempfile.TemporaryDirectory(prefix=prefix, dir=place, ignore_cleanup_errors=True)
    with made as name, filelock.FileLock(Path(name, LOCK)):
        yield Path(name)
