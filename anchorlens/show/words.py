"""What pages say of a verdict, and beside each picture (the captions stand in `templates/captions.toml`)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from anchorlens.verdict.verdict import ByProbes, Posterior, Verdict

TEMPLATES = Path(__file__).parents[1] / "templates"


class Agreement(NamedTuple):
    """Whether the probes and behaviour name one phase, as it is shown."""

    sign: str
    """Between both."""
    sentence: str
    """Without its full stop."""
    word: str
    """In a table."""


AGREEMENT: Mapping[bool | None, Agreement] = {
    True: Agreement("=", "Probes and behaviour agree", "yes"),
    False: Agreement("≠", "Probes and behaviour disagree", "NO"),
    None: Agreement("?", "Probes and behaviour are not compared", "-"),
}
"""What `Verdict.agreement` holds -> how it is shown."""


def outside_calibration(by_probes: ByProbes) -> str:
    """Why the probabilities are less sure; empty where model and task are like those of the calibration."""
    reasons = "; ".join(by_probes.outside)
    return f"Less sure, for it lies outside the calibration: {reasons}." if reasons else ""


def what_is_named(posterior: Posterior) -> str:
    """What a verdict names, a phase or a solution."""
    return "solution" if "inferential" in (posterior.probabilities or {}) else "phase"


def beside(verdict: Verdict) -> str:
    """What stands below the phase by the probes: what decoding says, and what is unusual."""
    decoded = verdict.by_decoding.in_words()
    notes = (f"By decoding: {decoded}." if decoded else "", outside_calibration(verdict.by_probes))
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
