"""The function `evaluate`, which measures the answers of a model or checkpoint."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from typing import TYPE_CHECKING, Any, cast

from anchorlens.configuration import article, check_names
from anchorlens.files.loaded_model import PAPERS_TASK
from anchorlens.files.model_input import (
    WHAT_HOLDS_A_MODEL,
    ModelInput,
    given_training_data,
    of_several,
    resolve,
)
from anchorlens.models.devices import choose_device
from anchorlens.tasks.shared.base import LogitsModel, Task
from anchorlens.tasks.shared.task_errors import evaluated
from anchorlens.verdict.classify import has_own_class, with_data

if TYPE_CHECKING:
    import torch

    from anchorlens.files.settings import ModelConfiguration


@of_several
def evaluate(
    model: ModelInput | LogitsModel,
    task: Task | None = None,
    *,
    config: ModelConfiguration | None = None,
    training_set: object = None,
    held_out: object = None,
    device: str | torch.device = "auto",
    seed: int = 0,
    **options: object,
) -> Any:
    """Measure the accuracies of a model, and assign its behavioural phase.

    Args:
        model: a HookedTransformer, a Checkpoint, the result of `train`, or the path of a checkpoint or run.
            You may also give a function of tokens [batch, pos] that returns logits [batch, pos, d_vocab].
            Logits may be an array of any library, the `logits` of an object or dict, or part of a tuple such
            as (logits, loss). If the task scores only the last position, the logits of the last position are
            sufficient. `evaluate` does not change the training mode or device of a model. You may also give a
            list of models.
        task: the task of the model. Default: the papers' two-anchor task. A checkpoint contains its task.
        config: the configuration of a bare state dict, as for `open_checkpoint`.
        training_set: the training sequences of the model, for the train accuracy. The sequences are integer
            tokens [batch, seq_len] and targets [batch], as tensors, arrays or lists. You may also give the
            path of a file with tokens and targets, as for `--train-data`, or the result of
            `Checkpoint.training_set()`. A checkpoint with a training configuration has a training set.
            Without a training set, `evaluate` measures train accuracy on fresh noise. A model that memorised
            a small training set fails on fresh noise. For a `torch.nn.Module` that is no HookedTransformer,
            the data are a pair (x, y) as for `classify`.
        held_out: data of the form of `training_set` that the model was not trained on, without a task.
        device: the device of a checkpoint, which is auto, cpu, cuda, cuda:N or mps. A model in memory remains
            on its device.
        seed: the seed of all random draws in the evaluation.
        **options: the options of the method `evaluate` of the task. `AnchorTask.evaluate` documents the
            options `n_noise`, `max_train`, `max_trials`, `batch_size` and `half`.

    Returns:
        An `Evaluation`, or an `AnchorEvaluation` for an AnchorTask. An `AnchorEvaluation` contains the phase,
        commutativity and deviations, and the accuracies of each split and each pair. An accuracy is from 0 to
        1 and has a standard error. For a list of models, `evaluate` returns a list. A warning states each
        assumption about missing information in a file.

    Raises:
        ValueError: If an option is invalid.
        ValueError: If the training set has another shape or vocabulary than the task.
        ValueError: If the vocabulary or context of the model is too small for the task.
        ValueError: If the output does not have logits for a target.
        CheckpointError: If `evaluate` cannot read a file completely and safely.

    Example:
        >>> from anchorlens import AnchorTask, ModelConfig, build_model
        >>> evaluate(build_model(ModelConfig(d_model=32)), AnchorTask(), n_noise=2).phase.label
        'undecided: training data unknown'

    Source: The paper arXiv 2405.05409 defines inferential and symmetric accuracy. The paper arXiv 2501.08537
    defines ID accuracy, OOD accuracy and commutativity.
    """
    given: Any = resolve(cast("Any", model), task, config=config, device=device, needs_hooks=False)
    if given is not model:
        for note in given.notes:
            warnings.warn(note, stacklevel=3)
    training_set, held_out = given_training_data(training_set), given_training_data(held_out)
    if held_out is not None or has_own_class(given):
        given, training_set, held_out = with_data(given, training_set, held_out)
    asked = given.assumed_task()
    options |= {} if held_out is None else {"held_out": held_out}
    parameters = inspect.signature(asked.evaluate).parameters
    if not any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        names = [name for name in parameters if name != "model"]
        check_names(f"evaluate of the task {asked.kind}", options, names, what="argument")
    if given.checkpoint is None:
        if not callable(given.model):
            what = article(type(given.model).__name__)
            raise ValueError(f"model must be {WHAT_HOLDS_A_MODEL}, got {what}")
        evaluation = evaluated(asked, given.model, training_set=training_set, seed=seed, **options)
    else:
        known = {} if training_set is None else {"training_set": training_set}
        evaluation = given.checkpoint.evaluate(device=choose_device(device), seed=seed, **known, **options)
    notes = (*evaluation.notes, *given.notes, *([PAPERS_TASK] if given.task is None else []))
    return dataclasses.replace(evaluation, notes=tuple(dict.fromkeys(notes)))
