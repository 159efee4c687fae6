"""The splits: which pairs are in each, and where the key may stand in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from anchorlens.configuration import check_choice, documented
from anchorlens.tasks.two_anchor.sequences import Pair, Trials

if TYPE_CHECKING:
    from jaxtyping import Bool, Int

Split = Literal["train", "id", "ood"]
SPLITS: tuple[Split, ...] = ("train", "id", "ood")


@documented
@dataclass(frozen=True, eq=False)
class Splits:
    """Training: seen pairs where x mod m != i mod m. ID test: where they are equal. OOD test: unseen pairs.

    Raises:
        ValueError: nothing is trained, or nothing is left for the ID test.

    Source: arXiv 2405.05409 and 2501.08537.
    """

    keys: Int[np.ndarray, " key"]
    """Every key token x, ascending."""
    positions: Int[np.ndarray, " position"]
    """Every position i of the key."""
    modulus: int
    """m of the rule."""
    seen: Sequence[Pair]
    """Pairs that are trained."""
    unseen: Sequence[Pair]
    """Pairs that are not."""

    def __post_init__(self) -> None:
        """Check that something is in the splits of the seen pairs."""
        if not self.seen:
            raise ValueError("unseen_pairs leaves nothing to train on; leave some pairs out of it")
        for split in ("train", "id"):
            if not self.allowed(split).any():
                raise ValueError(
                    f"split_modulus {self.modulus} leaves no (key, position) in the {split} split "
                    f"for keys {self.keys[0]}..{self.keys[-1]}; try a smaller one"
                )

    def pairs(self, split: Split) -> Sequence[Pair]:
        """The pairs of a split; an unknown one is refused with a ValueError, here and below."""
        check_choice("split", split, SPLITS)
        return self.unseen if split == "ood" else self.seen

    def allowed(self, split: Split) -> Bool[np.ndarray, "key position"]:
        """Where each key may stand in a split."""
        if split == "ood":
            return np.ones((len(self.keys), len(self.positions)), dtype=bool)
        train = self.obeys_rule(self.positions)
        return train if split == "train" else ~train

    def size(self, split: Split) -> int:
        """How many (pair, key, position) a split has."""
        return len(self.pairs(split)) * int(np.count_nonzero(self.allowed(split)))

    def trials(self, split: Split, which: Int[np.ndarray, " trial"]) -> Trials:
        """The (pair, key, position) of a split at these places, counted pair by pair and key by key."""
        pairs = np.array(self.pairs(split), dtype=np.int64).reshape(-1, len(self.seen[0]))
        key, position = np.nonzero(self.allowed(split))
        pair, place = np.divmod(which, max(1, len(key)))
        return Trials(pairs[pair], self.keys[key[place]], self.positions[position[place]])

    def obeys_rule(self, positions: Int[np.ndarray, " pos"]) -> Bool[np.ndarray, "key pos"]:
        """The training rule: x mod m != i mod m, of key x at position i."""
        return (self.keys % self.modulus)[:, None] != positions % self.modulus
