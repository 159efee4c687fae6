"""`classify`: a model or a checkpoint in, both verdicts out."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anchorlens.files.checkpoint import Checkpoint
from anchorlens.files.importers import open_checkpoint
from anchorlens.probes.shared.checks import check_task
from anchorlens.tasks.two_anchor.behaviour import Behaviour, Model, evaluate
from anchorlens.tasks.two_anchor.task import AnchorTask
from anchorlens.training.folder import read_log
from anchorlens.training.numerics import choose_device
from anchorlens.training.result import TrainResult
from anchorlens.verdict.borderline import phase_by_behaviour
from anchorlens.verdict.explanation import explain
from anchorlens.verdict.forecast import trajectory
from anchorlens.verdict.mechanism import phase_by_mechanism, shape_of
from anchorlens.verdict.verdict import Subject, Verdict

if TYPE_CHECKING:
    from transformer_lens import HookedTransformer


def classify(
    model_or_checkpoint: HookedTransformer | Checkpoint | TrainResult | str | os.PathLike[str],
    task: AnchorTask | None = None,
    *,
    config: str | os.PathLike[str] | None = None,
    device: str = "cpu",
    seed: int = 0,
) -> Verdict:
    """Say whether a model memorises (1), generalises in distribution (2) or composes rules (3), and why.

    Two verdicts are given that know nothing of each other: by behaviour, that is by definition; and by
    mechanism, from the probes' numbers alone, calibrated on a zoo of trained models.

    Args:
        model_or_checkpoint: a HookedTransformer; a `Checkpoint`; what `train` gives; or the path of a file
            or folder, in any format of `anchorlens.files.importers`. A run's folder is classified with its
            trajectory.
        task: what a HookedTransformer was trained on; the papers' task if left out. A checkpoint
            knows its own.
        config: TOML or JSON file that says what a bare state dict is.
        device: where the model is measured: cpu, cuda, cuda:N or auto. A HookedTransformer stays where
            it is.
        seed: of the noise of the behaviour.

    Returns:
        Both verdicts with numbers and reasons, whether they agree and what that means.

    Raises:
        ValueError: neither a model nor a checkpoint, or a task that does not fit it.
        CheckpointError: a file that cannot be read safely and whole.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> classify(build_model(ModelConfig(gamma=0.5)))
        Verdict(model: undecided: underfit; mechanism is no comparison: undecided: underfit)

    Source: the phases of arXiv 2405.05409 and 2501.08537; the calibration is our own.
    """
    notes: tuple[str, ...] = ()
    moments = ()
    measured = None
    if isinstance(model_or_checkpoint, str | os.PathLike):
        opened = open_checkpoint(model_or_checkpoint, config=config)
        notes = opened.notes
        subject = _subject(opened.checkpoint, device)
        folder = Path(model_or_checkpoint)
        is_run = opened.kind == "anchorlens" and folder.is_dir()
        subject = replace(
            subject,
            name=folder.name or str(folder),
            path=str(model_or_checkpoint),
            sha256=opened.sha256,
            kind=opened.kind,
            log=tuple(read_log(opened.file.parent / "log.jsonl")) if opened.kind == "anchorlens" else (),
        )
        moments = tuple(trajectory(folder)) if is_run else ()
    elif isinstance(model_or_checkpoint, TrainResult):
        result = model_or_checkpoint
        subject = replace(_subject(result.checkpoint, device), log=tuple(result.log))
        measured = result.behaviour if result.behaviour.options["seed"] == seed else None
    elif isinstance(model_or_checkpoint, Checkpoint):
        subject = _subject(model_or_checkpoint, device)
    else:
        chosen = AnchorTask() if task is None else task
        check_task(chosen)
        subject = Subject("model", _checked_model(model_or_checkpoint), chosen)
    if subject.checkpoint is not None and task is not None and task != subject.task:
        raise ValueError(
            "a checkpoint knows its own task, and it is another than the one given; leave task out, or "
            "give checkpoint.build_model() with your task"
        )
    return _verdict(subject, measured or _behaviour(subject, device, seed), notes, moments)


def _subject(checkpoint: Checkpoint, device: str) -> Subject:
    where = choose_device(device)
    return Subject(repr(checkpoint), checkpoint.build_model(where), checkpoint.task, checkpoint)


def _checked_model(model: Any) -> HookedTransformer:
    if not hasattr(model, "cfg") or not hasattr(model, "hook_dict"):
        raise ValueError(
            "what is classified must be a HookedTransformer, a Checkpoint or the path of one, got "
            f"{type(model).__name__}"
        )
    return model


def _behaviour(subject: Subject, device: str, seed: int) -> Behaviour:
    checkpoint = subject.checkpoint
    if checkpoint is None:
        return evaluate(subject.model, subject.task, seed=seed)
    asked: Model = checkpoint.last_position_model(choose_device(device))
    return evaluate(asked, subject.task, training_set=checkpoint.training_drawing(), seed=seed)


def _verdict(
    subject: Subject, behaviour: Behaviour, notes: tuple[str, ...], moments: tuple[Any, ...]
) -> Verdict:
    shape = None if subject.checkpoint is None else shape_of(subject.checkpoint.model)
    by_behaviour = phase_by_behaviour(behaviour)
    mechanism = phase_by_mechanism(subject.model, subject.task, behaviour.train, shape)
    agreement, explanation = explain(by_behaviour, mechanism)
    warnings = list(notes)
    if behaviour.train_source == "fresh noise" and behaviour.train.value < 1:
        warnings.append(
            "the training data are not known: train accuracy was asked with fresh noise, which a model that "
            "memorised a small training set gets wrong"
        )
    return Verdict(
        by_behaviour=by_behaviour,
        mechanism=mechanism,
        behaviour=behaviour,
        agreement=agreement,
        explanation=explanation,
        warnings=tuple(dict.fromkeys(warnings)),
        subject=subject,
        trajectory=moments,
    )
