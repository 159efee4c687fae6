"""SplitTask: the base of tasks that score whole answers on trained, held-out and OOD examples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from anchorlens.configuration import check_choice, check_number
from anchorlens.randomness import generator
from anchorlens.tasks import (
    IGNORE,
    TRAINING_SET,
    Accuracy,
    Evaluation,
    Evaluator,
    FigureSpec,
    Lines,
    LogitsModel,
    Overlap,
    TaskConfig,
    TokenBatch,
    compared,
)

if TYPE_CHECKING:
    from jaxtyping import Bool, Int
    from torch import Tensor

AT_ONCE = 4096
"""The number of examples that are made into sequences at a time, the shortest first."""

Right = Mapping[str, "Bool[np.ndarray, ' example']"]
"""A map from each split to whether each of its examples is answered correctly."""


class SplitTask(TaskConfig):
    """A task with examples in splits, where an answer is correct only if all its tokens are correct.

    The splits are `train`, `id` and optionally further splits, for example `ood`.

    A subclass defines `splits`, `sequences`, `prompt_end` and `training_set`. The examples of a split must
    have a length, and support an array of rows as an index.
    """

    prompt_end: Any
    """The token that ends a prompt."""
    splits: Any
    """A map from each split to its distinct examples. Every split but `train` is evaluated in full."""
    halves: ClassVar[bool] = True
    most_asked: ClassVar[int] = 20_000
    """The largest number of training examples that `evaluate` uses by default."""
    quickly: ClassVar[int] = 1024
    """The largest number of examples of each split that `measure` uses."""
    at_once: ClassVar[int] = 1024
    """The largest number of sequences in a forward pass of `evaluate`, by default."""
    asks_all_of_train: ClassVar[bool] = False
    """Whether every training example is evaluated for the pictures, instead of a sample."""
    chance: Any = 0.0
    """The accuracy of random answers, or 0 if this accuracy is small."""

    def sequences(self, examples: Any, /) -> TokenBatch:
        """Convert examples to sequences with targets."""
        raise NotImplementedError

    def lengths(self, examples: Any, /) -> Int[np.ndarray, " example"]:
        """Return the number of tokens that a model reads from each example."""
        return np.full(len(examples), self.seq_len)

    def examples(self, split: str) -> Any:
        """Return every distinct example of a split.

        Args:
            split: the name of the split: `train`, `id` or `ood`.

        Raises:
            ValueError: If the split is unknown.
        """
        check_choice("split", split, tuple(self.splits))
        return self.splits[split]

    def there_are(self, split: str) -> int:
        """Return the number of examples that a split represents, even if the split is only a sample."""
        return len(self.splits[split])

    @property
    def answered_by_symmetry(self) -> Bool[np.ndarray, " example"]:
        """A boolean mask of the `ood` examples that training has in another order with the same answer.

        A model that ignores order is correct on these examples, so OOD accuracy excludes them. By default,
        the mask is false for all examples.
        """
        return np.zeros(len(self.splits.get("ood", ())), dtype=bool)

    def answers_alone(self, batch: TokenBatch) -> TokenBatch:
        """Return training sequences in which only the answer is scored.

        A task can override this method.
        """
        return batch

    def further_measures(self, whole: Right, but_the_end: Right) -> dict[str, Accuracy | None]:
        """Compute further measures besides the accuracies of the splits.

        Args:
            whole: a map from each split to a boolean mask of the examples whose answer is correct in every
                token, including the end mark.
            but_the_end: a map from each split to a boolean mask of the examples whose answer is correct in
                every token except possibly the last.
        """
        return {}

    def pictures(
        self, whole: Right, evaluator: Evaluator, rng: np.random.Generator
    ) -> tuple[FigureSpec, ...]:
        """Draw pictures of the answers.

        Args:
            whole: a map from each split to a boolean mask of the examples whose answer is correct in every
                token.
            evaluator: the evaluator that runs the model for further answers.
            rng: the generator that chooses the examples that are shown.
        """
        return ()

    @property
    def table_size(self) -> int:
        """The number of examples of all splits."""
        return sum(map(len, self.splits.values()))

    def evaluate(
        self,
        model: LogitsModel,
        *,
        training_set: object = None,
        seed: int = 0,
        max_train: int | None = None,
        batch_size: int | None = None,
        half: int | None = None,
    ) -> Evaluation:
        """Evaluate a model on every held-out and OOD example, and on a sample of the training examples.

        Args:
            model: a HookedTransformer, or any model that returns logits.
            training_set: the training data of the model, (tokens, targets) as `sequences` returns them.
                Default: training examples of the task, even if the model was trained on only some of them.
            seed: the seed of the choice of training examples if there are more than `max_train`.
            max_train: the largest number of training examples used. Default: `most_asked`.
            batch_size: the largest number of sequences per forward pass. Default: `at_once`.
            half: 0 or 1 to evaluate every second OOD example, starting from the first or the second. Default:
                all OOD examples.

        Raises:
            ValueError: If an option is invalid, or the model does not fit the task.
        """
        max_train = self.most_asked if max_train is None else max_train
        batch_size = self.at_once if batch_size is None else batch_size
        check_number("max_train", max_train, minimum=1, limit=10**6, integer=True)
        check_number("batch_size", batch_size, minimum=1, limit=10**6, integer=True)
        check_number("half", half, minimum=0, maximum=1, integer=True, optional=True)
        evaluator, rng = Evaluator(model, self, batch_size), generator(seed, "evaluation")
        names = [name for name in self.splits if name != "train" or self.asks_all_of_train]
        right = {name: self._right(evaluator, self.splits[name]) for name in names}
        source = self.metrics[0].asks
        overlap = None
        other_targets = None
        if training_set is not None:
            trained = self.checked_training_set(training_set)
            source, overlap = TRAINING_SET, self.overlap(trained)
            trained = self.answers_alone(trained).distinct()
            other_targets = compared(trained, self.targets_of(trained.tokens))
            train = _right(evaluator, trained.take(rng.permutation(len(trained))[:max_train]))
        elif self.asks_all_of_train:
            train = right["train"]
        else:
            rows = rng.permutation(len(self.splits["train"]))[:max_train]
            train = right["train"] = self._right(evaluator, self.splits["train"][rows])
        whole, but_the_end = ({name: rows[k] for name, rows in right.items()} for k in (0, 1))
        measures: dict[str, Accuracy | None] = {
            name: Accuracy.of_some(rows, of=self.there_are(name)) for name, rows in whole.items()
        }
        symmetric = self.answered_by_symmetry
        if "ood" in whole:
            counting = whole["ood"][~symmetric][slice(half, None, 1 if half is None else 2)]
            n_counting = self.there_are("ood") - int(symmetric.sum())
            measures["ood"] = Accuracy.of_some(counting, of=n_counting) if len(counting) else None
        measures["train"] = Accuracy.of_some(train[0], of=self.there_are("train"))
        return self.evaluation(
            measures | self.further_measures(whole, but_the_end),
            **evaluator.about,
            seed=seed,
            options={"max_train": max_train, **({} if half is None else {"half": half})},
            figure_specs=self.pictures(whole, evaluator, rng),
            train_source=source,
            chance=self.chance,
            overlap=overlap,
            other_targets=other_targets,
            by_symmetry=Accuracy.of_some(whole["ood"][symmetric]) if symmetric.any() else None,
        )

    def overlap(self, trained: TokenBatch) -> Overlap:
        """Count the training sequences whose prompts are in a test split."""
        tests = {name: self.sequences(self.splits[name]).tokens for name in self._test_splits}
        prompts = {name: set(_prompts(tokens, self.prompt_end)) for name, tokens in tests.items()}
        counts = dict.fromkeys(tests, 0)
        for prompt in _prompts(trained.tokens, self.prompt_end):
            for name in counts:
                counts[name] += prompt in prompts[name]
        return Overlap(len(trained), counts)

    @property
    def held_out(self) -> str:
        """The examples that training never shows, in words."""
        meaning = {metric.name: metric.meaning for metric in self.metrics}
        names = self._test_splits[::-1]
        return " and ".join(f"{meaning[name]} ({len(self.splits[name]):,} are evaluated)" for name in names)

    @property
    def _test_splits(self) -> list[str]:
        return [name for name in ("id", "ood") if name in self.splits]

    def _right(self, evaluator: Evaluator, examples: Any) -> Bool[np.ndarray, "2 example"]:
        """Apply `_right` to every example, with a limited number of sequences at a time to save memory."""
        right = np.zeros((2, len(examples)), dtype=bool)
        order = self.lengths(examples).argsort(kind="stable")
        for rows in np.split(order, range(AT_ONCE, len(order), AT_ONCE)):
            right[:, rows] = _right(evaluator, self.sequences(examples[rows]))
        return right

    def measure(self, model: LogitsModel, training_set: Any, *, seed: int = 0) -> dict[str, float | None]:
        """Measure train, ID and OOD accuracy on at most `quickly` examples per split, for a log.

        OOD accuracy is `None` if training contains every OOD example in another order.
        """
        evaluator, rng = Evaluator(model, self, self.quickly), generator(seed, "evaluation", 1)
        some = training_set.take(rng.permutation(len(training_set))[: self.quickly])
        batches = {"train": self.answers_alone(some)}
        for name in self._test_splits:
            counts = ~self.answered_by_symmetry if name == "ood" else np.ones(len(self.splits[name]), bool)
            rows = np.flatnonzero(counts)
            batches[name] = self.sequences(self.splits[name][rng.permutation(rows)[: self.quickly]])
        names = {metric.name: metric.logged_as for metric in self.metrics}
        return {
            names[name]: float(evaluator.right(batch).mean()) if len(batch) else None
            for name, batch in batches.items()
        }

    def sequences_asked(self, n_train: int, *, quickly: bool) -> int:
        """Return the largest number of sequences for `evaluate`, or for `measure` if `quickly` is true."""
        sizes = {name: len(examples) for name, examples in self.splits.items()}
        if quickly:
            return sum(min(self.quickly, size) for size in sizes.values())
        unasked = 0 if self.asks_all_of_train else sizes["train"]
        return min(n_train, self.most_asked) + sum(sizes.values()) - unasked


def shares_by_group(
    right: Mapping[str, tuple[Int[np.ndarray, " example"], Bool[np.ndarray, " example"]]],
    *,
    x: Mapping[int, float],
    **words: str,
) -> Lines:
    """Draw the fraction of correct answers in groups of examples, with a line for each name in `right`.

    Args:
        right: a map from each name to the group and the correctness of each example.
        x: a map from each group to its x value, ascending.
        **words: the title, the caption and the titles of the axes.
    """
    shares = {
        name: [Accuracy.of_some(rows[groups == group]) if (groups == group).any() else None for group in x]
        for name, (groups, rows) in right.items()
    }
    return Lines(
        **words,  # pyright: ignore[reportArgumentType]
        x=list(x.values()),
        y={name: [share and share.value for share in line] for name, line in shares.items()},
        errors={name: [share and share.standard_error for share in line] for name, line in shares.items()},
    )


def split_rows(
    left_out: Bool[np.ndarray, " row"], held_out: Int[np.ndarray, " held"]
) -> dict[str, Int[np.ndarray, " row"]]:
    """Return the rows of `train`, `id` (`held_out`) and `ood` (`left_out`), ascending.

    >>> split_rows(np.array([False, False, True, False]), np.array([3]))
    {'train': array([0, 1]), 'id': array([3]), 'ood': array([2])}
    """
    is_id = np.zeros(len(left_out), dtype=bool)
    is_id[held_out] = True
    masks = {"train": ~left_out & ~is_id, "id": is_id, "ood": left_out}
    return {name: np.flatnonzero(mask) for name, mask in masks.items()}


def at_random(n: int, share: float, seed: int) -> Bool[np.ndarray, " row"]:
    """Draw a mask that selects a random fraction of `n` rows for OOD.

    The seed determines the mask.
    """
    left_out = np.zeros(n, dtype=bool)
    left_out[generator(seed, "data", 1).permutation(n)[: round(share * n)]] = True
    return left_out


def in_rounds(of: int, n: int, rng: np.random.Generator) -> Int[np.ndarray, " n"]:
    """Draw `n` numbers below `of` in random order. The counts of the numbers differ by at most one."""
    rounds = [rng.permutation(of) for _ in range(-(-n // of))]
    return np.concatenate([*rounds, np.zeros(0, dtype=np.int64)])[:n]


def _right(evaluator: Evaluator, batch: TokenBatch) -> Bool[np.ndarray, "2 sequence"]:
    """Return whether all scored positions are correct, and whether all but the last (the end mark) are."""
    right = evaluator.right_by_position(batch)
    whole = right.all(axis=1)
    scored = (batch.targets != IGNORE).numpy().reshape(right.shape)
    last = right.shape[1] - 1 - scored[:, ::-1].argmax(axis=1)
    right[np.arange(len(right)), last] = True
    return np.stack([whole, right.all(axis=1)])


def _prompts(tokens: Int[Tensor, "batch pos"], end: int) -> Iterator[bytes]:
    """Yield the prompt of each sequence, up to its first `end`, as bytes; none for a sequence without it."""
    ends = tokens == end
    lengths = (ends.int().argmax(dim=1) + 1).tolist()
    rows = tokens.numpy()  # training data may be narrower than int64
    for row, length, there in zip(rows, lengths, ends.any(dim=1).tolist(), strict=True):
        if there:
            yield row[:length].astype(np.int64).tobytes()
