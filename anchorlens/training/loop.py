"""The training loop: it advances an engine and handles log, checkpoints, state, early stop and divergence."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from anchorlens.configuration import frozen_dataclass
from anchorlens.engine import engine_of
from anchorlens.engine.base import Engine, Update, stack_key
from anchorlens.files.checkpoint import Checkpoint
from anchorlens.models.devices import choose_device
from anchorlens.recipes.run_config import EXECUTION, RunConfig
from anchorlens.recipes.schedule import LOSS_LINES, has_converged, loss_reached, trajectory_steps
from anchorlens.tasks.shared.base import Batch
from anchorlens.tasks.shared.evaluation import Evaluation
from anchorlens.tasks.shared.measures import Metric
from anchorlens.tasks.shared.phases import passed_at
from anchorlens.tasks.shared.task_errors import evaluated, measured
from anchorlens.training.child_processes import TrainingError
from anchorlens.training.progress import Lines
from anchorlens.training.run_folder import RunFolder, evaluations
from anchorlens.views import html

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from anchorlens.models.library import HookedTransformer

Status = Literal["finished", "stopped early", "diverged"]


class TrainingDiverged(TrainingError):  # noqa: N818 - an outcome of the run, not a fault of the program
    """The loss or its gradient became NaN or infinite.

    The message gives the location of the last good weights.
    """


class OnLogError(TrainingError):
    """The function `on_log` raised an error, which is stored as the cause of this error.

    Training itself did not fail.
    """


@frozen_dataclass(eq=False)
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
        from anchorlens.plots import curves  # late, since it imports plotly, which is slow

        return curves.training_curve(self.log)

    _repr_html_ = html

    def __repr__(self) -> str:
        return f"TrainResult({self.status} at step {self.checkpoint.step}; {self.behaviour!r})"


_SHARED = (*EXECUTION, "early_stop_evaluations", "stop_at_loss")

Report = Callable[[str, Lines], None]
"""Called with a short text, and the new log lines with the indices of their runs."""


@dataclass
class Member:
    """One run in training."""

    run: RunConfig
    """The configuration of the run."""
    data: Batch
    """The training set of the run."""
    folder: RunFolder | None
    """The folder of the run, or None if no files are written."""
    start: Checkpoint | None = None
    """The checkpoint that the run starts from, or None if initial weights are drawn."""
    state: Mapping[str, torch.Tensor] | None = None
    """The saved state that the run resumes from."""
    place: int = 0
    """The index of the run among the runs that are trained together."""
    step: int = 0
    """The number of updates made so far."""
    log: list[dict[str, Any]] = field(default_factory=list)
    good: tuple[int, torch.Tensor] | None = None
    """The last step known to have had a finite loss and gradient, and the weights there (a stack's row)."""
    result: TrainResult | None = None
    """The result of the run, or None before its end."""

    def checkpoint(
        self, weights: Mapping[str, torch.Tensor], step: int, metrics: Mapping[str, Any]
    ) -> Checkpoint:
        """Return a checkpoint of this run with the given weights, step and metrics."""
        on_cpu = {name: weight.to("cpu") for name, weight in weights.items()}
        task, model, train = self.run
        return Checkpoint(model, task, on_cpu, train, step, dict(metrics))


def loop_key(run: RunConfig) -> tuple[object, ...]:
    """Return the settings that the runs of a loop share: `stack_key`, device, logging and stopping."""
    return (*stack_key(run), *(getattr(run.train_config, name) for name in _SHARED))


class Loop:
    """A training loop that trains runs with equal `loop_key` and equal step in one stack."""

    def __init__(self, members: Sequence[Member], device: torch.device) -> None:
        """Build the stack and restore the saved states of the members."""
        self.members = list(members)
        self.device = device
        self.train = members[0].run.train_config
        self.stack = self._stack(self.members, members[0].step, [m.state for m in members])
        now = time.monotonic()
        self.started = [now - (m.log[-1].get("seconds") or 0.0 if m.log else 0.0) for m in members]
        self.state_saved = now
        self.seconds_per_update = math.inf

    def _stack(self, members: Sequence[Member], step: int, states: Sequence[Any]) -> Engine:
        starts = [None if m.start is None else m.start.weights for m in members]
        runs = [m.run for m in members]
        stack = engine_of(runs[0])(runs, [m.data for m in members], self.device, starts)
        if step > 0:
            stack.restore(step, states)
        return stack

    def run(self, report: Report) -> None:
        """Train until every run has a result.

        If `report` raises an error, the method saves the states of all runs before it passes on the error.
        """
        trajectory = set(trajectory_steps(self.train))
        if self.stack.step == 0 and 0 in trajectory:
            for k, member in self._running():
                self._save_trajectory(k, member, {})
        for k, member in list(self._running()):
            if self._converged(member):
                self._end(k, member, "stopped early")
        while any(True for _ in self._running()):
            self._advance(trajectory, report)
            self._shrink()

    def _running(self) -> Iterator[tuple[int, Member]]:
        """Return the members that have not ended, with their indices in the stack."""
        return ((k, member) for k, member in enumerate(self.members) if member.result is None)

    def _advance(self, trajectory: set[int], report: Report) -> None:
        """Make the updates up to the next step at which something is due, and do what is due."""
        train, before = self.train, self.stack.step
        began = time.monotonic()
        step = min([train.total_steps, *(s for s in trajectory if s > before), *self._next_stops(before)])
        began_from = self.stack.snapshot()
        updates = self.stack.advance(step)
        norms = self.stack.weight_norms()
        self.seconds_per_update = (time.monotonic() - began) / (step - before)
        last = step == train.total_steps
        log_due, evaluate_due = (last or step % every == 0 for every in (train.log_every, train.eval_every))
        text, lines = "", []
        for k, member in list(self._running()):
            update, member.step = updates[k], step
            fine = update.failed_at is None or update.failed_at > before
            if fine and (member.good is None or before % train.log_every == 0):
                member.good = (before, began_from[k].clone())
            problem = self._problem(update, norms[k])
            if problem:
                member.step = step if update.failed_at is None else update.failed_at
                self._diverged(k, member, problem)
                continue
            line: dict[str, Any] = {"step": step}
            if log_due or evaluate_due:
                line |= {"loss": update.loss, "lr": update.lr, "grad_norm": update.grad_norm}
                line["weight_norm"] = norms[k]
                self._log(k, member, line, evaluate_due)
                lines.append((member.place, line))
            if step in trajectory:
                self._save_trajectory(k, member, line)
            text = _summary(member.log, member.run.task.metrics)
            if last or self._converged(member):
                self._end(k, member, "finished" if last else "stopped early")
        try:
            report(text, lines)
        except BaseException:
            self._save_states()
            raise
        if time.monotonic() - self.state_saved >= train.state_every_seconds:
            self._save_states()

    def _next_stops(self, step: int) -> list[int]:
        """Return the steps of the next log line, evaluation and (estimated from the time) saved state."""
        stops = [(step // every + 1) * every for every in (self.train.log_every, self.train.eval_every)]
        if any(member.folder is not None for member in self.members):
            stops.append(step + max(1, int(self.train.state_every_seconds / self.seconds_per_update)))
        return stops

    def _problem(self, update: Update, weight_norm: float) -> str | None:
        """Return which quantity is not finite and at which step, or None if all quantities are finite."""
        if update.failed_at is not None:
            what, value = "loss", update.loss
            if math.isfinite(value):
                what, value = "gradient norm", update.grad_norm
            return f"{what} is {value} at step {update.failed_at}"
        if not math.isfinite(weight_norm):
            return f"a weight is NaN or infinite after step {self.stack.step}"
        return None

    def _log(self, k: int, member: Member, line: dict[str, Any], evaluate_now: bool) -> None:
        """Add the measurements due now to the line, and append the line to the log."""
        if evaluate_now:
            run = member.run
            line |= measured(run.task, self.stack.model(k), member.data, seed=run.train_config.seed)
        line["seconds"] = round(time.monotonic() - self.started[k], 3)
        member.log.append(line)
        if member.folder is not None:
            member.folder.write_log(line)

    def _converged(self, member: Member) -> bool:
        """Return whether a stopping rule of the recipe ends the run here, before its last step."""
        if not member.log or member.log[-1]["step"] != member.step:
            return False
        patience, loss = self.train.early_stop_evaluations, self.train.stop_at_loss
        metrics = member.run.task.metrics
        if patience is not None and has_converged(evaluations(member.log, metrics), patience, metrics):
            return True
        return loss is not None and loss_reached(member.log[-LOSS_LINES:], loss) is not None

    def _save_trajectory(self, k: int, member: Member, line: Mapping[str, Any]) -> None:
        if member.folder is not None:
            member.folder.save_trajectory(member.checkpoint(self.stack.weights(k), member.step, line))

    def _save_states(self) -> None:
        for k, member in self._running():
            if member.folder is not None:
                member.folder.save_state(member.step, torch.get_num_threads(), self.stack.state(k))
        self.state_saved = time.monotonic()

    def _end(self, k: int, member: Member, status: Status) -> None:
        self.stack.stop(k)
        behaviour = evaluated(member.run.task, self.stack.model(k), training_set=member.data)
        metrics = {**(member.log[-1] if member.log else {}), "status": status, **behaviour.headline()}
        checkpoint = member.checkpoint(self.stack.weights(k), member.step, metrics)
        out = None if member.folder is None else member.folder.save_final(checkpoint).parent
        member.result = TrainResult(checkpoint, behaviour, tuple(member.log), status, out)

    def _diverged(self, k: int, member: Member, problem: str) -> None:
        self.stack.stop(k)
        message = f"training diverged: {problem}. Use a smaller lr or weight_decay, or a larger gamma"
        # without a known good step, take the weights from before the failed update
        step, row = member.good or (member.step, self.stack.snapshot()[k])
        last = member.checkpoint(self.stack.layout.weights(row), step, {"status": "diverged"})
        out = None
        if member.folder is not None:
            path, out = member.folder.save_final(last), member.folder.path
            what = "last good weights" if member.good else "weights it began from"
            message += f"; the {what} (step {last.step}) are in {path}"
        behaviour = last.evaluate(device=self.device, training_set=member.data)
        member.result = TrainResult(last, behaviour, tuple(member.log), "diverged", out, message)

    def _shrink(self) -> None:
        """Continue with a smaller stack once at most half of its members are still running."""
        running = list(self._running())
        if running and 2 * len(running) <= len(self.members):
            step, states = self.stack.step, [self.stack.state(k) for k, _ in running]
            self.started = [self.started[k] for k, _ in running]
            self.members = [member for _, member in running]
            del self.stack  # free its memory before the next stack is built
            self.stack = self._stack(self.members, step, states)


def _summary(log: Sequence[Mapping[str, Any]], metrics: Sequence[Metric]) -> str:
    """Return the last metrics and then the last loss of a log; a narrow terminal cuts off the loss."""
    measured = evaluations(log, metrics)
    latest = measured[-1] if measured else {}
    numbers = [(metric.name, latest.get(metric.logged_as)) for metric in metrics]
    parts = [f"{name} {value:.2f}" for name, value in numbers if value is not None]
    return "  ".join([*parts, *([f"loss {log[-1]['loss']:.3g}"] if log else [])])
