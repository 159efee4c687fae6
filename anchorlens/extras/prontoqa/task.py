"""PrOntoQATask: true or false, by rules of an invented ontology; OOD has more steps than training.

Source: figure 7E of Zhang et al., arXiv 2501.08537; the questions are those of arXiv 2210.01240.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from anchorlens.configuration import frozen_dataclass, number
from anchorlens.extras.prontoqa.ontology import MOST_HOPS, WORDS, Item, Order, balanced, most_words, official
from anchorlens.extras.prontoqa.reasoning import by_chaining, by_degree, by_polarity, deduction, n_steps
from anchorlens.extras.shared.split_task import Right, shares_by_group
from anchorlens.extras.shared.word_presets import word_presets
from anchorlens.extras.shared.word_task import WordTask
from anchorlens.extras.shared.words import SEP, Examples, Vocabulary
from anchorlens.randomness import generator
from anchorlens.tasks import IGNORE, Accuracy, FigureSpec, Metric, Overlap, TokenBatch, phase_metrics

if TYPE_CHECKING:
    from jaxtyping import Int
    from torch import Tensor

_MOST_READ = 2_000
"""The number of training questions whose steps are counted."""
_MOST_ANSWERED = 500
"""The number of training questions whose answers are deduced again."""
_SHORTCUTS = {"degree": by_degree, "polarity": by_polarity}
METRICS = (
    *phase_metrics(
        meanings=(
            "questions it was trained on",
            "fresh questions of as many steps as are trained",
            "fresh questions of more steps than are trained",
        ),
        asks=("fresh questions", "fresh questions", "questions of more steps"),
        score="exact match",
    ),
    *(
        Metric(name, title, heading, meaning, in_tables=False)
        for name, title, heading, meaning in (
            ("other", "other kind", "The other kind of ontology", "fresh questions of the kind not trained"),
            ("degree", "degree", "Degree shortcut", "no model: the subject in more rules, on ID"),
            ("polarity", "polarity", "Polarity shortcut", "no model: true without `not`, on ID"),
            ("majority", "majority", "Majority", "no model: the more frequent label, on ID"),
            ("solver", "solver", "Forward chaining", "no model: what follows from the rules, on ID"),
        )
    ),
)


@frozen_dataclass()
class PrOntoQATask(WordTask):
    """The PrOntoQA task, in which rules in the prompt determine whether a statement is true.

    A shortcut gives the correct answer to questions of the official generator at any number of steps. In
    these questions, two rules are about the property in the query. The rule whose subject occurs in more
    rules is correct. High accuracy on official questions is therefore not evidence of deduction. The shortcut
    fails on `balanced` ontologies. The task reports the accuracies of shortcuts and of a solver next to the
    model's accuracy.

    Raises:
        ValueError: If a value is invalid. The message states the rule, the value and the remedy.

    Example:
        >>> task = PrOntoQATask(most_hops=2)
        >>> {split: len(task.examples(split)) for split in ("id", "ood")}
        {'id': 2000, 'ood': 2000}
        >>> task.examples("id").prompts[0].split(" . ")[-2:]
        ['wren is a zumpus', 'true or false : wren is happy .']

    Source: arXiv 2501.08537, figure 7E. The generator is from arXiv 2210.01240.
    """

    kind: ClassVar[str] = "prontoqa"
    presets = word_presets("prontoqa", d_vocab=78, n_ctx=179, n_samples=20_000, n_paper=20_000)
    metrics: ClassVar[tuple[Metric, ...]] = METRICS

    ontology: Literal["official", "balanced"] = "balanced"
    """The kind of ontology in a question. An `official` ontology has one chain and a misleading concept, as
    published. A `balanced` ontology has two chains of the same height with opposite statements, so that only
    reachability from the entity determines the answer."""
    order: Order = "random"
    """The order of the rules in an official ontology. With `postorder`, the rules go from the entity to the
    root. With `preorder`, the rules go from the root to the entity. Rules of a balanced ontology are always
    in random order."""
    most_hops: int = number(3, minimum=1, maximum=lambda task: MOST_HOPS.get(task.ontology, 5) - 1)
    """The largest number of steps in a training deduction. OOD test inputs need up to 5 steps with official
    ontologies, and up to 4 steps with balanced ontologies."""
    least_hops: int = number(1, minimum=1, maximum=lambda task: task.most_hops)
    """The smallest number of steps in a training deduction."""
    loss_on: Literal["label", "sequence"] = "label"
    """The words in the training loss, either the answer alone (`label`) or the prompt and the answer
    (`sequence`)."""
    says: Literal["label", "deduction"] = "label"
    """The form of the model's answer. With `label`, the answer is `true` or `false`. With `deduction`, the
    answer is the deduction and the label, as in the chain of thought of the published samples. An example of
    an answer is `rex is a wumpus . each wumpus is shy . rex is shy . true`. A deduction is correct only if
    every word is correct, so a shortcut to the label is not enough."""
    n_test: int = number(2000, minimum=10, maximum=20_000)
    """The number of fresh questions in each test set, with equally many questions for each number of
    steps."""
    split_seed: int = number(0, minimum=0)
    """The seed of the test sets. A training question that is also in a test set is drawn again."""
    bos: bool = True
    """Whether every sequence begins with the token `<bos>`. Models from other projects may be trained without
    this token."""

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary of the special tokens and 74 words."""
        return Vocabulary(WORDS, self.bos)

    @property
    def seq_len(self) -> int:
        """The number of tokens that a model reads from the longest question with its answer."""
        return most_words(self.ontology, with_deduction=self.says == "deduction") + 2 + self.bos

    @property
    def chance(self) -> float:
        """The accuracy at chance level: 0.5 for two labels, and 0 for a deduction."""
        return 0.5 if self.says == "label" else 0.0

    @property
    def training_width(self) -> int:
        """The number of tokens of the longest possible question."""
        return self.seq_len

    @property
    def trained_hops(self) -> Sequence[int]:
        """The numbers of deduction steps in training questions."""
        return range(self.least_hops, self.most_hops + 1)

    @property
    def longer_hops(self) -> Sequence[int]:
        """The numbers of deduction steps in OOD questions."""
        return range(self.most_hops + 1, MOST_HOPS[self.ontology] + 1)

    @cached_property
    def _tests(self) -> Mapping[str, Sequence[Item]]:
        """The questions of `id`, `ood`, `other` and a sample of `train`, all in equal parts by steps."""
        others = "official" if self.ontology == "balanced" else "balanced"
        hops = [n for n in self.trained_hops if n <= MOST_HOPS[others]]
        return {
            "id": self._items(self.ontology, self.trained_hops, 1),
            "ood": self._items(self.ontology, self.longer_hops, 2),
            "other": self._items(others, hops, 3),
            "train": self._items(self.ontology, self.trained_hops, 4),
        }

    def _items(self, ontology: str, hops: Sequence[int], counter: int) -> list[Item]:
        rng = random.Random(int(generator(self.split_seed, "data", counter).integers(2**63)))
        return [self._made(ontology, hops[k % len(hops)], rng) for k in range(self.n_test)]

    def _made(self, ontology: str, hops: int, rng: random.Random) -> Item:
        return official(hops, rng, self.order) if ontology == "official" else balanced(hops, rng)

    @cached_property
    def splits(self) -> Mapping[str, Examples]:
        """A map from `id`, `ood`, `train` (a sample) and `other` (the untrained ontology) to examples."""
        return {name: self._examples(items) for name, items in self._tests.items()}

    def _examples(self, items: Sequence[Item]) -> Examples:
        steps = (f"{deduction(item.prompt)} " if self.says == "deduction" else "" for item in items)
        answers = [before + item.answer for before, item in zip(steps, items, strict=True)]
        return Examples([item.prompt for item in items], answers)

    def there_are(self, split: str) -> int:
        """Return a very large number, because the splits are samples of all possible questions."""
        return 10**12

    def training_examples(self, n: int, rng: np.random.Generator) -> Examples:
        """Draw `n` different training questions that are not in a test set."""
        choices = random.Random(int(rng.integers(2**63)))
        taken = {prompt for name in ("id", "ood") for prompt in self.splits[name].prompts}
        items: list[Item] = []
        while len(items) < n:
            item = self._made(self.ontology, choices.choice(self.trained_hops), choices)
            if item.prompt not in taken:
                taken.add(item.prompt)
                items.append(item)
        return self._examples(items)

    def training_set(self, n: int, seed: int) -> TokenBatch:
        """Draw `n` sequences, padded to the longest possible sequence."""
        batch = super().training_set(n, seed)
        return batch if self.loss_on == "label" else _every_word(batch)

    def overlap(self, trained: TokenBatch) -> Overlap:
        """Count the training questions that are in a test set, or have more than `most_hops` steps.

        The method checks the number of steps of only the first 2,000 questions. If a question has too many
        steps, both counts use these 2,000 questions alone.
        """
        some = trained.take(np.arange(min(_MOST_READ, len(trained))))
        prompts = map(self.vocabulary.prompt, some.tokens.tolist())
        longer = sum((n_steps(prompt) or 0) > self.most_hops for prompt in prompts)
        overlap = super().overlap(some if longer else trained)
        return replace(overlap, counts={**overlap.counts, "ood": max(longer, overlap.counts["ood"])})

    def targets_of(self, tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch pos"]:
        """Return the answers that follow from the rules of the prompts, for the first 500 questions.

        The targets of all other questions are `IGNORE`. The targets of other text are -1.
        """
        answers: dict[str, str | None] = {}
        for row, prompt in enumerate(map(self.vocabulary.prompt, tokens.tolist())):
            if row >= _MOST_ANSWERED:
                answers.setdefault(prompt, None)
            elif n_steps(prompt) is not None:
                label = "true" if by_chaining(prompt) else "false"
                answers[prompt] = f"{deduction(prompt)} {label}" if self.says == "deduction" else label
        return self.targets_by(answers, tokens)

    def answers_alone(self, batch: TokenBatch) -> TokenBatch:
        """Return training sequences in which only the answer is scored."""
        from torch import from_numpy

        answered = np.logical_or.accumulate(batch.tokens.numpy() == SEP, axis=1)
        return TokenBatch(batch.tokens, batch.targets.masked_fill(from_numpy(~answered), IGNORE))

    def further_measures(self, whole: Right, but_the_end: Right) -> dict[str, Accuracy | None]:
        """Compute the accuracy of the shortcuts and of the solver on the ID questions."""
        truth = np.mean([item.answer == "true" for item in self._tests["id"]])
        measures = {name: Accuracy.of_some(right) for name, right in self._by_shortcut["id"].items()}
        return {**measures, "majority": Accuracy.of_share(float(max(truth, 1 - truth)), self.n_test)}

    @cached_property
    def _by_shortcut(self) -> Mapping[str, Mapping[str, np.ndarray]]:
        """Whether each shortcut and the solver answer each question of each test correctly."""
        ways = {**_SHORTCUTS, "solver": by_chaining}
        return {
            name: {
                way: np.array([answers(i.prompt) == (i.answer == "true") for i in self._tests[name]])
                for way, answers in ways.items()
            }
            for name in ("id", "ood")
        }

    def charts(self, whole: Right) -> tuple[FigureSpec, ...]:
        """Draw accuracy against the steps of the deduction, with the accuracy of the shortcuts."""
        hops = np.array([item.hops for name in ("id", "ood") for item in self._tests[name]])
        ways = {way: {name: self._by_shortcut[name][way] for name in ("id", "ood")} for way in _SHORTCUTS}
        compared = "The shortcuts need no model. A model that is not better may have learnt a shortcut."
        if self.says == "deduction":
            compared = "The shortcuts need no model and give only the label. The model writes the deduction."
        lines = shares_by_group(
            {
                name: (hops, np.concatenate([right["id"], right["ood"]]))
                for name, right in {"model": whole, **ways}.items()
            },
            x={steps: steps for steps in np.unique(hops).tolist()},
            title="Accuracy by steps",
            caption=f"The lines show accuracy by deduction steps. Up to {self.most_hops} steps are trained. "
            f"{compared}",
            x_title="steps of the deduction",
            y_title="accuracy",
        )
        return (lines,)

    def describe(self) -> str:
        """Describe the trained and the held-out questions in words."""
        kinds = {
            "official": "a chain of concepts, and one more that misleads (a shortcut answers it)",
            "balanced": "two chains that say the opposite at the same height",
        }
        trained, longer = (
            f"{hops[0]} step{'s' * (hops[0] > 1)}" if len(hops) == 1 else f"{hops[0]} to {hops[-1]} steps"
            for hops in (self.trained_hops, self.longer_hops)
        )
        answer = "the label" if self.says == "label" else "the deduction and its label"
        scored = f"{answer} alone" if self.loss_on == "label" else f"every word, {answer} among them"
        return (
            f"PrOntoQA, {self.ontology}: true or false by the rules of the prompt, {kinds[self.ontology]}.\n"
            f"Trained: questions of {trained}, scored on {scored}. Held out (ID test): "
            f"{self.n_test:,} others.\n"
            f"Never seen (OOD test): {self.n_test:,} questions of {longer}."
        )


def _every_word(batch: TokenBatch) -> TokenBatch:
    """Score every position of the sequences up to the end mark: its target is the next token."""
    import torch

    after = torch.roll(batch.tokens, -1, dims=1)
    at = torch.arange(batch.tokens.shape[1], device="cpu")
    inside = at < batch.lengths.unsqueeze(1) - 1
    targets = torch.where(inside & (batch.targets == IGNORE), after, batch.targets)
    return TokenBatch(batch.tokens, targets)
