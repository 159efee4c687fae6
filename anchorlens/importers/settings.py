"""Configuration files of others: JSON or TOML, told by content, and blamed when they make no sense."""

from __future__ import annotations

import contextlib
import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from anchorlens.container import CheckpointError, readable
from anchorlens.task import AnchorTask

_LARGEST = 2**20
"""Bytes of a configuration file."""

_SENSELESS = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, RuntimeError)


@contextlib.contextmanager
def blamed(path: Path, what: str) -> Iterator[None]:
    """Turn whatever senseless values lead to into one line that names their file."""
    try:
        yield
    except CheckpointError:
        raise
    except _SENSELESS as error:
        raise CheckpointError(path, f"{what}: {error}") from None


@dataclass(frozen=True)
class Settings:
    """What a configuration file holds."""

    path: Path
    """The file."""
    values: dict[str, Any]
    """Its top level."""

    @classmethod
    def read(cls, path: Path) -> Settings:
        """Read a file of JSON (it begins with a brace) or TOML.

        Raises:
            CheckpointError: missing, too large, or neither.
        """
        with readable(path):
            if path.exists() and not path.is_file():
                raise CheckpointError(path, "cannot be read: a configuration must be an ordinary file")
            with path.open("rb") as file:
                data = file.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise CheckpointError(path, f"a configuration must have at most {_LARGEST:,} bytes")
        try:
            text = data.decode("utf-8")
            if text.lstrip().startswith("{"):
                return cls(path, json.loads(text, parse_constant=_no_number))
            return cls(path, tomllib.loads(text))
        except (ValueError, RecursionError) as error:
            raise CheckpointError(path, f"neither JSON nor TOML: {error}") from None

    @classmethod
    def beside(cls, file: Path, *folders: Path) -> Settings:
        """Read the config.json that belongs to a weights file.

        Raises:
            CheckpointError: none of the folders has one, or it cannot be read.
        """
        for folder in folders:
            if (folder / "config.json").is_file():
                return cls.read(folder / "config.json")
        raise CheckpointError(file, f"its config.json is missing; it belongs into {folders[0]}")

    def task(self) -> AnchorTask | None:
        """The task it gives, if any.

        Raises:
            CheckpointError: its task makes no sense.
        """
        if "task" not in self.values:
            return None
        with blamed(self.path, "its task makes no sense"):
            if not isinstance(self.values["task"], dict):
                raise ValueError(f"task must be a table of fields, got {self.values['task']!r}")
            return AnchorTask.from_dict(self.values["task"])


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")
