"""AnchorTask: the papers' task, a two-anchor composite function, and its description in words."""

from __future__ import annotations

import itertools
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from anchorlens.configuration import frozen_dataclass
from anchorlens.tasks.shared.base import LogitsModel
from anchorlens.tasks.two_anchor import behaviour, evaluation
from anchorlens.tasks.two_anchor.anchor_functions import formula
from anchorlens.tasks.two_anchor.composite_function import CompositeFunction
from anchorlens.tasks.two_anchor.evaluation import MAX_TRAIN, MAX_TRIALS, N_NOISE, QUICK_TRAIN, QUICK_TRIALS
from anchorlens.tasks.two_anchor.sequences import DRAWN_AT_ONCE, LazyDataset, Pair

if TYPE_CHECKING:
    from jaxtyping import Int
    from torch import Tensor

    from anchorlens.tasks.shared.batch import TokenBatch


_MOST_IN_WORDS = 100
"""Overrides of a task that are named."""
_MOST_EXCEPTIONS = 3
"""Exceptions of a task that are named."""
_MOST_UNSEEN = 4
"""Unseen pairs of a task that are named in a line."""


def exceptions_in_words(task: Any) -> str:
    """State the number of exceptions of an AnchorTask, and describe the first three exceptions.

    >>> from anchorlens import AnchorTask
    >>> exceptions_in_words(AnchorTask(n_exceptions=1))
    'Exceptions: 1 of their (key, pair), the same in every run, on a random answer: 33 with (4, 1) -> 104.'
    """
    shown = (f"{one.key} with {one.pair} -> {one.answer}" for one in task.exceptions[:_MOST_EXCEPTIONS])
    several = task.n_exceptions > _MOST_EXCEPTIONS
    return (
        f"Exceptions: {task.n_exceptions:,} of their (key, pair), the same in every run, on a random answer"
        f"{' each, the first' if several else ''}: {', '.join(shown)}."
    )


def composition(task: Any, pair: Pair) -> str:
    """Return the composition of a pair's functions as a formula."""
    shifts = [function for anchor in pair if isinstance(function := task.anchors[anchor], int)]
    return formula(sum(shifts)) if len(shifts) == len(pair) else "g(..g(x))"


