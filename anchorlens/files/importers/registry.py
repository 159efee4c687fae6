"""The kinds of checkpoint that can be read, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from anchorlens.files.importers import hooked_transformer, hugging_face, nanogpt, our_format, released_code
from anchorlens.files.importers.settings import Settings
from anchorlens.files.importers.source import Imported, ImportedModel, Source

Kind = Literal["anchorlens", "released code", "HookedTransformer state dict", "Hugging Face GPT-2", "nanoGPT"]


class Importer(Protocol):
    """What every importer module defines."""

    KIND: Any
    """The name of what it reads, one of `Kind`."""

    def file_in(self, folder: Path, config: Settings) -> Path | None:
        """The weights file in a folder with this config.json; None where the folder is of another kind."""
        ...

    def recognises(self, content: Mapping[str, Any]) -> bool:
        """Whether the content of a file is of this kind."""
        ...

    def read(self, source: Source) -> Imported | ImportedModel:
        """The checkpoint (or model, if it is no checkpoint) that the file holds, and notes for the user."""
        ...


IMPORTERS: tuple[Importer, ...] = (our_format, released_code, hugging_face, nanogpt, hooked_transformer)
assert {importer.KIND for importer in IMPORTERS} == set(get_args(Kind))
