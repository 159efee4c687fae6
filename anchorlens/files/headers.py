"""The header of a file of ours: its format and version, its parts, and what is said of a wrong one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import NoneType
from typing import Any

from anchorlens.configuration import check_number
from anchorlens.files.container import CheckpointError
from anchorlens.foreign import LONGEST, shown

_MOST_STEPS = 10**12

SENSELESS = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, RuntimeError)
"""What values of the wrong kinds lead to, beside the refusals that say so."""


def cause(error: Exception) -> str:
    """A refusal of ours as it is; of Python's own texts, which are for programmers, what they mean."""
    if type(error) is ValueError:
        return str(error)
    if isinstance(error, KeyError):
        return f"{shown(error.args[0] if error.args else '')} is missing"
    return "a value in it is of another kind than it must be"


def checked_header(header: Mapping[str, Any]) -> dict[str, Any]:
    """The header of a checkpoint, if its parts are of the kinds that they must be.

    Raises:
        ValueError: one is missing, or of another kind.
    """
    kinds: dict[str, Any] = {
        "model": dict,
        "task": dict,
        "train": (dict, NoneType),
        "step": (int, NoneType),
        "metrics": dict,
        "versions": dict,
    }
    for name, kind in kinds.items():
        if name not in header:
            raise ValueError(f"{name} is missing")
        if not isinstance(header[name], kind):
            words = "an integer" if name == "step" else "a table"
            raise ValueError(f"{name} must be {words}, got {shown(header[name])}")
    if header["step"] is not None:
        check_number("step", header["step"], minimum=0, maximum=_MOST_STEPS, integer=True)
    for name, version in header["versions"].items():
        if not isinstance(version, str) or len(version) > LONGEST:
            raise ValueError(f"the version of {shown(name)} must be a short text, got {shown(version)}")
    return {name: header[name] for name in kinds}


def check_format(path: str | os.PathLike[str], header: Mapping[str, Any], name: str, version: int) -> None:
    """Check that a header is of the format and of no later version than this library reads.

    Raises:
        CheckpointError: another format, or a later version.
    """
    if header.get("format") != name:
        raise CheckpointError(path, f"not an {name}: its format is {shown(header.get('format'))}")
    found = header.get("format_version")
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise CheckpointError(path, f"not an {name}: its format version is {shown(found)}")
    if found > version:
        raise CheckpointError(
            path, f"too new: format version {shown(found)}, this anchorlens reads up to {version}; upgrade it"
        )
