"""The kinds of checkpoint that can be read, in the order in which they are tried."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from anchorlens.files.importers import hooked_transformer, hugging_face, nanogpt, our_format, released_code
from anchorlens.files.importers.settings import Settings
from anchorlens.files.importers.source import Imported, ImportedModel, Source
from anchorlens.plugins import installed


class Importer(Protocol):
    """What every importer module defines."""

    KIND: Any
    """The name of what it reads, such as `nanoGPT`."""

    def file_in(self, folder: Path, config: Settings) -> Path | None:
        """The weights file in a folder with this config.json; None where the folder is of another kind."""
        ...

    def recognises(self, content: Mapping[str, Any]) -> bool:
        """Whether the content of a file is of this kind."""
        ...

    def read(self, source: Source) -> Imported | ImportedModel:
        """The checkpoint (or model, if it is no checkpoint) that the file holds, and notes for the user."""
        ...


_MEMBERS = ("KIND", "file_in", "recognises", "read")

IMPORTERS: tuple[Importer, ...] = (our_format, released_code, hugging_face, nanogpt, hooked_transformer)
"""The kinds that the core reads."""


@functools.cache
def installed_importers() -> tuple[Importer, ...]:
    """The importers that installed packages bring; they see a file first, whole and as it is.

    A package names a module with the members of `Importer` by an entry point of the group
    `anchorlens.importers`.

    Raises:
        ValueError: the importer of an installed package does not load, or lacks a member.
    """
    found = []
    for importer, origin in installed("anchorlens.importers", "importer"):
        if missing := [name for name in _MEMBERS if not hasattr(importer, name)]:
            raise ValueError(f"{origin} must be a module with {', '.join(_MEMBERS)}; it lacks {missing[0]}")
        found.append(importer)
    return tuple(found)
