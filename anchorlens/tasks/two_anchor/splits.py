"""The splits of a task: the pairs of each split, and the allowed positions of each key."""

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
    """The splits of all combinations of pair, key x and position i into training, ID test and OOD test.

    A trained pair with key x at position i is in the training split if x and i differ modulo m, and otherwise
    in the ID test. The OOD test contains the unseen pairs.

    Raises:
        ValueError: If the training split or the ID test is empty.

    Source: arXiv 2405.05409 and 2501.08537.
    """

    keys: Int[np.ndarray, " key"]
    """Every key token x, ascending."""
    positions: Int[np.ndarray, " position"]
    """Every position i of the key."""
    modulus: int
    """The m of the rule."""
    seen: Sequence[Pair]
    """The pairs that are trained."""
    unseen: Sequence[Pair]
    """The pairs that are not trained."""

    def __post_init__(self) -> None:
        """Check that no split of the seen pairs is empty."""
        if not self.seen:
            raise ValueError(
                "unseen_pairs must leave at least one pair to train, got all pairs. Remove pairs from "
                "unseen_pairs"
            )
        for split in ("train", "id"):
            if not self.allowed(split).any():
                raise ValueError(
                    f"split_modulus must leave a key and a position in the {split} split for the keys "
                    f"{self.keys[0]}..{self.keys[-1]}, got {self.modulus}. Use a smaller split_modulus"
                )

    def pairs(self, split: Split) -> Sequence[Pair]:
        """Return the pairs of a split. An unknown split raises a ValueError."""
        check_choice("split", split, SPLITS)
        return self.unseen if split == "ood" else self.seen

    def allowed(self, split: Split) -> Bool[np.ndarray, "key position"]:
        """Return a boolean table, true where a split allows a key at a position."""
        if split == "ood":
            return np.ones((len(self.keys), len(self.positions)), dtype=bool)
        train = self.obeys_rule(self.positions)
        return train if split == "train" else ~train

    def size(self, split: Split) -> int:
        """Return the number of combinations (pair, key, position) in a split."""
        return len(self.pairs(split)) * int(np.count_nonzero(self.allowed(split)))

    def trials(self, split: Split, which: Int[np.ndarray, " trial"]) -> Trials:
        """Return the trials of a split with the indices `which`, counted pair by pair and key by key."""
        pairs = np.array(self.pairs(split), dtype=np.int64).reshape(-1, len(self.seen[0]))
        key, position = np.nonzero(self.allowed(split))
        pair, place = np.divmod(which, max(1, len(key)))
        return Trials(pairs[pair], self.keys[key[place]], self.positions[position[place]])

    def obeys_rule(self, positions: Int[np.ndarray, " pos"]) -> Bool[np.ndarray, "key pos"]:
        """Return a boolean table [key, position], true where key x mod m differs from position i mod m."""
        return (self.keys % self.modulus)[:, None] != positions % self.modulus
