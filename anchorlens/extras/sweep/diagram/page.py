"""The phase diagram: one self-contained page with all maps of a sweep and a report for every cell."""

from __future__ import annotations

import base64
import gzip
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from anchorlens import classify
from anchorlens.extras.sweep.cells import SweepResult, axes_of, diagram, metrics_of
from anchorlens.extras.sweep.diagram import axes
from anchorlens.extras.sweep.diagram.layout import Layout, arranged
from anchorlens.extras.sweep.diagram.maps import Map, maps_of
from anchorlens.extras.sweep.diagram.outcomes import OUTCOMES, agreement, course, outcome
from anchorlens.extras.sweep.notebook import TEMPLATES, cell_report
from anchorlens.files import PAGES, check_can_write
from anchorlens.plots import script_json, thinned, training_curve, training_traces
from anchorlens.show import html_page, write_page, write_report
from anchorlens.tasks import Metric
from anchorlens.training import progress_bar

_HATCHES = {"/": " (slanted hatch)", "x": " (crossed hatch)", "-": " (level hatch)"}
_SYMBOLS = {"phase": outcome, "course": course, "agreement": agreement}
"""The function from a run to its category, for each map that writes symbols."""


@dataclass(frozen=True, eq=False)
class PageSlice:
    """A slice of the sweep (runs that differ only in two axes and the seed), with its maps on the page."""

    label: str
    """The values that the runs share, or an empty text for a single slice."""
    layout: Layout
    """The layout of the runs."""
    maps: Sequence[Map]
    """The maps of the page."""

    @cached_property
    def metrics(self) -> list[Metric]:
        """The metrics that at least one run has."""
        cells = self.layout.cells
        return [m for m in metrics_of(cells) if any(cell.numbers.get(m.name) is not None for cell in cells)]

    @cached_property
    def figures(self) -> dict[str, dict[str, Any] | str]:
        """A dict from each map's name to its figure without a title, or the reason for a missing figure."""
        figures: dict[str, dict[str, Any] | str] = {}
        for map in self.maps:
            try:
                figure = map.draw(self.layout)
            except ValueError as error:
                figures[map.name] = str(error)
                continue
            layout = figure["layout"]
            changes = {"title": {**layout["title"], "text": ""}, "margin": {**layout["margin"], "t": 20}}
            figures[map.name] = {**figure, "layout": {**layout, **changes, "height": layout["height"] - 30}}
        return figures

    @property
    def content(self) -> dict[str, Any]:
        """The figures as JSON data, with the shared data of the runs stored once."""
        order = {cell.id: k for k, cell in enumerate(self.layout.cells)}
        boxes = {band.cell.id: [round(edge, 4) for edge in band.box] for band in self.layout.bands}
        return {
            "ids": list(order),
            "descriptions": [self.layout.descriptions[identity] for identity in order],
            "boxes": [boxes[identity] for identity in order],
            "figures": {
                name: {
                    "data": [_numbered(trace, order) for trace in figure["data"]],
                    "layout": {key: value for key, value in figure["layout"].items() if key not in _SHARED},
                }
                for name, figure in self.figures.items()
                if isinstance(figure, dict)
            },
        }


MOST_POINTS = 1000
"""The largest number of points of a training curve. A longer curve is thinned, and its last point is kept."""
_DIGITS = 3
"""The number of significant digits in a training curve."""
_LEVEL = 6
"""The level of gzip; level 9 takes five times as long for 2% fewer bytes."""
_GROUP = 100
"""The number of runs in a group; to show a run, a browser unpacks one group, not thousands of reports."""
_SHARED = {"template", "meta"}
"""The parts of a figure's layout that the page stores only once."""


def _numbered(trace: dict[str, Any], order: Mapping[str, int]) -> dict[str, Any]:
    """Return a trace with indices instead of the cells' ids, and with positions rounded for a picture."""
    if "customdata" not in trace:
        return trace
    compact = {key: value for key, value in trace.items() if key != "hovertext"}
    for key in compact.keys() & {"x", "y", "base", "width"}:
        compact[key] = [round(number, 4) for number in compact[key]]
    return {**compact, "customdata": [order[identity] for identity in trace["customdata"]]}


@diagram.register
def write_diagram(
    result: SweepResult,
    path: str | os.PathLike[str],
    *,
    x: str | None = None,
    y: str | None = None,
    reports: bool = False,
    progress: bool | float | None = None,
) -> None:
    """Write the phase diagram of a sweep, an HTML page that works offline.

    Args:
        result: a result of `sweep` or `open_sweep`, which may be unfinished.
        path: the path of the page, ending in .html. An existing file is replaced.
        x: the horizontal field of the configurations. Default: the choice of `axes.choose_axes`.
        y: the vertical field.
        reports: whether to also write the full report of every trained run, with the pictures of the report's
            probes. The folder `<name of the page>-reports` next to the page contains the reports. Each report
            takes a few seconds. Existing reports are kept.
        progress: the display of the reports' progress, as for `train`.

    Raises:
        ValueError: If the sweep is empty, or a field is unknown. `path` must be an .html file in an existing
            folder.
        CheckpointError: If `reports` is true and a run's checkpoint cannot be read.
        OSError: If writing fails. An existing file is then unchanged.

    Example:
        >>> write_diagram(open_sweep("sweeps/a"), "diagram.html")  # doctest: +SKIP

    Source: the phase diagrams of arXiv 2405.05409 and 2501.08537.
    """
    path = check_can_write(path, "a diagram's name", PAGES)
    axes.choose_axes(result.cells, x, y)  # before the reports, which take long
    links = _write_reports(result, path, progress) if reports else {}
    write_page(path, diagram_html(result, x=x, y=y, links=links))


