"""`classify`: a model or a checkpoint in, its verdicts out."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorlens.files.checkpoint import Checkpoint
from anchorlens.files.importers import open_checkpoint
from anchorlens.models.devices import choose_device
from anchorlens.tasks.registry import task_or_default
from anchorlens.tasks.shared.base import Task
from anchorlens.tasks.shared.evaluation import Evaluation
from anchorlens.tasks.shared.phases import Phase
from anchorlens.training.folder import read_log
from anchorlens.training.result import TrainResult
from anchorlens.verdict.explanation import explain
from anchorlens.verdict.forecast import trajectory
from anchorlens.verdict.inside import read_inside, shape_of
from anchorlens.verdict.verdict import Subject, Verdict

if TYPE_CHECKING:
    from anchorlens.models.library import HookedTransformer


def classify(
    model_or_checkpoint: HookedTransformer | Checkpoint | TrainResult | str | os.PathLike[str],
    task: Task | None = None,
    *,
    config: str | os.PathLike[str] | None = None,
    training_set: Any = None,
    device: str = "cpu",
    seed: int = 0,
    even_underfit: bool = True,
) -> Verdict:
    """Say whether a model memorises (1), generalises in distribution (2) or composes rules (3), and why.

    The verdict by the probes uses trained pairs and weights, and nothing of unseen pairs; it is calibrated on
    a zoo of trained models of a family of tasks. The verdict by behaviour uses the answers, and is the
    definition. The verdict by decoding uses activations of unseen pairs, in which their answers are almost
    computed. Where the training data conflict with the composition, all three name a solution instead of a
    phase.

    Args:
        model_or_checkpoint: a HookedTransformer; a `Checkpoint`; what `train` gives; or the path of a file
            or folder, in any format of `anchorlens.files.importers`. A run's folder is classified with its
            trajectory.
        task: what a HookedTransformer was trained on; the papers' two-anchor task if left out. A checkpoint
            knows its own; given an equal one whose files lie elsewhere (`data`), it is taken in its place.
        config: TOML or JSON file that says what a bare state dict is.
        training_set: the sequences that it was trained on, as `evaluate` takes them: tokens [batch, seq_len]
            and targets [batch], or [batch, seq_len] where more than the last position is asked. A checkpoint
            that says how it was trained knows its own. Where some of them ask what the task holds out there
            is no phase: ID or OOD accuracy is then train accuracy. Without it a warning says what is assumed
            to be held out, and a model that is below .90 on what stands for them (fresh noise, every training
            sum) has no phase by behaviour: it may have memorised.
        device: where the model is measured: cpu, cuda, cuda:N or auto. A HookedTransformer stays where
            it is.
        seed: of the noise of the behaviour.
        even_underfit: whether to take the readings of a model that has not fit its training data too: they
            take seconds, and no phase rests on them.

    Returns:
        The verdicts with numbers and reasons, whether probes and behaviour agree and what that means.

    Raises:
        ValueError: neither a model nor a checkpoint, or a task or training set that does not fit it.
        CheckpointError: a file that cannot be read safely and whole.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> classify(build_model(ModelConfig(gamma=0.5)))
        Verdict(model: undecided: training data unknown; by the probes: undecided: at chance)

    Source: the phases of arXiv 2405.05409 and 2501.08537; the calibration is our own.
    """
    checkpoint = behaviour = None
    asked: Any = task
    notes, points = (), ()
    about: dict[str, Any] = {}  # the subject's fields
    given = model_or_checkpoint
    if isinstance(given, str | os.PathLike):
        opened = open_checkpoint(given, config=config)
        checkpoint, notes, folder = opened.checkpoint, opened.notes, Path(given)
        about = {
            "name": folder.name or str(folder),
            "path": str(given),
            "sha256": opened.sha256,
            "kind": opened.kind,
        }
        if opened.kind == "anchorlens":
            about["log"] = tuple(read_log(opened.file.parent / "log.jsonl"))
            points = trajectory(folder) if folder.is_dir() else ()
    elif isinstance(given, TrainResult):
        checkpoint, about = given.checkpoint, {"log": tuple(given.log)}
        behaviour = given.behaviour if given.behaviour.options["seed"] == seed else None
    elif isinstance(given, Checkpoint):
        checkpoint = given

    if checkpoint is None:
        asked = task_or_default(task)
        model, shape = _checked_model(given), None
        behaviour = asked.evaluate(model, training_set=training_set, seed=seed)
    else:
        if task is not None and task != checkpoint.task:
            raise ValueError(
                "a checkpoint knows its own task, and it is another than the one given; leave task out, or "
                "give checkpoint.build_model() with your task"
            )
        if checkpoint.train_config is not None and training_set is not None:
            raise ValueError(
                "a checkpoint that says how it was trained knows its own training set; leave training_set "
                "out, or give checkpoint.build_model() with your training set"
            )
        checkpoint = checkpoint if task is None else replace(checkpoint, task=task)
        where = choose_device(device)
        asked, model, shape = (
            checkpoint.task,
            checkpoint.build_model(where),
            shape_of(checkpoint.model_config),
        )
        if behaviour is None:
            if checkpoint.train_config is not None:
                training_set = checkpoint.lazy_training_set()
            behaviour = checkpoint.evaluate(device=where, training_set=training_set, seed=seed)
    phase = behaviour.phase_if_clear()
    if (assumption := behaviour.assumption) is not None:
        notes = (*notes, assumption)
    train = behaviour.measure("train") if behaviour.train_is_known else None
    inside = read_inside(model, asked, shape, train=train, void=_void(behaviour, even_underfit))
    agreement, explanation = explain(phase, inside.by_probes)
    if checkpoint is None:
        subject = Subject("model", model=model, task=asked)
    else:
        subject = Subject.of(checkpoint, asked, model, **about)
    return Verdict(
        phase=phase,
        by_probes=inside.by_probes,
        by_decoding=inside.by_decoding,
        behaviour=behaviour,
        agreement=agreement,
        explanation=explanation,
        warnings=tuple(dict.fromkeys(notes)),
        subject=subject,
        trajectory=tuple(points),
    )


def _void(behaviour: Evaluation, even_underfit: bool) -> Phase | None:
    """Why no reading of the inside is worth taking; None where some are."""
    phase, at_chance = behaviour.phase, behaviour.at_chance
    if phase.cause == "held-out questions were trained":
        return phase
    if at_chance is not None:
        return Phase.undecided("at chance", at_chance)
    return phase if phase.cause == "underfit" and not even_underfit else None


def _checked_model(model: Any) -> HookedTransformer:
    if not hasattr(model, "cfg") or not hasattr(model, "hook_dict"):
        raise ValueError(
            "what is classified must be a HookedTransformer, a Checkpoint or the path of one, got "
            f"{type(model).__name__}"
        )
    return model
