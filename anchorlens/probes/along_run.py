"""The readings of probes and the accuracies at every checkpoint of a training run."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from anchorlens.configuration import check_number, frozen_dataclass
from anchorlens.files.any_module import of_any_module
from anchorlens.files.checkpoint import library_versions
from anchorlens.files.csv_file import in_words
from anchorlens.files.loaded_model import LoadedModel, Trajectory
from anchorlens.files.model_input import ModelInput, given_training_data, resolve
from anchorlens.files.own_module import own_module
from anchorlens.files.tables import write_rows
from anchorlens.models.alterations import fingerprint, repeated
from anchorlens.models.devices import choose_device
from anchorlens.models.running import device_of
from anchorlens.models.wrappers import is_hooked
from anchorlens.plots.curves import along_figure, measured
from anchorlens.probes.registry import apply, checked_probes
from anchorlens.probes.shared.checks import WeightsRefused
from anchorlens.probes.shared.contract import SCHEMA_VERSION, ProbeResult, number
from anchorlens.safe import CheckpointError, check_inside
from anchorlens.tasks.shared.base import Task
from anchorlens.tasks.shared.training_data_task import TrainingDataTask
from anchorlens.texts import safe_repr, safe_text
from anchorlens.training.loop import TrainResult
from anchorlens.training.progress import progress_bar
from anchorlens.training.run_folder import trajectory_of
from anchorlens.views import html

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from anchorlens.files.settings import ModelConfiguration


_FILE = re.compile(r".*?(\d{1,12})\D*\.(?:pt|pth|bin|ckpt|safetensors)")
_ABOUT = ("run", "seed", "step", "reason", "found")


@frozen_dataclass(eq=False)
class Along:
    """The readings of probes at every checkpoint of a training run."""

    rows: tuple[Mapping[str, Any], ...]
    """A row for each checkpoint. The column `run` contains the folder. The other columns are `seed`, `step`,
    the metrics of the task and `<probe>.<reading>` for every probe. A sample of test inputs gives each
    metric. An undefined value is `None`. If a probe refuses the weights of a checkpoint, for example because
    the model does not fit its data yet, the column `reason` says why. The column `found` names what a probe
    found, such as the key frequencies of `fourier`."""
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

    def plot(self) -> go.Figure:
        """Plot each reading in a separate row, and the metrics of the run in the last row.

        With several probes, the plot shows only the first reading of each probe.
        """
        return along_figure(self.readings, self.metrics, self.rows)

    _repr_html_ = html

    def __repr__(self) -> str:
        parts = [f"{len(self.rows)} checkpoint{'' if len(self.rows) == 1 else 's'}"]
        for name in self.readings[:3]:
            if values := measured(self.rows, name)[1]:
                parts.append(f"{name} {values[0]:.3g} -> {values[-1]:.3g}")
        parts += [row["found"] for row in self.rows[-1:] if row.get("found")]
        return f"Along({'; '.join(parts)})"


def along(
    run: Mapping[int, ModelInput] | str | os.PathLike[str] | LoadedModel | TrainResult,
    probes: Callable[..., ProbeResult] | str | Sequence[Callable[..., ProbeResult] | str],
    *,
    task: Task | None = None,
    config: ModelConfiguration | None = None,
    device: str | torch.device = "auto",
    progress: bool | float | None = None,
    model: str | None = None,
    held_out: object = None,
    **options: object,
) -> Along:
    """Apply probes to every checkpoint of a training run, from the oldest to the newest checkpoint.

    A run of `train` has `n_checkpoints` checkpoints during training (default: 10) and one final checkpoint.
    For a run of another library, `along` uses the checkpoints in the run's file or folder. If a checkpoint
    during training is damaged, `along` warns and omits the checkpoint.

    Args:
        run: the folder of a run, a result of `train` that has a folder, or another library's run with several
            checkpoints. Give a run of another library as a path or as a `LoadedModel`. You may also give the
            models of a run, as a dict from steps to models. A model is any input that a probe accepts, for
            example a copy of a module of your own.
        probes: a probe, the name of a probe, or a list of probes and names.
        task: the task of the run. If the task needs files, the field `data` of the task contains their paths.
            Default: the task of each checkpoint. For models in memory, `along` measures accuracies only with
            `task`.
        config: the configuration of a model whose file is a bare state dict (see `open_checkpoint`). `along`
            uses `config` for a dict of models, and for runs of another library.
        device: the device for the models (`auto`, `cpu`, `cuda`, `cuda:N` or `mps`).
        progress: the display of progress, as for `train`.
        model: your function that builds the module of the weights, `FILE.py:FUNCTION`, as for `classify
            --model`. `run` is then a dict from steps to paths, or a folder of files with steps in their
            names, such as `step_100.pt`.
        held_out: data that models without a task were not trained on, as for `classify`. With the option
            `training_set`, `along` measures their train accuracy and the accuracy on these data.
        **options: the options of the probe. Options are allowed only for a single probe.

    Returns:
        The readings and the accuracies at every checkpoint.

    Raises:
        ValueError: If `run` is not a run.
        ValueError: If the run has no checkpoints.
        ValueError: If a checkpoint does not contain its training configuration.
        ValueError: If options are given for several probes.
        ValueError: If a model is given twice.
        ValueError: If a probe refuses its input, and not the weights of a checkpoint. The message then starts
            with the step.
        CheckpointError: If the last checkpoint of `train` or the file of another library's run is damaged.

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
    if model is not None and config is not None:
        raise ValueError("config must be omitted with model, got both. Omit config")
    where = choose_device(device)
    name, models = _models(run, task, config, where, model)
    rows: list[dict[str, Any]] = []
    kept: dict[int, str] = {}
    data = given_training_data(options.get("training_set")), given_training_data(held_out)
    with progress_bar(len(models), enabled=progress, what="probing", unit="checkpoint") as update:
        for done, step in enumerate(models, 1):
            try:
                one: Any = models[step]
                one = one if model is None else own_module(model, Path(one), str(where))
                of_path = config if isinstance(one, str | os.PathLike) else None
                given = resolve(one, task, config=of_path, device=where)
            except CheckpointError as error:  # a file that was cut off
                if not isinstance(models, Trajectory):
                    raise
                warnings.warn(f"step {step:,} is left out: {error}", stacklevel=2)
                continue
            train = given.checkpoint and given.checkpoint.train_config
            row = {"run": name, "seed": train and train.seed, "step": step}
            kept[step] = fingerprint(getattr(given.model, "parameters", tuple)())
            rows.append(row | _numbers(given, step, chosen, options, data))
            update(done, Path(name).name)
    for note in repeated(kept):
        warnings.warn(note, stacklevel=2)
    columns = list(dict.fromkeys(column for row in rows for column in row))
    readings = tuple(column for column in columns if "." in column)
    metrics = tuple(one for one in columns if "." not in one and one not in _ABOUT)
    whole = ({column: row.get(column) for column in columns} for row in rows)
    return Along(tuple(whole), metrics, readings, options)


