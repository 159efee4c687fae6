"""The summary of a verdict: one A4 page in vector graphics, for a paper's appendix or a slide."""

from __future__ import annotations

import os
import textwrap
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from anchorlens.extras.summary.panels import PANELS, SMALL, answers
from anchorlens.files import atomic_write, check_summary, library_versions
from anchorlens.probes import probe_named
from anchorlens.show import AGREEMENT, check_verdicts, inputs, number, outline, refusal
from anchorlens.texts import safe_text
from anchorlens.verdict import Verdict
from anchorlens.views import summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

A4 = (8.27, 11.69)
"""The width and height of an upright A4 page in inches."""
LEFT, TOP = 0.55, 11.25
"""The position of the first line in inches from the left edge and from the bottom."""
PLACES = [(x, y) for y in (9.1, 6.2, 3.3) for x in (LEFT, 4.45)]
"""The positions of the upper left corners of the panels, in inches from the left edge and the bottom."""
WIDE, HIGH = 3.3, 2.85
"""The width and height of a panel in inches."""
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.labelsize": 7,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "xtick.major.size": 2,
    "ytick.major.size": 2,
    "pdf.fonttype": 42,  # embeds fonts, so that text stays text
    "svg.fonttype": "none",
    "text.parse_math": False,  # a dollar sign in a file name stays one
    "svg.hashsalt": "anchorlens",  # makes equal pages equal byte by byte
}
MUTED = "#555555"
"""The colour of explanations."""


def write_summary(verdicts: Sequence[Verdict], path: str | os.PathLike[str]) -> None:
    """Write one page for each verdict, for a paper's appendix or a slide.

    The page is an upright A4 page in vector graphics with selectable text. The page shows the verdicts, their
    explanations, the accuracy of each pair, and pictures of probes. The pictures show information flow, t-SNE
    without the key, V similarity, condensation of W_Q, and PCA of the embedding. Equal verdicts give pages
    with equal bytes. The page reuses probe results that a report has measured. If a probe fails, the page
    gives the reason instead of the picture.

    Args:
        verdicts: one or more verdicts.
        path: the .pdf file to write, or a .svg or .png file for a single verdict. An existing file is
            replaced.

    Raises:
        ValueError: If `verdicts` or `path` is invalid, or matplotlib (the extra `export`) is not installed.
            Each verdict needs its model. Several verdicts need a .pdf file. The path must be an ordinary file
            in an existing folder, and must not be the file of a classified model.
        OSError: If writing fails. An existing file is then unchanged.

    Example:
        >>> write_summary([classify("a.pt"), classify("b.pt")], "summary.pdf")  # doctest: +SKIP
    """
    check_verdicts(verdicts)
    path = check_summary(path, "a summary's name", len(verdicts), inputs(verdicts))
    import matplotlib
    from matplotlib.backends.backend_pdf import PdfPages

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # for a name in another script
        matplotlib.rcdefaults()  # ignores the user's matplotlibrc
        matplotlib.rcParams.update(STYLE)
        pages = [_page(verdict) for verdict in verdicts]
        with atomic_write(path) as file:
            if path.suffix == ".pdf":
                with PdfPages(file, metadata={"CreationDate": None, "Title": pages[0][0]}) as pdf:
                    for _, figure in pages:
                        pdf.savefig(figure, dpi=300)
            else:
                kind = path.suffix[1:]
                metadata = {"Date": None, "Title": pages[0][0]} if kind == "svg" else {}
                pages[0][1].savefig(file, format=kind, dpi=200 if kind == "png" else 300, metadata=metadata)


summary.register(list, write_summary)


def _page(verdict: Verdict) -> tuple[str, Figure]:
    """Return the title and the figure of a verdict's page."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=A4, facecolor="white")
    _header(figure, verdict)
    axes = _axes(figure, PLACES[0])
    _words(figure, PLACES[0], "Answers", answers(axes, verdict.behaviour))
    for place, (name, (panel, draw)) in zip(PLACES[1:], PANELS.items(), strict=True):
        probe = probe_named(name)
        try:
            result = verdict.subject.measure(probe)
        except Exception as error:
            words = f"Not shown: {refusal(error, probe)}"
        else:
            words = result.headline()
            draw(_axes(figure, place), result)
        _words(figure, place, panel, words)
    return f"{safe_text(verdict.subject.name, None)}: {verdict.phase.label}", figure


def _header(figure: Figure, verdict: Verdict) -> None:
    """Write the name, the verdicts with their explanations, and the origin of the model."""
    by_probes, subject = verdict.by_probes, verdict.subject
    measures = verdict.behaviour.rows()
    measured = ", ".join(f"{title} {number(value.value, '.3f')}" for title, value, _ in measures)
    weights = ", ".join(f"{one.reading} {number(one.value)}" for one in by_probes.evidence)
    inside = by_probes.in_words() or (by_probes.phase.reason if by_probes.phase.is_named else weights)
    rows = [("By behaviour", verdict.phase, measured), ("By the probes", by_probes.phase, inside)]
    _write(figure, LEFT, TOP, subject.name, 60, 1, fontsize=14, fontweight="bold")
    _write(figure, LEFT, TOP - 0.3, outline(subject), 110, 1, color=MUTED)
    for k, (whose, phase, words) in enumerate(rows):
        y = TOP - 0.62 - 0.24 * k
        colour = MUTED if phase.colour == "currentColor" else phase.colour
        _write(figure, LEFT, y, whose, 20, 1, color=MUTED)
        _write(figure, LEFT + 0.95, y, "●", 1, 1, color=colour)
        _write(figure, LEFT + 1.12, y, phase.label.partition(":")[0], 40, 1, fontweight="bold")
        words = "; ".join(filter(None, (phase.cause, words)))
        _write(figure, LEFT + 3.3, y, words, 74, 2, fontsize=7)
    sentence = AGREEMENT[verdict.agreement].sentence
    told = verdict.explanation
    told = told if told.startswith(sentence) else f"{sentence}. {told}"
    told = " ".join((told, *verdict.warnings))
    _write(figure, LEFT, TOP - 1.4, told, 125, 4)
    versions = "; ".join(f"{name} {version}" for name, version in library_versions().items())
    origin = f"SHA-256 {subject.sha256}; " if subject.sha256 else ""
    _write(figure, LEFT, 0.22, f"{origin}{versions}", 170, 1, fontsize=6, color=MUTED)


def _axes(figure: Figure, place: tuple[float, float]) -> Axes:
    """Make axes below the text of a panel, with room for labels at their sides."""
    x, y = place
    left, bottom = (x + 0.7) / A4[0], (y - HIGH + 0.45) / A4[1]
    return figure.add_axes((left, bottom, (WIDE - 0.7) / A4[0], (HIGH - 0.45 - 0.55) / A4[1]))


def _words(figure: Figure, place: tuple[float, float], title: str, words: str) -> None:
    """Write the title of a panel and the sentence on what it shows."""
    x, y = place
    _write(figure, x, y, title, 50, 1, fontweight="bold", fontsize=9)
    _write(figure, x, y - 0.19, words, 66, 5 if words.startswith("Not shown") else 2, fontsize=7, color=MUTED)


def _write(figure: Figure, x: float, y: float, text: str, width: int, most: int, **style: Any) -> None:
    """Write a text below a position in inches, at most `most` lines of `width` characters; cut ends get …."""
    lines = textwrap.wrap(safe_text(text, None), width, max_lines=most, placeholder=" …")
    figure.text(x / A4[0], y / A4[1], "\n".join(lines), va="top", linespacing=1.25, **style)
