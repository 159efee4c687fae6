"""The texts of pages on a verdict, and of each picture (the captions are in `templates/captions.toml`)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from anchorlens.verdict.verdict import Posterior, Verdict

TEMPLATES = Path(__file__).parent / "templates"


class Agreement(NamedTuple):
    """Texts that state whether the probe and behavioural verdicts assign the same phase."""

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
"""The texts of each value of `Verdict.agreement`."""


def what_is_named(posterior: Posterior) -> str:
    """Return what a verdict assigns: a `phase`, a `solution`, or a `label` if no phase is calibrated."""
    if posterior.probabilities is None and getattr(posterior, "evidence", ()):
        return "label"
    return "solution" if "inferential" in (posterior.probabilities or {}) else "phase"


def beside(verdict: Verdict) -> str:
    """Write the note below the phase by the probes: the decoding verdict."""
    by_decoding = verdict.by_decoding
    decoded = by_decoding.in_words()
    return f"Decoding verdict: {by_decoding.phase.label} ({decoded})." if decoded else ""


class Caption(NamedTuple):
    """The texts of a picture."""

    title: str
    """The heading above the picture."""
    how_to_read: str
    """A few short sentences on what is plotted, what to look for, and what it means."""


UNCALIBRATED = "Readings; the weight readings below are not evidence for any phase"
"""The heading of the readings if no phase is calibrated."""
NO_DOCSTRING = "This probe has no docstring; its first sentence would be shown here."
"""The text on how to read the picture if a user's probe has no docstring."""


def captions_in(file: Path) -> dict[str, Caption]:
    """Read the caption of each picture from a TOML file with a table for each picture."""
    texts = tomllib.loads(file.read_text(encoding="utf-8"))
    return {name: Caption(**texts) for name, texts in texts.items()}


CAPTIONS = captions_in(TEMPLATES / "captions.toml")
"""The caption of each picture of the report, by the probe's name; products add captions."""


def caption_of(probe: str, result: object = None) -> Caption | None:
    """Return the caption of a shipped probe's picture, the caption for tokens if no shifts are known."""
    of_tokens = not getattr(result, "steps", True) or getattr(result, "key_position", 0) is None
    return (CAPTIONS.get(f"{probe}_of_tokens") if of_tokens else None) or CAPTIONS.get(probe)
