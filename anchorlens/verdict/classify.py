"""The function `classify`, which computes the verdicts on a model or checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import torch

from anchorlens.configuration import checked_arguments
from anchorlens.files.any_module import of_any_module
from anchorlens.files.checkpoint import Checkpoint
from anchorlens.files.loaded_model import PAPERS_TASK, LoadedModel, few_notes
from anchorlens.files.model_input import (
    HINT,
    WHAT_HOLDS_A_MODEL,
    ModelInput,
    given_training_data,
    of_several,
    resolve,
)
from anchorlens.files.settings import ModelConfiguration
from anchorlens.models.running import device_of
from anchorlens.models.wrappers import is_hooked
from anchorlens.probes.registry import REPORT_PROBES
from anchorlens.probes.shared.contract import spec_of
from anchorlens.tasks.registry import task_or_default
from anchorlens.tasks.shared.base import Task
from anchorlens.tasks.shared.batch import TokenBatch
from anchorlens.tasks.shared.data_checks import compared
from anchorlens.tasks.shared.evaluation import Evaluation
from anchorlens.tasks.shared.measures import has_labels, has_phases
from anchorlens.tasks.shared.phases import Phase, course_in_words, passed_at
from anchorlens.tasks.shared.task_errors import evaluated
from anchorlens.tasks.shared.training_data_task import TrainingDataTask
from anchorlens.training.loop import TrainResult
from anchorlens.training.run_folder import readable_log, trajectory_of
from anchorlens.verdict.explanation import explain, outside_calibration
from anchorlens.verdict.probe_verdict import probe_verdict
from anchorlens.verdict.verdict import ClassifiedModel, TrajectoryPoint, Verdict

if TYPE_CHECKING:
    from anchorlens.models.library import HookedTransformer

_MOST_POINTS = 40
"""The largest number of evaluated checkpoints of a run of another library."""
NOT_VALIDATED = (
    "the model is no HookedTransformer: `learnt a rule` starts at a holdout ratio of 0.93, a bound from "
    "small MLPs, tested on attention, GRUs and LSTMs, not validated for convolutions, images and clusters; "
    "encoders and post-norm transformers that learnt may get no label"
)
"""The warning for a module of another class."""
NO_TASK = (
    "no task was named, and the training data are not of the papers' task, so the verdict is about these data"
)


@of_several
@checked_arguments()
def classify(
    model_or_checkpoint: ModelInput,
    task: Task | None = None,
    *,
    config: ModelConfiguration | None = None,
    training_set: object = None,
    held_out: object = None,
    device: str | torch.device = "auto",
    seed: int = 0,
    even_underfit: bool = True,
    quick: bool = False,
    name: str | None = None,
) -> Verdict:
    """Classify a model as Phase 1 (memorising), 2 (generalising in distribution) or 3 (composing rules).

    - The probe verdict uses trained pairs and weights, and does not use unseen pairs. The probe verdict is
      calibrated on models of a family of two-anchor tasks.
    - The behavioural verdict uses the answers of the model, and defines the phase.

    If the training data conflict with the composition, both verdicts assign a solution instead of a phase.

    For tasks without a calibrated phase, and for training data without a task, the probe verdict is
    `memorised`, `learnt a rule` or undecided. The probe `holdout` trains copies of the model further without
    a random tenth of the training data. The probe then measures the accuracy of the copies on this tenth. The
    verdict by `holdout` does not need held-out data. The verdict by `holdout` does not show which rule the
    model learnt, or whether the rule holds outside the training data.

    Args:
        model_or_checkpoint: any `torch.nn.Module` together with its `training_set`, a HookedTransformer, a
            `Checkpoint`, the result of `train`, or the path of a file or folder in any format that an
            installed importer reads. For the folder of a run, `classify` also
            evaluates the checkpoints along the run. `classify` converts a model in half precision to float32,
            with a warning. You may also give a list of models.
        task: the task of a HookedTransformer. Default: the papers' two-anchor task. If `training_set` belongs
            to another task, `classify` uses only the training data, without a task. A checkpoint contains its
            task. If the files of the task have moved, give the same task with the new paths in the field
            `data`.
        config: the configuration of a bare state dict, as for `open_checkpoint`. The configuration is a TOML
            or JSON file or its content, a ModelConfig, or a HookedTransformerConfig.
        training_set: the training sequences of the model, as for `evaluate`. The sequences are tokens [batch,
            seq_len] with targets [batch], or with targets [batch, seq_len] and -100 for unscored positions.
            You may also give the path of a file with tokens and targets. A checkpoint with a training
            configuration has a training set. If the training set contains an input that the task holds out,
            there is no phase. The ID or OOD accuracy would then include training inputs. Without a training
            set, a warning states which inputs `classify` assumes to be held out. Without a training set,
            `classify` measures train accuracy on a substitute, such as training inputs with fresh noise. If
            the accuracy on the substitute is below 0.90, the model may have memorised its training data, and
            there is no behavioural phase. For a module of any class, the training set is a pair (x, y):
            integers or floats `x` [row, ...] as the module takes them, and classes `y` [row], or [row, pos]
            with -100 at unscored positions.
        held_out: data of the form of `training_set` that the model was not trained on. The behavioural
            verdict is then `generalises`, `generalises in part` or `memorises` by the accuracy on these data.
            Rows that were trained do not count.
        device: the device of the measurements, which is auto, cpu, cuda, cuda:N or mps. A HookedTransformer
            remains on its device.
        seed: the seed of the noise in the evaluation, and of the costly probes.
        even_underfit: whether to take readings of a model that has not fit its training data. The readings of
            an underfit model take seconds and do not determine a phase.
        quick: whether to leave the costly probes out of a verdict on phases, which may change its label. The
            costly probes are `activation_patching`, `interchange`, `holdout` and `survival`. Without `quick`,
            a costly probe is applied if it has a weight and could change the label. `survival` takes half a
            minute or more on one core.
        name: the name of the model in the verdict and in the report, or a list of names for several models.
            The default name is the name of the file.

    Returns:
        The verdicts with readings and reasons. The result also states and explains whether the probe and
        behavioural verdicts agree. For a list of models, `classify` returns a list of verdicts.

    Raises:
        ValueError: If the input is not a model or checkpoint.
        ValueError: If the task or the training set does not fit the model.
        CheckpointError: If `classify` cannot read a file completely and safely.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> classify(build_model(ModelConfig(d_model=32, gamma=0.5)))
        Verdict(model: undecided: training data unknown; by the probes: undecided: at chance; 2 warnings)

    Source: The papers arXiv 2405.05409 and 2501.08537 introduce the phases. The calibration is ours.
    """
    training_set, held_out = given_training_data(training_set), given_training_data(held_out)
    given = resolve(model_or_checkpoint, task, config=config, device=device, name=name)
    given, training_set, held_out = with_data(given, training_set, held_out)
    checkpoint = given.checkpoint
    behaviour = None
    notes = given.notes
    points = ()
    about: dict[str, Any] = {"name": given.name}  # the subject's fields
    if given.kind:
        about |= {"path": str(given.path), "sha256": given.sha256, "kind": given.kind, "log": given.log}
        steps = given.trajectory
        if given.kind == "anchorlens":
            lines, noted = readable_log(given.file.parent / "log.jsonl")
            about["log"], notes = tuple(lines), (*notes, *filter(None, [noted]))
            steps = trajectory_of(given.path) if given.path.is_dir() else {}
        points, left_out = trajectory(steps)
        notes = (*notes, *few_notes(left_out))
    elif isinstance(model_or_checkpoint, TrainResult):
        result = model_or_checkpoint
        about["log"] = tuple(result.log)
        behaviour = result.behaviour if result.behaviour.options["seed"] == seed else None

    if checkpoint is None:
        asked, model = given.assumed_task(), _checked_model(given.model)
        more = {} if held_out is None else {"held_out": held_out}
        behaviour = evaluated(asked, model, training_set=training_set, seed=seed, **more)
        notes = (*notes, *([PAPERS_TASK] if given.task is None else []))
    else:
        asked, model = checkpoint.task, given.model
        training_set = _training_set_of(checkpoint, training_set)
        if behaviour is None:
            behaviour = checkpoint.evaluate(device=device_of(model), training_set=training_set, seed=seed)
    phase = behaviour.phase_if_clear()
    train, void = behaviour.measure("train"), _void(behaviour, even_underfit)
    is_known = behaviour.train_is_known and phase.cause != "too few training sequences"
    about_train = {"train": train, "train_is_known": is_known}
    by_probes = probe_verdict(model, asked, training_set, **about_train, void=void, quick=quick, seed=seed)
    about["measured"] = dict(by_probes.measured)
    caveats = (*notes, *behaviour.caveats, *_by_symmetry(behaviour), *outside_calibration(by_probes))
    warnings = tuple(dict.fromkeys(caveats))
    agreement, explanation = explain(phase, by_probes)
    if checkpoint is None:
        subject = ClassifiedModel(**about, model=model, task=asked)
    else:
        subject = ClassifiedModel.of(checkpoint, asked, model, **about)
    known = points if given.trajectory.steps_are_known else ()
    course = "; ".join((*_course(behaviour, subject, known), *given.facts))
    return Verdict(
        phase, by_probes, behaviour, agreement, explanation, warnings, subject, tuple(points), course
    )


def has_own_class(given: LoadedModel) -> bool:
    """Return whether an input without a task is a torch module that is no HookedTransformer."""
    module = given.in_memory
    return given.task is None and isinstance(module, torch.nn.Module) and not is_hooked(module)


def with_data(
    given: LoadedModel, training_set: object, held_out: object = None
) -> tuple[LoadedModel, object, object]:
    """Return the input with its task and its data.

    The task is the named task, the papers' task, or the training data alone. A module that is no
    HookedTransformer and held-out data go with the training data alone.

    Returns:
        The model with its task, and both data. The data are tokens for a module of another class.

    Raises:
        ValueError: If the data or the model cannot be used, or held-out data are given for a task.
    """
    named = given.named_task
    if held_out is not None and named is not None:
        raise ValueError(
            f"held_out must be omitted for the task {named.kind}, which has held-out data, got "
            "held_out. Omit held_out or the task"
        )
    if has_own_class(given):
        model, data, fresh = of_any_module(cast("torch.nn.Module", given.in_memory), training_set, held_out)
        task, notes = TrainingDataTask.of(data, fresh), (*given.notes, NOT_VALIDATED)
        return replace(given, task=task, in_memory=model, notes=notes), data, fresh
    if held_out is None and (training_set is None or named is not None or _are_of_papers(training_set)):
        return given, training_set, None
    notes = (*(note for note in given.notes if note != PAPERS_TASK), NO_TASK)
    task = TrainingDataTask.of(training_set, held_out)
    given = replace(given, task=task, in_memory=given.model, checkpoint=None, notes=notes)
    return given, training_set, held_out


def _are_of_papers(training_set: object) -> bool:
    """Return whether training data belong to the papers' task.

    The data have the task's shape and vocabulary, and at most a tenth of the targets differ from the task's
    targets.
    """
    papers = task_or_default()
    try:
        data = papers.checked_training_set(training_set)
        other = compared(data, papers.targets_of(data.tokens)) if isinstance(data, TokenBatch) else None
    except ValueError:
        return False
    return other is None or not other.of_another_task


def _training_set_of(checkpoint: Checkpoint, given: object) -> object:
    """Return the training set of a checkpoint, or the given training set if the checkpoint has none.

    Raises:
        ValueError: If the checkpoint has a training set and another training set is given.
    """
    if not checkpoint.knows_training_set:
        return given
    if given is not None:
        raise ValueError(
            "training_set must be omitted for a checkpoint with a training set, got another training set. "
            "Omit training_set, or pass checkpoint.build_model() and your training_set"
        )
    return checkpoint.lazy_training_set()


def _course(
    behaviour: Evaluation, subject: ClassifiedModel, points: Iterable[TrajectoryPoint]
) -> Iterator[str]:
    """Yield whether a run of a task without OOD grokked, and what the probes of this task alone name.

    Whether it grokked needs a log or a trajectory.
    """
    metrics = {metric.name: metric for metric in behaviour.metrics}
    if has_phases(metrics.values()) or not has_labels(metrics.values()):
        return
    names = {name: metrics[name].logged_as for name in ("train", "id")}
    logged = [line for line in subject.log if names["id"] in line]
    saved = [{"step": p.step, names["train"]: p.train, names["id"]: p.id} for p in points]
    if lines := logged or saved:
        passed = passed_at(lines, metrics.values(), behaviour.chance)
        what = "evaluations" if logged else "checkpoints"
        yield course_in_words(passed["train"], passed["id"], [line["step"] for line in lines], what)
    for probe in REPORT_PROBES:
        if spec_of(probe).task_kind == behaviour.kind:
            with suppress(ValueError):  # a model that it refuses
                yield from filter(None, [subject.measure(probe).in_short()])


def _void(behaviour: Evaluation, even_underfit: bool) -> Phase | None:
    """Return an undecided phase with the reason not to take readings, or `None` without a reason."""
    phase, at_chance = behaviour.phase, behaviour.at_chance
    if phase.cause in ("held-out questions were trained", "targets of another task"):
        return phase
    if at_chance is not None:
        return Phase.undecided("at chance", at_chance)
    return phase if phase.cause == "underfit" and not even_underfit else None


def _by_symmetry(behaviour: Evaluation) -> Iterator[str]:
    """Yield a warning if symmetry answers the held-out inputs, so that no answer tests composition."""
    if has_phases(behaviour.metrics) and behaviour.by_symmetry and behaviour.measure("ood") is None:
        yield (
            "most unseen pairs are trained in another order with the same target and do not test "
            "composition; the probe verdict only shows which calibration models it resembles, and no answer "
            "of the model can confirm Phase 3"
        )


def _checked_model(model: Any) -> HookedTransformer:
    if not hasattr(model, "cfg") or not hasattr(model, "hook_dict"):
        hint = HINT if isinstance(model, torch.nn.Module) else ""
        raise ValueError(f"the model must be {WHAT_HOLDS_A_MODEL}, got {type(model).__name__}{hint}")
    return model


def trajectory(steps: Mapping[int, Checkpoint]) -> tuple[list[TrajectoryPoint], list[str]]:
    """Return a `TrajectoryPoint` for each step of a run, and a note for each checkpoint that is left out.

    There is no point for a task without labels, or for a checkpoint with values that are not finite. Of a run
    of another library, at most `_MOST_POINTS` steps are evaluated.

    Args:
        steps: a map from steps in ascending order to checkpoints, which raises CheckpointError for a damaged
            checkpoint.
    """
    points, left_out = [], []
    every = -(-len(steps) // _MOST_POINTS) or 1
    for place, step in enumerate(steps):
        try:
            checkpoint = steps[step]
        except ValueError as error:
            left_out.append(f"step {step:,} is left out: {error}")
            continue
        if not has_labels(checkpoint.task.metrics):
            break
        recipe = checkpoint.train_config
        if recipe is None and place % every:
            continue
        behaviour = checkpoint.evaluate(**checkpoint.task.sampling)  # on a small sample of test inputs
        train, id, ood = (behaviour.measure(name) for name in ("train", "id", "ood"))
        if train is not None and id is not None:
            label, fraction = behaviour.phase.label, step / (recipe.total_steps if recipe else max(1, *steps))
            points.append(TrajectoryPoint(step, fraction, train.value, id.value, ood and ood.value, label))
    return points, left_out
