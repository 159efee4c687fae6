"""Where the user's computer keeps what was fetched or computed once."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache(name: str) -> Path:
    """A folder of the user's cache; it need not be there yet.

    Args:
        name: of the folder, such as `cogs`.

    Returns:
        In `$ANCHORLENS_CACHE` where that is set, else in the cache of the operating system.
    """
    import pooch

    return Path(os.environ.get("ANCHORLENS_CACHE") or pooch.os_cache("anchorlens")) / name
