"""AdditionTask: a + b over a square of operands, with a smaller square left out of training.

Source: figure 7C of Zhang et al., arXiv 2501.08537; the left-out square is that of Hu et al., arXiv
2402.17709, who ask whether a model adds by rule or by neighbouring cases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from anchorlens.configuration import check_number, documented, number
from anchorlens.randomness import generator
from anchorlens.safe import shown
from anchorlens.tasks.shared.accuracy import Accuracy
from anchorlens.tasks.shared.asking import Asker
from anchorlens.tasks.shared.base import Answers, TaskConfig
from anchorlens.tasks.shared.evaluation import Measured
from anchorlens.tasks.shared.metric import Metric
from anchorlens.tasks.shared.overlap import Overlap, overlap_of_prompts
from anchorlens.tasks.shared.phases import TRAINING_SET
from anchorlens.tasks.shared.sketch import Curve, Grid

if TYPE_CHECKING:
    from jaxtyping import Int

    from anchorlens.tasks.shared.batch import TokenBatch

Split = Literal["train", "id", "ood"]
_SPLITS: tuple[Split, ...] = ("train", "id", "ood")
_LARGEST = 999
_MOST_ASKED = 20_000

_END = "$"
_TOKENS = np.zeros(128, dtype=np.int64)
"""Character of a sum that is written in digits -> its token."""
_TOKENS[[ord(character) for character in f"0123456789+={_END}"]] = range(13)

METRICS = (
    Metric(
        "train", "train", "Train accuracy", "sums it was trained on", "every training sum", "train_accuracy"
    ),
    Metric(
        "id",
        "ID",
        "ID accuracy",
        "sums held out by seed, from where sums are trained",
        "held-out sums",
        "id_accuracy",
        map_caption="Sums that were held out by seed, from where sums are trained: below .90 it is Phase 1.",
    ),
    Metric(
        "ood",
        "OOD",
        "OOD accuracy",
        "left-out sums: those of the square, or of the random split",
        "left-out sums",
        "ood_accuracy",
        map_caption="Sums of the square that is left out of training, or of the random split: above .50 it "
        "is Phase 3.",
    ),
)


@documented
@dataclass(frozen=True)
class AdditionTask(TaskConfig):
    """a + b for all operands from 0 on, with a square of pairs left out of training: is there a hole?

    An answer is right if every one of its tokens is, the end mark too where there is one.

    Raises:
        ValueError: any value that makes no task, with what was expected, what came and what to do.

    Example:
        >>> task = AdditionTask(mode="reversed")
        >>> task.in_words(task.sums("ood")[:2])
        ['40+40=08', '40+41=18']
        >>> {split: len(task.sums(split)) for split in ("train", "id", "ood")}
        {'train': 9159, 'id': 400, 'ood': 441}

    Source: arXiv 2501.08537, figure 7C; arXiv 2402.17709 (the square, and the random split as a control).
    """

    kind: ClassVar[str] = "addition"
    metrics: ClassVar[tuple[Metric, ...]] = METRICS

    mode: Literal["number", "digits", "reversed"] = "number"
    """`number`: a token for each number, `a + b =` and one answer token; `digits`: a token for each digit,
    `42+57=99` and an end mark; `reversed`: the same with the answer's last digit first."""
    largest: int = number(99, minimum=1, maximum=_LARGEST)
    """Largest operand; the operands are 0..largest."""
    split: Literal["square", "random"] = "square"
    """`square`: the pairs of a square are OOD; `random`: so many pairs at random are, as a control."""
    square_min: int = number(40, minimum=0, maximum=lambda task: task.largest)
    """Smallest operand of the left-out square."""
    square_max: int = number(60, minimum=lambda task: task.square_min, maximum=lambda task: task.largest)
    """Largest operand of the left-out square (inclusive)."""
    random_share: float = number(0.3, above=0, maximum=0.9)
    """Share of all pairs that the random split leaves out."""
    n_held_out: int = number(400, minimum=1, limit=(_LARGEST + 1) ** 2)
    """Pairs outside the left-out ones that are held out of training (ID)."""
    split_seed: int = number(0, minimum=0)
    """Seed of the pairs that are held out, and of the random split."""

    def __post_init__(self) -> None:
        """Check every field, and that enough is left to train."""
        super().__post_init__()
        n_pairs, n_left_out = (self.largest + 1) ** 2, int(self._left_out.sum())
        if n_pairs - n_left_out - self.n_held_out < 1:
            raise ValueError(
                f"the splits must leave a pair to train: of {n_pairs:,} pairs {n_left_out:,} are left out "
                f"and {self.n_held_out:,} held out; take a smaller square or share, or hold out fewer"
            )

    @cached_property
    def _left_out(self) -> np.ndarray:
        """Whether each pair, a * (largest + 1) + b, is OOD."""
        side = self.largest + 1
        if self.split == "random":
            left_out = np.zeros(side**2, dtype=bool)
            chosen = generator(self.split_seed, "data", 1).permutation(side**2)
            left_out[chosen[: round(self.random_share * side**2)]] = True
            return left_out
        inside = (np.arange(side) >= self.square_min) & (np.arange(side) <= self.square_max)
        return (inside[:, None] & inside[None, :]).ravel()

    @cached_property
    def _sums(self) -> dict[Split, np.ndarray]:
        """Split -> its pairs [pair, 2], ascending."""
        side = self.largest + 1
        rest = np.flatnonzero(~self._left_out)
        chosen = generator(self.split_seed, "data", 2).choice(len(rest), self.n_held_out, replace=False)
        held_out = np.zeros(len(rest), dtype=bool)
        held_out[chosen] = True
        parts = (rest[~held_out], rest[held_out], np.flatnonzero(self._left_out))
        return {
            split: np.stack([part // side, part % side], axis=1)
            for split, part in zip(_SPLITS, parts, strict=True)
        }

    def sums(self, split: Split) -> Int[np.ndarray, "pair 2"]:
        """The operands (a, b) of every sum of a split, ascending.

        Args:
            split: `train`, `id` or `ood`.

        Raises:
            ValueError: an unknown split.
        """
        if split not in _SPLITS:
            raise ValueError(f"split must be one of {', '.join(_SPLITS)}, got {shown(split)}")
        return self._sums[split]

    @property
    def d_vocab(self) -> int:
        """Smallest vocabulary: numbers (or digits), `+`, `=`, and the end mark of digits."""
        return 2 * self.largest + 3 if self.mode == "number" else 13

    @property
    def seq_len(self) -> int:
        """Tokens that a model reads of the longest sum: `a + b =`, and the answer but for its end mark."""
        if self.mode == "number":
            return 4
        return 2 * len(str(self.largest)) + 2 + len(str(2 * self.largest))

    def sequences(self, sums: Int[np.ndarray, "pair 2"]) -> TokenBatch:
        """Sums as sequences.

        Returns:
            `number`: tokens [pair, 4] and targets [pair]; else tokens [pair, seq_len], shorter sums filled up
            with end marks, and targets [pair, seq_len], which ask from `=` on for the answer's digits and
            one end mark.
        """
        import torch

        from anchorlens.tasks.shared.batch import IGNORE, TokenBatch

        a, b = sums.T.astype(np.int64)
        if self.mode == "number":
            plus, equals = 2 * self.largest + 1, 2 * self.largest + 2
            tokens = np.stack([a, np.full_like(a, plus), b, np.full_like(a, equals)], axis=1)
            return TokenBatch(torch.from_numpy(tokens), torch.from_numpy(a + b))
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
        """Sums as a person writes them, digits in the order of the sequence."""
        order = slice(None, None, -1 if self.mode == "reversed" else 1)
        return [f"{a}+{b}={str(a + b)[order]}" for a, b in sums.tolist()]

    @property
    def table_size(self) -> int:
        """Operands of every sum."""
        return 2 * (self.largest + 1) ** 2

    def training_set(self, n: int, seed: np.random.Generator) -> TokenBatch:
        """`n` sequences: the training sums in random order, again and again; fewer are a random choice."""
        sums = self._sums["train"]
        rounds = [seed.permutation(len(sums)) for _ in range(math.ceil(n / len(sums)))]
        return self.sequences(sums[np.concatenate(rounds)[:n]])

    def checked_training_set(self, given: Any) -> TokenBatch:
        """Training data that a caller gives, if they have the shape and the vocabulary of this task's."""
        from anchorlens.tasks.shared.checked_batch import token_batch

        whole = self.mode != "number"
        return token_batch(given, seq_len=self.seq_len, d_vocab=self.d_vocab, every_position=whole)

    def evaluate(
        self,
        model: Answers,
        *,
        training_set: Any = None,
        seed: int = 0,
        max_train: int = _MOST_ASKED,
        batch_size: int = 1024,
    ) -> Measured:
        """Ask every sum of every split.

        Args:
            model: a HookedTransformer, or anything that gives logits.
            training_set: what it was trained on, (tokens, targets) as `sequences` gives them; without it
                every training sum is asked, and a model that was trained on a part of them may be wrong.
            seed: of the choice among more than `max_train` different training sums.
            max_train: training sums asked at most.
            batch_size: sequences per forward pass at most.

        Raises:
            ValueError: an unusable option, or a model that does not fit the task.
        """
        check_number("seed", seed, minimum=0, integer=True)
        check_number("max_train", max_train, minimum=1, limit=_MOST_ASKED, integer=True)
        check_number("batch_size", batch_size, minimum=1, limit=10**6, integer=True)
        asker = Asker(model, self, batch_size)
        right = {split: asker.right(self.sequences(sums)) for split, sums in self._sums.items()}
        measures: dict[str, Accuracy | None] = {
            split: Accuracy.of_some(found, of=len(found)) for split, found in right.items()
        }
        source, overlap = METRICS[0].asks, None
        if training_set is not None:
            known = self.checked_training_set(training_set)
            source, overlap, trained = TRAINING_SET, self._overlap(known), known.distinct()
            rows = generator(seed, "evaluation").permutation(len(trained))[:max_train]
            measures["train"] = Accuracy.of_some(asker.right(trained.take(rows)), of=len(trained))
        plane = np.zeros((self.largest + 1, self.largest + 1))
        for split, sums in self._sums.items():
            plane[tuple(sums.T)] = right[split]
        options = {"seed": seed, "max_train": max_train, "task": self.describe()}
        sketches = (_hole(self, plane), *_by_distance(self, plane))
        return Measured(
            self.kind,
            self.metrics,
            measures,
            asker.finite,
            options,
            sketches,
            train_source=source,
            held_out=self.held_out,
            overlap=overlap,
        )

    def _overlap(self, trained: TokenBatch) -> Overlap:
        tests = {split: self.sequences(self._sums[split]).tokens for split in ("id", "ood")}
        equals = 2 * self.largest + 2 if self.mode == "number" else int(_TOKENS[ord("=")])
        return overlap_of_prompts(trained.tokens, tests, equals)

    def measure(
        self, model: Answers, training_set: TokenBatch, *, seed: int = 0, most: int = 1024
    ) -> dict[str, float | None]:
        """Train, ID and OOD accuracy, of at most `most` sums each, by their names in a log."""
        asker, rng = Asker(model, self, most), generator(seed, "evaluation", 1)
        batches = {"train": training_set.take(rng.permutation(len(training_set))[:most])}
        for split in ("id", "ood"):
            sums = self._sums[split]
            batches[split] = self.sequences(sums[rng.permutation(len(sums))[:most]])
        names = {metric.name: metric.logged_as for metric in self.metrics}
        return {names[split]: float(asker.right(batch).mean()) for split, batch in batches.items()}

    def sequences_asked(self, n_train: int, *, quickly: bool) -> int:
        """Sequences that `evaluate` asks at most, or `measure`."""
        if quickly:
            return sum(min(1024, len(sums)) for sums in self._sums.values())
        return min(n_train, _MOST_ASKED) + (self.largest + 1) ** 2

    def bytes_to_ask(self, n_train: int) -> int:
        """Of the sequences of all sums, and of the training set."""
        return 3 * 8 * ((self.largest + 1) ** 2 + n_train) * (2 * self.seq_len + 2)

    @property
    def held_out(self) -> str:
        """What is left out of training, in words."""
        n_ood, n_id = len(self._sums["ood"]), len(self._sums["id"])
        return f"{n_ood:,} sums ({self._left_out_in_words}) and {n_id:,} others, by seed {self.split_seed}"

    @property
    def _left_out_in_words(self) -> str:
        if self.split == "random":
            return f"{self.random_share:.0%} of all pairs at random"
        return f"both operands in {self.square_min}..{self.square_max}"

    def describe(self) -> str:
        """In words: what is trained, and what is held out."""
        sums = {split: len(sums) for split, sums in self._sums.items()}
        example = self.in_words(self._sums["train"][-1:])[0]
        asked = {"number": "the answer is one token", "digits": "a token for each digit, then an end mark"}
        asked["reversed"] = "a token for each digit, the answer's last digit first, then an end mark"
        return (
            f"a + b for operands 0..{self.largest}, such as {example}; {asked[self.mode]}.\n"
            f"Trained: {sums['train']:,} sums. Held out (ID test): {sums['id']:,} of the others, by seed.\n"
            f"Never seen (OOD): {sums['ood']:,} sums, {self._left_out_in_words}."
        )


def _hole(task: AdditionTask, plane: np.ndarray) -> Grid:
    square = task.split == "square"
    low, high = task.square_min, task.square_max
    where = "The frame holds the sums that are never trained. " if square else ""
    return Grid(
        title="Sums answered right",
        caption=f"Every pair of operands: filled where the whole answer is right. {where}A model that adds "
        "by rule has no hole.",
        x_title="b",
        y_title="a",
        x=range(task.largest + 1),
        y=range(task.largest + 1),
        values=plane.astype(int).tolist(),
        frame=(low, low, high, high) if square else None,
    )


def _by_distance(task: AdditionTask, plane: np.ndarray) -> list[Curve]:
    """Accuracy against the distance to the border of the square: steps inside count upwards from 1."""
    if task.split != "square":
        return []
    operands = np.arange(task.largest + 1)
    inside = np.minimum(operands - task.square_min, task.square_max - operands) + 1  # <= 0 outside
    distance = np.minimum(inside[:, None], inside[None, :])
    x = np.unique(distance).tolist()
    n, right = np.array([[(distance == steps).sum(), plane[distance == steps].sum()] for steps in x]).T
    y = right / n
    return [
        Curve(
            title="Accuracy against the distance to the border",
            caption="Steps into the left-out square, where no sum is trained; 0 and below lies outside it. A "
            "model that goes by neighbouring sums gets worse towards the middle.",
            x_title="steps into the square",
            y_title="accuracy",
            x=x,
            y=y.tolist(),
            errors=[Accuracy.of_share(*each).standard_error for each in zip(y, n, strict=True)],
            mark=0.5,
        )
    ]
