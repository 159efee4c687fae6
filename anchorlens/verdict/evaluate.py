"""`evaluate`: measure the answers of a model or checkpoint."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from anchorlens.configuration import article, check_names
from anchorlens.files.importers.inputs import (
    WHAT_HOLDS_A_MODEL,
    ModelInput,
    given_training_data,
    of_several,
    resolve,
)
from anchorlens.files.importers.source import PAPERS_TASK
from anchorlens.models.devices import choose_device
from anchorlens.tasks.registry import task_or_default
from anchorlens.tasks.shared.asking import evaluated
from anchorlens.tasks.shared.base import LogitsModel, Task
from anchorlens.tasks.shared.evaluation import Evaluation

if TYPE_CHECKING:
    import torch

    from anchorlens.files.importers.settings import ModelConfiguration


@of_several
def evaluate(
    model: ModelInput | LogitsModel,
    task: Task | None = None,
    *,
    config: ModelConfiguration | None = None,
    training_set: object = None,
    device: str | torch.device = "auto",
    seed: int = 0,
    **options: object,
) -> Any:
    """Measure the accuracies of a model and name its phase by behaviour, which is the definition.

    Args:
        model: a HookedTransformer, or anything that maps tokens [batch, pos] to logits
            [batch, pos, d_vocab], whose training mode and device are left as they are; a Checkpoint; the
            result of `train`; or the path of a checkpoint or run. Logits may be an array of any library, the
            `logits` of an object or dict, or in a tuple such as (logits, loss); those of the last position
            suffice where the task scores no other. A list of models is measured one by one.
        task: what it was trained on; the papers' two-anchor task if left out. A checkpoint has its own.
        config: what a bare state dict is, as for `open_checkpoint`.
        training_set: the sequences it was trained on, for the train accuracy: tokens [batch, seq_len] and
            targets [batch], integers, as tensors, arrays or lists; the path of a file with them, as for
            `--train-data`; or the result of `Checkpoint.training_set()`. A checkpoint that says how it was
            trained has its own. Without it, train accuracy is measured on fresh noise, on which a model that
            memorised a small training set fails.
        device: the device of a checkpoint: auto, cpu, cuda, cuda:N or mps. A model stays where it is.
        seed: random seed.
        **options: options of the task's own `evaluate`: `AnchorTask.evaluate` lists its `n_noise`,
            `max_train`, `max_trials`, `batch_size` and `half`.

    Returns:
        An `Evaluation`; for an AnchorTask an AnchorEvaluation: accuracies (0..1) with standard errors, per
        pair, deviations, commutativity and the phase. A list of them for a list of models. What a file does
        not say, and is assumed, is a warning.

    Raises:
        ValueError: an unusable option, a training set of another shape or vocabulary than the task's, a
            model whose vocabulary or context is too small for the task, or an output without logits for every
            target.
        CheckpointError: a file that cannot be read completely and safely.

    Example:
        >>> from anchorlens import AnchorTask, ModelConfig, build_model
        >>> evaluate(build_model(ModelConfig()), AnchorTask(), n_noise=2).phase.label
        'undecided: training data unknown'

    Source: inferential and symmetric accuracy of arXiv 2405.05409; ID, OOD and commutativity of
    2501.08537.
    """
    given: Any = resolve(
        model,  # pyright: ignore[reportArgumentType]
        task,
        config=config,
        device=device,
        needs_hooks=False,
    )
    if given is not model:
        for note in given.notes:
            warnings.warn(note, stacklevel=3)
    asked, training_set = task_or_default(given.task), given_training_data(training_set)
    parameters = inspect.signature(asked.evaluate).parameters
    if not any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        names = [name for name in parameters if name != "model"]
        check_names(f"evaluate of the task {asked.kind}", options, names, what="argument")
    if given.checkpoint is None:
        if not callable(given.model):
            what = article(type(given.model).__name__)
            raise ValueError(f"model must be {WHAT_HOLDS_A_MODEL}, got {what}")
        network: Any = given.model
        evaluation = evaluated(asked, network, training_set=training_set, seed=seed, **options)
        return noted(evaluation, (*given.notes, *([PAPERS_TASK] if given.task is None else [])))
    known = {} if training_set is None else {"training_set": training_set}
    evaluation = given.checkpoint.evaluate(device=choose_device(device), seed=seed, **known, **options)
    return noted(evaluation, given.notes)


def noted(evaluation: object, notes: Sequence[str]) -> Any:
    """The evaluation with more notes; what a task of a user gives instead of an Evaluation as it is."""
    if not notes or not isinstance(evaluation, Evaluation):
        return evaluation
    return dataclasses.replace(evaluation, notes=tuple(dict.fromkeys((*evaluation.notes, *notes))))
