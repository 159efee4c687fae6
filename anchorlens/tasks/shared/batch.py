"""Training data of any task: the batch of tokens with targets, and the checks of a caller's data."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from anchorlens.configuration import frozen_dataclass
from anchorlens.texts import safe_repr

if TYPE_CHECKING:
    import torch
    from jaxtyping import Int
    from torch import Tensor


def distinct_rows(
    rows: Int[np.ndarray, "row column"],
) -> tuple[Int[np.ndarray, " distinct"], Int[np.ndarray, " row"]]:
    """Find the distinct rows in ascending order, like `np.unique(rows, axis=0)` but many times faster.

    Args:
        rows: the integers.

    Returns:
        The index of each distinct row's first occurrence, and each row's index among the distinct rows.

    >>> distinct_rows(np.array([[2, 1], [1, 5], [2, 1]]))
    (array([1, 0]), array([1, 0, 1]))
    """
    order = np.lexsort(rows.T[::-1])  # stable: among equal rows the first comes first
    is_new = np.ones(len(rows), dtype=bool)
    is_new[1:] = (rows[order[1:]] != rows[order[:-1]]).any(axis=1)
    place = np.empty(len(rows), dtype=np.int64)
    place[order] = np.cumsum(is_new) - 1
    return order[is_new], place


IGNORE = -100
"""The target of a position that is not scored (torch's `ignore_index`)."""
WORTH_LEAVING_OUT = 0.75
"""The ratio of mean length to width below which the positions after the ends of sequences are skipped."""


def is_ragged(lengths: Int[Tensor, " batch"], width: int) -> bool:
    """Return whether the mean length is below 75% of the width, so that skipping padding saves time."""
    return float(lengths.double().mean()) < WORTH_LEAVING_OUT * width


def on_device(value: object, device: torch.device) -> Any:
    """Move a tensor, or all tensors of a dataclass, to a device, and return any other value unchanged.

    The CPU does not wait for a copy from its memory to a CUDA device.
    """
    import torch

    if isinstance(value, torch.Tensor):
        pinned = device.type == "cuda" and value.device.type == "cpu"
        return (value.pin_memory() if pinned else value).to(device, non_blocking=pinned)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    parts = {field.name: getattr(value, field.name) for field in fields(value)}
    moved = {name: on_device(part, device) for name, part in parts.items() if isinstance(part, torch.Tensor)}
    return replace(value, **moved)


@frozen_dataclass(eq=False)
class TokenBatch:
    """Sequences for a model, with the tokens that the model should predict."""

    tokens: Int[Tensor, "batch pos"]
    """The token ids: int64, or the narrowest type that holds them for training data from a caller."""
    targets: Int[Tensor, "batch ..."]
    """The token after the last position, [batch], or after each position, [batch, pos], with `IGNORE` at
    positions that are not scored. The types are those of `tokens`."""

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def n_last(self) -> int:
        """The number of positions from the first position scored in any sequence to the last position."""
        if self.targets.dim() == 1:
            return 1
        scored = (self.targets != IGNORE).any(dim=0)
        return len(scored) - int(scored.int().argmax()) if scored.any() else 0

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        """Each sequence's number of positions up to its last scored position, or all if none is scored."""
        n, n_pos = self.tokens.shape
        if self.targets.dim() == 1:
            return self.targets.new_full((n,), n_pos)
        return n_pos - (self.targets != IGNORE).flip(1).int().argmax(dim=1)

    def distinct(self) -> TokenBatch:
        """Return every distinct combination of a sequence and its targets once, sorted by tokens."""
        targets = self.targets.numpy().reshape(len(self), -1)
        first, _ = distinct_rows(np.hstack([self.tokens.numpy(), targets]))
        return TokenBatch(self.tokens[first], self.targets[first])

    def take(self, rows: Int[np.ndarray, " row"]) -> TokenBatch:
        """Return the sequences with the indices `rows`, in this order, as int64 for a model."""
        return TokenBatch(self.tokens[rows].long(), self.targets[rows].long())

    def __repr__(self) -> str:
        name, n_pos = type(self).__name__, self.tokens.shape[-1]
        return f"{name}({len(self):,} sequences of {n_pos} tokens with their targets)"


_LARGEST = 2**62
"""A bound that is larger than any token."""


def token_batch(
    data: Any, *, seq_len: int | None = None, d_vocab: int | None = None, every_position: bool | None = False
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
    import torch

    pair = (data.tokens, data.targets) if hasattr(data, "tokens") and hasattr(data, "targets") else data
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        got = f"{len(pair)} values" if isinstance(pair, tuple | list) else type(pair).__name__
        raise ValueError(
            f"the training data must be a pair (tokens, targets), got {got}. Give tokens [batch, pos] and "
            "targets [batch]."
        )
    tokens, targets = _array("tokens", pair[0]), _array("targets", pair[1])
    if every_position is None:
        every_position = targets.ndim == 2
    is_table = tokens.ndim == 2 and tokens.size > 0 and seq_len in (None, tokens.shape[1])
    if not is_table or targets.shape != (tokens.shape if every_position else tokens.shape[:1]):
        place = "token" if every_position else "row of tokens"
        raise ValueError(
            "the training data must not be empty, and must have shape "
            f"[batch, {'pos' if seq_len is None else seq_len}] and a target for each {place}, got tokens "
            f"{list(tokens.shape)} and targets {list(targets.shape)}. Check that the data belong to this "
            "model's task."
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
    import torch

    try:
        return values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ValueError(
            f"the {name} of the training data must be integers in rows of equal length, got an error: "
            f"{safe_repr(str(error).split('.')[0])}. Correct the {name}"
        ) from None
