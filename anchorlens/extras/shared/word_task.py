"""WordTask: the base of tasks with prompts and answers in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from anchorlens.extras.shared.split_task import AT_ONCE, Right, SplitTask, shares_by_group
from anchorlens.extras.shared.words import EOS, SEP, Examples, n_words
from anchorlens.randomness import generator
from anchorlens.tasks import (
    IGNORE,
    Accuracy,
    Evaluator,
    FigureSpec,
    Metric,
    Sample,
    SampleTable,
    phase_metrics,
)

if TYPE_CHECKING:
    from jaxtyping import Int
    from torch import Tensor

    from anchorlens.tasks import TokenBatch

_MOST_GROUPS = 12
"""The largest number of groups of answers by length in a picture."""
_SHOWN = 4
"""The largest number of correct and of wrong answers of each split in a table of samples."""


def word_metrics(meanings: tuple[str, str, str], asks: tuple[str, str, str]) -> tuple[Metric, ...]:
    """Return the metrics for train, ID and OOD exact match, and for OOD exact match without the end mark."""
    return (
        *phase_metrics(meanings=meanings, asks=asks, score="exact match"),
        Metric(
            "ood_without_end",
            "OOD, no end",
            "OOD exact match without the end mark",
            "OOD exact match, ignoring the end mark",
            in_tables=False,
        ),
    )


class WordTask(SplitTask):
    """A task with prompts and answers in words, scored by exact match of answer and end mark.

    A subclass defines `vocabulary`, `splits`, `seq_len` and `training_examples`.
    """

    most_asked: ClassVar[int] = 2_000
    quickly: ClassVar[int] = 256
    at_once: ClassVar[int] = 256
    prompt_end: Any = SEP
    vocabulary: Any
    """The `Vocabulary` of the task: its words, each of which is a token."""

    def training_examples(self, n: int, rng: np.random.Generator) -> Examples:
        """Draw `n` training examples. The generator is the only source of randomness."""
        raise NotImplementedError

    @property
    def d_vocab(self) -> int:
        """The smallest vocabulary size.

        The vocabulary has the words, padding, and the marks of beginning, answer and end.
        """
        return len(self.vocabulary)

    @property
    def training_width(self) -> int:
        """The number of tokens that a model reads from the longest training example."""
        return int(self.lengths(self.splits["train"]).max())

    def lengths(self, examples: Examples) -> Int[np.ndarray, " example"]:
        """Return the number of tokens that a model reads from each example, not counting the end mark."""
        return self.vocabulary.length(examples)

    def sequences(self, examples: Examples) -> TokenBatch:
        """Convert examples to tokens and targets [example, pos], padded to the longest example."""
        return self.vocabulary.sequences(examples, int(self.lengths(examples).max()))

    def training_set(self, n: int, seed: int) -> TokenBatch:
        """Draw `n` training sequences, padded to the longest possible training sequence."""
        examples = self.training_examples(n, generator(seed, "data"))
        return self.vocabulary.sequences(examples, self.training_width)

    def checked_training_set(self, training_set: object) -> TokenBatch:
        """Check that training data have at most `seq_len` tokens per sequence, and return the data."""
        from anchorlens.tasks import token_batch

        batch = token_batch(training_set, d_vocab=self.d_vocab, every_position=True)
        if batch.tokens.shape[1] > self.seq_len:
            raise ValueError(
                f"each sequence of the training data must have at most {self.seq_len} tokens, got "
                f"{batch.tokens.shape[1]}. Give the training data of this model's task"
            )
        return batch

    def targets_of(self, tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch pos"] | None:
        """Return the targets of examples, or -1 for a prompt of another task.

        The targets of a prompt with two answers are `IGNORE`. If the task's examples are a sample, the method
        returns `None`.
        """
        if any(self.there_are(name) > len(examples) for name, examples in self.splits.items()):
            return None
        answers: dict[str, str | None] = {}
        for examples in self.splits.values():
            for prompt, answer in zip(examples.prompts, examples.answers, strict=True):
                answers[prompt] = answer if answers.get(prompt, answer) == answer else None
        return self.targets_by(answers, tokens)

    def targets_by(
        self, answers: Mapping[str, str | None], tokens: Int[Tensor, "batch pos"]
    ) -> Int[Tensor, "batch pos"]:
        """Return the targets of prompts by their answers.

        The targets of a prompt without an answer in `answers` are -1. If the answer is `None`, the targets
        are `IGNORE`.
        """
        import torch

        prompts = list(map(self.vocabulary.prompt, tokens.tolist()))
        targets = torch.full(tuple(tokens.shape), -1, dtype=torch.int64, device="cpu")
        known = [row for row, prompt in enumerate(prompts) if answers.get(prompt) is not None]
        if known:
            asked = [prompts[row] for row in known]
            examples = Examples(asked, [answers[prompt] or "" for prompt in asked])
            width = max(tokens.shape[1], int(self.lengths(examples).max()))
            own = self.vocabulary.sequences(examples, width).targets
            own[(own[:, tokens.shape[1] :] != IGNORE).any(dim=1)] = -1  # longer than what is given
            targets[known] = own[:, : tokens.shape[1]]
        targets[[row for row, prompt in enumerate(prompts) if answers.get(prompt, prompt) is None]] = IGNORE
        return targets

    def further_measures(self, whole: Right, but_the_end: Right) -> dict[str, Accuracy | None]:
        """Compute OOD exact match without the end mark."""
        return {"ood_without_end": Accuracy.of_some(but_the_end["ood"], of=len(but_the_end["ood"]))}

    def pictures(
        self, whole: Right, evaluator: Evaluator, rng: np.random.Generator
    ) -> tuple[FigureSpec, ...]:
        """Draw the charts, and a table of some examples of each split with the model's greedy answers."""
        answers: list[Sample] = []
        titles = {metric.name: metric.title for metric in self.metrics}
        for name in ("id", "ood"):
            for right in (True, False):
                some = rng.permutation(np.flatnonzero(whole[name] == right))[:_SHOWN]
                shown = self.splits[name][np.sort(some)]
                said = self.greedy_answers(evaluator, shown) if len(shown) else []
                words = zip(shown.prompts, shown.answers, said, strict=True)
                answers += [Sample(titles[name], *texts, right) for texts in words]
        sample_table = SampleTable(
            "Answers",
            "Up to four correct and four wrong answers of each split. The last column is what the model "
            "predicts word by word (greedy decoding).",
            tuple(answers),
        )
        return (*self.charts(whole), sample_table)

    def charts(self, whole: Right) -> tuple[FigureSpec, ...]:
        """Draw exact match against the number of words of the answer, in groups of about equal size."""
        lengths = {name: np.array(list(map(n_words, self.splits[name].answers))) for name in ("id", "ood")}
        every = np.concatenate(list(lengths.values()))
        edges = np.unique(np.quantile(every, np.linspace(0, 1, _MOST_GROUPS + 1)).round())
        group_of = {name: np.searchsorted(edges[1:-1], numbers) for name, numbers in lengths.items()}
        every_group = np.concatenate(list(group_of.values()))
        means = {group: float(every[every_group == group].mean()) for group in np.unique(every_group)}
        lines = shares_by_group(
            {title: (group_of[name], whole[name]) for title, name in (("ID", "id"), ("OOD", "ood"))},
            x={group: round(mean, 1) for group, mean in means.items()},
            title="Exact match by length",
            caption="The points show the fraction of completely correct answers by number of words of the "
            "answer, in groups of about equal size. The bars show standard errors.",
            x_title="words of the answer (mean of the group)",
            y_title="exact match",
        )
        return (lines,)

    def greedy_answers(self, evaluator: Evaluator, examples: Examples) -> list[str]:
        """Decode the model's greedy answer to each prompt, up to a few words beyond the longest example."""
        batch = self.sequences(examples)
        n_asked = (batch.tokens == SEP).int().argmax(dim=1) + 1
        return [self.vocabulary.text(tokens) for tokens in evaluator.greedy(batch.tokens, n_asked, end=EOS)]

    def bytes_to_ask(self, n_train: int) -> int:
        """Estimate the memory of the training set and of one block of test sequences, in bytes."""
        n_asked = min(self.sequences_asked(n_train, quickly=False), AT_ONCE)
        return 2 * 8 * self.seq_len * (n_asked + 2 * n_train)