def _models(
    run: Any, task: Task | None, config: ModelConfiguration | None, device: torch.device, build: str | None
) -> tuple[str, Mapping[int, ModelInput]]:
    """Return the name of a run, and its models by step, in ascending order."""
    if isinstance(run, Trajectory):
        return "model", run
    if isinstance(run, Mapping) and run:
        return "model", _checked(run)
    if isinstance(run, TrainResult):
        run = run.out
    if not isinstance(run, str | os.PathLike | LoadedModel):
        raise ValueError(
            "run must be the folder of a run, a result of train with out or a dict from steps to models, "
            f"got {safe_repr(run)}. Give a folder that `train --out` wrote"
        )
    folder = Path(run.path if isinstance(run, LoadedModel) else run)
    if build is not None:
        return str(folder), _files(folder)
    if not isinstance(run, LoadedModel) and (own := trajectory_of(folder, with_last=True)):
        return str(folder), own
    given, why = None, "they are a single checkpoint"
    try:
        given = resolve(run if isinstance(run, LoadedModel) else folder, task, config=config, device=device)
    except CheckpointError as error:
        if folder.is_file():
            raise
        why = str(error)
    if given is not None and given.trajectory:
        return str(folder), given.trajectory
    seen = in_words(sorted(path.name for path in folder.iterdir())) if folder.is_dir() else ""
    raise ValueError(
        f"{safe_text(folder)} must be the folder of a run with checkpoints, which `train --out` writes, or "
        f"another library's run with several checkpoints, got no checkpoint among {seen or 'no files'} "
        f"({why}). Give another folder, or a dict from steps to models"
    )


