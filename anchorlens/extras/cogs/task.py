"""CogsTask: sentences to logical forms, with 21 cases of generalisation as OOD.

Source: figure 7B of Zhang et al., arXiv 2501.08537; COGS is Kim & Linzen's, arXiv 2010.05465.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

import numpy as np

from anchorlens.configuration import frozen_dataclass
from anchorlens.extras.cogs.files import Line, published_files
from anchorlens.extras.shared.split_task import Right
from anchorlens.extras.shared.word_presets import word_presets
from anchorlens.extras.shared.word_task import WordTask, word_metrics
from anchorlens.extras.shared.words import SPECIAL, UNKNOWN, Examples, Vocabulary
from anchorlens.tasks import Accuracy, Bars, FigureSpec, Metric

STRUCTURAL = ("obj_pp_to_subj_pp", "cp_recursion", "pp_recursion")
"""The cases with a structure that is never trained; the other 18 have a word in an untrained role."""
N_WORDS, LONGEST = 832, 543
"""The numbers of words of the training file with `UNKNOWN`, and of tokens read of the longest example."""
N_TEST = 6000 + 21_000
"""The number of sentences of dev, test and gen."""
MEAN_LENGTH = 74
"""The mean number of tokens that a model reads of a sentence of dev, test and gen."""
METRICS = (
    *word_metrics(
        meanings=(
            "sentences it was trained on",
            "dev and test sentences, of the kinds that are trained",
            "sentences of the 21 cases of generalisation",
        ),
        asks=("training sentences", "dev and test sentences", "cases of generalisation"),
    ),
    Metric("lexical", "lexical", "Lexical generalisation", "mean over the 18 lexical cases"),
    Metric("structural", "structural", "Structural generalisation", "mean over the 3 structural cases"),
    Metric("ceiling", "ceiling", "Ceiling", "no model: OOD without words never trained", in_tables=False),
)


@frozen_dataclass()
class CogsTask(WordTask):
    """The COGS task, in which a model predicts the logical form of a sentence word by word.

    The task reads the published files from a folder, or downloads the files once. No example is truncated.
    The longest example has 543 tokens. In the OOD file gen.tsv, 1,634 of the 21,000 logical forms contain a
    word that the training file lacks. Most of these words are numbers above 18 in the recursion cases. With a
    vocabulary of words, the OOD accuracy is therefore at most 92.2%.

    Raises:
        ValueError: If a value is invalid, or if a needed file is missing or is not the published file.

    Source: arXiv 2501.08537, figure 7B; arXiv 2010.05465.
    """

    kind: ClassVar[str] = "cogs"
    presets = word_presets("cogs", d_vocab=836, n_ctx=543, n_samples=5000, n_paper=10_000)
    metrics: ClassVar[tuple[Metric, ...]] = METRICS

    data: str = dataclasses.field(default="", compare=False)
    """The folder with the COGS files train.tsv, dev.tsv, test.tsv and gen.tsv, which may be gzipped (.gz).
    Without a folder, anchorlens downloads the files once into the user's cache. The task stores the absolute
    path."""
    bos: bool = True
    """Whether every sequence begins with the token `<bos>`. Models from other projects may be trained without
    this token."""

    def __post_init__(self) -> None:
        """Check every field."""
        super().__post_init__()
        if self.data:
            object.__setattr__(self, "data", os.path.abspath(self.data))

    @cached_property
    def _files(self) -> Mapping[str, tuple[Line, ...]]:
        return published_files(self.data)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The words of the training file in ascending order, and `UNKNOWN`."""
        words = {word for line in self._files["train"] for part in line[:2] for word in part.split()}
        return Vocabulary((*sorted(words), UNKNOWN), self.bos)

    @property
    def d_vocab(self) -> int:
        """The number of tokens in the vocabulary, which can be computed without the files."""
        return N_WORDS + len(SPECIAL)

    @property
    def seq_len(self) -> int:
        """The number of tokens that a model reads from the longest example in the files."""
        return LONGEST - (not self.bos)

    def sequences_asked(self, n_train: int, *, quickly: bool) -> int:
        """Return how many sequences of maximum length have as many tokens as all evaluated sequences."""
        n_asked = 3 * self.quickly if quickly else min(n_train, self.most_asked) + N_TEST
        return round(n_asked * MEAN_LENGTH / LONGEST)

    @property
    def table_size(self) -> int:
        """The table size, which is 0 because the task does not store the examples of the files."""
        return 0

    @cached_property
    def splits(self) -> Mapping[str, Examples]:
        """The examples of `train`, `id` (dev and test) and `ood` (gen)."""
        files, words = self._files, set(self.vocabulary.words)

        def readable(text: str) -> str:
            return " ".join(word if word in words else UNKNOWN for word in text.split())

        parts = {"train": files["train"], "id": files["dev"] + files["test"], "ood": files["gen"]}
        return {
            name: Examples(*([readable(line[column]) for line in lines] for column in (0, 1)))
            for name, lines in parts.items()
        }

    @cached_property
    def cases(self) -> tuple[str, ...]:
        """The generalisation case of each example in `ood`."""
        return tuple(line.kind for line in self._files["gen"])

    def training_examples(self, n: int, rng: np.random.Generator) -> Examples:
        """Draw `n` training examples with all 143 primitives, all 12 exposures and random other examples.

        Without the primitives and exposures, the lexical cases would need words that were never trained. If
        `n` is more than the number of examples, examples are repeated.

        Raises:
            ValueError: If `n` is below 156.
        """
        train = self.splits["train"]
        common = np.array([line.kind == "in_distribution" for line in self._files["train"]])
        fixed, rest = np.flatnonzero(~common), np.flatnonzero(common)
        if n <= len(fixed):
            raise ValueError(
                f"n_samples must be more than {len(fixed)}, the number of primitives and exposure examples, "
                f"got {n}. Use more samples"
            )
        rounds, last = divmod(n, len(train))
        every = [np.arange(len(train))] * rounds
        if last:
            chosen = rng.permutation(rest)[: max(0, last - len(fixed))]
            every.append(np.concatenate([fixed[:last], chosen]))
        return train[rng.permutation(np.concatenate(every))]

    def further_measures(self, whole: Right, but_the_end: Right) -> dict[str, Accuracy | None]:
        """Compute the accuracy on lexical and on structural cases, and the best possible OOD accuracy."""
        structural = np.isin(self.cases, STRUCTURAL)
        shares = {
            "lexical": whole["ood"][~structural],  # cases are of equal size: the mean over them
            "structural": whole["ood"][structural],
            "ceiling": np.array([UNKNOWN not in text.split() for text in self.splits["ood"].answers]),
        }
        measures = {name: Accuracy.of_some(right, of=len(right)) for name, right in shares.items()}
        return super().further_measures(whole, but_the_end) | measures

    def charts(self, whole: Right) -> tuple[FigureSpec, ...]:
        """Draw exact match by generalisation case and by the number of words of the answer."""
        cases = np.array(self.cases)
        ordered = sorted(set(self.cases), key=lambda case: (case in STRUCTURAL, case))
        bars = Bars(
            title="Exact match by case",
            caption="The bars show the fraction of completely correct logical forms of 1,000 sentences of "
            "each case of generalisation. The last three cases are structural.",
            x_title="exact match",
            y={case.replace("_", " "): float(whole["ood"][cases == case].mean()) for case in ordered},
        )
        return (bars, *super().charts(whole))

    def describe(self) -> str:
        """Describe the trained and the held-out sentences in words."""
        return (
            "COGS: the logical form of a sentence, such as `A rose was helped .` -> `rose ( x _ 1 ) AND "
            "...`, word by word.\n"
            "Trained: of 24,155 sentences, the 143 bare words and 12 exposures always. Held out (ID test): "
            "6,000.\n"
            "Never seen (OOD test): 21,000 sentences of 21 generalisation cases, 18 lexical, 3 structural."
        )
