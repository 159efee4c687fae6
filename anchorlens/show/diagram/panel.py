"""The report of one cell, packed small into the page that shows it when the cell is clicked."""

from __future__ import annotations

import base64
import gzip
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from anchorlens.figures.training_curve import training_curve, training_traces
from anchorlens.show.diagram.axes import value_label
from anchorlens.show.templating import rendered
from anchorlens.sweep.cells import Cell
from anchorlens.verdict.verdict import Verdict

DIGITS = 4
"""Significant digits of the numbers of a training curve."""


def packed_panel(cell: Cell, fields: Sequence[str], varying: Sequence[str], link: str | None = None) -> str:
    """What a page needs to show one cell.

    Args:
        cell: to show.
        fields: of the configuration, that name the cell.
        varying: all fields that vary in the sweep.
        link: address of its whole report, if there is one.

    Returns:
        Base64 of gzipped JSON: `html`, and `curve`, the traces of its training curve.
    """
    log = cell.log()
    content = {
        "html": panel_html(cell, fields, varying, link, n_lines=len(log)),
        "curve": curve_traces(log) if log else None,
    }
    return base64.b64encode(gzip.compress(json.dumps(content).encode(), mtime=0)).decode()


def panel_html(
    cell: Cell, fields: Sequence[str], varying: Sequence[str], link: str | None = None, *, n_lines: int = 0
) -> str:
    """The report of one cell, without a script: facts, both verdicts, evidence, accuracies.

    Args:
        cell: to show.
        fields: of the configuration, that name the cell.
        varying: all fields that vary in the sweep.
        link: address of its whole report, if there is one.
        n_lines: of its log; without any there is no place for a training curve.
    """
    content = panel_content(cell, fields, varying, link)
    return rendered("cell.html", **content, n_lines=n_lines)


def panel_content(
    cell: Cell, fields: Sequence[str], varying: Sequence[str], link: str | None = None
) -> dict[str, Any]:
    """What the template shows of one cell; the arguments are those of `panel_html`."""
    command = None
    if cell.path is not None:
        command = shlex.join(["anchorlens", "classify", str(cell.path), "--report", f"{cell.id}.html"])
    return {
        "cell": cell,
        "name": cell_name(cell, fields),
        "facts": _facts(cell, [name for name in varying if name not in fields]),
        "verdict": None if cell.verdict is None else Verdict.from_dict(cell.verdict),
        "probes": cell.content.get("probes", {}),
        "command": command,
        "link": link,
    }


def cell_name(cell: Cell, fields: Sequence[str]) -> str:
    """Which cell it is, in words."""
    return ", ".join(f"{name} {value_label(cell.fields[name])}" for name in fields)


def curve_traces(log: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The traces of a training curve, their numbers rounded."""
    return [{**trace, "y": [_rounded(value) for value in trace["y"]]} for trace in training_traces(log)]


def curve_layout() -> dict[str, Any]:
    """The layout that all training curves share."""
    figure = training_curve([]).update_layout(title_text="", margin_t=20)
    return json.loads(figure.to_json() or "")["layout"]


def _facts(cell: Cell, others: Sequence[str]) -> str:
    """How it ended, after how much, and what else sets it apart from other cells."""
    ended = "not trained yet" if cell.status == "missing" else cell.status
    step, seconds, loss = (cell.content.get(name) for name in ("step", "seconds", "loss"))
    parts = [
        ended if step is None else f"{ended} after {step:,} steps",
        None if seconds is None else f"{seconds:,.0f} s",
        None if loss is None else f"loss {loss:.2g} nats",
        *(f"{name} {value_label(cell.fields[name])}" for name in others),
    ]
    return " · ".join(part for part in parts if part)


def _rounded(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