def diagram_html(
    result: SweepResult, *, x: str | None = None, y: str | None = None, links: Mapping[str, str] | None = None
) -> str:
    """Return the HTML page that `write_diagram` writes.

    Args:
        result: a result of `sweep` or `open_sweep`.
        x: the horizontal field of the configurations.
        y: the vertical field.
        links: a map from the id of a run to the address of its full report.

    Raises:
        ValueError: If the sweep is empty, or a field is unknown.
    """
    cells, x, y = axes.runs_to_draw(result, "a diagram must have at least one run", x, y)
    fields = [name for name in (x, y, "seed") if name is not None]
    maps = maps_of(cells)
    slices = [PageSlice(part.label, arranged(part.cells, x, y), maps) for part in axes.slices(cells, x, y)]
    varying = axes_of(cells)
    varying_in_words = " × ".join(f"{name} ({len(values)})" for name, values in varying.items())
    cells = [cell for part in slices for cell in part.layout.cells]
    others = [name for name in varying if name not in fields]
    runs, curves = [], []  # apart, since gzip finds repetitions within 32 kB
    for cell in cells:
        log, report = cell.log(), (links or {}).get(cell.id)
        run = cell_report(cell, fields, others, n_lines=len(log), report=report)
        runs.append(_json(run))
        curves.append(_json(_curve_traces(log)))
    curve = json.loads(training_curve([]).update_layout(title_text="", margin_t=20).to_json() or "")
    figures = {map: [part.figures[map.name] for part in slices] for map in maps}
    absent = {map: of[0] for map, of in figures.items() if all(isinstance(one, str) for one in of)}
    shown = [map for map in maps if map not in absent]
    symbols = {_SYMBOLS[map.name](cell): None for map in shown if map.name in _SYMBOLS for cell in cells}
    return html_page(
        TEMPLATES / "diagram.html",
        scripts=(TEMPLATES / "diagram.js",),
        styles=TEMPLATES / "diagram.css",
        name=f"{result.out.resolve().name or result.out}: {' × '.join(filter(None, (x, y)))}",
        axes=f"{varying_in_words or 'one configuration'}; {x} across" + (f", {y} up" if y else ""),
        n_cells=len(cells),
        statuses=Counter(cell.status for cell in cells),
        slices=slices,
        categories=[c for c in OUTCOMES if any(c in part.layout.counts for part in slices)],
        symbols="; ".join(f"{one.sign} {one.name}{_HATCHES.get(one.hatch, '')}" for one in symbols),
        maps=shown,
        absent=absent,
        fields=fields,
        curve_layout=Markup(script_json(_json(curve["layout"]))),
        packed_slices=gzipped(_json([part.content for part in slices])),
        group=_GROUP,
        packed_runs=_in_groups(runs),
        packed_curves=_in_groups(curves),
        name_of_cell=axes.name_of_cell,
        value_label=axes.value_label,
        outcome=outcome,
    )


def _json(content: object) -> str:
    """Write JSON text on one line."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _curve_traces(log: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rounded traces of a training curve, with at most 1,000 points each; empty without a log."""
    traces = []
    for trace in training_traces(log) if log else ():
        drawn = thinned(len(trace["x"]), MOST_POINTS)
        rounded = [float(f"{value:.{_DIGITS}g}") for value in trace["y"][drawn]]
        traces.append({**trace, "x": trace["x"][drawn], "y": rounded})
    return traces


def gzipped(text: str) -> str:
    """Compress a text to gzip in Base64, which the browser's `DecompressionStream` unpacks."""
    data = text.encode(errors="replace")
    return base64.b64encode(gzip.compress(data, _LEVEL, mtime=0)).decode()


def _in_groups(lines: Sequence[str]) -> str:
    """Pack each group of runs into a line."""
    groups = (lines[k : k + _GROUP] for k in range(0, len(lines), _GROUP))
    return "\n".join(gzipped("\n".join(group)) for group in groups)


def _write_reports(result: SweepResult, path: Path, progress: bool | float | None) -> dict[str, str]:
    """Write the missing report of every trained cell; return each address relative to the page, by id."""
    folder = path.with_name(f"{path.stem}-reports")
    folder.mkdir(exist_ok=True)
    trained = {cell.id: (cell.path, cell.run.task) for cell in result if cell.path is not None}
    with progress_bar(len(trained), enabled=progress, what="reports", unit="report") as show:
        for n_done, (identity, of_cell) in enumerate(trained.items()):
            show(n_done, identity)
            report = folder / f"{identity}.html"
            if not report.exists():
                write_report([classify(*of_cell, quick=True)], report)
        show(len(trained), "done")
    return {identity: f"{quote(folder.name)}/{identity}.html" for identity in trained}
