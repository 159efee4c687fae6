"""TokenBatch: sequences of tokens with their targets, for any task."""

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
"""Target of a position where nothing is scored (torch's `ignore_index`)."""
WORTH_LEAVING_OUT = 0.75
"""If mean length over width of a batch is below this, positions after the ends of sequences are skipped."""


def is_ragged(lengths: Int[Tensor, " batch"], width: int) -> bool:
    """Whether sequences are so short for a width that skipping the positions after their ends pays."""
    return float(lengths.double().mean()) < WORTH_LEAVING_OUT * width


def on_device(value: object, device: torch.device) -> Any:
    """A tensor, or a dataclass with all its tensors, on a device; anything else as it is.

    The host does not wait for a copy from its memory to CUDA.
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
    """Sequences ready for a model, with the tokens that it should predict."""

    tokens: Int[Tensor, "batch pos"]
    """Token ids: int64, or for training data from a caller the narrowest type that holds them."""
    targets: Int[Tensor, "batch ..."]
    """[batch]: the token after the last position; or [batch, pos]: the token after each position, `IGNORE`
    where nothing is scored. Types as of `tokens`."""

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def n_last(self) -> int:
        """Positions from the first one that is scored in any sequence to the end; 0 where none is."""
        if self.targets.dim() == 1:
            return 1
        scored = (self.targets != IGNORE).any(dim=0)
        return len(scored) - int(scored.int().argmax()) if scored.any() else 0

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        """Positions of each sequence up to its last scored one, >= 1; all of them where none is scored."""
        n, n_pos = self.tokens.shape
        if self.targets.dim() == 1:
            return self.targets.new_full((n,), n_pos)
        return n_pos - (self.targets != IGNORE).flip(1).int().argmax(dim=1)

    def distinct(self) -> TokenBatch:
        """Each sequence once with each of its targets, sorted by its tokens, in the same integer types."""
        targets = self.targets.numpy().reshape(len(self), -1)
        first, _ = distinct_rows(np.hstack([self.tokens.numpy(), targets]))
        return TokenBatch(self.tokens[first], self.targets[first])

    def take(self, rows: Int[np.ndarray, " row"]) -> TokenBatch:
        """Some of the sequences, in the order of `rows`, in int64 as a model reads them."""
        return TokenBatch(self.tokens[rows].long(), self.targets[rows].long())

    def __repr__(self) -> str:
        name, n_pos = type(self).__name__, self.tokens.shape[-1]
        return f"{name}({len(self):,} sequences of {n_pos} tokens with their targets)"
