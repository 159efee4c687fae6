"""Probes along runs: the readings and accuracies at every checkpoint of some training runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch

from anchorlens.configuration import documented
from anchorlens.figures.along import Point
from anchorlens.files.checkpoint import Checkpoint, library_versions, load_checkpoint
from anchorlens.files.importers.inputs import resolve
from anchorlens.files.tables import write_rows
from anchorlens.models.devices import choose_device
from anchorlens.probes.registry import apply, checked_probes
from anchorlens.probes.result import SCHEMA_VERSION, ProbeResult, number
from anchorlens.runs.identity import execution_fields
from anchorlens.runs.run_config import RunConfig
from anchorlens.safe import check_inside, reading, safe_repr, safe_text
from anchorlens.tasks.shared.base import Task
from anchorlens.training.progress import progress_bar
from anchorlens.training.result import TrainResult
from anchorlens.training.run_folder import trajectory_files
from anchorlens.views import html

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

RunPath = str | os.PathLike[str]


@documented
@dataclass(frozen=True, eq=False)
class Along:
    """The readings of probes at every checkpoint of some runs."""

    rows: tuple[Mapping[str, Any], ...]
    """A row for each run and checkpoint: `run` (its folder), `group` (the configuration that sets it apart,
    without the seed), `seed`, `step`, the task's metrics by name (each from a sample of questions), and
    `<probe>.<reading>` for every probe; None where a number is not defined."""
    metrics: tuple[str, ...]
    """Names of the columns that are metrics."""
    readings: tuple[str, ...]
    """Names of the columns that are readings: `<probe>.<reading>`."""
    options: Mapping[str, Any]
    """The options of the probe, as given."""

    def to_frame(self) -> pd.DataFrame:
        """The rows as a pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame(list(self.rows))

    def table(self, path: str | os.PathLike[str]) -> None:
        """Write the rows as a table.

        Args:
            path: `.csv` or `.parquet`; an existing file is replaced.

        Raises:
            ValueError: another suffix, a missing folder, or a path that exists and is no ordinary file.
            OSError: the write fails; an existing file is then unchanged.
        """
        write_rows(self.rows, path)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready content: the rows, the options of the probe, the versions of the libraries."""
        about = {"schema_version": SCHEMA_VERSION, "options": dict(self.options)}
        return {**about, "versions": dict(library_versions()), "rows": [dict(row) for row in self.rows]}

    def over_seeds(self, number: str) -> dict[str, list[Point]]:
        """A number along training, as mean, minimum and maximum over the seeds of each group.

        Args:
            number: one of `metrics` or `readings`.

        Returns:
            Group -> a point for each step at which at least one seed has the number.
        """
        found: dict[str, dict[int, list[float]]] = {}
        for row in self.rows:
            steps = found.setdefault(row["group"], {})
            if row[number] is not None:
                steps.setdefault(row["step"], []).append(row[number])
        return {
            group: [
                Point(step, fmean(values), min(values), max(values), len(values))
                for step, values in sorted(steps.items())
            ]
            for group, steps in found.items()
        }

    def plot(self) -> go.Figure:
        """A row for each reading, and the metrics of the runs below; a line is a mean over seeds.

        The band reaches from the smallest to the largest value over seeds. With several probes, only the
        first reading of each is drawn.
        """
        from anchorlens.figures.along import along_figure

        return along_figure(self.readings, self.metrics, self.over_seeds)

    _repr_html_ = html

    def __repr__(self) -> str:
        runs = {row["run"] for row in self.rows}
        parts = []
        for name in self.readings[:3]:
            for group, points in list(self.over_seeds(name).items())[:4]:
                if points:
                    label = f"{group}: " if group else ""
                    parts.append(f"{label}{name} {points[0].mean:.3g} -> {points[-1].mean:.3g}")
        return f"Along({len(runs)} {'run' if len(runs) == 1 else 'runs'}; {'; '.join(parts)})"


def along(
    runs: RunPath | TrainResult | Sequence[RunPath | TrainResult],
    probes: Callable[..., ProbeResult] | str | Sequence[Callable[..., ProbeResult] | str],
    *,
    task: Task | None = None,
    device: str | torch.device = "auto",
    progress: bool | float | None = None,
    **options: Any,
) -> Along:
    """Apply probes to every checkpoint of runs, oldest first.

    A run has its last checkpoint, and `n_checkpoints` during training (10 by default). Runs that differ only
    in the seed form one group.

    Args:
        runs: folders of runs, or results of `train` for runs that have a folder.
        probes: one or several, or their names.
        task: the task of the runs with the paths of its files (`data`), for a task that has some; None for
            that of each checkpoint.
        device: where the models run: auto, cpu, cuda, cuda:N or mps.
        progress: as for `train`.
        **options: options of the probe, if there is only one.

    Returns:
        The readings and the accuracies at every checkpoint.

    Raises:
        ValueError: no run, a run without checkpoints or whose checkpoints do not say how they were trained,
            options for several probes, or what a probe refuses (the message starts with the file).
        CheckpointError: one of the checkpoints is damaged.

    Example:
        >>> along("runs/a", "q_condensation").to_frame()  # doctest: +SKIP
    """
    chosen = checked_probes([probes] if isinstance(probes, str) or callable(probes) else probes)
    if not chosen:
        raise ValueError("probes must be one probe or more, got none")
    if options and len(chosen) != 1:
        raise ValueError("options must be those of one probe, got several probes; give one of them")
    where = choose_device(device)
    folders = [_folder(run) for run in _listed(runs)]
    files = [(folder, path) for folder in folders for path in _checkpoints(folder)]
    rows: list[dict[str, Any]] = []
    recipes: list[dict[str, Any]] = []
    with progress_bar(len(files), enabled=progress, what="probing", unit="checkpoint") as update:
        for done, (folder, path) in enumerate(files, 1):
            checkpoint = resolve(load_checkpoint(path), task).checkpoint
            assert checkpoint is not None
            place = {"run": str(folder), "step": checkpoint.step}
            if not any(place.items() <= row.items() for row in rows):  # the last step may be there already
                recipes.append(_recipe(checkpoint, path))
                rows.append(place | _numbers(checkpoint, path, chosen, where, options))
            update(done, folder.name)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    readings = tuple(name for name in columns if "." in name)
    metrics = tuple(name for name in columns if name not in ("run", "seed", "step", *readings))
    whole = (
        {"run": row["run"], "group": group, "seed": row["seed"], "step": row["step"]}
        | {name: row.get(name) for name in (*metrics, *readings)}
        for row, group in zip(rows, _groups(recipes), strict=True)
    )
    return Along(tuple(whole), metrics, readings, options)


def _listed(runs: Any) -> Sequence[Any]:
    listed = [runs] if isinstance(runs, str | os.PathLike | TrainResult) else runs
    if not isinstance(listed, Sequence) or not listed:
        raise ValueError(f"runs must be a folder of a run or a list of one or more, got {safe_repr(runs)}")
    return listed


def _folder(run: Any) -> Path:
    if isinstance(run, TrainResult):
        if run.out is None:
            raise ValueError("a run must have a folder with its checkpoints; train it with out=...")
        return run.out
    if not isinstance(run, str | os.PathLike):
        raise ValueError(f"a run must be its folder or what train gave, got {type(run).__name__}")
    return Path(run)


def _checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a run, oldest first; the last two may be of the same step."""
    with reading(folder):
        check_inside(folder, folder / "ckpt.pt")
    found = [*trajectory_files(folder), *folder.glob("ckpt.pt")]
    if not found:
        raise ValueError(
            f"{safe_text(folder)} must be the folder of a run with checkpoints, which `train --out` writes; "
            "there is none in it"
        )
    return found


