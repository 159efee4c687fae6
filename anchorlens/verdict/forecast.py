"""The early verdict: the phase a run will end in, from the inside and the answers of early checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anchorlens.configuration import documented
from anchorlens.files.checkpoint import Checkpoint, load_checkpoint
from anchorlens.tasks.shared.evaluation import Evaluation
from anchorlens.tasks.shared.metric import has_phases
from anchorlens.verdict.calibration import calibration
from anchorlens.verdict.mechanism import is_of_the_papers, shape_of
from anchorlens.verdict.questions import answered_now
from anchorlens.verdict.readings import take_readings


@documented
@dataclass(frozen=True)
class TrajectoryPoint:
    """One checkpoint of a run's trajectory, and what it lets expect of the run's end."""

    step: int
    """Optimizer steps taken."""
    fraction: float
    """Of the steps that the run is to take, 0..1."""
    train: float
    """Accuracy on training data, 0..1."""
    id: float
    """On held-out keys, 0..1."""
    ood: float | None
    """On unseen pairs, 0..1; None where every pair is trained."""
    now: str
    """Its phase by behaviour now, a label such as `Phase 1` or `undecided: underfit`."""
    forecast: Mapping[str, float] | None
    """Label of the final phase, or `undecided`, -> probability, from readings and the phase it has now;
    None where there is no early verdict: at other fractions than those calibrated, or for a task unlike the
    zoo's."""

    @property
    def expected(self) -> str | None:
        """The most probable label; None without a forecast."""
        return None if self.forecast is None else max(self.forecast, key=self.forecast.__getitem__)

    def __repr__(self) -> str:
        ood = "" if self.ood is None else f", OOD {self.ood:.2f}"
        expected = "no forecast"
        if self.forecast is not None and self.expected is not None:
            expected = f"forecast {self.expected} ({self.forecast[self.expected]:.2f})"
        numbers = f"train {self.train:.2f}, ID {self.id:.2f}{ood}"
        run = f"step {self.step:,}, {self.fraction:.1%} of the run"
        return f"TrajectoryPoint({run}: {self.now}; {numbers}; {expected})"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready content."""
        return {**asdict(self), "expected": self.expected}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TrajectoryPoint:
        """Read what `to_dict` gave, also after a way through JSON."""
        return cls(**{name: value for name, value in values.items() if name != "expected"})


def trajectory(folder: Path) -> Iterator[TrajectoryPoint]:
    """Every checkpoint of a run's folder, oldest first; none of a task that has no phases.

    Raises:
        CheckpointError: one of them is damaged.
    """
    for path in sorted((folder / "checkpoints").glob("step_*.pt")):
        checkpoint = load_checkpoint(path)
        if not has_phases(checkpoint.task.metrics):
            return
        yield trajectory_point(checkpoint)


def trajectory_point(checkpoint: Checkpoint) -> TrajectoryPoint:
    """One checkpoint of a run: its accuracies (a sample of 2,048 questions each) and the forecast.

    Raises:
        ValueError: it does not say how it was trained, so that the length of the run is not known.
    """
    if checkpoint.train is None or checkpoint.step is None:
        raise ValueError("a forecast needs a step of a run, but the checkpoint has no train config or step")
    behaviour = sampled_behaviour(checkpoint)
    train, id, ood = (behaviour.measure(name) for name in ("train", "id", "ood"))
    assert train is not None and id is not None
    fraction = checkpoint.step / checkpoint.train.total_steps
    return TrajectoryPoint(
        step=checkpoint.step,
        fraction=fraction,
        train=train.value,
        id=id.value,
        ood=None if ood is None else ood.value,
        now=behaviour.phase.label,
        forecast=_forecast(checkpoint, fraction, behaviour.phase.label),
    )


def sampled_behaviour(checkpoint: Checkpoint) -> Evaluation:
    """What a checkpoint answers, from a sample that costs little."""
    return checkpoint.evaluate(**checkpoint.task.sampling)


def _forecast(checkpoint: Checkpoint, fraction: float, now: str) -> dict[str, float] | None:
    if not checkpoint.task.has_anchors:
        return None
    fitted = calibration().early_model(fraction) if fraction < 1 else None
    if fitted is None or not is_of_the_papers(checkpoint.task):
        return None
    try:
        values = take_readings(checkpoint.build_model(), checkpoint.task, early=True)
    except ValueError:
        return None
    widened = calibration().widened(shape_of(checkpoint.model) or {})
    return fitted.probabilities({**values, **answered_now(now)}, widened)
