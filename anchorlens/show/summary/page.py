"""The summary of a verdict: one page of an A4 sheet, as vectors, for a paper's appendix or a slide."""

from __future__ import annotations

import os
import textwrap
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from anchorlens.files.checkpoint import library_versions
from anchorlens.files.writing import atomic_write, check_summary
from anchorlens.probes import probe_named
from anchorlens.probes.from_file import what_went_wrong
from anchorlens.safe import safe_text
from anchorlens.show.formats import number
from anchorlens.show.report.page import check_verdicts, inputs, outline
from anchorlens.show.summary.panels import PANELS, SMALL, answers
from anchorlens.show.words import AGREEMENT, outside_calibration
from anchorlens.verdict.verdict import Verdict
from anchorlens.views import summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

A4 = (8.27, 11.69)
"""Inches, upright, as a paper's appendix has its pages."""
LEFT, TOP = 0.55, 11.25
"""Inches from the left edge and from the bottom, of the first line."""
PLACES = [(x, y) for y in (9.1, 6.2, 3.3) for x in (LEFT, 4.45)]
"""The same of the upper left corners of the panels."""
WIDE, HIGH = 3.3, 2.85
"""Inches of a panel."""
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
    "pdf.fonttype": 42,  # text stays text, with its font
    "svg.fonttype": "none",
    "text.parse_math": False,  # a dollar sign in a file's name is one
    "svg.hashsalt": "anchorlens",  # the same page has the same bytes
}
MUTED = "#555555"
"""Of what explains."""


def write_summary(verdicts: Sequence[Verdict], path: str | os.PathLike[str]) -> None:
    """Write one page about a verdict, for a paper's appendix or a slide; of several a page for each.

    It is an upright A4 page of vectors with its text as text: the verdicts with their words, the accuracy of
    each pair, information flow, t-SNE without the key, V similarity, condensation of W_Q, PCA of the
    embedding. Equal verdicts give equal bytes. What a probe has measured for a report it does not measure
    again. In the place of a picture that a probe refuses the page says why.

    Args:
        verdicts: at least one.
        path: .pdf, or of one verdict .svg or .png; a file that is there is replaced.

    Raises:
        ValueError: no verdict, something else than verdicts, one that was read back without its model,
            several for .svg or .png, another suffix, no such folder, what is there is no ordinary file or is
            one of those that were classified, or matplotlib (the extra `export`) is not installed.
        OSError: the disk refuses; a file that was there before is untouched.

    Example:
        >>> write_summary([classify("a.pt"), classify("b.pt")], "summary.pdf")  # doctest: +SKIP
    """
    check_verdicts(verdicts)
    path = check_summary(path, "a summary's name", len(verdicts), inputs(verdicts))
    import matplotlib
    from matplotlib.backends.backend_pdf import PdfPages

    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # of a name in another script
        matplotlib.rcdefaults()  # whatever the user's own file says
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


@summary.register
def _of_one(verdict: Verdict, path: str | os.PathLike[str]) -> None:
    write_summary([verdict], path)


def _page(verdict: Verdict) -> tuple[str, Figure]:
    """Title and figure."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=A4, facecolor="white")
    _header(figure, verdict)
    axes = _axes(figure, PLACES[0])
    _words(figure, PLACES[0], "Answers", answers(axes, verdict.behaviour))
    drawn, refused = [], []
    for name, (panel, draw) in PANELS.items():
        probe = probe_named(name)
        try:
            result = verdict.subject.measure(probe)
        except Exception as error:
            failed = "" if isinstance(error, ValueError) else "it failed with "
            refused.append((panel, f"Not shown: {failed}{what_went_wrong(error, probe)}", None))
        else:
            drawn.append((panel, result.headline(), (draw, result)))
    for place, (panel, words, picture) in zip(PLACES[1:], drawn + refused, strict=True):
        if picture is not None:
            draw, result = picture
            draw(_axes(figure, place), result)
        _words(figure, place, panel, words)
    return f"{safe_text(verdict.subject.name, None)}: {verdict.phase.label}", figure


def _header(figure: Figure, verdict: Verdict) -> None:
    """The name, the verdicts with their words, what they mean, and where it comes from."""
    by_probes, by_decoding, subject = verdict.by_probes, verdict.by_decoding, verdict.subject
    measured = ", ".join(
        f"{title} {number(value.value, '.3f')}" for title, value, _ in verdict.behaviour.rows()
    )
    weights = ", ".join(f"{one.reading} {number(one.value)}" for one in by_probes.evidence)
    inside = by_probes.in_words() or weights
    rows = [("By behaviour", verdict.phase, measured), ("By the probes", by_probes.phase, inside)]
    if by_decoding.probabilities is not None:
        rows.append(("By decoding", by_decoding.phase, by_decoding.in_words()))
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
    told = " ".join(filter(None, (told, outside_calibration(by_probes), *verdict.warnings)))
    _write(figure, LEFT, TOP - 1.4, told, 125, 4)
    versions = "; ".join(f"{name} {version}" for name, version in library_versions().items())
    origin = f"SHA-256 {subject.sha256}; " if subject.sha256 else ""
    _write(figure, LEFT, 0.22, f"{origin}{versions}", 170, 1, fontsize=6, color=MUTED)


def _axes(figure: Figure, place: tuple[float, float]) -> Axes:
    """Axes below the words of a panel, with room for what stands beside them."""
    x, y = place
    return figure.add_axes((_x(x + 0.7), _y(y - HIGH + 0.45), _x(WIDE - 0.7), _y(HIGH - 0.45 - 0.55)))


def _words(figure: Figure, place: tuple[float, float], title: str, words: str) -> None:
    """The title of a panel and what is seen in it."""
    x, y = place
    _write(figure, x, y, title, 50, 1, fontweight="bold", fontsize=9)
    _write(figure, x, y - 0.19, words, 66, 5 if words.startswith("Not shown") else 2, fontsize=7, color=MUTED)


def _write(figure: Figure, x: float, y: float, text: str, width: int, most: int, **style: Any) -> None:
    """A text below a place in inches, in lines of at most `width` characters; more than `most` end in …."""
    lines = textwrap.wrap(
        safe_text(text, None), width, max_lines=most, placeholder=" …", break_long_words=True
    )
    figure.text(_x(x), _y(y), "\n".join(lines), va="top", linespacing=1.25, **style)


def _x(inches: float) -> float:
    return inches / A4[0]


def _y(inches: float) -> float:
    return inches / A4[1]
