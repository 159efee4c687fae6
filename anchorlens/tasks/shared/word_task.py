"""WordTask: what tasks share that ask for an answer in words to a prompt in words."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from anchorlens.configuration import check_number
from anchorlens.randomness import generator
from anchorlens.safe import shown
from anchorlens.tasks.shared.accuracy import Accuracy
from anchorlens.tasks.shared.asking import Asker
from anchorlens.tasks.shared.base import Answers, TaskConfig
from anchorlens.tasks.shared.evaluation import Measured
from anchorlens.tasks.shared.metric import Metric
from anchorlens.tasks.shared.overlap import Overlap, overlap_of_prompts
from anchorlens.tasks.shared.phases import TRAINING_SET
from anchorlens.tasks.shared.sketch import Answer, Lines, Sketch, Transcript
from anchorlens.tasks.shared.words import EOS, SEP, Examples, Vocabulary

if TYPE_CHECKING:
    from anchorlens.tasks.shared.batch import TokenBatch

MOST_ASKED = 2_000
"""Training examples that `evaluate` asks, unless it is told another number."""
QUICKLY = 256
"""Examples of each split that `measure` asks at most."""
_AT_ONCE = 4096
"""Examples that are made into sequences at once, the shortest first."""
_MOST_BINS = 12
_SHOWN = 4
"""Right and wrong answers of each split that a transcript shows, at most."""


def word_metrics(
    *,
    train: str,
    id: str,
    ood: str,
    every: str,
    held_out: str,
    left_out: str,
    thresholds: tuple[str, str] = (".90", ".50"),
) -> tuple[Metric, ...]:
    """Train, ID and OOD exact match, and OOD without the end mark.

    Args:
        train: what it was trained on, in words.
        id: what is held out of what is trained.
        ood: what is left out.
        every: what is asked where the training data are not known.
        held_out: what ID asks, in the words of a verdict.
        left_out: what OOD asks.
        thresholds: below which of ID it is Phase 1, and above which of OOD Phase 3, in words.
    """
    return (
        Metric("train", "train", "Train exact match", train, every, "train_accuracy"),
        Metric(
            "id",
            "ID",
            "ID exact match",
            id,
            held_out,
            "id_accuracy",
            map_caption=f"Whole answers right, {id}: below {thresholds[0]} it is Phase 1.",
        ),
        Metric(
            "ood",
            "OOD",
            "OOD exact match",
            ood,
            left_out,
            "ood_accuracy",
            map_caption=f"Whole answers right, {ood}: above {thresholds[1]} it is Phase 3.",
        ),
        Metric(
            "ood_without_end",
            "OOD, no end",
            "OOD exact match, the end mark not asked",
            "the same, right but for the end mark",
            in_tables=False,
        ),
    )


class WordTask(TaskConfig):
    """Prompts and answers in words: exact match of the whole answer, its end mark too."""

    metrics: ClassVar[tuple[Metric, ...]]

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Its words, each of which is a token."""
        raise NotImplementedError

    @property
    @abstractmethod
    def seq_len(self) -> int:
        """Tokens that a model reads of the longest example: all but its end mark."""

    @cached_property
    def splits(self) -> Mapping[str, Examples]:
        """`train`, `id` and `ood`: every example of each, once."""
        raise NotImplementedError

    @abstractmethod
    def drawn(self, n: int, seed: np.random.Generator) -> Examples:
        """`n` training examples, a function of the generator alone."""

    @property
    def d_vocab(self) -> int:
        """Smallest vocabulary: the words, padding, and the marks of beginning, answer and end."""
        return len(self.vocabulary)

    @property
    def table_size(self) -> int:
        """Examples of every split."""
        return sum(len(examples) for examples in self.splits.values())

    @property
    def chance(self) -> float:
        """Accuracy of an answer at random; 0 where it is small."""
        return 0.0

    @property
    def training_width(self) -> int:
        """Tokens that a model reads of the longest training example."""
        return int(self.vocabulary.length(self.splits["train"]).max())

    def examples(self, split: str) -> Examples:
        """Every example of a split, once.

        Args:
            split: `train`, `id` or `ood`.

        Raises:
            ValueError: an unknown split.
        """
        if split not in self.splits:
            raise ValueError(f"split must be one of {', '.join(self.splits)}, got {shown(split)}")
        return self.splits[split]

    def there_are(self, split: str) -> int:
        """Examples that a split is of; more than it has where they are a sample."""
        return len(self.splits[split])

    def sequences(self, examples: Examples) -> TokenBatch:
        """Examples as sequences, padded to the longest: tokens and targets [example, pos]."""
        return self.vocabulary.sequences(examples, int(self.vocabulary.length(examples).max()))

    def training_set(self, n: int, seed: np.random.Generator) -> TokenBatch:
        """`n` sequences, padded to the longest that may be trained."""
        return self.vocabulary.sequences(self.drawn(n, seed), self.training_width)

    def checked_training_set(self, given: Any) -> TokenBatch:
        """Training data that a caller gives, of up to `seq_len` tokens each."""
        from anchorlens.tasks.shared.checked_batch import token_batch

        batch = token_batch(given, d_vocab=self.d_vocab, every_position=True)
        if batch.tokens.shape[1] > self.seq_len:
            raise ValueError(
                f"tokens of the training data may be {self.seq_len} in a sequence, got "
                f"{batch.tokens.shape[1]}; is it the data of this model's task?"
            )
        return batch

    def answers_alone(self, batch: TokenBatch) -> TokenBatch:
        """Training sequences with the answer alone scored, where training scores more."""
        return batch

    def evaluate(
        self,
        model: Answers,
        *,
        training_set: Any = None,
        seed: int = 0,
        max_train: int = MOST_ASKED,
        batch_size: int = 256,
    ) -> Measured:
        """Ask every held-out and left-out example, and a sample of what was trained.

        Args:
            model: a HookedTransformer, or anything that gives logits.
            training_set: what it was trained on, (tokens, targets) as `sequences` gives them; without it
                training examples are asked, of which it may have seen a part.
            seed: of the choice among more than `max_train` different training examples.
            max_train: training examples asked at most.
            batch_size: sequences per forward pass at most.

        Raises:
            ValueError: an unusable option, or a model that does not fit the task.
        """
        check_number("seed", seed, minimum=0, integer=True)
        check_number("max_train", max_train, minimum=1, limit=10**6, integer=True)
        check_number("batch_size", batch_size, minimum=1, limit=10**6, integer=True)
        asker = self._asker(model, batch_size)
        rng = generator(seed, "evaluation")
        right = {name: self._right(asker, self.splits[name]) for name in self.splits if name != "train"}
        source, overlap = self.metrics[0].asks, None
        if training_set is None:
            n_trained, examples = self.there_are("train"), self.splits["train"]
            right["train"] = self._right(asker, examples.take(rng.permutation(len(examples))[:max_train]))
        else:
            known = self.checked_training_set(training_set)
            source, overlap = TRAINING_SET, self.overlap(known)
            trained = self.answers_alone(known).distinct()
            n_trained = len(trained)
            right["train"] = _right(asker, trained.take(rng.permutation(n_trained)[:max_train]))
        whole, but_the_end = ({name: found[k] for name, found in right.items()} for k in (0, 1))
        of = {name: self.there_are(name) for name in whole} | {"train": n_trained}
        measures: dict[str, Accuracy | None] = {
            name: Accuracy.of_some(found, of=of[name]) for name, found in whole.items()
        }
        measures |= self.further_measures(whole, but_the_end)
        options = {"seed": seed, "max_train": max_train, "task": self.describe()}
        sketches = (*self.pictures(whole), self._transcript(model, asker, whole, rng))
        return Measured(
            self.kind,
            self.metrics,
            measures,
            asker.finite,
            options,
            sketches,
            train_source=source,
            chance=self.chance,
            held_out=self.held_out,
            overlap=overlap,
        )

    def overlap(self, trained: TokenBatch) -> Overlap:
        """The training sequences whose prompt stands in a test."""
        tests = {name: self.sequences(self.splits[name]).tokens for name in ("id", "ood")}
        return overlap_of_prompts(trained.tokens, tests, SEP)

    @property
    def held_out(self) -> str:
        """What is left out of training, in words."""
        meaning = {metric.name: metric.meaning for metric in self.metrics}
        parts = (f"{meaning[name]} ({len(self.splits[name]):,} are asked)" for name in ("ood", "id"))
        return " and ".join(parts)

    def _right(self, asker: Asker, examples: Examples) -> tuple[np.ndarray, np.ndarray]:
        """Of every example what `_right` says, in sequences that stand in memory some at a time."""
        whole, but_the_end = np.zeros((2, len(examples)), dtype=bool)
        order = self.vocabulary.length(examples).argsort(kind="stable")
        for rows in np.split(order, range(_AT_ONCE, len(order), _AT_ONCE)):
            whole[rows], but_the_end[rows] = _right(asker, self.sequences(examples.take(rows)))
        return whole, but_the_end

    def further_measures(
        self, whole: Mapping[str, np.ndarray], but_the_end: Mapping[str, np.ndarray]
    ) -> dict[str, Accuracy | None]:
        """Measures beside those of the splits.

        Args:
            whole: split -> whether each example's answer is right.
            but_the_end: the same, whatever comes in place of the end mark.
        """
        found = but_the_end["ood"]
        return {"ood_without_end": Accuracy.of_some(found, of=len(found))}

    def pictures(self, whole: Mapping[str, np.ndarray]) -> tuple[Sketch, ...]:
        """Pictures of the answers: exact match against the length of the answer."""
        asked = {"ID": "id", "OOD": "ood"}
        lengths = {
            title: np.array([answer.count(" ") + bool(answer) for answer in self.splits[name].answers])
            for title, name in asked.items()
        }
        every = np.concatenate(list(lengths.values()))
        edges = np.unique(np.quantile(every, np.linspace(0, 1, _MOST_BINS + 1)).round())
        of = {title: np.searchsorted(edges[1:-1], found) for title, found in lengths.items()}
        every_of = np.concatenate(list(of.values()))
        bins = np.unique(every_of)
        y: dict[str, list[float | None]] = {}
        errors: dict[str, list[float | None]] = {}
        for title, name in asked.items():
            shares = [whole[name][of[title] == k] for k in bins]
            y[title] = [float(share.mean()) if len(share) else None for share in shares]
            errors[title] = [_error(share) if len(share) else None for share in shares]
        return (
            Lines(
                title="Exact match by length",
                caption="Whole answers right against the number of words of the answer, in groups of about "
                "equal size; bars are standard errors of the examples asked.",
                x_title="words of the answer (mean of the group)",
                y_title="exact match",
                x=[round(float(every[every_of == k].mean()), 1) for k in bins],
                y=y,
                errors=errors,
            ),
        )

    def _transcript(
        self, model: Answers, asker: Asker, whole: Mapping[str, np.ndarray], rng: np.random.Generator
    ) -> Transcript:
        """Some answers of each split, right and wrong ones, with what the model says by itself."""
        rows: list[Answer] = []
        for name in ("id", "ood"):
            examples = self.splits[name]
            for right in (True, False):
                some = rng.permutation(np.flatnonzero(whole[name] == right))[:_SHOWN]
                chosen = examples.take(np.sort(some))
                said = self.said(asker, chosen) if len(chosen) else []
                titles = {metric.name: metric.title for metric in self.metrics}
                rows += [
                    Answer(titles[name], prompt, answer, text, right)
                    for prompt, answer, text in zip(chosen.prompts, chosen.answers, said, strict=True)
                ]
        return Transcript(
            "Answers",
            "Some examples of each split, up to four that are answered right and four that are not: what is "
            "asked for, and what the model says word by word (greedy decoding).",
            tuple(rows),
        )

    def _asker(self, model: Answers, batch_size: int) -> Asker:
        task: Any = self
        return Asker(model, task, batch_size)

    def said(self, asker: Asker, examples: Examples) -> list[str]:
        """What a model says to each prompt by greedy decoding, a few words longer than the answer at most."""
        batch = self.sequences(examples)
        n_asked = (batch.tokens == SEP).int().argmax(dim=1) + 1
        return [self.vocabulary.text(tokens) for tokens in asker.greedy(batch.tokens, n_asked, end=EOS)]

    def measure(
        self, model: Answers, training_set: TokenBatch, *, seed: int = 0, most: int = QUICKLY
    ) -> dict[str, float | None]:
        """Train, ID and OOD exact match, of at most `most` examples each, by their names in a log."""
        asker, rng = self._asker(model, most), generator(seed, "evaluation", 1)
        some = training_set.take(rng.permutation(len(training_set))[:most])
        batches = {"train": self.answers_alone(some)}
        for name in ("id", "ood"):
            rows = rng.permutation(len(self.splits[name]))[:most]
            batches[name] = self.sequences(self.splits[name].take(rows))
        names = {metric.name: metric.logged_as for metric in self.metrics}
        return {names[name]: float(asker.right(batch).mean()) for name, batch in batches.items()}

    def sequences_asked(self, n_train: int, *, quickly: bool) -> int:
        """Sequences that `evaluate` asks at most, or `measure`."""
        n = {name: len(examples) for name, examples in self.splits.items()}
        if quickly:
            return sum(min(QUICKLY, number) for number in n.values())
        return min(n_train, MOST_ASKED) + sum(n.values()) - n["train"]

    def bytes_to_ask(self, n_train: int) -> int:
        """Of the sequences that are asked at once, and of the training set."""
        n_asked = min(self.sequences_asked(n_train, quickly=False), _AT_ONCE)
        return 2 * 8 * self.seq_len * (n_asked + 2 * n_train)


def _right(asker: Asker, batch: TokenBatch) -> tuple[np.ndarray, np.ndarray]:
    """[sequence] Whether every scored position is right, and whether every one but the last, the end mark."""
    from anchorlens.tasks.shared.batch import IGNORE

    right = asker.right_by_position(batch)
    whole = np.asarray(right.all(axis=1))
    scored = (batch.targets != IGNORE).numpy()
    last = scored.shape[1] - 1 - scored[:, ::-1].argmax(axis=1)
    right[np.arange(len(right)), last] = True
    return whole, np.asarray(right.all(axis=1))


def _error(right: np.ndarray) -> float:
    return Accuracy.of_some(right).standard_error
