"""The user's cache: folders for files that were fetched or computed once."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache(name: str) -> Path:
    """A folder of the user's cache, made if it is not there yet.

    Args:
        name: of the folder, such as `cogs`.

    Returns:
        The folder, in `$ANCHORLENS_CACHE` if that is set, else in the cache of the operating system.

    Raises:
        OSError: it cannot be made.
    """
    import pooch

    folder = Path(os.environ.get("ANCHORLENS_CACHE") or pooch.os_cache("anchorlens")) / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        advice = "name a folder for such files in the environment variable ANCHORLENS_CACHE"
        raise OSError(error.errno, f"{error.strerror}; {advice}", str(folder)) from None
    return folder
