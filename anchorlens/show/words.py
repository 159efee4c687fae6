"""What pages say of a verdict, and beside each picture (the captions stand in `templates/captions.toml`)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from anchorlens.verdict.mechanism import Mechanism

TEMPLATES = Path(__file__).parents[1] / "templates"


class Agreement(NamedTuple):
    """Whether behaviour and mechanism name one phase, as it is shown."""

    sign: str
    """Between both."""
    sentence: str
    """Without its full stop."""
    word: str
    """In a table."""


AGREEMENT: Mapping[bool | None, Agreement] = {
    True: Agreement("=", "Both verdicts agree", "yes"),
    False: Agreement("≠", "The verdicts disagree", "NO"),
    None: Agreement("?", "No comparison", "-"),
}
"""What `Verdict.agreement` holds -> how it is shown."""


def outside_calibration(mechanism: Mechanism) -> str:
    """Why the probabilities are less sure; empty where the model is like those of the calibration."""
    reasons = "; ".join(mechanism.outside)
    return f"Less sure, for it lies outside the calibration: {reasons}." if reasons else ""


def beside(mechanism: Mechanism) -> str:
    """What stands below the phase of the mechanism: the verdict by the probes, and what is unusual."""
    by_probes = mechanism.by_probes
    alone = by_probes.in_words() if by_probes is not None else ""
    notes = (f"By the probes alone: {alone}." if alone else "", outside_calibration(mechanism))
    return " ".join(filter(None, notes))


class Caption(NamedTuple):
    """What stands beside a picture."""

    title: str
    """Heading above the picture."""
    how_to_read: str
    """One sentence, or a few."""


NO_DOCSTRING = "Its docstring, whose first sentence would stand here, says nothing about it."
"""How to read the picture of a user's probe that has none."""

_TEXTS = tomllib.loads((TEMPLATES / "captions.toml").read_text(encoding="utf-8"))
CAPTIONS, MAP_CAPTIONS = (
    {name: Caption(**texts) for name, texts in _TEXTS[page].items()} for page in ("report", "diagram")
)
"""Picture of the report (a probe by its name), and map of the diagram -> its heading and how to read it."""
