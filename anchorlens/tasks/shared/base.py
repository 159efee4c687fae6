"""What a task is: the one door through which everything that trains, asks, stores or draws meets it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, runtime_checkable

from anchorlens.configuration import Config
from anchorlens.models.config import ModelConfig
from anchorlens.tasks.shared.evaluation import Evaluation
from anchorlens.tasks.shared.metric import Metric
from anchorlens.views import html

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Int
    from torch import Tensor

    from anchorlens.tasks.shared.accuracy import Accuracy

_MOST_ASKED = 20_000
"""Training sequences that a final evaluation asks, where a task does not say how many."""


@runtime_checkable
class Batch(Protocol):
    """Training data of any kind: examples that can be counted, and some of which can be taken."""

    def __len__(self) -> int:
        """Number of examples."""
        ...

    def take(self, rows: Int[np.ndarray, " row"]) -> Batch:
        """Some of the examples, in the order of `rows`."""
        ...


@runtime_checkable
class Answers(Protocol):
    """Anything that maps tokens [batch, pos] to logits.

    The logits are those of every position, [batch, pos, d_vocab], as a HookedTransformer gives them, or of
    the last positions alone, [batch, n_last, d_vocab].
    """

    def __call__(self, tokens: Tensor, /) -> Tensor:
        """Logits of each sequence."""
        ...


@runtime_checkable
class Task(Protocol):
    """What is trained and asked: a frozen configuration that travels as data.

    A registered class that has these names is trained, stored, measured, swept and drawn like every other;
    `TaskConfig` has a default for all but six. A task with a loss of its own has a method `loss` besides (see
    `OwnLoss`); every other is trained by cross-entropy where its training set has a target.
    """

    kind: ClassVar[str]
    """Its name in files and on the command line: `two_anchor`, `addition`."""
    model_class: ClassVar[type[Any]]
    """The configuration of what it trains: `ModelConfig`, a HookedTransformer, or another."""
    metrics: ClassVar[tuple[Metric, ...]]
    """What it measures. One named `train` says how well the training data are fit; with `id` and `ood` beside
    it, as accuracies, the phases are defined."""
    has_anchors: ClassVar[bool]
    """Whether its sequences hold anchors, which some probes and the mechanism verdict ask about."""
    sampling: ClassVar[Mapping[str, int]]
    """Options of `evaluate` with which it costs little, for each checkpoint of a trajectory."""
    evaluation_class: ClassVar[type[Evaluation]]
    """What `evaluate` gives, and what is read back from JSON."""
    vocabulary: Any
    """Its words, where it is in words; None where it is in numbers."""

    @property
    def d_vocab(self) -> int:
        """Smallest vocabulary that holds every token and every target."""
        ...

    @property
    def seq_len(self) -> int:
        """Tokens per sequence, as a model reads them."""
        ...

    @property
    def table_size(self) -> int:
        """Numbers that the task itself holds, which bound how many tasks one file may name."""
        ...

    def training_set(self, n: int, seed: np.random.Generator) -> Batch:
        """The training set of a run, `n` examples, a function of the generator alone."""
        ...

    def training_drawing(self, n: int, seed: np.random.Generator) -> Batch:
        """The same, of which some can be taken without holding the others, where the task has a way."""
        ...

    def checked_training_set(self, given: Any) -> Batch:
        """Training data that a caller gives, if they are of this task.

        Raises:
            ValueError: they are something else, or of another shape or vocabulary.
        """
        ...

    def evaluate(self, model: Answers, *, training_set: Any = None, seed: int = 0) -> Evaluation:
        """Measure what a model answers; a task may take more options.

        Args:
            model: whose answers.
            training_set: what it was trained on, for the metric `train`. Without it the evaluation's
                `train_source` says what was asked instead, and below .90 there is no phase.
            seed: of what is drawn at random.
        """
        ...

    def measure(self, model: Answers, training_set: Any, *, seed: int = 0) -> dict[str, float | None]:
        """The metrics that are logged, by their names in the log, measured quickly while training."""
        ...

    def sequences_asked(self, n_train: int, *, quickly: bool) -> int:
        """Sequences that `evaluate` asks at most, or `measure`, of a model trained on `n_train` examples.

        Of a task with far shorter ones, as many of `seq_len` tokens as they have tokens in all.
        """
        ...

    def bytes_to_ask(self, n_train: int) -> int:
        """Memory that `evaluate` takes beside the model's, about, for so many training examples."""
        ...

    @property
    def held_out(self) -> str:
        """What is left out of training, in words that fit behind `it was never trained on`."""
        ...

    def describe(self) -> str:
        """In words, a line for each thing: what is trained, and what is held out."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready fields, `kind` among them; `from_dict` gives an equal task back."""
        ...

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read a task from JSON or TOML data.

        Raises:
            ValueError: an unknown field or an unusable value.
        """
        ...


class TaskConfig(Config):
    """Base of the tasks. One of your own is a frozen dataclass on it with six names of its own.

    `kind`, `metrics`, `d_vocab`, `seq_len`, `training_set(n, seed)` and
    `evaluate(model, *, training_set=None, seed=0, quick=False)`; see `Task` for what each of them is. Every
    field has a default and, under it, a docstring, which is the help of its option.
    """

    kind: ClassVar[str]
    metrics: ClassVar[tuple[Metric, ...]]
    d_vocab: Any
    seq_len: Any
    evaluate: Any
    model_class: ClassVar[type[Any]] = ModelConfig
    """The configuration of what it trains."""
    settled: ClassVar[tuple[str, ...]] = ()
    """Fields that are settled when a task is made where they are not given; a stored task must hold them."""
    has_anchors: ClassVar[bool] = False
    """Whether its sequences hold anchors, which some probes and the mechanism verdict ask about."""
    sampling: ClassVar[Mapping[str, int]] = MappingProxyType({})
    """Options of `evaluate` with which it costs little, for each checkpoint of a trajectory."""
    evaluation_class: ClassVar[type[Evaluation]] = Evaluation
    """What `evaluate` gives, and what is read back from JSON."""
    vocabulary: Any = None
    """Its words, where it is in words; None where it is in numbers."""

    @property
    def table_size(self) -> int:
        """Numbers that the task itself holds: none."""
        return 0

    def training_set(self, n: int, seed: np.random.Generator) -> Any:
        """The training set of a run, `n` examples, a function of the generator alone."""
        raise NotImplementedError

    def training_drawing(self, n: int, seed: np.random.Generator) -> Any:
        """The same: it is small enough to be held."""
        return self.training_set(n, seed)

    def checked_training_set(self, given: Any) -> Any:
        """Training data that a caller gives, (tokens, targets), if they are of this task.

        Raises:
            ValueError: they are something else, or of another shape or vocabulary.
        """
        from anchorlens.tasks.shared.checked_batch import token_batch  # with torch

        return token_batch(given, seq_len=self.seq_len, d_vocab=self.d_vocab, every_position=None)

    def measure(self, model: Answers, training_set: Any, *, seed: int = 0) -> dict[str, float | None]:
        """The metrics that are logged, by their names in the log: those of `evaluate(..., quick=True)`."""
        found = self.evaluate(model, training_set=training_set, seed=seed, quick=True)
        values = {metric: found.measure(metric.name) for metric in self.metrics if metric.logged_as}
        return {metric.logged_as: None if one is None else one.value for metric, one in values.items()}

    def evaluation(
        self, measures: Mapping[str, Accuracy | None], *, finite: bool = True, seed: int = 0, **more: Any
    ) -> Evaluation:
        """What `evaluate` gives back.

        Args:
            measures: metric -> its value; one that is left out is not defined.
            finite: whether every logit was finite.
            seed: of what was drawn at random.
            **more: other fields of `Evaluation`: pictures (`sketches`), `train_source`, `overlap`.
        """
        values = {metric.name: measures.get(metric.name) for metric in self.metrics}
        options = {"seed": seed, "task": self.describe()}
        return Evaluation(self.kind, self.metrics, values, finite, options, held_out=self.held_out, **more)

    def sequences_asked(self, n_train: int, *, quickly: bool) -> int:
        """Sequences that `evaluate` asks at most, or `measure`, where the task does not know it better.

        Supposed are as many held-out ones as it asks of its training set; for a log at most 1,024 of each.
        """
        return 2 * min(n_train, 1024 if quickly else _MOST_ASKED)

    def bytes_to_ask(self, n_train: int) -> int:
        """Memory of the training set and of what is asked: tokens, targets, and what is right."""
        n_sequences = n_train + self.sequences_asked(n_train, quickly=False)
        return 3 * 8 * n_sequences * (2 * self.seq_len + 2)

    @property
    def held_out(self) -> str:
        """What is left out of training, in words that fit behind `it was never trained on`."""
        return "what the task holds out"

    def describe(self) -> str:
        """In words: what is trained, and what is held out. The first paragraph of the class's docstring."""
        return (inspect.getdoc(type(self)) or self.kind).split("\n\n")[0]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready fields, and the kind; `from_dict` gives an equal task back."""
        return {"kind": self.kind, **super().to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read a task from JSON or TOML data.

        Raises:
            ValueError: an unknown field or an unusable value.
        """
        return super().from_dict({name: value for name, value in values.items() if name != "kind"})

    _repr_html_ = html


@runtime_checkable
class OwnLoss(Protocol):
    """A task whose loss is not cross-entropy on tokens, which the functional engine trains."""

    def loss(self, model: Answers, batch: Any, generator: np.random.Generator) -> Tensor:
        """The loss of a batch, a tensor of one number that can be differentiated.

        Args:
            model: gives logits at every position.
            batch: some of the training set: what its `take` gives, and where that is a dataclass its tensors
                are on the model's device.
            generator: of what the loss draws at random, a function of the seed and the step. What is made of
                it lies on the CPU; `on_device` (`tasks.shared.batch`) moves it without a wait for CUDA.
        """
        ...
