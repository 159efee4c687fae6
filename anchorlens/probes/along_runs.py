"""The readings of probes and the accuracies at every checkpoint of training runs."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import torch

from anchorlens.configuration import check_number, documented
from anchorlens.files.checkpoint import Checkpoint, library_versions, load_checkpoint
from anchorlens.files.importers.inputs import Input, ModelInput, resolve
from anchorlens.files.importers.opened import Opened
from anchorlens.files.importers.source import Trajectory
from anchorlens.files.tables import write_rows
from anchorlens.models.devices import choose_device
from anchorlens.models.running import device_of
from anchorlens.plots.along import Point, along_figure
from anchorlens.probes.registry import apply, checked_probes
from anchorlens.probes.shared.result import SCHEMA_VERSION, ProbeResult, number
from anchorlens.recipes.run_config import RunConfig, execution_fields
from anchorlens.safe import CheckpointError, check_inside, reading
from anchorlens.tasks.shared.base import Task
from anchorlens.texts import safe_repr, safe_text
from anchorlens.training.progress import progress_bar
from anchorlens.training.result import TrainResult
from anchorlens.training.run_folder import trajectory_files
from anchorlens.views import html

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from anchorlens.files.importers.settings import ModelConfiguration
    from anchorlens.tasks.shared.evaluation import Evaluation

RunPath = str | os.PathLike[str] | Opened
Steps: TypeAlias = "Mapping[int, ModelInput] | Sequence[tuple[int, ModelInput]]"
"""The models of one run by step. A model may be a path or a checkpoint."""


@documented
@dataclass(frozen=True, eq=False)
class Along:
    """The readings of probes at every checkpoint of training runs."""

    rows: tuple[Mapping[str, Any], ...]
    """A row for each run and checkpoint. The column `run` contains the folder, and `group` the fields in
    which the runs differ, without the seed. The other columns are `seed`, `step`, the metrics of the task and
    `<probe>.<reading>` for every probe. A sample of test inputs gives each metric. An undefined value is
    `None`."""
    metrics: tuple[str, ...]
    """The names of the columns that contain metrics."""
    readings: tuple[str, ...]
    """The names `<probe>.<reading>` of the columns that contain readings."""
    options: Mapping[str, Any]
    """The options of the probe, as the caller gave them."""

    def to_frame(self) -> pd.DataFrame:
        """Return the rows as a pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame(list(self.rows))

    def table(self, path: str | os.PathLike[str]) -> None:
        """Write the rows to a file as a table.

        Args:
            path: the path of the file, with the suffix `.csv` or `.parquet`. `table` replaces an existing
                file.

        Raises:
            ValueError: If the suffix of the path is not `.csv` or `.parquet`.
            ValueError: If the folder of the path is missing.
            ValueError: If the path is not an ordinary file.
            OSError: If the write fails. A failed write does not change an existing file.
        """
        write_rows(self.rows, path)

    def to_dict(self) -> dict[str, Any]:
        """Return the rows, the options of the probe and the versions of the libraries as JSON data."""
        about = {"schema_version": SCHEMA_VERSION, "options": dict(self.options)}
        return {**about, "versions": dict(library_versions()), "rows": [dict(row) for row in self.rows]}

    def over_seeds(self, number: str) -> dict[str, list[Point]]:
        """Return the mean and the range of a metric or reading over the seeds of each group, at each step.

        Args:
            number: the name of a metric or reading, from `metrics` or `readings`.

        Returns:
            A dict from each group to its points, for the steps at which a seed has a value. A point contains
            the mean, the minimum and the maximum over seeds at a step.
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
        """Plot each reading in a separate row, and the metrics of the runs in the last row.

        Each line shows the mean over the seeds of a group.

        Each band reaches from the smallest to the largest value over the seeds of a group. With several
        probes, the plot shows only the first reading of each probe.
        """
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
    runs: RunPath | TrainResult | Sequence[RunPath | TrainResult] | Steps,
    probes: Callable[..., ProbeResult] | str | Sequence[Callable[..., ProbeResult] | str],
    *,
    task: Task | None = None,
    config: ModelConfiguration | None = None,
    device: str | torch.device = "auto",
    progress: bool | float | None = None,
    **options: object,
) -> Along:
    """Apply probes to every checkpoint of training runs, from the oldest to the newest checkpoint.

    A run of `train` has `n_checkpoints` checkpoints during training (default: 10) and one final checkpoint.
    Runs that differ only in the seed form one group. For a run of another library, `along` uses the
    checkpoints in the run's file or folder. If a checkpoint of another library is damaged, `along` warns and
    omits the checkpoint.

    Args:
        runs: one run or a list of runs. A run is the folder of a run, a result of `train` that has a folder,
            or another library's run with several checkpoints. Give a run of another library as a path or as
            an `Opened`. You may also give the models of one run, as a dict from steps to models or as a list
            of pairs (step, model). A model is any input that a probe accepts.
        probes: a probe, the name of a probe, or a list of probes and names.
        task: the task of the runs. If the task needs files, the field `data` of the task contains their
            paths. Default: the task of each checkpoint. For models in memory, `along` measures accuracies
            only with `task`.
        config: the configuration of a model whose file is a bare state dict (see `open_checkpoint`). `along`
            uses `config` for a dict or list of models, and for runs of another library.
        device: the device for the models (`auto`, `cpu`, `cuda`, `cuda:N` or `mps`).
        progress: the display of progress, as for `train`.
        **options: the options of the probe. Options are allowed only for a single probe.

    Returns:
        The readings and the accuracies at every checkpoint.

    Raises:
        ValueError: If `runs` contains no run.
        ValueError: If a run has no checkpoints.
        ValueError: If a checkpoint does not contain its training configuration.
        ValueError: If options are given for several probes.
        ValueError: If a step or model is given twice.
        ValueError: If a probe refuses its input. The message then starts with the path of the checkpoint or
            with the step.
        CheckpointError: If a checkpoint of `train` or the file of another library's run is damaged.

    Example:
        >>> along("runs/a", "q_condensation").to_frame()  # doctest: +SKIP
        >>> from anchorlens import ModelConfig, build_model
        >>> models = {step: build_model(ModelConfig(gamma=0.5), seed=step) for step in (0, 100)}
        >>> [round(row["stable_rank.w_q_normalized"], 2) for row in along(models, "stable_rank").rows]
        [1.01, 1.13]
    """
    chosen = checked_probes([probes] if isinstance(probes, str) or callable(probes) else probes)
    if not chosen:
        raise ValueError(
            "probes must contain at least one probe, got none. Give a probe or the name of a probe"
        )
    if options and len(chosen) != 1:
        raise ValueError("options must be given for a single probe, got several probes. Give one probe")
    where = choose_device(device)
    moments = _moments(runs, task, config, where)
    rows: list[dict[str, Any]] = []
    recipes: list[dict[str, Any]] = []
    with progress_bar(len(moments), enabled=progress, what="probing", unit="checkpoint") as update:
        for done, moment in enumerate(moments, 1):
            run, step, path = moment.run, moment.step, moment.path
            try:
                given = moment.opened()
            except CheckpointError as error:
                if not moment.may_be_damaged:
                    raise
                warnings.warn(f"step {step:,} is left out: {error}", stacklevel=2)
                continue
            checkpoint = given.checkpoint
            place = {"run": run, "step": checkpoint.step if checkpoint and step is None else step}
            if not any(place.items() <= row.items() for row in rows):  # the last step may be there already
                recipes.append(_recipe(checkpoint, path) if checkpoint and step is None else {"run": run})
                rows.append(place | _numbers(given, path, chosen, options))
            update(done, Path(run).name)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    readings = tuple(name for name in columns if "." in name)
    metrics = tuple(name for name in columns if name not in ("run", "seed", "step", *readings))
    whole = (
        {"run": row["run"], "group": group, "seed": row["seed"], "step": row["step"]}
        | {name: row.get(name) for name in (*metrics, *readings)}
        for row, group in zip(rows, _groups(recipes), strict=True)
    )
    return Along(tuple(whole), metrics, readings, options)


class _Moment(NamedTuple):
    """A checkpoint to measure."""

    run: str
    """The folder or file of the run."""
    step: int | None
    """The step. `None` stands for the step that the checkpoint records."""
    path: str
    """The name of the checkpoint in errors."""
    opened: Callable[[], Input]
    """The function that opens the checkpoint."""
    may_be_damaged: bool = False
    """Whether a damaged checkpoint is left out, as in another library's file."""


