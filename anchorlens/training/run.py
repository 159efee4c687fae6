"""`train`: from a task, a model and a recipe to a trained, saved and measured HookedTransformer."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import torch

from anchorlens.behaviour import Behaviour, evaluate, quick_accuracies
from anchorlens.checkpoint import Checkpoint, load_checkpoint, training_set
from anchorlens.configuration import documented
from anchorlens.model import build_model
from anchorlens.model_config import ModelConfig
from anchorlens.presets import RunConfig
from anchorlens.task import AnchorTask
from anchorlens.training.config import TrainConfig
from anchorlens.training.fitter import Fitter, NotFiniteError, Update
from anchorlens.training.folder import RunFolder, evaluations, read_log, stored_run
from anchorlens.training.numerics import choose_device, numeric_settings
from anchorlens.training.progress import progress_bar
from anchorlens.training.schedule import has_settled, trajectory_steps

if TYPE_CHECKING:
    from transformer_lens import HookedTransformer

Status = Literal["finished", "stopped early", "diverged"]


class TrainingDiverged(RuntimeError):  # noqa: N818 - an outcome of the run, not a fault of the program
    """The loss or its gradient became NaN or infinite; the message says where the last good weights are."""


@documented
@dataclass(frozen=True, eq=False)
class TrainResult:
    """A trained model with what was measured on the way."""

    model: HookedTransformer
    """In evaluation mode, on the device it was trained on."""
    checkpoint: Checkpoint
    """Its weights and configurations, for `save_checkpoint`."""
    behaviour: Behaviour
    """Accuracies and phase at the end."""
    log: Sequence[Mapping[str, Any]]
    """Log lines: `step`, `loss` (nats, of the last batch), `lr`, `grad_norm` (before clipping),
    `weight_norm`, `seconds`; every `eval_every` steps also `train_accuracy`, `id_accuracy` and
    `ood_accuracy` (0..1, one noise draw)."""
    status: Status
    """`finished` or `stopped early`."""
    out: Path | None
    """The run's folder, if it has one."""

    def __repr__(self) -> str:
        return f"TrainResult({self.status} at step {self.checkpoint.step}; {self.behaviour!r})"


def train(
    task: AnchorTask | None = None,
    model: ModelConfig | None = None,
    config: TrainConfig | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    resume: bool = False,
    progress: bool | None = None,
) -> TrainResult:
    """Train a HookedTransformer on a two-anchor task and measure what it learnt.

    Args:
        task: what is asked; the papers' task if left out.
        model: its shape and gamma; the `quick` preset's, fitted to the task, if left out.
        config: the recipe; the `quick` preset's if left out.
        out: a new or empty folder for log, checkpoints and the state to resume from; without it
            nothing is written.
        resume: continue the run in `out`, where there is one; configurations that are left out are
            taken from it. On CPU with the same number of threads the final weights are bit-equal to
            those of a run that was never interrupted.
        progress: None shows a bar in a terminal or a notebook; False never does.

    Returns:
        The model in evaluation mode, its checkpoint, its behaviour and the log.

    Raises:
        ValueError: unusable or contradicting configurations, or an `out` that holds something else.
        TrainingDiverged: the loss became NaN or infinite; `out/ckpt.pt` holds the last good weights.
        CheckpointError: the state to resume from is damaged.

    Example:
        >>> tiny = ModelConfig(n_layers=1, d_model=16, d_head=8, d_mlp=16)
        >>> train(model=tiny, config=TrainConfig(steps=2, n_samples=512, n_checkpoints=0)).status
        'finished'

    Source: cross-entropy at the last position, the training recipe of arXiv 2405.05409 and 2501.08537.
    """
    stored = stored_run(out) if resume and out is not None else None
    if stored is not None:
        task, model, config = task or stored.task, model or stored.model, config or stored.train
    task = task or AnchorTask()
    run = RunConfig(task, model or ModelConfig.for_task(task), config or TrainConfig())
    run.model.check_task(run.task)
    device = choose_device(run.train.device)
    folder = RunFolder(out, run, resume=resume) if out is not None else None
    try:
        with numeric_settings(device, run.train.threads):
            if folder is not None and folder.finished:
                return _finished(folder, device)
            return _Training(run, folder, device).go(progress)
    finally:
        if folder is not None:
            folder.close()


