"""`Cell`, one run of a sweep with its status and measurements; `SweepResult`, all cells of a sweep."""

from __future__ import annotations

import os
import zlib
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from anchorlens.configuration import frozen_dataclass
from anchorlens.files import table_of_rows, write_rows
from anchorlens.recipes import RunConfig, execution_fields, identity, same_value
from anchorlens.records import Count, Lines, LongText, Name, ReadingName, Record, limits
from anchorlens.safe import CheckpointError
from anchorlens.tasks import Metric, Phase
from anchorlens.verdict import Verdict
from anchorlens.views import figure, html, table

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go


@dataclass(frozen=True, eq=False, kw_only=True)
class CellFile(Record):
    """The content of a file about one run, which begins with its format."""

    format: Name = ""
    format_version: Count = 0


@frozen_dataclass(eq=False, kw_only=True)
class CellContent(CellFile):
    """The outcome and measurements of a finished run."""

    status: Literal["finished", "stopped early", "diverged"]
    """How the run ended."""
    error: LongText | None = None
    """The reason why the run diverged, in one line."""
    step: Count
    """The number of optimiser steps."""
    seconds: Annotated[float, limits(ge=0, le=10**9)] | None
    """The training time in seconds."""
    loss: float | None
    """The loss of the last logged batch, in nats."""
    passed_at: Annotated[Mapping[Name, Count | None], limits(max_length=10)] = field(default_factory=dict)
    """The step from which on each accuracy (`train`, `id`, `ood`) passes the threshold of its phase. The step
    is None if the accuracy does not pass at the last evaluation. The map is empty for a task without
    phases."""
    probes: Annotated[Mapping[ReadingName, float | None], limits(max_length=200)]
    """The value of each `probe.reading` that does not need a forward pass, or None if the value is not
    defined."""
    verdict: Verdict
    """The verdict on the last checkpoint."""


@frozen_dataclass(eq=False, kw_only=True)
class Failure(CellFile):
    """The reason why a run cannot be trained."""

    error: LongText
    """The error in one line."""
    details: Lines | None = None
    """The traceback."""


diagram = table("diagram")
"""Write the diagram of a result, at a path."""

CellStatus = Literal["finished", "stopped early", "diverged", "failed", "damaged", "missing"]
"""The statuses of a run. The first three are results of training. `failed` means that training raises an
error, `damaged` that the stored files cannot be read, and `missing` that the run is not trained yet."""
TROUBLES = ("failed", "damaged", "diverged")
"""The statuses of runs without a usable model."""


def cell_id(run: RunConfig) -> str:
    """Return the id of a run: the first 16 hexadecimal digits of the run's identity."""
    return identity(run)[:16]


def cell_ids(runs: Sequence[RunConfig]) -> list[str]:
    """Return the ids of the runs, in order.

    Raises:
        ValueError: If two runs differ only in execution or logging.
    """
    ids = [cell_id(run) for run in runs]
    first: dict[str, RunConfig] = {}
    for name, run in zip(ids, runs, strict=True):
        other = first.setdefault(name, run)
        if other != run:
            first_train, train = other.train_config.to_dict(), run.train_config.to_dict()
            field = next(field for field in train if first_train[field] != train[field])
            raise ValueError(
                "two runs of a sweep must differ in a field that affects learning, got runs that differ "
                f"only in other fields, such as {field}: {first_train[field]} and {train[field]}. Give "
                f"{field} one value."
            )
    return ids


@lru_cache(maxsize=2)  # the same cell is often read several times in a row
def _read(packed: bytes) -> CellContent:
    return CellContent.from_json(zlib.decompress(packed))