def _moments(
    runs: Any, task: Task | None, config: ModelConfiguration | None, device: torch.device
) -> list[_Moment]:
    steps = _models_at_steps(runs)
    if steps is None:
        return [moment for run in _listed(runs) for moment in _of_run(run, task, config, device)]

    def opener(model: Any) -> Callable[[], Input]:
        of_path = config if isinstance(model, str | os.PathLike) else None
        return lambda: resolve(model, task, config=of_path, device=device)

    return [_Moment("model", step, f"step {step}", opener(model)) for step, model in steps]


def _of_run(
    run: Any, task: Task | None, config: ModelConfiguration | None, device: torch.device
) -> list[_Moment]:
    """Return the checkpoints of a run of `train` or of another library."""
    folder = Path(run.path) if isinstance(run, Opened) else _folder(run)
    if paths := [] if isinstance(run, Opened) or folder.is_file() else _checkpoints(folder):
        if config is not None:
            raise ValueError("runs of `train` must be given without config, got a config. Omit config")
        return [
            _Moment(str(folder), None, safe_text(path), partial(_loaded, path, task, device))
            for path in paths
        ]
    none_there = ValueError(
        f"{safe_text(folder)} must be the folder of a run with checkpoints, which `train --out` writes, "
        f"or another library's run with several checkpoints, got no checkpoint. Give another folder"
    )
    try:
        given = resolve(run if isinstance(run, Opened) else folder, task, config=config, device=device)
    except CheckpointError:
        if folder.is_file():
            raise
        raise none_there from None
    if not isinstance(given.opened, Opened) or not given.opened.trajectory:
        raise none_there
    steps = given.opened.trajectory
    name = safe_text(folder)
    return [
        _Moment(str(folder), step, f"{name}, step {step:,}", partial(_at_step, given, steps, step), True)
        for step in steps
    ]


