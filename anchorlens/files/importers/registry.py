"""The checkpoint formats that can be read, in the order in which they are tried."""

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
    """The members of every importer module."""

    KIND: Any
    """The name of the format, such as `nanoGPT`."""

    def file_in(self, folder: Path, config: Settings) -> Path | None:
        """Find the weights file in a folder with this config.json, or return None for another format."""
        ...

    def recognises(self, content: Mapping[str, Any]) -> bool:
        """Check whether the content of a file has this format."""
        ...

    def read(self, source: Source) -> Imported | ImportedModel:
        """Return the checkpoint, or the model if there is no checkpoint.

        The result includes notes for the user.
        """
        ...


_MEMBERS = ("KIND", "file_in", "recognises", "read")

IMPORTERS: tuple[Importer, ...] = (our_format, released_code, hugging_face, nanogpt, hooked_transformer)
"""The importers of the core."""


@functools.cache
def installed_importers() -> tuple[Importer, ...]:
    """Load the importers of installed packages.

    These importers read the unchanged file before the core's importers. A package names a module with the
    members of `Importer` by an entry point of the group `anchorlens.importers`.

    Raises:
        ValueError: If the importer of an installed package cannot be loaded, or lacks a member.
    """
    found = []
    for importer, origin in installed("anchorlens.importers", "importer"):
        if missing := [name for name in _MEMBERS if not hasattr(importer, name)]:
            raise ValueError(
                f"{origin} must be a module with {', '.join(_MEMBERS)}, got a module without {missing[0]}. "
                f"Define {missing[0]}"
            )
        found.append(importer)
    return tuple(found)
