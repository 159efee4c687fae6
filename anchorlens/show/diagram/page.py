"""The phase diagram: one self-contained page with all maps of a sweep and a report for every cell."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import plotly.graph_objects as go
from markupsafe import Markup

from anchorlens.figures.picture import script_json
from anchorlens.files.container import atomic_write
from anchorlens.show.diagram import axes
from anchorlens.show.diagram.atlas import MAPS, Map
from anchorlens.show.diagram.looks import ACCURACY_NAMES, OUTCOMES, outcome
from anchorlens.show.diagram.panel import cell_name, curve_layout, packed_panel
from anchorlens.show.diagram.summary import Summary, summary
from anchorlens.show.frame import framed
from anchorlens.show.report.page import write_report
from anchorlens.show.words import Caption
from anchorlens.sweep.cells import ACCURACIES, Cell, SweepResult, axes_of
from anchorlens.training.progress import progress_bar
from anchorlens.verdict.classify import classify

SIGNS = (
    "2c is Phase 2 with commutativity, 2? Phase 2 where that is too near to tell, ? no phase, × a run that "
    "failed or diverged, · one not trained yet. Slanted hatches lie over runs that have not fit their "
    "training data, crossed ones stand for runs that failed or diverged: the phases describe neither."
)
"""What signs and hatches mean."""


@dataclass(frozen=True, eq=False)
class ShownSlice:
    """One slice on the page."""

    label: str
    """What its cells share; empty where there is one slice."""
    cells: Sequence[Cell]
    """In the order of the list."""
    summary: Summary
    """What they come to."""

    @property
    def accuracies(self) -> list[str]:
        """Those that some cell has."""
        return [name for name in ACCURACIES if any(cell.numbers.get(name) is not None for cell in self.cells)]


@dataclass(frozen=True, eq=False)
class Take:
    """One map of one slice."""

    text: str
    """What it shows, for who does not see it; or why there is none."""
    figure: go.Figure | None = None
    """The map."""

    @property
    def json(self) -> Markup:
        """The map for a script element."""
        assert self.figure is not None
        return Markup(script_json(self.figure.to_json() or ""))


@dataclass(frozen=True, eq=False)
class ShownMap:
    """One kind of map on the page."""

    name: str
    """Its name."""
    caption: Caption
    """Heading and how to read it."""
    takes: tuple[Take, ...]
    """One for each slice."""


def write_diagram(
    result: SweepResult,
    path: str | os.PathLike[str],
    *,
    x: str | None = None,
    y: str | None = None,
    reports: bool = False,
    progress: bool | None = None,
) -> None:
    """Write the phase diagram of a sweep: one HTML page that needs no network.

    Args:
        result: what `sweep` or `open_sweep` gave; it may be unfinished.
        path: of the page, .html; a file that is there is replaced.
        x: field of the configurations, across; see `axes.choose_axes` for what is chosen otherwise.
        y: another, up.
        reports: also write the whole report of every trained cell, with the pictures of every probe, into
            the folder `<name of the page>-reports` beside it, seconds each; those that are there are kept.
        progress: of the reports; None shows a bar in a terminal or a notebook, False never does.

    Raises:
        ValueError: no cell, no such field, another suffix, or no such folder.
        CheckpointError: with `reports`, a cell's checkpoint cannot be read.
        OSError: the disk refuses; a file that was there before is untouched.

    Example:
        >>> write_diagram(open_sweep("sweeps/a"), "diagram.html")  # doctest: +SKIP

    Source: the phase diagrams of arXiv 2405.05409 and 2501.08537.
    """
    path = Path(path)
    if path.suffix != ".html":
        raise ValueError(f"a diagram's name must end in .html, got {path.name!r}")
    if not path.parent.is_dir():
        raise ValueError(f"the folder of {str(path)!r} must exist; make it first")
    axes.choose_axes(result.cells, x, y)  # before the reports, which take long
    links = _write_reports(result, path, progress) if reports else {}
    html = diagram_html(result, x=x, y=y, links=links)
    with atomic_write(path) as file:
        file.write(html.encode(errors="replace"))


def diagram_html(
    result: SweepResult,
    *,
    x: str | None = None,
    y: str | None = None,
    links: Mapping[str, str] | None = None,
) -> str:
    """The page that `write_diagram` writes.

    Args:
        result: what `sweep` or `open_sweep` gave.
        x: field of the configurations, across.
        y: another, up.
        links: cell's id -> address of its whole report, for those that have one.

    Raises:
        ValueError: no cell, or no such field.
    """
    cells = tuple({cell.id: cell for cell in result}.values())
    if not cells:
        raise ValueError(f"a diagram must have at least one cell, got none in {result.out}")
    x, y = axes.choose_axes(cells, x, y)
    found = axes.slices(cells, x, y)
    fields = [name for name in (x, y, "seed") if name is not None]
    slices = [ShownSlice(one.label, _ordered(one.cells, fields), summary(one.cells, x, y)) for one in found]
    varying = list(axes_of(cells))
    looks = [look for look in OUTCOMES if any(look in one.summary.outcomes for one in slices)]
    return framed(
        "diagram.html",
        scripts="diagram.js",
        styles="diagram.css",
        name=result.out.name or str(result.out),
        axes=_axes_in_words(cells, x, y),
        n_cells=len(cells),
        statuses=Counter(cell.status for cell in cells),
        slices=slices,
        looks=looks,
        signs=SIGNS,
        maps=[_shown(map, slices, x, y) for map in MAPS],
        fields=fields,
        panels={cell.id: packed_panel(cell, fields, varying, (links or {}).get(cell.id)) for cell in cells},
        curve_layout=Markup(script_json(json.dumps(curve_layout()))),
        trained_with=_versions(cells),
        cell_name=cell_name,
        value_label=axes.value_label,
        outcome=outcome,
        accuracy_names=ACCURACY_NAMES,
    )


def _shown(map: Map, slices: Sequence[ShownSlice], x: str, y: str | None) -> ShownMap:
    takes = []
    for one in slices:
        try:
            figure = map.draw(one.cells, x, y)
        except ValueError as error:
            takes.append(Take(str(error)))
            continue
        figure.update_layout(title_text="", margin_t=20, height=figure.layout.height - 30)
        words = f"{map.caption.title}{', ' if one.label else ''}{one.label}: {one.summary.words}"
        takes.append(Take(words, figure))
    return ShownMap(map.name, map.caption, tuple(takes))


def _ordered(cells: Sequence[Cell], fields: Sequence[str]) -> list[Cell]:
    shown = [axes.axis(cells, name) for name in fields]
    return sorted(cells, key=lambda cell: [one.place(cell.fields[one.name]) for one in shown])


def _axes_in_words(cells: Sequence[Cell], x: str, y: str | None) -> str:
    words = [f"{name} ({len(values)})" for name, values in axes_of(cells).items()]
    shown = f"{x} across" if y is None else f"{x} across, {y} up"
    return f"{' × '.join(words) or 'one configuration'}; {shown}"


def _versions(cells: Sequence[Cell]) -> dict[str, str]:
    """Library -> its versions in the cells."""
    found: dict[str, dict[str, None]] = {}
    for cell in cells:
        checkpoint = (cell.verdict or {}).get("checkpoint") or {}
        for library, version in (checkpoint.get("versions") or {}).items():
            found.setdefault(library, {})[version] = None
    return {library: " and ".join(versions) for library, versions in found.items()}


def _write_reports(result: SweepResult, path: Path, progress: bool | None) -> dict[str, str]:
    """Write the report of every trained cell that has none yet; id -> address relative to the page."""
    folder = path.with_name(f"{path.stem}-reports")
    folder.mkdir(exist_ok=True)
    trained = {cell.id: cell.path for cell in result if cell.path is not None}
    with progress_bar(len(trained), enabled=progress, what="reports", unit="report") as show:
        for n_done, (identity, run) in enumerate(trained.items()):
            show(n_done, identity)
            report = folder / f"{identity}.html"
            if not report.exists():
                write_report([classify(run)], report)
        show(len(trained), "done")
    return {identity: f"{quote(folder.name)}/{identity}.html" for identity in trained}