@frozen_dataclass(eq=False)
class Cell:
    """A run of a sweep, with its status and its measurements."""

    run: RunConfig
    """The task, the model and the recipe."""
    status: CellStatus = "missing"
    """The status of the run."""
    path: Path | None = None
    """The folder of the run, as `train` writes it, with an added `cell.json`. None until the run is
    trained."""
    packed: bytes = field(default=b"", repr=False)
    """The compressed `cell.json` of a finished run, so that thousands of runs take little memory."""
    error: str | None = None
    """The reason why the run failed, diverged or cannot be read, in one line."""
    details: str | None = field(default=None, repr=False)
    """The traceback of a failed run."""
    stored_as: str | None = field(default=None, repr=False)
    """The id of the run in the folder from which it was read, or None for a run without a folder."""

    @cached_property
    def id(self) -> str:
        """The name of the run's folder: the id stored in the sweep's folder, or else `cell_id`."""
        return self.stored_as or cell_id(self.run)

    @cached_property
    def fields(self) -> dict[str, Any]:
        """A map from names to values of all fields of the run's configurations."""
        return {name: value for part in self.run.to_dict().values() for name, value in part.items()}

    @property
    def done(self) -> bool:
        """Whether the run has a trained model."""
        return self.path is not None

    @classmethod
    def trained(cls, run: RunConfig, path: Path, data: bytes, content: CellContent, name: str | None) -> Cell:
        """Make a `Cell` for a trained run.

        Args:
            run: the configurations of the run.
            path: the folder of the run.
            data: the bytes of `cell.json`.
            content: the content of `cell.json`.
            name: the id of the run in the sweep's folder.
        """
        packed = zlib.compress(data, 1)
        cell = cls(run, content.status, path, packed, content.error, stored_as=name)
        vars(cell).update(phase=content.verdict.phase, numbers=_numbers(run, content))  # cached properties
        return cell

    @property
    def content(self) -> CellContent | None:
        """The content of `cell.json`, or None without a trained model.

        The property unpacks the content on each access.
        """
        return _read(self.packed) if self.packed else None

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on the last checkpoint, or None without a trained model."""
        return self.content and self.content.verdict

    @cached_property
    def phase(self) -> Phase | None:
        """The behavioural phase, which may be undecided, or None without a trained model."""
        return self.verdict and self.verdict.phase

    @cached_property
    def numbers(self) -> dict[str, Any]:
        """The measurements as a flat dict, which is empty without a trained model.

        The keys are:

        - `step`, `seconds`, and `loss` (of the last batch, in nats)
        - `train_passed_at`, `id_passed_at` and `ood_passed_at`: the first step from which every evaluation of
          the accuracy passes the threshold of its phase, or None
        - the task's metrics by name, or None for an undefined metric, and their standard errors
          `<name>_error`
        - the behavioural verdict: `phase` (1, 2, 3 or None), `commutative` and `label`
        - the probe verdict: `by_probes_phase`, `by_probes_commutative`, `by_probes_label` and
          `probability <label>`
        - the `solution` for unseen pairs, or None if the solution is undefined, and the `agreement` of the
          verdicts
        - every reading of the probes of weights as `<probe>.<reading>`, for example `stable_rank.w_q`
        - every reading of the probe verdict as `reading <name>`
        """
        return {} if self.content is None else _numbers(self.run, self.content)

    def row(self) -> dict[str, Any]:
        """Return a flat record with the id (`cell`), `status`, `error`, all fields and all measurements."""
        return {"cell": self.id, "status": self.status, "error": self.error, **self.fields, **self.numbers}

    def __repr__(self) -> str:
        label = self.numbers.get("label")
        outcome = self.status if label is None else f"{self.status}; {label}"
        fields = ", ".join(f"{name} {self.fields[name]}" for name in ("gamma", "weight_decay", "seed"))
        return f"Cell({self.id}: {fields}: {outcome})"

    _repr_html_ = html

    def log(self) -> list[dict[str, Any]]:
        """Return the log lines, oldest first, each with `step`, `loss`, accuracies and other entries.

        The list is empty if the run has no trained model or the log cannot be read.
        """
        if self.path is None:
            return []
        from anchorlens.training import read_log  # late, since it imports torch, which is slow

        try:
            return read_log(self.path / "log.jsonl")
        except CheckpointError:
            return []


def _numbers(run: RunConfig, content: CellContent) -> dict[str, Any]:
    """Return `Cell.numbers`."""
    verdict, by_probes = content.verdict, content.verdict.by_probes
    numbers: dict[str, Any] = {name: getattr(content, name) for name in ("step", "seconds", "loss")}
    numbers |= {f"{name}_passed_at": step for name, step in content.passed_at.items()}
    for metric in run.task.metrics:
        measure = verdict.behaviour.measure(metric.name)
        numbers[metric.name] = measure and measure.value
        numbers[f"{metric.name}_error"] = measure and measure.standard_error
    numbers |= _flat(verdict.phase)
    numbers["solution"] = getattr(verdict.behaviour, "solution", None)
    numbers |= {f"by_probes_{name}": value for name, value in _flat(by_probes.phase).items()}
    for label, probability in (by_probes.probabilities or {}).items():
        numbers[f"probability {label}"] = probability
    numbers["agreement"] = verdict.agreement
    numbers |= content.probes
    return numbers | {f"reading {evidence.reading}": evidence.value for evidence in by_probes.evidence}


def _flat(phase: Phase) -> dict[str, Any]:
    return {"phase": phase.number, "commutative": phase.commutative, "label": phase.label}


@frozen_dataclass(eq=False)
class SweepResult:
    """The runs of a sweep, as `sweep` and `open_sweep` return them."""

    out: Path
    """The folder of the sweep."""
    cells: tuple[Cell, ...]
    """The runs, in the order in which they were requested."""

    def __iter__(self) -> Iterator[Cell]:
        return iter(self.cells)

    def __len__(self) -> int:
        return len(self.cells)

    @cached_property
    def axes(self) -> dict[str, tuple[Any, ...]]:
        """A map from each field with more than one value to its values, ascending."""
        return axes_of(self.cells)

    @property
    def counts(self) -> dict[str, int]:
        """The number of runs with each status, the most frequent status first."""
        return dict(Counter(cell.status for cell in self.cells).most_common())

    @property
    def phases(self) -> dict[str, int]:
        """The number of finished runs with each behavioural label, the most frequent label first."""
        return dict(Counter(cell.numbers["label"] for cell in self.cells if cell.done).most_common())

    def plot(self, x: str | None = None, y: str | None = None) -> go.Figure:
        """Draw the map of phases over two fields, with a band for each seed.

        The method `diagram` draws all maps.

        Args:
            x: the horizontal field of the configurations. Default: gamma, or the first field that varies.
            y: the vertical field. Default: weight decay, or the next field that varies.

        Returns:
            The map. If other fields vary too, the map shows the slice with the most runs. The title of the
            map then gives the slice's values of all fields that the axes do not show.

        Raises:
            ValueError: If the sweep is empty, or a field is unknown or is the seed.
        """
        return figure(self, x, y)

    def diagram(self, path: str | os.PathLike[str], **options: object) -> None:
        """Write the phase diagram, an HTML page that works offline.

        Args:
            path: the path of the page, ending in .html. An existing file is replaced.
            **options: the options `x`, `y`, `reports` and `progress` of `write_diagram`.

        Raises:
            ValueError: If the sweep is empty, or a field is unknown. `path` must be an .html file in an
                existing folder.
            OSError: If writing fails. An existing file is then unchanged.
        """
        diagram(self, path, **options)

    def table(self, path: str | os.PathLike[str]) -> None:
        """Write a table with one row, `Cell.row`, for each run.

        Args:
            path: the path of the file, `.csv` or `.parquet`. An existing file is replaced.

        Raises:
            ValueError: If the sweep is empty, or `path` is not a .csv or .parquet file in an existing folder.
            OSError: If writing fails. An existing file is then unchanged.
        """
        write_table(self, path)

    def to_frame(self) -> pandas.DataFrame:
        """Return a data frame with one row, `Cell.row`, for each run, indexed by the id.

        Raises:
            ValueError: If the sweep is empty.
        """
        return table_of_rows([cell.row() for cell in self]).to_pandas().set_index("cell")

    def __repr__(self) -> str:
        counts = ", ".join(f"{n} {status}" for status, n in self.counts.items())
        axes = " x ".join(f"{name} ({len(values)})" for name, values in self.axes.items())
        return f"SweepResult({self.out}: {axes or 'one run'}; {counts or 'no run'})"

    _repr_html_ = html


def metrics_of(cells: Iterable[Cell]) -> tuple[Metric, ...]:
    """Return the metrics of the runs' tasks, without repetition."""
    of_tasks = dict.fromkeys(cell.run.task.metrics for cell in cells)
    return tuple({metric.name: metric for metrics in of_tasks for metric in metrics}.values())


