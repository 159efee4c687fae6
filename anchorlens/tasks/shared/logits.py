"""The search for logits in the output of a model of any library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from anchorlens.configuration import article
from anchorlens.texts import safe_repr

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor

INSTEAD = "lambda tokens: model(tokens).logits, or model(tokens)[0]"
"""The advice for a model whose output holds the logits in another form."""


def logits_in(
    output: object, tokens: Int[Tensor, "batch pos"], d_vocab_out: int
) -> Float[Tensor, "batch n_last d_vocab_out"]:
    """Return the logits in a model's output.

    Args:
        output: an array of any library, nested lists, an object with `.logits`, or a mapping with the key
            `logits`. The output may also be a tuple or list that contains one of these values, such as
            (logits, loss). The logits have the shape [batch, n_last, d_vocab_out], or [batch, d_vocab_out]
            for the last position only.
        tokens: the model's input.
        d_vocab_out: the size of the vocabulary of answers, a lower bound of the last dimension of the logits.

    Raises:
        ValueError: If not exactly one array in the output has the shape of logits.
    """
    arrays = _arrays(output)
    fits = [
        one for one in arrays if one.dim() > 1 and len(one) == len(tokens) and one.shape[-1] >= d_vocab_out
    ]
    whole = [one for one in fits if one.dim() == 3 and one.shape[1]]
    found = whole or [one.unsqueeze(1) for one in fits if one.dim() == 2]
    if len(found) == 1:
        return found[0]
    asked = f"logits [batch, pos, d_vocab >= {d_vocab_out}] for tokens {list(tokens.shape)}"
    shapes = " and ".join(str(list(one.shape)) for one in arrays)
    got = shapes or article(type(output).__name__)
    if isinstance(output, Mapping):
        got += f" with the keys {safe_repr(list(output))}"
    a_pair = [tuple(one.shape[:2]) == tuple(tokens.shape) and one.dim() == 3 for one in arrays]
    if any(a_pair) and not found:
        raise ValueError(f"model must return {asked}, got {got}. Check that the model belongs to the task.")
    raise ValueError(f"model must return {asked}, got {got}. Give a function that returns logits: {INSTEAD}")


def _arrays(output: object) -> list[Tensor]:
    """Return the arrays in an output, as tensors."""
    import torch

    if isinstance(output, torch.Tensor) or (hasattr(output, "__array__") and hasattr(output, "shape")):
        return [_tensor(output)]
    inside = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    if inside is not None:
        return _arrays(inside)
    if not isinstance(output, list | tuple):
        return []
    parts = [one for part in output if not isinstance(part, list | tuple) for one in _arrays(part)]
    try:
        if isinstance(output, list) and parts:  # perhaps an array for each sequence
            return [*parts, torch.stack(parts)]
        return parts or [_tensor(output)]
    except (ValueError, TypeError, RuntimeError):  # they have different shapes, or are no numbers
        return parts


def _tensor(array: object) -> Tensor:
    import torch

    if isinstance(array, torch.Tensor):
        return array
    numbers = np.array(array)
    if numbers.dtype.kind not in "fiub" or numbers.dtype.itemsize > 8:  # JAX's bfloat16, for example
        numbers = numbers.astype(np.float32)
    return torch.from_numpy(numbers)
