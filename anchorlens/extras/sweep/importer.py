"""The folder of a sweep, given in place of a model: an error names what reads it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anchorlens.files import Settings

KIND = ""


def file_in(folder: Path, config: Settings) -> None:
    """Refuse the folder of a sweep.

    Raises:
        ValueError: If the folder is that of a sweep.
    """
    if (folder / "sweep.json").is_file():
        raise ValueError(
            "the path must be that of one model, got the folder of a sweep. Use anchorlens status or "
            "anchorlens diagram, or give the folder of one run in cells",
        )


def recognises(content: Mapping[str, Any]) -> bool:
    """Return False: no file of weights is a sweep."""
    return False


read = recognises