def _recipe(checkpoint: Checkpoint, path: Path) -> dict[str, Any]:
    """The fields of its run that decide what it learns, without the seed."""
    train = checkpoint.train_config
    if train is None or checkpoint.step is None:
        raise ValueError(f"{safe_text(path)} must say how it was trained; give the folder of a run")
    run = RunConfig(checkpoint.task, checkpoint.model_config, train)
    left_out = {"seed", *execution_fields(train)}
    parts = run.to_dict().values()
    return {name: value for part in parts for name, value in part.items() if name not in left_out}


def _numbers(
    checkpoint: Checkpoint,
    path: Path,
    probes: Iterable[Callable[..., ProbeResult]],
    device: torch.device,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """The seed of one checkpoint, its metrics, and the readings of the probes."""
    assert checkpoint.train_config is not None
    numbers: dict[str, Any] = {"seed": checkpoint.train_config.seed}
    behaviour = checkpoint.evaluate(device=device, **checkpoint.task.sampling)
    for metric in checkpoint.task.metrics:
        if metric.logged_as:
            measure = behaviour.measure(metric.name)
            numbers[metric.name] = None if measure is None else measure.value
    given = resolve(checkpoint, device=device)
    for probe in probes:
        try:
            result = apply(probe, given, **options)
        except ValueError as error:
            raise ValueError(f"{safe_text(path)}: {error}") from error
        for name, value in result.numbers().items():
            numbers[f"{result.probe}.{name}"] = None if value is None else number(value)
    return numbers


def _groups(fields: Sequence[Mapping[str, Any]]) -> list[str]:
    """For each row, the fields in which its run differs from other runs, in words; empty if it has none."""
    names = list(dict.fromkeys(name for of_run in fields for name in of_run))
    varying = [name for name in names if len({repr(of_run.get(name)) for of_run in fields}) > 1]
    return [
        ", ".join(f"{name} {_short(of_run[name])}" for name in varying if of_run.get(name) is not None)
        for of_run in fields
    ]


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else safe_text(value, 40)
