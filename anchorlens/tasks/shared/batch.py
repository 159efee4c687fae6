"""The batch of any task: sequences of tokens with their targets."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from anchorlens.configuration import documented
from anchorlens.tasks.shared.distinct_rows import distinct_rows

if TYPE_CHECKING:
    import torch
    from jaxtyping import Int
    from torch import Tensor

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


@documented
@dataclass(frozen=True, eq=False)
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
