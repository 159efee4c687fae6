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

    The message tells the user which file has the last good weights.
    """


class OnLogError(RuntimeError):
    """The function `on_log` raised an error, which is the cause of this error.

    Training itself did not fail.
    """


@documented
@dataclass(frozen=True, eq=False)
class TrainResult:
    """A trained model with the measurements made during its training."""

    checkpoint: Checkpoint
    """Its weights and configurations, for `save_checkpoint`."""
    behaviour: Evaluation
    """Metrics and phase of these weights; for two anchors an `AnchorEvaluation`."""
    log: Sequence[Mapping[str, Any]]
    """Log lines: `step`, `loss` (nats, of the last batch), `lr`, `grad_norm` (before clipping),
    `weight_norm`, `seconds`; every `eval_every` steps also the task's metrics: of the two-anchor task
    `train_accuracy`, `id_accuracy` and `ood_accuracy` (0..1, one noise draw)."""
    status: Status
    """`finished`, `stopped early`, or `diverged` (then the weights are the last that are known to be
    good)."""
    out: Path | None
    """The run's folder, if it has one."""
    message: str | None = None
    """What went wrong with a diverged run, and what to try."""

    @cached_property
    def model(self) -> HookedTransformer:
        """The HookedTransformer in evaluation mode, on the device of its training."""
        train = self.checkpoint.train_config
        return self.checkpoint.build_model(choose_device("cpu" if train is None else train.device))

    @property
    def passed_at(self) -> dict[str, int | None]:
        """The steps from which on the accuracies `train`, `id` and `ood` pass the thresholds of their phases.

        The step is None if the accuracy does not pass at the last evaluation. The map is empty for a task
        without phases.
        """
        return passed_at(self.log, self.checkpoint.task.metrics, self.behaviour.chance)

    def plot(self) -> go.Figure:
        """Return a figure with accuracies and loss against optimizer steps."""
        from anchorlens.show.figures import training_curve  # late, since it imports plotly, which is slow

        return training_curve.training_curve(self.log)

    _repr_html_ = html

    def __repr__(self) -> str:
        return f"TrainResult({self.status} at step {self.checkpoint.step}; {self.behaviour!r})"