def axes_of(cells: Sequence[Cell]) -> dict[str, tuple[Any, ...]]:
    """Return a map from each field with more than one value to its values.

    The values are in ascending order, with texts and None at the end.

    The map omits fields that do not affect training results, because parts of a sweep may run on another
    machine.
    """
    left_out = [(cell.fields, execution_fields(cell.run.train_config)) for cell in cells]
    axes = {}
    for name in dict.fromkeys(name for cell in cells for name in cell.fields):
        found = [fields.get(name) for fields, without in left_out if name not in without]
        values = {value_key(value): value for value in found}  # None in a run of a task without the field
        if len(values) > 1:
            axes[name] = tuple(sorted(values.values(), key=_ascending))
    return axes


def value_key(value: object) -> Hashable:
    """Return a key that is equal only for equal values.

    For simple types, this function is faster than `same_value`.
    """
    return value if value is None or type(value) in (int, float, str) else (same_value(value),)


def _ascending(value: object) -> tuple[bool, float, str]:
    is_number = isinstance(value, int | float)
    return (not is_number, float(value) if is_number else 0.0, str(value))


def write_table(cells: Iterable[Cell], path: str | os.PathLike[str]) -> None:
    """Write a table with one row, `Cell.row`, for each run.

    Args:
        cells: the runs, for example a `SweepResult`.
        path: the path of the file, `.csv` or `.parquet`. An existing file is replaced.

    Raises:
        ValueError: If there are no runs, or `path` is not a .csv or .parquet file in an existing folder.
        OSError: If writing fails. An existing file is then unchanged.

    Example:
        >>> write_table(open_sweep("sweeps/a"), "cells.parquet")  # doctest: +SKIP
    """
    write_rows([cell.row() for cell in cells], path)
