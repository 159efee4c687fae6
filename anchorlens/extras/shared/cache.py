"""The user's cache: folders for files that were fetched or computed once."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_OF_THE_SYSTEM = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"


def user_cache(name: str) -> Path:
    """Return a folder of the user's cache, and make the folder if it does not exist.

    Args:
        name: the name of the folder, for example `cogs`.

    Returns:
        The folder, in `$ANCHORLENS_CACHE` if this variable is set, else in the operating system's cache.

    Raises:
        OSError: If the folder cannot be made.
    """
    of_the_system = Path(os.environ.get("XDG_CACHE_HOME") or _OF_THE_SYSTEM).expanduser()
    folder = Path(os.environ.get("ANCHORLENS_CACHE") or of_the_system / "anchorlens") / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        advice = "set the environment variable ANCHORLENS_CACHE to a folder for these files"
        raise OSError(error.errno, f"{error.strerror}; {advice}", str(folder)) from None
    return folder