@frozen_dataclass()
class AnchorTask(CompositeFunction):
    """The task of arXiv 2501.08537 and 2405.05409, a two-anchor composite function.

    The defaults are the papers' values. A task is immutable and holds data only, so that you can save a task,
    compare tasks and send a task to another process. Callables in the fields become tables when the task is
    made. Use `dataclasses.replace` to make a variation of a task.

    Raises:
        ValueError: If a value is invalid. The message gives the rule, the value and the remedy.

    Example:
        >>> task = AnchorTask()
        >>> task.inferential_target(key=23, pair=(1, 2))  # 23 + 5 + 1
        29
        >>> batch = task.sample(1000, split="id", seed=0)
        >>> batch.tokens.shape
        torch.Size([1000, 9])
        >>> own = AnchorTask(anchors={1: lambda x: 3 * x % 97 + 10, 2: 1, 3: -2, 4: -8})
        >>> own.inferential_target(key=50, pair=(1, 2))  # 150 mod 97 + 10 + 1
        64

    Source: f(x; a1, a2) = g(g(x; a1); a2), arXiv 2501.08537 (`reasoning`) and 2405.05409 (`conflict`).
    """

    kind = "two_anchor"
    metrics = evaluation.METRICS
    has_anchors = True
    evaluation_class = evaluation.AnchorEvaluation
    halves = True
    sampling = MappingProxyType({"n_noise": 2, "max_trials": QUICK_TRIALS, "max_train": QUICK_TRAIN})

    def __post_init__(self) -> None:
        """Check every field, and omit the metrics of exceptions if the task has no exceptions."""
        super().__post_init__()
        if not self.n_exceptions:
            measured = tuple(one for one in type(self).metrics if one not in evaluation.OF_EXCEPTIONS)
            object.__setattr__(self, "metrics", measured)

    @property
    def held_out(self) -> str:
        """The description of the held-out data: the unseen pairs, and the rule for keys and positions.

        >>> from anchorlens import AnchorTask
        >>> AnchorTask().held_out
        'the pairs (3, 4) and (4, 3), nor on key x at position i where x mod 9 = i mod 9'
        """
        rule = f"key x at position i where x mod {self.modulus} = i mod {self.modulus}"
        if not self.ood_pairs:
            return rule
        named = [str(pair) for pair in self.ood_pairs[:_MOST_UNSEEN]]
        if (more := len(self.ood_pairs) - len(named)) > 0:
            named.append(f"{more:,} more")
        pairs = named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
        return f"the pair{'s' * (len(self.ood_pairs) > 1)} {pairs}, nor on {rule}"

    def describe(self) -> str:
        """Describe the trained and the held-out data.

        >>> from anchorlens import AnchorTask
        >>> print(AnchorTask(regime="conflict").describe())  # doctest: +ELLIPSIS
        Sequences of 9 tokens: key x in 20..99 at position 0..6, then its 2 anchors; noise in 20..99.
        Anchors: 1: x+5, 2: x+1, 3: x-2, 4: x-8.
        Trained: 15 of 16 anchor pairs; with another target than the composition: (3, 4): x-6 (...).
        Never seen (OOD test): (4, 3), with the composition as the target.
        Held out (ID test): trained pairs where x mod 9 equals position mod 9; any noise.
        """
        named = itertools.islice(self.trained_overrides.items(), _MOST_IN_WORDS)
        others = [f"{pair}: {formula(f)} (composition: {composition(self, pair)})" for pair, f in named]
        if (more := len(self.trained_overrides) - _MOST_IN_WORDS) > 0:
            others.append(f"and {more:,} more pairs")
        other = f"; with another target than the composition: {'; '.join(others)}" if others else ""
        unseen = ", ".join(map(str, self.ood_pairs))
        never = (
            f"{unseen}, with the composition as the target" if unseen else "nothing, every pair is trained"
        )
        trained_anchors = set(itertools.chain.from_iterable(self.seen_pairs))
        numbers = f"{self.key_min}..{self.key_max}"
        lines = [
            f"Sequences of {self.seq_len} tokens: key x in {numbers} at position 0..{self.positions[-1]}, "
            f"then its {self.chain_length} anchors; noise in {numbers}.",
            f"Anchors: {', '.join(f'{a}: {formula(f)}' for a, f in self.anchors.items())}.",
            f"Trained: {len(self.seen_pairs)} of {len(self.pairs)} anchor pairs{other}.",
            f"Never seen (OOD test): {never}.",
        ]
        if self.n_exceptions:
            lines.insert(3, exceptions_in_words(self))
        missing = (anchor for anchor in self.anchors if anchor not in trained_anchors)
        lines += [f"No pair with anchor {anchor} is trained: OOD cannot be inferred." for anchor in missing]
        noise = "noise obeys the training rule too" if self.noise_obeys_split else "any noise"
        m = self.modulus
        lines.append(f"Held out (ID test): trained pairs where x mod {m} equals position mod {m}; {noise}.")
        return "\n".join(lines)

    def checked_training_set(self, training_set: Any) -> TokenBatch | LazyDataset:
        """Check that training data from a caller are sequences of this task, and return the data."""
        return behaviour.checked_training_set(training_set, self)

    def targets_of(self, tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, " batch"]:
        """Return the trained target of each sequence, or -1 if the sequence is not an input of the task."""
        return behaviour.targets_of(tokens, self)

    def evaluate(
        self, model: LogitsModel, *, training_set: Any = None, seed: int = 0, **options: Any
    ) -> evaluation.AnchorEvaluation:
        """Measure the accuracies of a model on this task. `anchorlens.evaluate` calls this method.

        Args:
            model: the model, which returns logits.
            training_set: the training sequences of the model. A large set can be drawn on demand
                (`Checkpoint.lazy_training_set()`).
            seed: the seed of the noise and of every random choice.
            **options: The option `n_noise` (8) is the number of noise draws for every held-out or unseen
                combination of pair, key and position. `n_noise` must be at least 2 if the task has noise. The
                option `max_train` (4096) is the largest number of training sequences to evaluate, at least 1.
                The option `max_trials` (20,000) is the largest number of combinations per split, at least 2.
                The papers' training split has 6,972 combinations. The papers' ID split has 868 combinations,
                and the OOD split has 1,120 combinations. From a larger set or split, the evaluation draws a
                random sample. The option `batch_size` (1024) is the largest number of sequences per forward
                pass. A batch is smaller if its activations need more than 256 MB. With `half` 0 or 1, unseen
                pairs are evaluated at even (0) or odd (1) keys only. Default: all keys.
        """
        return behaviour.evaluate(model, self, training_set=training_set, seed=seed, **options)

    def measure(self, model: LogitsModel, training_set: Any, *, seed: int = 0) -> dict[str, float | None]:
        """Measure train, ID and OOD accuracy with one noise draw per trial, by their names in a log."""
        return behaviour.quick_accuracies(model, self, training_set, seed=seed)

    def sequences_asked(self, n_train: int, *, quickly: bool) -> int:
        """Return the largest number of sequences in `evaluate`, or in `measure` if `quickly` is true."""
        most = QUICK_TRIALS if quickly else MAX_TRIALS
        n_trained, n_id, n_ood = (min(most, self.n_trials(split)) for split in ("train", "id", "ood"))
        n_exceptions = min(most, len(self.exception_trials))
        if quickly:
            return min(QUICK_TRAIN, n_train) + n_id + n_ood + n_exceptions
        return min(MAX_TRAIN, n_train) + 2 * n_trained + N_NOISE * (n_id + 2 * n_ood + n_exceptions)

    def bytes_to_ask(self, n_train: int) -> int:
        """Return the bytes that the tables of trials, the largest split and the drawn sequences need."""
        trials = [self.n_trials(split) for split in ("train", "id", "ood")]
        tables = 2 * (self.chain_length + 2) * sum(trials) + 3 * self.seq_len * min(max(trials), MAX_TRIALS)
        return 8 * (tables + 6 * min(n_train * self.seq_len, DRAWN_AT_ONCE))
