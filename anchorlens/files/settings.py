"""Configuration files for imported weights: JSON or TOML, recognised by content; errors name the file."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from anchorlens import safe
from anchorlens.models.annotations import HookedTransformerConfig
from anchorlens.models.config import ModelConfig
from anchorlens.tasks.registry import read_stored_task
from anchorlens.tasks.shared.base import Task
from anchorlens.texts import safe_repr, safe_text

ModelConfiguration: TypeAlias = (
    "str | os.PathLike[str] | Mapping[str, Any] | ModelConfig | HookedTransformerConfig"
)
"""The configuration of a bare state dict: a TOML or JSON file, or its content."""

BLOBS = "../../blobs"
"""The target folder of the links in a folder of the Hugging Face cache."""
_OPENING = ("vocabulary", "task", "train", "preset", "model")
"""The fields of a configuration file that may name other files."""
_LARGEST = 2**20
"""The largest size of a configuration or vocabulary file, in bytes."""
_YAML = (".yaml", ".yml")
_LEAF = re.compile(r"^\s*([\w.-]+):[ \t]+([^\s#&*!|>\[{].*?)(?:\s+#.*)?$", re.MULTILINE)
_MOST_NAMED = 500
_NAMES = ("config", "cfg", "run", "params", "settings", "args", "hparams")
"""The names of files of settings beside a file of weights."""


@dataclass(frozen=True)
class Settings:
    """The content of a configuration file."""

    path: Path
    """The configuration file, which errors name."""
    values: dict[str, Any]
    """The top level of the file: name -> value."""
    notes: tuple[str, ...] = ()
    """What of a file beside weights is not used."""

    @classmethod
    def of(cls, config: ModelConfiguration) -> Settings:
        """Return the content of a configuration that is given as a file or in memory.

        Raises:
            CheckpointError: If the file cannot be read.
            ValueError: If `config` is neither a file nor a configuration.
        """
        if isinstance(config, str | os.PathLike):
            return cls.read(Path(config))
        content: Any = config
        if isinstance(config, ModelConfig):
            content = {"model": config.to_dict()}
        elif not isinstance(config, Mapping) and callable(getattr(config, "to_dict", None)):
            content = config.to_dict()
        if not isinstance(content, Mapping) or isinstance(config, type):
            raise ValueError(
                "config must be a TOML or JSON file, a ModelConfig, a HookedTransformerConfig or a dict of "
                f"their fields, got {type(config).__name__}. Give the path of a file"
            )
        text = json.dumps(dict(content), default=str)
        return cls(Path("config"), safe.read_json(text.encode()))

    @classmethod
    def read(cls, path: Path) -> Settings:
        """Read a file of JSON (which begins with a brace) or TOML.

        Raises:
            CheckpointError: If the file is missing, too large, or neither JSON nor TOML.
        """
        with safe.reading(path):
            data = safe.read_bytes(path, _LARGEST)
        is_json = False
        try:
            text = safe.decoded(data)
            is_json = text.lstrip().startswith("{")
            return cls(path, safe.read_json(text) if is_json else safe.read_toml(text))
        except ValueError as error:
            kind = None if is_json else safe.kind_of(data[: safe.START])
            what = kind or f"an error: {error}"
            raise safe.CheckpointError(path, f"the file must be valid JSON or TOML, got {what}") from None

    @classmethod
    def of_weights(cls, path: Path, values: Mapping[str, Any]) -> tuple[Settings, list[str]]:
        """Return the configuration in a file of weights without the names of other files, and a note.

        The name of a class, as in `model`, needs no note.

        Args:
            path: the path that errors name.
            values: the fields, which another person may have written.
        """
        noted = [name for name in _OPENING if name in values and not str(values[name]).isidentifier()]
        dropped = ", ".join(noted)
        note = f"not used, since the configuration of a run opens no other file: {dropped}"
        kept = {name: value for name, value in values.items() if name not in _OPENING}
        return cls(path, kept), [note] if dropped else []

    def task(self) -> Task | None:
        """Return the task that the configuration names, or None if no task is named.

        Raises:
            CheckpointError: If the task is invalid.
        """
        if "task" not in self.values:
            return None
        with safe.reading(self.path, "its task makes no sense"):
            if not isinstance(self.values["task"], dict):
                raise ValueError(f"task must be a table of fields, got {safe_repr(self.values['task'])}")
            return read_stored_task(self.values["task"], without_places=True)


def _leaves_of_yaml(text: str) -> Iterator[tuple[str, Any]]:
    """Yield the plain values of a YAML text with their names, whatever table they stand in."""
    for name, value in _LEAF.findall(text):
        try:
            yield name, safe.read_json(value.lower() if value in ("True", "False") else value)
        except ValueError:
            yield name, None if value in ("~", "None") else value.strip("'\"")


def _leaves(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values of a table and of the tables in it with their names."""
    for name, value in table.items():
        yield from _leaves(value) if isinstance(value, Mapping) else [(name, value)]


def settings_beside(file: Path) -> Settings | None:
    """Return the settings in a JSON or YAML file in the folder of a file of weights, or None without a file.

    Values of inner tables count by their own names. A name with several values is left out, with a note.

    Raises:
        CheckpointError: If the file cannot be read, or a link leads out of the folder.
    """
    stems = dict.fromkeys((file.stem, file.stem.replace("model", "config", 1), *_NAMES))
    for name in (stem + suffix for stem in stems for suffix in (".json", *_YAML)):
        path = file.parent / name
        if path.is_file():
            with safe.reading(path):
                safe.check_inside(file.parent, path, BLOBS)
                if path.suffix in _YAML:
                    leaves = [*_leaves_of_yaml(safe.decoded(safe.read_bytes(path, _LARGEST)))]
                else:
                    leaves = [*_leaves(Settings.read(path).values)]
            values = dict(leaves)
            several = sorted({name for name, value in leaves if value != values[name]})
            named = safe_text(", ".join(several), _MOST_NAMED)
            notes = (f"{path}: not used, since its tables give several values: {named}",)
            kept = {name: value for name, value in values.items() if name not in several}
            return Settings(path, kept, notes if several else ())
    return None
