"""ModularTask: a binary operation on 0..p-1, with a random fraction of the pairs trained.

Sources: the task of Power et al., arXiv 2201.02177, in the form of Nanda et al., arXiv 2301.05217.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

import numpy as np

from anchorlens.configuration import check_number, frozen_dataclass, number
from anchorlens.extras.grokking.operations import SIGNS, Operation, answers
from anchorlens.extras.grokking.presets import PRESETS
from anchorlens.extras.shared.pair_plane import pair_plane
from anchorlens.extras.shared.split_task import in_rounds
from anchorlens.randomness import generator
from anchorlens.tasks import (
    TRAINING_SET,
    Accuracy,
    Bars,
    Evaluation,
    Evaluator,
    FigureSpec,
    LogitsModel,
    Metric,
    TaskConfig,
    TokenBatch,
    compared,
    token_batch,
)

if TYPE_CHECKING:
    from jaxtyping import Bool, Int
    from torch import Tensor

Layout = Literal[
    "a b =", "a op b =", "op a b =", "a b op =", "a op b", "op a b", "a b", "a B =", "a op B =", "a B"
]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
_AT_ONCE = 4096
_TRAINED = 0.25
"""The mark of a trained pair in the plane, between 0 (wrong) and 1 (correct)."""
_LARGEST = 499
_IN_WORDS = {
    **{name: f"a {sign} b" for name, sign in SIGNS.items()},
    "x2xyy2": "a^2 + ab + b^2",
    "x3xy": "a^3 + ab",
    "permutations": "a after b, permutations in lexicographic order",
    "permutations_reversed": "b after a, permutations in lexicographic order",
    "table": "the entry of a table in row a, column b",
    "random": "a random answer for each pair",
}
"""A map from each operation to its formula in words, modulo p if applicable."""

_NOT_MODULO = ("permutations", "permutations_reversed", "table", "random")

METRICS = tuple(
    Metric(name, title, heading, meaning, asks, f"{name}_accuracy")
    for name, title, heading, meaning, asks in (
        ("train", "train", "Train accuracy", "trained pairs", "every pair of the task's split"),
        ("id", "held out", "Held-out accuracy", "all other pairs", "held-out pairs"),
        (
            "mirrored",
            "mirror trained",
            "Accuracy where the mirror was trained",
            "held-out pairs (a, b) whose mirror (b, a) was trained",
            "held-out pairs with a trained mirror",
        ),
        (
            "unmirrored",
            "mirror not trained",
            "Accuracy where the mirror was not trained",
            "held-out pairs (a, b) whose mirror (b, a) was not trained",
            "held-out pairs without a trained mirror",
        ),
    )
)


@frozen_dataclass()
class ModularTask(TaskConfig):
    """A binary operation on the numbers 0..p-1, where a random fraction of all pairs is trained.

    A pair (a, b) has the index a p + b. After the last token, a model predicts one of p numbers. If the
    training set of a model is given, all pairs outside the training set are held out. The value of
    `trained_share` then has no effect.

    Raises:
        ValueError: If a value is invalid. The message states the rule, the value and the remedy.

    Example:
        >>> task = ModularTask(modulus=7)
        >>> batch = task.sequences([8])  # the pair (1, 1)
        >>> batch.tokens.tolist(), batch.targets.tolist()
        ([[1, 1, 7]], [2])

    Source: arXiv 2201.02177 and arXiv 2301.05217.
    """

    kind: ClassVar[str] = "modular"
    metrics: ClassVar[tuple[Metric, ...]] = METRICS
    presets = PRESETS

    modulus: int = number(59, minimum=2, maximum=_LARGEST)
    """The modulus p. Numbers and answers range from 0 to p-1. For the operation `table`, p is the number of
    rows."""
    operation: Operation = "add"
    """The operation that gives the answer. The operations add, subtract, multiply, divide, x2xyy2 (a^2 + ab +
    b^2) and x3xy (a^3 + ab) are modulo p. For `divide`, p is a prime and b is not 0. The operation
    `permutations` is the product in the symmetric group with p elements (first b, then a), and p must be 6,
    24 or 120. In `permutations_reversed`, a comes first. The operation `random` gives each pair a random
    answer, as a control. The operation `table` reads the answers from the field `table`."""
    tokens: Layout = "a b ="
    """The layout of the model's input tokens. In a layout with `B`, the second number has separate
    tokens, from p to 2p-1."""
    equals_token: int | None = number(None, minimum=2, limit=100_000)
    """The token of `=`. Default: p, or 2p in a layout with `B`."""
    operator_token: int | None = number(None, minimum=2, limit=100_000)
    """The token of the operator. Default: the token after that of `=`, or p in a layout without `=`."""
    trained_share: float = number(0.4, above=0, maximum=0.99)
    """The fraction of all pairs that is drawn at random for training."""
    split_seed: int = number(0, minimum=0)
    """The seed of the trained pairs and of random answers."""
    table: str | None = None
    """The table for the operation `table`, such as the Cayley table of a group. The table has p rows of p
    numbers from 0 to p-1. Separate the rows by `;` or a line break, as in `0 1;1 0`. On the command line,
    read the table from a file with `--table "$(cat rows.txt)"`."""

    def __post_init__(self) -> None:
        """Check every field, and the fields together."""
        if (self.table is None) != (self.operation != "table"):
            raise ValueError(
                f"`table` must be given with the operation `table` and no other, got `{self.operation}` and "
                f"{'no table' if self.table is None else 'a table'}. Set both or neither"
            )
        super().__post_init__()
        marks = list(self._marks.values())
        if min(marks, default=self._n_numbers) < self._n_numbers or len({*marks}) < len(marks):
            raise ValueError(
                f"the tokens of `=` and the operator must be two tokens from {self._n_numbers}, got {marks}. "
                "Set equals_token and operator_token, or omit both"
            )
        if not 0 < self.n_trained < len(self.pairs):
            raise ValueError(
                f"trained_share must leave one of the {len(self.pairs)} pairs to train and one to hold out, "
                f"got {self.trained_share}. Use a larger modulus or another share"
            )

    @cached_property
    def answers(self) -> Int[np.ndarray, " pair"]:
        """The answer to each pair, [p * p]: a number 0..p-1, or -1 for division by 0."""
        return answers(self.operation, self.modulus, self.split_seed, self.table or "")

    @cached_property
    def pairs(self) -> Int[np.ndarray, " pair"]:
        """The indices of all pairs with an answer, ascending."""
        return np.flatnonzero(self.answers != -1)

    @property
    def n_trained(self) -> int:
        """The number of trained pairs in the task's own split."""
        return round(self.trained_share * len(self.pairs))

    @cached_property
    def trained(self) -> Bool[np.ndarray, " pair"]:
        """A boolean mask [p * p] of the trained pairs in the task's own split."""
        return self._mask(generator(self.split_seed, "data", 1).permutation(self.pairs)[: self.n_trained])

    def _mask(self, pairs: Int[np.ndarray, " some"]) -> Bool[np.ndarray, " pair"]:
        mask = np.zeros(self.modulus**2, dtype=bool)
        mask[pairs] = True
        return mask

    @property
    def d_vocab(self) -> int:
        """The number of tokens in the vocabulary: numbers, `=` and the operator.

        The numbers are 0..p-1, or 0..2p-1 in a layout with `B`. `=` and the operator count only if the model
        reads them.
        """
        return max(self._n_numbers, *(mark + 1 for mark in self._marks.values()), 0)

    @property
    def _marks(self) -> dict[str, int]:
        """The tokens of `=` and of the operator, of those that the model reads."""
        first = self._n_numbers
        equals = first if self.equals_token is None else self.equals_token
        after = equals + 1 if "=" in self.tokens else first
        operator = after if self.operator_token is None else self.operator_token
        return {name: token for name, token in (("=", equals), ("op", operator)) if name in self.tokens}

    @property
    def _n_numbers(self) -> int:
        """The number of tokens that are numbers."""
        return 2 * self.modulus if "B" in self.tokens else self.modulus

    @property
    def d_vocab_out(self) -> int:
        """The number of answers, p."""
        return self.modulus

    @property
    def seq_len(self) -> int:
        """The number of tokens of a sequence, from 2 to 4."""
        return len(self.tokens.split())

    @property
    def commutes(self) -> bool:
        """Whether every pair has the same answer as its reversed pair."""
        plane = self.answers.reshape(self.modulus, self.modulus)
        return bool((plane == plane.T).all())

    @property
    def input_in_words(self) -> str:
        """The layout, and the fields of the tokens of `=` and the operator that are not the usual ones."""
        own = {"equals_token": self.equals_token, "operator_token": self.operator_token}
        return f"tokens `{self.tokens}`" + "".join(f", {n} {v}" for n, v in own.items() if v is not None)

    def sequences(self, pairs: Int[np.ndarray, " some"]) -> TokenBatch:
        """Convert pairs to sequences with targets.

        Args:
            pairs: the indices a p + b of pairs with an answer.

        Returns:
            The tokens, [pair, 2..4], and the targets, [pair].
        """
        import torch

        p, pairs = self.modulus, np.asarray(pairs, dtype=np.int64)
        columns = {
            "a": pairs // p,
            "b": pairs % p,
            "B": p + pairs % p,
            **{name: np.full_like(pairs, token) for name, token in self._marks.items()},
        }
        tokens = np.stack([columns[name] for name in self.tokens.split()], axis=1)
        return TokenBatch(torch.from_numpy(tokens), torch.from_numpy(self.answers[pairs].astype(np.int64)))

    def pairs_of(self, tokens: Int[Tensor, "batch pos"]) -> Int[np.ndarray, " batch"]:
        """Return the index of the pair in each sequence, or -1 for a sequence of another task."""
        rows = tokens.numpy().astype(np.int64)
        column: dict[str, np.ndarray] = dict(zip(self.tokens.split(), rows.T, strict=True))
        a, b = column["a"], column["b"] if "b" in column else column["B"] - self.modulus
        known = (np.minimum(a, b) >= 0) & (np.maximum(a, b) < self.modulus)
        for name, token in self._marks.items():
            known &= column[name] == token
        return np.where(known, a * self.modulus + b, -1)

    def targets_of(self, tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, " batch"]:
        """Return the answer of each sequence, or -1 for a sequence of another task."""
        import torch

        pairs = self.pairs_of(tokens)
        return torch.from_numpy(np.where(pairs < 0, -1, self.answers[pairs]).astype(np.int64))

    def checked_training_set(self, training_set: object) -> TokenBatch:
        """Check that training data have this task's shape and vocabulary, and return the data."""
        return token_batch(training_set, seq_len=self.seq_len, d_vocab=self.d_vocab, every_position=False)

    def training_set(self, n: int, seed: int) -> TokenBatch:
        """Return `n` sequences of trained pairs in random order.

        The counts of the pairs differ by at most one.
        """
        pairs = np.flatnonzero(self.trained)
        return self.sequences(pairs[in_rounds(len(pairs), n, generator(seed, "data"))])

    def evaluate(
        self,
        model: LogitsModel,
        *,
        training_set: object = None,
        seed: int = 0,
        quick: bool = False,
        batch_size: int | None = None,
    ) -> Evaluation:
        """Evaluate a model on every pair with an answer.

        Args:
            model: a HookedTransformer, or any model that returns logits.
            training_set: the training data of the model, (tokens, targets). All pairs outside these data are
                held out. Default: the trained pairs of the task's own split.
            seed: the seed to store in the result. The evaluation does not depend on the seed.
            quick: whether to omit pictures, as for a line of the log.
            batch_size: the largest number of sequences per forward pass. Default: 4,096.

        Raises:
            ValueError: If an option is invalid, or the model does not fit the task.
        """
        batch_size = _AT_ONCE if batch_size is None else batch_size
        check_number("batch_size", batch_size, minimum=1, limit=10**6, integer=True)
        trained = self.trained
        source, targets = METRICS[0].asks, self.answers.copy()
        other, notes = None, ()
        if training_set is not None:
            batch = self.checked_training_set(training_set).distinct()
            source, other = TRAINING_SET, compared(batch, self.targets_of(batch.tokens))
            pairs = self.pairs_of(batch.tokens)
            trained = self._mask(pairs[pairs >= 0])
            if other and 0 < other.n_other <= other.n_sequences / 2:  # noise, and not another task
                targets[pairs[pairs >= 0]] = batch.targets.numpy()[pairs >= 0]
                notes = (
                    f"{other.n_other:,} of {other.n_sequences:,} trained labels "
                    f"({other.n_other / other.n_sequences:.2f}) are not the answers of the operation: train "
                    "accuracy is measured on the trained labels",
                )
                other = None
        evaluator = Evaluator(model, self, batch_size)
        answered = np.full(self.modulus**2, -1)
        answered[self.pairs] = evaluator.answers(self.sequences(self.pairs).tokens)
        right = (answered == targets) & (self.answers != -1)
        groups = self.groups(trained)
        measures = {
            name: Accuracy.of_some(right[group], of=int(group.sum()))
            for name, group in groups.items()
            if group.any()
        }
        same = groups["mirrored"] & (self.answers == self.answers.reshape(self.modulus, -1).T.ravel())
        return self.evaluation(
            measures,
            by_symmetry=Accuracy.of_some(right[same], of=int(same.sum())) if same.any() else None,
            finite=evaluator.finite,
            seed=seed,
            figure_specs=() if quick else self._pictures(right, groups, measures),
            train_source=source,
            other_targets=other,
            notes=(*notes, *evaluator.notes),
        )

    def groups(self, trained: Bool[np.ndarray, " pair"]) -> dict[str, Bool[np.ndarray, " pair"]]:
        """Return a map from each metric to the boolean mask [p * p] of the pairs that the metric counts.

        Args:
            trained: a boolean mask [p * p] of the trained pairs.
        """
        held_out = ~trained & (self.answers != -1)
        mirror = trained.reshape(self.modulus, self.modulus).T.ravel()
        groups = {"train": trained, "id": held_out}
        return groups | {"mirrored": held_out & mirror, "unmirrored": held_out & ~mirror}

    def _pictures(
        self,
        right: Bool[np.ndarray, " pair"],
        groups: Mapping[str, Bool[np.ndarray, " pair"]],
        measures: Mapping[str, Accuracy],
    ) -> tuple[FigureSpec, ...]:
        """Draw every held-out pair as a point of a plane, and accuracy by training of the reversed pair."""
        plane = pair_plane(
            np.select([groups["id"], groups["train"]], [right, _TRAINED], np.nan).reshape(-1, self.modulus),
            title="Held-out pairs answered correctly",
            caption="Dark pairs are held out and answered correctly, white pairs are held out and wrong, "
            "and pale pairs were trained. A model that learnt only commutativity is dark at the reversed "
            "pairs of the pale pairs.",
        )
        titles = {metric.name: metric.title for metric in METRICS}
        bars = Bars(
            title="Accuracy by what was trained",
            caption="Accuracy on trained pairs, and on held-out pairs by training of the reversed pair.",
            x_title="accuracy",
            y={titles[name]: one.value for name, one in measures.items() if name != "id"},
        )
        return plane, bars

    @property
    def held_out(self) -> str:
        """The pairs that training never shows, in words."""
        return f"{len(self.pairs) - self.n_trained:,} of {len(self.pairs):,} pairs, by seed {self.split_seed}"

    @property
    def table_size(self) -> int:
        """The number of entries in the table of answers."""
        return self.modulus**2

    def sequences_asked(self, n_train: int, *, quickly: bool) -> int:
        """Return the number of sequences for `evaluate` and `measure`: one for each pair."""
        return len(self.pairs)

    def describe(self) -> str:
        """Describe the trained and the held-out pairs in words."""
        modulo = "" if self.operation in _NOT_MODULO else f" modulo {self.modulus}"
        return (
            f"{_IN_WORDS[self.operation]}{modulo} for a and b in 0..{self.modulus - 1}, read as "
            f"`{self.tokens}`.\nTrained: {self.n_trained:,} of {len(self.pairs):,} pairs, by seed "
            f"{self.split_seed}. All other pairs are held out."
        )
