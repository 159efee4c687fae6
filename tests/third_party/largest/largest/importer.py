"""Runs that keep their checkpoint of ours under a name of their own."""

from dataclasses import replace

from anchorlens.files import container
from anchorlens.files.importers import read_source

KIND = "largest run"


def file_in(folder, config):
    """The weights file of a folder of this kind."""
    return folder / "weights.pt" if config.values.get("format") == "largest run" else None


def recognises(content):
    """Whether it is a dict with a checkpoint of ours under `largest`."""
    return isinstance(content.get("largest"), dict) and container.is_ours(content["largest"])


def read(source):
    """The checkpoint, and a note."""
    found = read_source(replace(source, content=source.content["largest"]))
    return replace(found, notes=(*found.notes, "read by the package largest"))
