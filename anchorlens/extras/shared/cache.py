"""The user's cache: folders for files that were fetched or computed once."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_OF_THE_SYSTEM = "~/Library/Caches" if sys.platform == "darwin" else "~/.cache"


def user_cache(name: str) -> Path:
    """A folder of the user's cache, made if it is missing.

    Args:
        name: of the folder, such as `cogs`.

    Returns:
        The folder, in `$ANCHORLENS_CACHE` if that is set, else in the cache of the operating system.

    Raises:
        OSError: it cannot be made.
    """
    of_the_system = Path(os.environ.get("XDG_CACHE_HOME") or _OF_THE_SYSTEM).expanduser()
    folder = Path(os.environ.get("ANCHORLENS_CACHE") or of_the_system / "anchorlens") / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        advice = "name a folder for such files in the environment variable ANCHORLENS_CACHE"
        raise OSError(error.errno, f"{error.strerror}; {advice}", str(folder)) from None
    return folder
