"""The result of a training, and its errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from anchorlens.configuration import documented
from anchorlens.files.checkpoint import Checkpoint
from anchorlens.models.devices import choose_device
from anchorlens.tasks.shared.evaluation import Evaluation
from anchorlens.tasks.shared.phases import passed_at
from anchorlens.views import html

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from anchorlens.models.library import HookedTransformer

Status = Literal["finished", "stopped early", "diverged"]


class TrainingDiverged(RuntimeError):  # noqa: N818 - an outcome of the run, not a fault of the program
    """The loss or its gradient became NaN or infinite.

    The message gives the location of the last good weights.
    """


class OnLogError(RuntimeError):
    """The function `on_log` raised an error, which is stored as the cause of this error.

    Training itself did not fail.
    """


@documented
@dataclass(frozen=True, eq=False)
class TrainResult:
    """A trained model with the measurements made during its training."""

    checkpoint: Checkpoint
    """The weights and configurations of the model, for `save_checkpoint`."""
    behaviour: Evaluation
    """The metrics and the phase of the model, which are an `AnchorEvaluation` for two anchors."""
    log: Sequence[Mapping[str, Any]]
    """The log lines with `step`, `loss` (of the last batch, in nats), `lr`, `grad_norm` (before clipping),
    `weight_norm` and `seconds`. Every `eval_every` steps, a line also has the task's metrics. For the
    two-anchor task, the metrics are `train_accuracy`, `id_accuracy` and `ood_accuracy` (0..1, one noise
    draw)."""
    status: Status
    """The status, which is `finished`, `stopped early` or `diverged`. A diverged result has the last good
    weights."""
    out: Path | None
    """The folder of the run, or None for a run without files."""
    message: str | None = None
    """The reason for a divergence with advice, or None for other runs."""

    @cached_property
    def model(self) -> HookedTransformer:
        """The HookedTransformer in evaluation mode, on the device of its training."""
        train = self.checkpoint.train_config
        return self.checkpoint.build_model(choose_device("cpu" if train is None else train.device))

    @property
    def passed_at(self) -> dict[str, int | None]:
        """A map from `train`, `id` and `ood` to the step from which this accuracy passes its threshold.

        The step is None if the accuracy does not pass its threshold at the last evaluation. The map is empty
        for a task without labels.
        """
        return passed_at(self.log, self.checkpoint.task.metrics, self.behaviour.chance)

    def plot(self) -> go.Figure:
        """Return a figure with accuracies and loss against optimiser steps."""
        from anchorlens.plots import training_curve  # late, since it imports plotly, which is slow

        return training_curve.training_curve(self.log)

    _repr_html_ = html

    def __repr__(self) -> str:
        return f"TrainResult({self.status} at step {self.checkpoint.step}; {self.behaviour!r})"