@dataclass
class _Training:
    """The loop and its bookkeeping: log, trajectory, state, early stop, divergence."""

    run: RunConfig
    folder: RunFolder | None
    device: torch.device
    log: list[dict[str, Any]] = field(default_factory=list)

    def go(self, progress: bool | None) -> TrainResult:
        config = self.run.train
        self.data = training_set(self.run.task, config)
        model = build_model(self.run.model, seed=config.seed, device=self.device, dtype=config.dtype)
        self.fitter = Fitter(model, self.data, config)
        if self.folder is not None:
            self.folder.begin()
        self._resume()
        self.started = time.monotonic() - (self.log[-1]["seconds"] if self.log else 0.0)
        self.state_saved = time.monotonic()
        self.good: Checkpoint | None = None
        trajectory = set(trajectory_steps(config))
        if self.fitter.step == 0 and 0 in trajectory:
            self._save_trajectory({})
        status: Status = "finished"
        with progress_bar(config.total_steps, enabled=progress) as show:
            while self.fitter.step < config.total_steps:
                if self._settled():
                    status = "stopped early"
                    break
                line = self._advance()
                if self.fitter.step in trajectory:
                    self._save_trajectory(line)
                self._save_state()
                if "seconds" in line:
                    show(self.fitter.step, _summary(line))
        return self._end(status)

    def _resume(self) -> None:
        state = None if self.folder is None else self.folder.load_state()
        if state is not None:
            header, tensors = state
            if self.device.type == "cpu" and header["threads"] != torch.get_num_threads():
                warnings.warn(
                    f"resuming with {torch.get_num_threads()} threads a run begun with "
                    f"{header['threads']}: the last digits will differ from an uninterrupted run",
                    stacklevel=4,
                )
            self.fitter.restore(header["step"], tensors)
        if self.folder is not None:
            self.log = self.folder.open_log(self.fitter.step)

    def _advance(self) -> dict[str, Any]:
        """Make one update; return its log line (only the step where none is due)."""
        config, before = self.run.train, self.fitter.step
        due = (before + 1) % config.log_every == 0 or before + 1 == config.total_steps
        weights = self.fitter.weights() if due or self.good is None else None
        try:
            update = self.fitter.update()
            if weights is not None:  # they gave a finite loss: the last that are known to be good
                self.good = self._checkpoint({"status": "diverged"}, weights, before)
            evaluate_now = (before + 1) % config.eval_every == 0 or before + 1 == config.total_steps
            return self._log_line(update, evaluate_now) if due or evaluate_now else {"step": before + 1}
        except NotFiniteError as error:
            self._diverged(error)

    def _log_line(self, update: Update, evaluate_now: bool) -> dict[str, Any]:
        line: dict[str, Any] = {
            "step": self.fitter.step,
            **update._asdict(),
            "weight_norm": self.fitter.weight_norm(),
        }
        if evaluate_now:
            line |= quick_accuracies(self.fitter.model, self.run.task, self.data, seed=self.run.train.seed)
        line["seconds"] = round(time.monotonic() - self.started, 3)
        self.log.append(line)
        if self.folder is not None:
            self.folder.write_log(line)
        return line

    def _settled(self) -> bool:
        patience = self.run.train.early_stop_evaluations
        return (
            patience is not None
            and bool(self.log)
            and self.log[-1]["step"] == self.fitter.step
            and has_settled(evaluations(self.log), patience)
        )

    def _save_trajectory(self, line: Mapping[str, Any]) -> None:
        if self.folder is not None:
            self.folder.save_trajectory(self._checkpoint(line, self.fitter.weights(), self.fitter.step))

    def _save_state(self) -> None:
        due = time.monotonic() - self.state_saved >= self.run.train.state_every_seconds
        if self.folder is not None and due:
            self.folder.save_state(self.fitter.step, torch.get_num_threads(), self.fitter.state())
            self.state_saved = time.monotonic()

    def _checkpoint(self, metrics: Mapping[str, Any], weights: Mapping[str, Any], step: int) -> Checkpoint:
        on_cpu = {name: weight.to("cpu") for name, weight in weights.items()}
        return Checkpoint(self.run.model, self.run.task, on_cpu, self.run.train, step, dict(metrics))

    def _end(self, status: Status) -> TrainResult:
        model = self.fitter.model.eval()
        behaviour = evaluate(model, self.run.task, training_set=self.data)
        metrics = {**(self.log[-1] if self.log else {}), "status": status, **behaviour.headline()}
        checkpoint = self._checkpoint(metrics, self.fitter.weights(), self.fitter.step)
        if self.folder is not None:
            self.folder.save_final(checkpoint)
        out = None if self.folder is None else self.folder.path
        return TrainResult(model, checkpoint, behaviour, tuple(self.log), status, out)

    def _diverged(self, error: NotFiniteError) -> NoReturn:
        message = f"training diverged: {error}; try a smaller lr or a larger gamma"
        if self.folder is not None:
            # without a good update to look back on, what the failed one began from
            last = self.good or self._checkpoint(
                {"status": "diverged"}, self.fitter.weights(), self.fitter.step
            )
            path = self.folder.save_final(last)
            what = "last good weights" if self.good else "weights it began from"
            message += f"; the {what} (step {last.step}) are in {path}"
        raise TrainingDiverged(message) from error


def _finished(folder: RunFolder, device: torch.device) -> TrainResult:
    """The result of a run that had ended before, measured again from its last checkpoint."""
    checkpoint = load_checkpoint(folder.path / "ckpt.pt")
    if checkpoint.metrics.get("status") == "diverged":
        raise TrainingDiverged(
            f"training diverged after step {checkpoint.step}; the last good weights are in "
            f"{folder.path / 'ckpt.pt'}; start anew in another folder with a smaller lr or a larger gamma"
        )
    model = checkpoint.build_model(device)
    behaviour = evaluate(model, checkpoint.task, training_set=checkpoint.training_set())
    log = read_log(folder.path / "log.jsonl")
    return TrainResult(model, checkpoint, behaviour, tuple(log), checkpoint.metrics["status"], folder.path)


def _summary(line: Mapping[str, Any]) -> str:
    parts = [f"loss {line['loss']:.4f}"]
    for name in ("train", "id", "ood"):
        if line.get(f"{name}_accuracy") is not None:
            parts.append(f"{name} {line[f'{name}_accuracy']:.2f}")
    return "  ".join(parts)
