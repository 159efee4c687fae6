"""The checks of a caller's training data (tokens and targets)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from anchorlens.tasks.shared.batch import IGNORE, TokenBatch
from anchorlens.texts import safe_repr

_LARGEST = 2**62
"""A bound that is larger than any token."""


def token_batch(
    data: Any,
    *,
    seq_len: int | None = None,
    d_vocab: int | None = None,
    every_position: bool | None = False,
) -> TokenBatch:
    """Check training data, and convert the data to a batch.

    Args:
        data: an object with `tokens` and `targets`, or a pair (tokens, targets) of tensors, arrays or lists
            of integers.
        seq_len: the required number of tokens per sequence, or None for any number.
        d_vocab: the size of the vocabulary, or None for any size. Every token and target must be smaller than
            the size.
        every_position: whether the targets must have the shape [batch, pos], with `IGNORE` (-100) at
            positions that are not scored. If false, the targets must have the shape [batch]. If None, both
            shapes are allowed.

    Returns:
        The tokens [batch, pos] and the targets on the CPU, in the narrowest integer types that hold their
        values. `take` returns int64.

    Raises:
        ValueError: If the data are not a pair of integer arrays (tokens, targets), or are empty.
        ValueError: If the data do not have the required shape or vocabulary.

    >>> token_batch(([[23, 1, 2], [31, 2, 1]], [29, 37]), seq_len=3)
    TokenBatch(2 sequences of 3 tokens with their targets)
    """
    pair = (data.tokens, data.targets) if hasattr(data, "tokens") and hasattr(data, "targets") else data
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        got = f"{len(pair)} values" if isinstance(pair, tuple | list) else type(pair).__name__
        raise ValueError(
            f"the training data must be a pair (tokens, targets), got {got}. Give tokens [batch, pos] and "
            "targets [batch]."
        )
    tokens, targets = _array("tokens", pair[0]), _array("targets", pair[1])
    wanted = f"[batch, {'pos' if seq_len is None else seq_len}]"
    if tokens.ndim != 2 or not tokens.size or seq_len not in (None, tokens.shape[1]):
        raise ValueError(
            f"the tokens of the training data must have shape {wanted} with a sequence in each row, got "
            f"{list(tokens.shape)}. Check that the data belong to this model's task."
        )
    if every_position is None:
        every_position = targets.ndim == 2
    shape = tokens.shape if every_position else tokens.shape[:1]
    if targets.shape != shape:
        place = "token" if every_position else "row of tokens"
        raise ValueError(
            f"the targets of the training data must have shape {list(shape)}, one for each {place}, got "
            f"{list(targets.shape)}. Correct the targets"
        )
    limit = _LARGEST if d_vocab is None else d_vocab - 1
    allowed = "0 or more" if d_vocab is None else f"0 to {limit:,}, the vocabulary of the task"
    for name, array in (("tokens", tokens), ("targets", targets)):
        if array.dtype.kind not in "iu":
            raise ValueError(
                f"the {name} of the training data must be integers, got {array.dtype}. Convert them to "
                "integers"
            )
        scored = np.asarray(array != IGNORE if every_position and name == "targets" else True)
        if not scored.any():
            raise ValueError(
                "the targets of the training data must contain at least one answer, got -100 everywhere. "
                "Give other targets"
            )
        low = int(array.min(where=scored, initial=array.max()))
        high = int(array.max(where=scored, initial=array.min()))
        if low < 0 or high > limit:
            raise ValueError(
                f"the {name} of the training data must be {allowed}, got {low if low < 0 else high:,}. Check "
                "that the data belong to this model's task."
            )
    arrays = (np.require(narrowed(a), requirements=["C", "W"]) for a in (tokens, targets))
    return TokenBatch(*map(torch.from_numpy, arrays))


def narrowed(array: np.ndarray) -> np.ndarray:
    """Cast an array of integers to the narrowest signed type that holds the values.

    >>> narrowed(np.array([-100, 127])).dtype, narrowed(np.array([200], np.uint8)).dtype
    (dtype('int8'), dtype('int16'))
    """
    lowest = min(int(array.min()), -1 - int(array.max()))  # a type that holds -1 - x < 0 holds x too
    return array.astype(np.min_scalar_type(lowest), copy=False)


def _array(name: str, values: object) -> np.ndarray:
    try:
        return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ValueError(
            f"the {name} of the training data must be integers in rows of equal length, got an error: "
            f"{safe_repr(str(error).split('.')[0])}. Correct the {name}"
        ) from None
