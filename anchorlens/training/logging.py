"""Loggers for `train(..., on_log=...)`: TensorBoard and Weights & Biases.

Each has a method `log(line)`; so may your own. The libraries are imported when a logger is made.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import wandb

__all__ = ["TensorBoard", "WandB"]


class TensorBoard:
    """A logger that writes every number of a log line as a scalar, for `tensorboard --logdir FOLDER`.

    With `train_many`, each run gets a separate folder: `run_0`, `run_1`, and so on. If a run is resumed,
    TensorBoard hides older numbers of the steps that are logged again.

    Example:
        >>> from anchorlens import train
        >>> train(out="runs/a", on_log=TensorBoard("runs/a/tensorboard"))  # doctest: +SKIP
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Choose a folder; it is made with the first line.

        Raises:
            ValueError: If the path is a file, or tensorboardX is not installed.
        """
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise ValueError(
                "tensorboardX must be installed for TensorBoard, got an import error. Run pip install "
                "'.[logging]' in a clone"
            ) from None
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(
                f"folder must be the path of a folder, got the file {self.folder}. Choose another name"
            )
        self._open = SummaryWriter
        self._writers: dict[int | None, SummaryWriter] = {}

    def log(self, line: Mapping[str, Any]) -> None:
        """Write a log line, and flush the line to the operating system."""
        run, step = line.get("run"), line["step"]
        if run not in self._writers:
            folder = self.folder if run is None else self.folder / f"run_{run}"
            after = f".{time.time_ns()}"  # two files of one second would have one name
            self._writers[run] = self._open(str(folder), purge_step=step, filename_suffix=after)
        for name, value in _numbers(line).items():
            self._writers[run].add_scalar(name, value, step)
        self._writers[run].flush()

    def close(self) -> None:
        """Close the files. TensorBoard can also read the files before this call."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()


class WandB:
    """A logger that writes every number of a log line to a run of Weights & Biases.

    You begin and end the W&B run yourself. With `train_many`, the name of a number begins with the name of
    its run, for example `run_3/loss`.

    Example:
        >>> import wandb
        >>> from anchorlens import train
        >>> with wandb.init(project="anchors") as run:  # doctest: +SKIP
        ...     train(on_log=WandB(run))
    """

    def __init__(self, run: wandb.Run | None = None) -> None:
        """Choose a run. Default: the last run that `wandb.init` has begun.

        Raises:
            ValueError: If no run has begun.
        """
        if run is None:
            import wandb

            run = wandb.run
        if run is None:
            raise ValueError(
                "WandB must get a run, got none. Call wandb.init(...) first, or give a run: WandB(run)"
            )
        self.run, self._named = run, set[str]()

    def log(self, line: Mapping[str, Any]) -> None:
        """Log the numbers of a line. W&B plots each number against the line's step."""
        prefix = f"run_{line['run']}/" if "run" in line else ""
        values = {prefix + name: value for name, value in _numbers(line).items()}
        for name in values.keys() - self._named:
            self.run.define_metric(name, step_metric=f"{prefix}step")
        self._named |= values.keys()
        self.run.log({**values, f"{prefix}step": line["step"]})


def _numbers(line: Mapping[str, Any]) -> dict[str, float]:
    """Return the values of a log line that are drawn over the step."""
    return {name: value for name, value in line.items() if name not in ("run", "step") and value is not None}
