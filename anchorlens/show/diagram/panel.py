"""The reports of single cells, packed small into the page that shows one when its cell is clicked."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from anchorlens.figures.training_curve import training_curve, training_traces
from anchorlens.show.diagram.axes import value_label
from anchorlens.show.templating import rendered
from anchorlens.sweep.cells import Cell
from anchorlens.verdict.verdict import Verdict

DIGITS = 4
"""Significant digits of the numbers of a training curve."""
MOST_POINTS = 1000
"""Of a line of a training curve; of more every second, third, ... is drawn, and the last."""

THIS_ID = "\x1a"
"""Stands for the id of the cell itself in a text that is packed; no text shown has a control character."""
_VALUE = re.compile("([0-9][0-9.]*)")
"""What differs from cell to cell in texts that are alike: numbers."""
_LEVEL = 6
"""Of gzip: 9 takes five times as long, and 2 % fewer bytes."""


def packed(content: Any) -> str:
    """Base64 of gzipped JSON, which a page unpacks with its browser's own means."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(errors="replace"), _LEVEL, mtime=0)).decode()


def columns(texts: Iterable[str]) -> dict[str, Any]:
    """Texts that are alike line by line, as a table of what they share and columns of what differs.

    Gzip finds little to share between whole reports: it looks back 32 kB, and two of them are further apart.
    Here a kind of line stands once, and values that stood in the same gap follow each other.

    Returns:
        `lines`: the kinds of lines, each as what stands between its values; a line that occurs as often as
        there are texts is a kind of its own. `values`: for each kind and each gap in it the values of all its
        occurrences in the order of the texts, separated by spaces. `texts`: each text as the kinds of its
        lines.

    >>> columns(["a 1", "a 22"])
    {'lines': [['a ', '']], 'values': [['1 22']], 'texts': [[0], [0]]}
    """
    split = [text.split("\n") for text in texts]
    kinds: dict[tuple[str, ...], int] = {}
    kind_of: dict[str, int] = {}
    values_of: dict[str, list[str]] = {}  # of the lines that have some
    for line, n in Counter(chain.from_iterable(split)).items():
        parts = [line] if n >= len(split) else _VALUE.split(line)
        kind_of[line] = kinds.setdefault(tuple(parts[::2]), len(kinds))
        if len(parts) > 1:
            values_of[line] = parts[1::2]
    found: list[list[list[str]]] = [[] for _ in kinds]  # of each kind, line by line
    for line in filter(values_of.__contains__, chain.from_iterable(split)):
        found[kind_of[line]].append(values_of[line])
    return {
        "lines": list(map(list, kinds)),
        "values": [[" ".join(column) for column in zip(*of_kind, strict=True)] for of_kind in found],
        "texts": [[kind_of[line] for line in lines] for lines in split],
    }


def panel_text(cell: Cell, fields: Sequence[str], varying: Sequence[str], link: str | None = None) -> str:
    """What a page needs to show one cell: its report, and in the last line its training curve as JSON.

    Args:
        cell: to show.
        fields: of the configuration, that name the cell.
        varying: all fields that vary in the sweep.
        link: address of its whole report, if there is one.
    """
    log = cell.log()
    html = panel_html(cell, fields, varying, link, n_lines=len(log))
    return f"{html}\n{json.dumps(curve_traces(log) if log else None)}"


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
    """The traces of a training curve, of at most 1,000 points each, their numbers rounded."""
    traces = []
    for trace in training_traces(log):
        n_points = len(trace["x"])
        shown = slice((n_points - 1) % (every := math.ceil(n_points / MOST_POINTS) or 1), None, every)
        traces.append({**trace, "x": trace["x"][shown], "y": list(map(_rounded, trace["y"][shown]))})
    return traces


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
