"""The texts and formats of every output, with the captions of plots from `templates/captions.toml`."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup, escape

from anchorlens.texts import safe_text

if TYPE_CHECKING:
    from anchorlens.verdict.verdict import ProbeVerdict

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


HELD_OUT_RUNS = 170
RIGHT = {"default": 145, "quick": 134, "hyperparameters": 131}
"""The number of held-out runs on which the probe verdict by default, the same with `--quick`, and the
hyperparameters alone assign the right phase (`python research/calibrate.py --held-out`)."""


def trust_in_words() -> str:
    """Return one line on what the two verdicts that assign a phase are worth."""
    right = {name: f"{n / HELD_OUT_RUNS:.0%}" for name, n in RIGHT.items()}
    others = f"{right['quick']} with --quick, hyperparameters alone {right['hyperparameters']}"
    by_probes = f"right on {right['default']} of {HELD_OUT_RUNS} held-out runs ({others})"
    return f"Trust: by behaviour, the definition; by the probes, {by_probes}."


def what_is_named(by_probes: ProbeVerdict) -> str:
    """Return the word for the kind of label that a verdict assigns: `phase`, `solution` or `label`."""
    if by_probes.probabilities is None and by_probes.evidence:
        return "label"
    return "solution" if "inferential" in (by_probes.probabilities or {}) else "phase"


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


MOST_CHARACTERS = 240
"""The largest number of characters of a text in a view. Views cut longer texts at the end."""
_LEAST = 5e-4


def number(value: float | None, spec: str = ".3g") -> str:
    """Return a number as text for a table.

    The text has a true minus sign. None, NaN and infinity become `none`. A number whose absolute value is
    below 0.0005 becomes 0.

    >>> number(-0.12345), number(float("nan")), number(None), number(1.0, ".3f"), number(6e-10)
    ('−0.123', 'none', 'none', '1.000', '0')
    """
    if value is None or not math.isfinite(value):
        return "none"
    return f"{0.0 if abs(value) < _LEAST else value:{spec}}".replace("-", "−")


def plain(value: object) -> str:
    """Return a value of a configuration or of a probe as text.

    >>> plain(1 / 15), plain(None), plain([3, 4]), plain(100_000), plain(1.0), plain({"1": 5})
    ('0.0666667', 'none', '[3, 4]', '100,000', '1', '{"1": 5}')
    """
    if value is None:
        return "none"
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, ensure_ascii=False, default=str)
    if isinstance(value, bool | str):
        return safe_text(value, None)
    return f"{value:.6g}" if isinstance(value, float) else f"{value:,}"


def ticks(text: str) -> Markup:
    """Escape a text and mark the parts between backticks as code.

    >>> str(ticks("`a<b` where both are there"))
    '<code>a&lt;b</code> where both are there'
    """
    text = safe_lines(text)
    parts = [escape(part) for part in text.split("`")]
    if len(parts) % 2 == 0:  # a backtick without a partner
        return escape(text)
    return Markup().join(Markup(f"<code>{part}</code>") if i % 2 else part for i, part in enumerate(parts))


def parts(name: str) -> list[str]:
    """Split a name in a program at the points where a line may break.

    >>> parts("stable_rank.w_q")
    ['stable_', 'rank.', 'w_', 'q']
    """
    return re.findall(r"[^._/]*[._/]|[^._/]+", name)


def safe_lines(value: object) -> Any:
    """Prepare a value for HTML by escaping the control characters of a text except line breaks."""
    if not isinstance(value, str) or isinstance(value, Markup) or value.isprintable():
        return value
    return "\n".join(line if line.isprintable() else safe_text(line, None) for line in value.split("\n"))


def short(text: str, most: int = MOST_CHARACTERS) -> str:
    """Cut a text at the end if the text is too long for a view.

    >>> short("composition", 5)
    'comp…'
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def heading(text: str) -> str:
    """Return a column heading or title with its first letter in upper case.

    >>> heading("by behaviour"), heading("")
    ('By behaviour', '')
    """
    return text[:1].upper() + text[1:]


def megabytes(n_bytes: int) -> str:
    """Return a number of bytes in megabytes, in words.

    >>> megabytes(3_200_000_000)
    '3,200 MB'
    """
    return f"{n_bytes / 1e6:,.0f} MB"