def _loaded(path: Path, task: Task | None, device: torch.device) -> Input:
    return resolve(load_checkpoint(path), task, device=device)


def _at_step(given: Input, trajectory: Trajectory, step: int) -> Input:
    return replace(given, checkpoint=trajectory[step])


def _models_at_steps(runs: object) -> list[tuple[int, Any]] | None:
    """Return the models with their steps, in ascending order, or `None` if runs are given.

    Raises:
        ValueError: If a step is not a number, or a step or a model in memory is given twice.
    """
    pairs = [*runs.items()] if isinstance(runs, Mapping) else runs
    if not isinstance(pairs, list | tuple) or not pairs or not all(isinstance(one, tuple) for one in pairs):
        return None
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError(
            f"models with steps must be pairs (step, model), got {safe_repr(pairs[0])}. Pair each model with "
            "its step"
        )
    steps, models = zip(*pairs, strict=True)
    for step in steps:
        check_number("a step", step, minimum=0, integer=True)
    in_memory = [id(model) for model in models if not isinstance(model, str | os.PathLike)]
    if len({*steps}) < len(steps) or len({*in_memory}) < len(in_memory):
        raise ValueError(
            "models with steps must have different steps and different models, got a step or a model twice. "
            "Keep copy.deepcopy(model) at each step"
        )
    return sorted(zip(map(int, steps), models, strict=True), key=lambda pair: pair[0])


def _listed(runs: object) -> Sequence[Any]:
    listed = [runs] if isinstance(runs, str | os.PathLike | TrainResult | Opened) else runs
    if not isinstance(listed, Sequence) or not listed:
        raise ValueError(
            f"runs must be the folder of a run or a list of at least one folder, got {safe_repr(runs)}. Give "
            "a folder that `train --out` wrote"
        )
    return listed


def _folder(run: object) -> Path:
    if isinstance(run, TrainResult):
        if run.out is None:
            raise ValueError("a run must have a folder, got a result without a folder. Train with out=...")
        return run.out
    if not isinstance(run, str | os.PathLike):
        raise ValueError(
            f"a run must be given as a folder or a result of train, got {type(run).__name__}. Give the folder"
        )
    return Path(run)


def _checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints of a run of `train`, oldest first.

    The last two checkpoints may have the same step.
    """
    with reading(folder):
        check_inside(folder, folder / "ckpt.pt")
    return [*trajectory_files(folder), *folder.glob("ckpt.pt")]


def _recipe(checkpoint: Checkpoint, path: str) -> dict[str, Any]:
    """Return the fields of a checkpoint's run that decide what the model learns, without the seed."""
    train = checkpoint.train_config
    if train is None or checkpoint.step is None:
        raise ValueError(
            f"{path} must contain its training configuration, got none. Give the folder of a run"
        )
    run = RunConfig(checkpoint.task, checkpoint.model_config, train)
    left_out = {"seed", *execution_fields(train)}
    parts = run.to_dict().values()
    return {name: value for part in parts for name, value in part.items() if name not in left_out}


def _numbers(
    given: Input, where: str, probes: Iterable[Callable[..., ProbeResult]], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the seed of a checkpoint, its metrics if its task is known, and the readings of the probes."""
    train = given.checkpoint and given.checkpoint.train_config
    numbers: dict[str, Any] = {"seed": train and train.seed}
    task = given.task
    try:
        if task is not None:
            behaviour = _evaluated(given, task)
            for metric in task.metrics:
                if metric.logged_as:
                    measure = behaviour.measure(metric.name)
                    numbers[metric.name] = None if measure is None else measure.value
        for probe in probes:
            result = apply(probe, given, **options)
            for name, value in result.numbers().items():
                numbers[f"{result.probe}.{name}"] = None if value is None else number(value)
    except CheckpointError:  # which names its file
        raise
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    return numbers


def _evaluated(given: Input, task: Task) -> Evaluation:
    """Evaluate the model on a sample of test inputs."""
    if given.checkpoint is None:
        return task.evaluate(given.model, **task.sampling)
    return given.checkpoint.evaluate(device=device_of(given.model), **task.sampling)


def _groups(fields: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a text for each row with the fields in which the run of the row differs from other runs."""
    names = list(dict.fromkeys(name for of_run in fields for name in of_run))
    varying = [name for name in names if len({repr(of_run.get(name)) for of_run in fields}) > 1]
    return [
        ", ".join(f"{name} {_short(of_run[name])}" for name in varying if of_run.get(name) is not None)
        for of_run in fields
    ]


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else safe_text(value, 40)
