"""`--train-data` and `--data`: what checkpoints were trained on, and where the files of their tasks lie."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorlens.runs.identity import places

if TYPE_CHECKING:
    from anchorlens.tasks.shared.batch import TokenBatch


def moved(task: Any, data: Sequence[str] | None) -> Any:
    """A task whose files lie elsewhere now, the same otherwise.

    Raises:
        ValueError: it is of no files.
    """
    if not data:
        return task
    if "data" not in places(task):
        raise ValueError(
            f"--data says where the files of a task lie (text, cogs), and the task {task.kind} has none; "
            "leave it out"
        )
    return dataclasses.replace(task, data=os.pathsep.join(data))


def training_sets(
    checkpoints: Sequence[Path], train_data: Path | None, config: Path | None = None
) -> dict[Path, TokenBatch]:
    """Checkpoint -> the training data of the file, for those that do not carry their own.

    A checkpoint that cannot be read is left out; whoever reads it next says why.

    Raises:
        CheckpointError: the file cannot be read, or is not of the task of such a checkpoint.
        ValueError: every checkpoint carries its own.
    """
    if train_data is None:
        return {}
    from anchorlens.files.importers import open_checkpoint
    from anchorlens.files.training_data import read_training_data
    from anchorlens.safe import CheckpointError

    tasks, unreadable = {}, False
    for path in checkpoints:
        try:
            checkpoint = open_checkpoint(path, config=config).checkpoint
        except (ValueError, OSError, MemoryError, RuntimeError):
            unreadable = True
            continue
        if checkpoint.train is None:
            tasks[path] = checkpoint.task
        del checkpoint  # one at a time, and none beside the data
    if not tasks:
        if unreadable:
            return {}
        raise ValueError(
            "--train-data is for checkpoints that do not carry their own training data, and every one given "
            "here does; leave it out"
        )
    data = read_training_data(train_data)
    for task in tasks.values():
        try:
            task.checked_training_set(data)
        except ValueError as error:
            raise CheckpointError(train_data, str(error)) from None
    return dict.fromkeys(tasks, data)
