"""Sentences of a page that its numbers must bear out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


class Stale(ValueError):
    """A sentence of the template is no longer so."""


def sentences_of(template: Path) -> Callable[[bool, str], str]:
    """The function `so(holds, sentence)` of a template, which gives the sentence or raises `Stale`."""

    def so(holds: bool, sentence: str) -> str:
        if not holds:
            raise Stale(f"{template.name} says {sentence!r}, which the numbers no longer say; write it anew")
        return sentence

    return so
