"""The texts of the pages on a verdict and of each plot, with captions from `templates/captions.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from anchorlens.verdict.verdict import Posterior, Verdict

TEMPLATES = Path(__file__).parent / "templates"


class Agreement(NamedTuple):
    """The texts that state whether the probe and behavioural verdicts assign the same phase."""

    sign: str
    """The sign between the two phases."""
    sentence: str
    """The sentence without its full stop."""
    word: str
    """The word for a table."""


AGREEMENT: Mapping[bool | None, Agreement] = {
    True: Agreement("=", "The probe and behavioural verdicts agree", "yes"),
    False: Agreement("≠", "The probe and behavioural verdicts disagree", "NO"),
    None: Agreement("?", "The probe and behavioural verdicts are not compared", "-"),
}
"""The texts for each value of `Verdict.agreement`."""


def what_is_named(posterior: Posterior) -> str:
    """Return the word for the kind of label that a verdict assigns: `phase`, `solution` or `label`."""
    if posterior.probabilities is None and getattr(posterior, "evidence", ()):
        return "label"
    return "solution" if "inferential" in (posterior.probabilities or {}) else "phase"


def beside(verdict: Verdict) -> str:
    """Return the note on the decoding verdict, for the line below the probe verdict."""
    by_decoding = verdict.by_decoding
    decoded = by_decoding.in_words()
    return f"Decoding verdict: {by_decoding.phase.label} ({decoded})." if decoded else ""


class Caption(NamedTuple):
    """The texts of a plot."""

    title: str
    """The heading above the plot."""
    how_to_read: str
    """A few short sentences on what the plot shows, what to look for, and what the plot means."""


UNCALIBRATED = "Readings; the weight readings below are not evidence for any phase"
"""The heading of the readings if no phase is calibrated."""
NO_DOCSTRING = "This probe has no docstring; its first sentence would be shown here."
"""The caption of the plot of your own probe without a docstring."""


def captions_in(file: Path) -> dict[str, Caption]:
    """Read the captions from a TOML file with a table for each plot."""
    texts = tomllib.loads(file.read_text(encoding="utf-8"))
    return {name: Caption(**texts) for name, texts in texts.items()}


CAPTIONS = captions_in(TEMPLATES / "captions.toml")
"""The caption of each plot of the report, by the name of the probe. Products add captions."""


def caption_of(probe: str, result: object = None) -> Caption | None:
    """Return the caption of a shipped probe's plot.

    If the shifts or the key position of the result are unknown, the function returns the caption for general
    token sequences.
    """
    of_tokens = not getattr(result, "steps", True) or getattr(result, "key_position", 0) is None
    return (CAPTIONS.get(f"{probe}_of_tokens") if of_tokens else None) or CAPTIONS.get(probe)
