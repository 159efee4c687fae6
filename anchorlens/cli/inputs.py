"""Functions that read the inputs of commands, which are checkpoints and the files of options."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorlens import safe
from anchorlens.cli.shared import LONGEST
from anchorlens.recipes.presets import preset_parts
from anchorlens.recipes.run_config import places
from anchorlens.recipes.train_config import TrainConfig, checkpoint_in, read_start
from anchorlens.tasks.registry import task_or_default
from anchorlens.texts import safe_repr, safe_text

if TYPE_CHECKING:
    from anchorlens.files.loaded_model import LoadedModel
    from anchorlens.tasks.shared.base import Task
    from anchorlens.tasks.shared.batch import TokenBatch


def read_toml(path: Path) -> dict[str, Any]:
    """Read the content of a TOML file.

    Raises:
        ValueError: If the file is not TOML, or cannot be read.
    """
    content = _content(path, safe_text(path), "; give a TOML file")
    try:
        return safe.read_toml(content)
    except ValueError as error:
        what = safe.kind_of(content[: safe.START]) or f"an error: {error}"
        raise ValueError(f"{safe_text(path)}: the file must be TOML, got {what}") from None


def base_parts(preset: str | None, start: object = None) -> Mapping[str, Any]:
    """Return the base configuration of a run.

    The base is the preset if it is given, else the checkpoint `start` if it is given, and else the preset
    `quick`. The function omits the interventions and the start of the checkpoint.

    Raises:
        CheckpointError: If the checkpoint cannot be read.
        ValueError: If the preset is unknown.
        ValueError: If the checkpoint does not exist, or `start` is not a path.
    """
    if preset is not None or start is None:
        return preset_parts(preset or "quick")
    if not isinstance(start, str) or not start:
        raise ValueError(
            f"start must be the path of a checkpoint or run, got {safe_repr(start)}. Write a path such as "
            "runs/a"
        )
    from anchorlens.files.checkpoint import from_contents

    path = checkpoint_in(start)
    checkpoint = from_contents(path, read_start(path).values)
    train = (checkpoint.train_config or TrainConfig()).without_interventions().to_dict()
    return {"task": checkpoint.task.to_dict(), "model": checkpoint.model_config.to_dict(), "train": train}


def check_config(path: Path | None) -> None:
    """Check that the file of `--config` can be read.

    The error names the file of `--config`.

    Raises:
        ValueError: If the file cannot be read.
    """
    if path is not None:
        _content(path, f"--config {safe_text(path)}")


def _content(path: Path, called: str, advice: str = "") -> bytes:
    try:
        return safe.read_bytes(path)
    except OSError as error:
        raise ValueError(f"{called}: {error.strerror}{advice}") from None
    except ValueError as error:
        raise ValueError(f"{called}: {error}") from None


def unreadable_message(path: Path, error: Exception) -> str:
    """Return a line with the reason why a checkpoint was not read."""
    if isinstance(error, OSError):
        where = error.filename if isinstance(error.filename, str) else path
        return f"{safe_text(where)}: {safe_text(error.strerror or error)}"
    return safe_text(error, LONGEST)


def moved(task: Any, data: Sequence[str] | None) -> Any:
    """Return the task with the new paths of its files.

    Raises:
        ValueError: If paths are given for a task without files.
    """
    if not data:
        return task
    if "data" not in places(task):
        raise ValueError(
            f"--data must be given only for a task with files (text, cogs), got the task {task.kind} without "
            "files. Omit --data"
        )
    return dataclasses.replace(task, data=os.pathsep.join(data))


def opened_input(
    path: Path, config: Path | None, device: str, data: Sequence[str] | None, model: str | None = None
) -> LoadedModel:
    """Open a checkpoint, with new paths for the files of its task, or build the user's own module.

    The argument `data` contains the new paths of the task's files. `model` is the value of `--model`; a
    `path` equal to it stands for a module that has its weights.

    Raises:
        CheckpointError: If the checkpoint cannot be read.
        ValueError: If the task has no files, but paths are given.
    """
    from anchorlens.files.model_input import resolve
    from anchorlens.files.own_module import own_module

    if model is not None:
        if config or data:
            raise ValueError("--config and --data must be omitted with --model, got one. Omit it")
        return own_module(model, None if path == Path(model) else path, device)
    given = resolve(path, config=config, device=device)
    if not data:
        return given
    task, checkpoint = moved(task_or_default(given.task), data), given.checkpoint
    moved_checkpoint = None if checkpoint is None else dataclasses.replace(checkpoint, task=task)
    return dataclasses.replace(given, task=task, checkpoint=moved_checkpoint)


class TrainingData:
    """The training data of `--train-data`, for checkpoints without training data."""

    def __init__(self, path: Path | None, model: str | None = None) -> None:
        """Store the path of the file, and whether a module of the user's own reads its data.

        The first checkpoint that needs the training data reads the file.
        """
        self._path, self._of_module = path, model is not None
        self._batch = None

    def of(self, given: LoadedModel, task: Task | None) -> TokenBatch | None:
        """Return the training data for a checkpoint.

        The result is None if the checkpoint has training data, or if no file was given.

        Args:
            given: the checkpoint.
            task: the task that the sequences must fit. None stands for any task.

        Raises:
            CheckpointError: If the file cannot be read, or does not fit the task.
        """
        if self._path is None or (given.checkpoint and given.checkpoint.knows_training_set):
            return None
        from anchorlens.files.training_data import read_training_data

        if self._batch is None:
            self._batch = read_training_data(self._path, floats=self._of_module)
        if task is not None:
            with safe.reading(self._path):
                task.checked_training_set(self._batch)
        return self._batch

    def check_use(self) -> None:
        """Check that at least one checkpoint needed the training data.

        Call this method after all checkpoints were read.

        Raises:
            ValueError: If every checkpoint has training data. The file of `--train-data` is not needed in
                this case.
        """
        if self._path is not None and self._batch is None:
            raise ValueError(
                "--train-data must be given only for checkpoints without training data, got only "
                "checkpoints that describe their training data. Omit --train-data"
            )
