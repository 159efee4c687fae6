"""Checks of a probe's inputs before it measures anything."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from anchorlens.configuration import check_number
from anchorlens.files.model_input import HINT
from anchorlens.models.annotations import HookedTransformer
from anchorlens.tasks.shared.evaluator import check_capacity
from anchorlens.tasks.two_anchor.task import AnchorTask
from anchorlens.texts import safe_repr


class WeightsRefused(ValueError):
    """The error of a probe that refuses the weights of a model, and may accept those of a later step."""


MOST_SEQUENCES = 1_000_000
"""The largest `n_sequences` that a probe accepts."""


def check_count(name: str, value: object, *, minimum: int = 1) -> None:
    """Check a number of sequences, copies or the like.

    Raises:
        ValueError: If the value is not an integer from `minimum` to `MOST_SEQUENCES`.
    """
    check_number(name, value, minimum=minimum, limit=MOST_SEQUENCES, integer=True)


def check_model(model: object, name: str = "model") -> None:
    """Check that an object is a HookedTransformer or TransformerBridge with finite weights.

    Raises:
        ValueError: If the object is not a model of these classes.
        ValueError: If a weight is NaN or infinite.
    """
    if not isinstance(model, nn.Module) or not hasattr(model, "cfg") or not hasattr(model, "hook_dict"):
        hint = HINT if isinstance(model, nn.Module) else ""
        raise ValueError(f"{name} must be a HookedTransformer, got {type(model).__name__}{hint}")
    check_finite(model, name)


def check_finite(model: nn.Module, name: str = "model") -> None:
    """Check that a model's weights are finite.

    Raises:
        ValueError: If a weight is NaN or infinite.
    """
    for parameter_name, parameter in model.named_parameters():
        if not parameter.detach().isfinite().all():  # no context of torch's, whose end Ctrl-C could skip
            raise WeightsRefused(
                f"the weights of the {name} must be finite, got NaN or infinity in {parameter_name}. Use an "
                "earlier checkpoint"
            )


def check_task(task: Any) -> AnchorTask:
    """Check that the task is an AnchorTask, and return the task.

    Raises:
        ValueError: If the task is not an AnchorTask.
    """
    if getattr(task, "has_anchors", False) is not True:
        raise ValueError(
            f"task must be an AnchorTask, got {type(task).__name__}. Use a probe that supports this task"
        )
    return task


def two_anchor_task(task: object) -> AnchorTask | None:
    """Return the task if the task is an AnchorTask, and `None` if the task is another task or `None`.

    Raises:
        ValueError: If the object is not a task.
    """
    if task is None or getattr(task, "has_anchors", None) is False:
        return None
    return check_task(task)


def check_inputs(
    model: HookedTransformer, task: object, name: str = "model", *, answers: bool = True
) -> AnchorTask:
    """Check that the task is an AnchorTask and that the model is causal and fits the task.

    Return the task. A probe that reads no logits gives `answers=False`, and any output vocabulary fits.

    Raises:
        ValueError: If the task is not an AnchorTask.
        ValueError: If the model is not causal.
        ValueError: If the model does not fit the task.
    """
    check_model(model, name)
    task = check_task(task)
    check_capacity(model, task, answers=answers)
    if getattr(model.cfg, "attention_dir", "causal") != "causal":
        raise ValueError(
            f"model must have causal attention, got attention_dir {model.cfg.attention_dir!r}. Use a causal "
            "model"
        )
    return task


def check_layer(model: HookedTransformer, layer: int, *, minimum: int = 0) -> int:
    """Return the index of a layer, counted from 0.

    A negative layer is counted from the end.

    Raises:
        ValueError: If the model does not have the layer.
    """
    n_layers = model.cfg.n_layers
    if n_layers <= minimum:
        raise ValueError(
            f"the model must have more than {minimum} layer(s), got a model with {n_layers} layer(s). Use a "
            "deeper model"
        )
    check_number("layer", layer, integer=True)
    index = int(layer) + n_layers if layer < 0 else int(layer)
    if not minimum <= index < n_layers:
        raise ValueError(
            f"layer must be in {minimum}..{n_layers - 1} for this model with {n_layers} layer(s), got "
            f"{safe_repr(layer)}. Count layers from 0"
        )
    return index


def token_rows(tokens: object, n_pos: int | None = None, name: str = "tokens") -> Int[Tensor, "sequence pos"]:
    """Check one sequence [pos] or several sequences [sequence, pos], and return the sequences on the CPU.

    Args:
        tokens: the token ids, integers.
        n_pos: the number of positions of a sequence. Default: any number of positions, at least 1.
        name: the name of the option, for the error.

    Raises:
        ValueError: If the tokens are not integers.
        ValueError: If the tokens do not have one of the two shapes.
    """
    try:
        numbers = torch.as_tensor(tokens, device="cpu")
        what = f"{numbers.dtype} {list(numbers.shape)}"
    except (TypeError, ValueError, RuntimeError):
        numbers, what = torch.empty(0, device="cpu"), safe_repr(tokens)
    rows = numbers.unsqueeze(0) if numbers.dim() == 1 else numbers
    whole = not (rows.is_floating_point() or rows.is_complex() or rows.dtype == torch.bool)
    if rows.dim() != 2 or not rows.numel() or (n_pos and rows.shape[1] != n_pos) or not whole:
        positions = f" with {n_pos} positions" if n_pos else ""
        raise ValueError(
            f"{name} must be whole numbers [pos] or [sequence, pos]{positions}, got {what}. Correct {name}"
        )
    return rows.long()


def whole_numbers(name: str, values: Iterable[Any]) -> list[int]:
    """Check that values are integers, and return a list of the integers.

    Raises:
        ValueError: If a value is not an integer, or there are no values. The message contains the name of the
            option.
    """
    try:
        given = [] if isinstance(values, str | bytes) else list(values)
        numbers = [] if bool in map(type, given) else [operator.index(value) for value in given]
    except (TypeError, RuntimeError):  # RuntimeError: a tensor with more than one number
        numbers = []
    if not numbers:
        raise ValueError(f"{name} must be one or more whole numbers, got {safe_repr(values)}. Correct {name}")
    return numbers
