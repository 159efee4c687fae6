"""AdditionTask: a + b over a square of operands, with some pairs never trained.

Source: figure 7C of Zhang et al., arXiv 2501.08537. The OOD square comes from Hu et al., arXiv 2402.17709,
who test whether a model adds by rule or from neighbouring cases.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from anchorlens.configuration import frozen_dataclass, number
from anchorlens.extras.arithmetic.presets import PRESETS
from anchorlens.extras.shared.pair_plane import by_distance, pair_plane
from anchorlens.extras.shared.split_task import Right, SplitTask, at_random, in_rounds, split_rows
from anchorlens.randomness import generator
from anchorlens.tasks import IGNORE, Evaluator, FigureSpec, Metric, TokenBatch, phase_metrics, token_batch

if TYPE_CHECKING:
    from jaxtyping import Bool, Int
    from torch import Tensor

Split = Literal["train", "id", "ood"]
_LARGEST = 999

_END = "$"
_TOKENS = np.zeros(128, dtype=np.int64)
"""The tokens of the characters of a sum in digits."""
_TOKENS[[ord(character) for character in f"0123456789+={_END}"]] = range(13)

METRICS = phase_metrics(
    meanings=(
        "sums it was trained on",
        "sums held out by seed, from where sums are trained",
        "left-out sums, those of the square",
    ),
    asks=("every training sum", "held-out sums", "left-out sums"),
)


@frozen_dataclass()
class AdditionTask(SplitTask):
    """The task of adding two numbers, where a square of operands or a random fraction of pairs is held out.

    An answer is correct if all of its tokens are correct, including any end mark.

    Raises:
        ValueError: If a value is invalid. The message states the rule, the value and the remedy.

    Example:
        >>> task = AdditionTask(mode="reversed")
        >>> task.in_words(task.sums("ood")[:2])
        ['40+40=08', '40+41=18']
        >>> {split: len(task.sums(split)) for split in ("train", "id", "ood")}
        {'train': 9159, 'id': 400, 'ood': 441}

    Source: arXiv 2501.08537, figure 7C. The square, and the random split as a control, are from arXiv
    2402.17709.
    """

    kind: ClassVar[str] = "addition"
    presets = PRESETS
    metrics: ClassVar[tuple[Metric, ...]] = METRICS
    asks_all_of_train: ClassVar[bool] = True

    mode: Literal["number", "digits", "reversed"] = "number"
    """The format of a sum. With `number`, each number is one token, as in `a + b =` with one answer token.
    With `digits`, each digit is one token, as in `42+57=99` with an end mark. With `reversed`, the format is
    `digits`, but the answer starts with its last digit."""
    largest: int = number(99, minimum=1, maximum=_LARGEST)
    """The largest operand. The smallest operand is 0."""
    split: Literal["square", "random"] = "square"
    """The choice of the pairs that are never trained. With `square`, the pairs in a square of operands are
    held out as OOD. With `random`, random pairs are held out as a control, and no pair is OOD."""
    square_min: int = number(40, minimum=0, maximum=lambda task: task._largest_of_square)
    """The smallest operand of the OOD square."""
    square_max: int = number(
        60, minimum=lambda task: task.square_min, maximum=lambda task: task._largest_of_square
    )
    """The largest operand of the OOD square (inclusive)."""
    random_share: float = number(0.3, above=0, maximum=0.9)
    """The proportion of all pairs that the random split holds out."""
    n_held_out: int = number(400, minimum=1, limit=(_LARGEST + 1) ** 2)
    """The number of pairs that are held out for the ID test, in addition to the pairs of the split."""
    split_seed: int = number(0, minimum=0)
    """The seed of the held-out pairs and of the random split."""

    def __post_init__(self) -> None:
        """Check every field, and that the splits leave a pair to train."""
        super().__post_init__()
        if self.split == "random":
            object.__setattr__(self, "metrics", METRICS[:2])
        n_pairs, n_left_out = (self.largest + 1) ** 2, int(self._left_out.sum())
        if n_pairs - n_left_out - self.n_held_out < 1:
            raise ValueError(
                f"the splits must leave a pair to train, got {n_left_out:,} excluded and {self.n_held_out:,} "
                f"held-out pairs out of {n_pairs:,} pairs. Use a smaller square, random_share or n_held_out"
            )

    @property
    def _largest_of_square(self) -> int:
        """The largest operand that the square may have; the random split has no such limit."""
        return self.largest if self.split == "square" else _LARGEST

    @cached_property
    def _left_out(self) -> Bool[np.ndarray, " pair"]:
        """Whether each pair, a * (largest + 1) + b, is in the square or the random share."""
        side = self.largest + 1
        if self.split == "random":
            return at_random(side**2, self.random_share, self.split_seed)
        inside = (np.arange(side) >= self.square_min) & (np.arange(side) <= self.square_max)
        return np.outer(inside, inside).ravel()

    @cached_property
    def splits(self) -> Mapping[str, Int[np.ndarray, "pair 2"]]:
        """A map from each split to the operands (a, b) of its sums, in ascending order."""
        rest = np.flatnonzero(~self._left_out)
        return self._split(generator(self.split_seed, "data", 2).choice(rest, self.n_held_out, replace=False))

    def _split(self, held_out: Int[np.ndarray, " held"]) -> Mapping[str, Int[np.ndarray, "pair 2"]]:
        """Return the splits for the given held-out pairs; the pairs of the random share are held out too."""
        rows = split_rows(self._left_out, held_out)
        if self.split == "random":
            rows["id"] = np.union1d(rows["id"], rows.pop("ood"))
        return {name: np.stack(np.divmod(pairs, self.largest + 1), axis=1) for name, pairs in rows.items()}

    def targets_of(self, tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch ..."]:
        """Return the targets of sums, with -1 for a sequence that is not a sum of the task's operands."""
        import torch

        read = list(map(self._read, tokens.tolist()))
        known = np.array([pair is not None for pair in read])
        found = np.array([pair for pair in read if pair], dtype=np.int64).reshape(-1, 2)
        shape = (len(read),) if self.in_numbers else tuple(tokens.shape)
        targets = torch.full(shape, -1, dtype=torch.int64, device="cpu")
        if len(found):
            targets[torch.from_numpy(known)] = self.sequences(found).targets
        return targets

    def _read(self, tokens: list[int]) -> tuple[int, int] | None:
        """Return the operands of a sequence; `None` if it is not a sum of the task."""
        if self.in_numbers:
            a, plus, b, equals = tokens
            is_sum = (plus, equals) == (self._equals - 1, self._equals)
        else:
            text = "".join(f"0123456789+={_END}"[token] for token in tokens)
            found = re.match(r"(0|[1-9]\d*)\+(0|[1-9]\d*)=", text)
            a, b = map(int, found.groups()) if found else (0, 0)
            is_sum = found is not None
        return (a, b) if is_sum and max(a, b) <= self.largest else None

    def sums(self, split: Split) -> Int[np.ndarray, "pair 2"]:
        """Return the operands (a, b) of every sum of a split, ascending.

        Args:
            split: the name of the split: `train`, `id`, or `ood` if the task has a square.

        Raises:
            ValueError: If the split is unknown.
        """
        return self.examples(split)

    @property
    def d_vocab(self) -> int:
        """The number of tokens in the vocabulary: all numbers or digits, `+`, `=`, and any end mark."""
        return self._equals + 1 if self.in_numbers else 13

    @property
    def in_numbers(self) -> bool:
        """Whether each number is one token."""
        return self.mode == "number"

    @property
    def _equals(self) -> int:
        """The token `=` if numbers are tokens; `+` comes right before it, after the largest answer."""
        return 2 * self.largest + 2

    def answers(self, sums: Int[np.ndarray, "pair 2"]) -> Int[np.ndarray, " pair"]:
        """Compute a + b for each pair."""
        return sums.sum(axis=1, dtype=np.int64)

    @property
    def seq_len(self) -> int:
        """The number of tokens of the longest sum that a model reads, not counting the end mark."""
        if self.in_numbers:
            return 4
        return 2 * len(str(self.largest)) + 2 + len(str(2 * self.largest))

    def sequences(self, sums: Int[np.ndarray, "pair 2"]) -> TokenBatch:
        """Make sums into sequences.

        Returns:
            For the format `number`, tokens [pair, 4] and targets [pair]. For other formats, tokens [pair,
            seq_len] and targets [pair, seq_len]. End marks pad every sum that is shorter than the longest
            sum. From `=` on, the targets are the answer's digits and one end mark.
        """
        import torch

        a, b = sums.T.astype(np.int64)
        if self.in_numbers:
            plus, equals = np.full_like(a, self._equals - 1), np.full_like(a, self._equals)
            tokens = np.stack([a, plus, b, equals], axis=1)
            return TokenBatch(torch.from_numpy(tokens), torch.from_numpy(self.answers(sums)))
        distinct, which = np.unique(sums, axis=0, return_inverse=True)
        width = self.seq_len + 1
        text = "".join(word.ljust(width, _END) for word in self.in_words(distinct))
        whole = _TOKENS[np.frombuffer(text.encode(), dtype=np.uint8)].reshape(-1, width)  # [sum, pos + 1]
        is_end = whole[:, :-1] == _TOKENS[ord(_END)]
        asked = (whole[:, :-1] == _TOKENS[ord("=")]).cumsum(axis=1).astype(bool) & ~is_end
        targets = np.where(asked, whole[:, 1:], IGNORE)
        tokens, targets = whole[which.ravel(), :-1], targets[which.ravel()]
        return TokenBatch(torch.from_numpy(tokens), torch.from_numpy(targets))

    def in_words(self, sums: Int[np.ndarray, "pair 2"]) -> list[str]:
        """Write sums as text, with the digits of each answer in the order of the sequence."""
        order = slice(None, None, -1 if self.mode == "reversed" else 1)
        pairs = zip(sums.tolist(), self.answers(sums).tolist(), strict=True)
        return [f"{a}+{b}={str(total)[order]}" for (a, b), total in pairs]

    @property
    def prompt_end(self) -> int:
        """The token `=`."""
        return self._equals if self.in_numbers else int(_TOKENS[ord("=")])

    @property
    def table_size(self) -> int:
        """The number of operands in all sums."""
        return 2 * (self.largest + 1) ** 2

    def training_set(self, n: int, seed: int) -> TokenBatch:
        """Return `n` training sums in random order, with repetition if the task has fewer than `n`."""
        sums = self.splits["train"]
        return self.sequences(sums[in_rounds(len(sums), n, generator(seed, "data"))])

    def checked_training_set(self, training_set: object) -> TokenBatch:
        """Check that training data have this task's shape and vocabulary, and return the data."""
        return token_batch(
            training_set, seq_len=self.seq_len, d_vocab=self.d_vocab, every_position=not self.in_numbers
        )

    def pictures(
        self, whole: Right, evaluator: Evaluator, rng: np.random.Generator
    ) -> tuple[FigureSpec, ...]:
        """Draw the correctness of every sum, and accuracy against the distance to the square's border."""
        plane = np.zeros((self.largest + 1, self.largest + 1))
        for name, sums in self.splits.items():
            plane[tuple(sums.T)] = whole[name]
        low, high = self.square_min, self.square_max
        square = self.split == "square"
        where = "The frame holds the sums that are never trained. " if square else ""
        hole = pair_plane(
            plane,
            title="Sums answered correctly",
            caption=f"A filled cell is a pair of operands with a correct answer. {where}A model that adds by "
            "rule has no hole.",
            frame=(low, low, high, high) if square else None,
        )
        return (hole, by_distance(plane, low, high)) if square else (hole,)

    @property
    def held_out(self) -> str:
        """A description of the sums that training never shows."""
        n_id = len(self.splits["id"])
        if self.split == "random":
            return f"{n_id:,} sums at random, by seed {self.split_seed}"
        n_ood = len(self.splits["ood"])
        return f"{n_ood:,} sums ({self._left_out_in_words}) and {n_id:,} others, by seed {self.split_seed}"

    @property
    def _left_out_in_words(self) -> str:
        return f"both operands in {self.square_min}..{self.square_max}"

    def describe(self) -> str:
        """Describe the trained and the held-out sums in words."""
        n = {split: f"{len(sums):,}" for split, sums in self.splits.items()}
        example = self.in_words(self.splits["train"][-1:])[0]
        asked = {"number": "the answer is one token", "digits": "a token for each digit, then an end mark"}
        asked["reversed"] = "a token for each digit, the answer's last digit first, then an end mark"
        return (
            f"a + b for operands 0..{self.largest}, such as {example}; {asked[self.mode]}.\n"
            f"Trained: {n['train']} sums. Held out (ID test): {n['id']} of the others, by seed."
            + (f"\nNever seen (OOD test): {n['ood']} sums, {self._left_out_in_words}." if "ood" in n else "")
        )
