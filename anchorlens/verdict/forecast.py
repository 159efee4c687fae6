"""The early verdict, which forecasts the final phase of a run from early checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from anchorlens.files.checkpoint import Checkpoint, load_checkpoint
from anchorlens.tasks.shared.evaluation import Evaluation
from anchorlens.tasks.shared.measures import has_labels
from anchorlens.tasks.two_anchor.task import AnchorTask
from anchorlens.training.run_folder import trajectory_files
from anchorlens.verdict.calibration import calibration
from anchorlens.verdict.inside import features
from anchorlens.verdict.question_model import answered_now
from anchorlens.verdict.readings import CHEAP, take_readings
from anchorlens.verdict.verdict import TrajectoryPoint

_MOST_POINTS = 40


def trajectory(folder: Path) -> Iterator[TrajectoryPoint]:
    """Yield a `TrajectoryPoint` for every checkpoint in a run's folder, oldest first.

    The function yields no point for a task without labels, or for a checkpoint with values that are not
    finite.

    Raises:
        CheckpointError: If a checkpoint is damaged.
    """
    for path in trajectory_files(folder):
        checkpoint = load_checkpoint(path)
        if not has_labels(checkpoint.task.metrics):
            return
        if (point := trajectory_point(checkpoint)) is not None:
            yield point


def trajectory_of_others(steps: Mapping[int, Checkpoint]) -> Iterator[TrajectoryPoint]:
    """Yield a `TrajectoryPoint` for at most `_MOST_POINTS` steps of a run of another library.

    The function skips damaged checkpoints.

    Args:
        steps: a map from steps in ascending order to checkpoints.
    """
    chosen = list(steps)[:: -(-len(steps) // _MOST_POINTS) or 1]
    for step in chosen:
        try:
            checkpoint = steps[step]
        except ValueError:
            continue
        if not has_labels(checkpoint.task.metrics):
            return
        if (point := _point(checkpoint, step, step / max(1, *steps))) is not None:
            yield point


def trajectory_point(checkpoint: Checkpoint) -> TrajectoryPoint | None:
    """Evaluate a checkpoint on a small sample of test inputs, and forecast the final phase of its run.

    The result is `None` if the values of the checkpoint are not finite.

    Raises:
        ValueError: If the checkpoint has no training configuration or no step.
    """
    if checkpoint.train_config is None or checkpoint.step is None:
        raise ValueError(
            "a checkpoint must contain its training configuration and step for a forecast, got no "
            "configuration or no step. Use a checkpoint of `train`"
        )
    return _point(checkpoint, checkpoint.step, checkpoint.step / checkpoint.train_config.total_steps)


def _point(checkpoint: Checkpoint, step: int, fraction: float) -> TrajectoryPoint | None:
    behaviour = sampled_behaviour(checkpoint)
    train, id, ood = (behaviour.measure(name) for name in ("train", "id", "ood"))
    if train is None or id is None:
        return None
    return TrajectoryPoint(
        step=step,
        fraction=fraction,
        train=train.value,
        id=id.value,
        ood=None if ood is None else ood.value,
        now=behaviour.phase.label,
        forecast=_forecast(checkpoint, fraction, behaviour.phase.label),
    )


def sampled_behaviour(checkpoint: Checkpoint) -> Evaluation:
    """Evaluate a checkpoint on a small sample of test inputs (`task.sampling`)."""
    return checkpoint.evaluate(**checkpoint.task.sampling)


def _forecast(checkpoint: Checkpoint, fraction: float, now: str) -> dict[str, float] | None:
    if not checkpoint.task.has_anchors:
        return None
    fitted = calibration().early_model(fraction) if fraction < 1 else None
    if fitted is None or not _is_of_the_papers(checkpoint.task):
        return None
    model = checkpoint.build_model()
    try:
        values = take_readings(model, checkpoint.task, names=CHEAP)
    except ValueError:
        return None
    distance = calibration().early_range.distance(features(model, checkpoint.task))
    return fitted.probabilities({**values, **answered_now(now)}, distance)


def _is_of_the_papers(task: AnchorTask) -> bool:
    """Return whether a task is the papers' task in `reasoning`, on which the early verdict was fit."""
    return task == AnchorTask(split_modulus=task.split_modulus, noise_obeys_split=task.noise_obeys_split)
