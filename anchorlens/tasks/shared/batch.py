"""TokenBatch: sequences and what is scored of them, whatever the task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anchorlens.configuration import documented

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Int
    from torch import Tensor

IGNORE = -100
"""Target of a position where nothing is scored (torch's `ignore_index`)."""


@documented
@dataclass(frozen=True, eq=False)
class TokenBatch:
    """Sequences ready for a model, with the tokens that are asked for."""

    tokens: Int[Tensor, "batch pos"]
    """Token ids, int64."""
    targets: Int[Tensor, "batch ..."]
    """[batch]: the token after the last position; or [batch, pos]: the token after each position, `IGNORE`
    where nothing is scored. int64."""

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def n_last(self) -> int:
        """Positions from the first one that is scored in any sequence to the end; 0 where none is."""
        if self.targets.dim() == 1:
            return 1
        scored = (self.targets != IGNORE).any(dim=0)
        return len(scored) - int(scored.int().argmax()) if scored.any() else 0

    def take(self, rows: Int[np.ndarray, " row"]) -> TokenBatch:
        """Some of the sequences, in the order of `rows`."""
        return TokenBatch(self.tokens[rows], self.targets[rows])

    def __repr__(self) -> str:
        return f"TokenBatch({len(self):,} sequences of {self.tokens.shape[-1]} tokens with their targets)"
