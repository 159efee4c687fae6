"""Configuration files of others: JSON or TOML, recognised by content, and named in the error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anchorlens.safe import CheckpointError, read_bytes, read_json, read_toml, reading, safe_repr
from anchorlens.tasks.registry import read_stored_task
from anchorlens.tasks.shared.base import Task

_LARGEST = 2**20
"""Bytes of a configuration file, and of a vocabulary."""


@dataclass(frozen=True)
class Settings:
    """What a configuration file holds."""

    path: Path
    """The configuration file, which errors name."""
    values: dict[str, Any]
    """The top level of the file: names and what they hold."""

    @classmethod
    def read(cls, path: Path) -> Settings:
        """Read a file of JSON (it begins with a brace) or TOML.

        Raises:
            CheckpointError: missing, too large, or neither.
        """
        with reading(path):
            data = read_bytes(path, _LARGEST)
        try:
            is_json = data.lstrip().startswith(b"{")
            return cls(path, read_json(data) if is_json else read_toml(data))
        except ValueError as error:
            raise CheckpointError(path, f"neither JSON nor TOML: it {error}") from None

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

    def task(self) -> Task | None:
        """The task it gives, if any.

        Raises:
            CheckpointError: its task makes no sense.
        """
        if "task" not in self.values:
            return None
        with reading(self.path, "its task makes no sense"):
            if not isinstance(self.values["task"], dict):
                raise ValueError(f"task must be a table of fields, got {safe_repr(self.values['task'])}")
            return read_stored_task(self.values["task"])

    def vocabulary(self) -> Mapping[str, Any] | None:
        """Word of the task -> token of the model, if it gives them: a table, or a JSON file beside it.

        Raises:
            CheckpointError: it is neither, or the file lies elsewhere or cannot be read.
        """
        named = self.values.get("vocabulary")
        with reading(self.path, "its vocabulary makes no sense"):
            if isinstance(named, str):
                folder = self.path.parent.resolve()
                file = (folder / named).resolve()
                if folder not in file.parents:  # also behind a link
                    raise ValueError(
                        "vocabulary must name a file in the folder of its configuration, got "
                        f"{safe_repr(named)}; copy it there"
                    )
                return Settings.read(file).values
            if named is not None and not isinstance(named, dict):
                raise ValueError(f"vocabulary must be a table or the name of a file, got {safe_repr(named)}")
        return named