def _files(folder: Path) -> dict[int, ModelInput]:
    """Return the files of weights in a folder by step, the last number in the name of a file.

    Raises:
        ValueError: If there are no such files, two have the same step, or a link leads out of the folder.
    """
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    steps = {name: int(match[1]) for name in names if (match := _FILE.fullmatch(name))}
    if not steps or len({*steps.values()}) < len(steps):
        raise ValueError(
            f"{safe_text(folder)} must be a folder of weights with different steps in the names of their "
            f"files, such as step_100.pt, got {in_words(names) or 'no files'}. Give another folder"
        )
    for name in steps:
        check_inside(folder, folder / name)
    return {step: folder / name for name, step in sorted(steps.items(), key=lambda pair: pair[1])}


def _checked(models: Mapping[Any, ModelInput]) -> dict[int, ModelInput]:
    """Return the models of a caller by step, in ascending order.

    Raises:
        ValueError: If a step is not a number, or a model in memory is given twice.
    """
    for step in models:
        check_number("a step", step, minimum=0, integer=True)
    in_memory = [id(model) for model in models.values() if not isinstance(model, str | os.PathLike)]
    if len({*in_memory}) < len(in_memory):
        raise ValueError(
            "models with steps must be different models, got a model twice. Keep copy.deepcopy(model) at "
            "each step"
        )
    return {int(step): models[step] for step in sorted(models)}


def _numbers(
    given: LoadedModel,
    step: int,
    probes: Iterable[Callable[..., ProbeResult]],
    options: Mapping[str, Any],
    data: tuple[Any, Any],
) -> dict[str, Any]:
    """Return the metrics of a checkpoint if its task or data are known, and the readings of the probes."""
    numbers: dict[str, Any] = {}
    task = given.task
    try:
        if task is not None:
            if given.checkpoint is None:
                behaviour = task.evaluate(given.model, **task.sampling)
            else:
                behaviour = given.checkpoint.evaluate(device=device_of(given.model), **task.sampling)
            for metric in task.metrics:
                if metric.logged_as:
                    measure = behaviour.measure(metric.name)
                    numbers[metric.name] = None if measure is None else measure.value
        elif data[0] is not None:
            numbers |= _accuracies(given.model, *data)
        for probe in probes:
            try:
                result = apply(probe, given, **options)
            except WeightsRefused as error:
                numbers["reason"] = str(error)
                continue
            if found := result.in_short():
                numbers["found"] = "; ".join(filter(None, (numbers.get("found"), found)))
            for name, value in result.numbers().items():
                numbers[f"{result.probe}.{name}"] = None if value is None else number(value)
    except CheckpointError:  # which names its file
        raise
    except ValueError as error:
        raise ValueError(f"step {step}: {error}") from error
    return numbers


def _accuracies(model: Any, training_set: object, held_out: object) -> dict[str, float]:
    """Return the train accuracy of a model without a task, and the accuracy on held-out data."""
    if not is_hooked(model):
        model, training_set, held_out = of_any_module(model, training_set, held_out)
    task = TrainingDataTask.of(training_set, held_out)
    found = task.evaluate(model, training_set=training_set, held_out=held_out)
    return {name: one.value for name, one in found.measures.items() if one is not None}
