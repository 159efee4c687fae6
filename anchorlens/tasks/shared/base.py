"""TaskConfig: the base class of every task, through which it is trained, asked, stored and drawn."""

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
class LogitsModel(Protocol):
    """Anything that maps tokens [batch, pos] to logits.

    The logits are those of every position, [batch, pos, d_vocab], as a HookedTransformer gives them, or of
    the last positions alone, [batch, n_last, d_vocab].
    """

    def __call__(self, tokens: Tensor, /) -> Tensor:
        """Logits of each sequence."""
        ...


class TaskConfig(Config):
    """Base of the tasks: what is trained and asked, a frozen configuration that travels as data.

    One of your own is a frozen dataclass on it with six names of its own: `kind`, `metrics`, `d_vocab`,
    `seq_len`, `training_set(n, seed)` and `evaluate(model, *, training_set=None, seed=0, quick=False)`. Every
    field has a default and, under it, a docstring, which is the help of its option. Registered, it is
    trained, stored, measured, swept and drawn like every other.
    """

    kind: ClassVar[str]
    """Its name in files and on the command line: `two_anchor`, `addition`."""
    metrics: ClassVar[tuple[Metric, ...]]
    """What it measures; a task may leave out what its class declares. One named `train` says how well the
    training data are fit; with `id` and `ood` beside it, as accuracies, the phases are defined."""
    d_vocab: Any
    """Smallest vocabulary that holds every token and every target."""
    seq_len: Any
    """Tokens per sequence, as a model reads them."""
    evaluate: Any
    """`evaluate(model, *, training_set=None, seed=0)` gives an `Evaluation` of what a model answers.

    A task may take more options. `training_set` is what the model was trained on, for the metric `train`:
    without it the evaluation's `train_source` says what was asked instead, and below .90 there is no phase.
    `seed` is of what is drawn at random. With `quick=True` little is asked, for a line of the log."""
    loss: Any = None
    """Its own loss, where it is not cross-entropy on tokens; None where it is, of what has a target.

    `loss(model, batch, generator)` gives a tensor of one number that can be differentiated. `model` gives
    logits at every position; `batch` is what `take` of the training set gives, and where that is a dataclass
    its tensors are on the model's device; `generator`, a NumPy generator, is of what the loss draws at
    random, a function of the seed and the step. What is made of it lies on the CPU; `on_device`
    (`tasks.shared.batch`) moves it without a wait for CUDA. The functional engine trains such a task."""
    model_class: ClassVar[type[Any]] = ModelConfig
    """The configuration of what it trains: `ModelConfig`, a HookedTransformer, or another."""
    stored_fields: ClassVar[tuple[str, ...]] = ()
    """Fields that are filled in when a task is made without them; a stored task must hold them."""
    has_anchors: ClassVar[bool] = False
    """Whether its sequences hold anchors, which some probes and the verdicts by the inside ask about."""
    halves: ClassVar[bool] = False
    """Whether `evaluate` takes `half`, 0 or 1, and measures OOD on that half alone of what is left out: one
    half can choose among models, and the other judges what was chosen."""
    sampling: ClassVar[Mapping[str, int]] = MappingProxyType({})
    """Options of `evaluate` with which it costs little, for each checkpoint of a trajectory."""
    evaluation_class: ClassVar[type[Evaluation]] = Evaluation
    """What `evaluate` gives, and what is read back from JSON."""
    vocabulary: Any = None
    """Its words, where it is in words; None where it is in numbers."""
    table_size: Any = 0
    """Numbers that the task itself holds, which bound how many tasks one file may name."""
    held_out: Any = "what the task holds out"
    """What is left out of training, in words that fit behind `it was never trained on`."""

    def training_set(self, n: int, seed: int) -> Any:
        """The training set of a run, `n` examples, a function of the number and the seed alone."""
        raise NotImplementedError

    def lazy_training_set(self, n: int, seed: int) -> Any:
        """The same, of which some can be taken without holding the others, where the task has a way."""
        return self.training_set(n, seed)

    def checked_training_set(self, training_set: Any) -> Any:
        """Training data that a caller gives, (tokens, targets), if they are of this task.

        Raises:
            ValueError: they are something else, or of another shape or vocabulary.
        """
        from anchorlens.tasks.shared.checked_batch import token_batch  # with torch

        return token_batch(training_set, seq_len=self.seq_len, d_vocab=self.d_vocab, every_position=None)

    def measure(self, model: LogitsModel, training_set: Any, *, seed: int = 0) -> dict[str, float | None]:
        """The metrics that are logged, by their names in the log: those of `evaluate(..., quick=True)`."""
        evaluation = self.evaluate(model, training_set=training_set, seed=seed, quick=True)
        values = {metric.logged_as: evaluation.measure(metric.name) for metric in self.metrics}
        return {name: value and value.value for name, value in values.items() if name}

    def evaluation(
        self,
        measures: Mapping[str, Accuracy | None],
        *,
        finite: bool = True,
        seed: int = 0,
        options: Mapping[str, Any] = MappingProxyType({}),
        **more: Any,
    ) -> Evaluation:
        """Put together what `evaluate` returns.

        Args:
            measures: metric -> its value; one that is left out is not defined.
            finite: whether every logit was finite.
            seed: of what was drawn at random.
            options: what else was asked how, JSON-ready.
            **more: other fields of `Evaluation`: pictures (`figure_specs`), `train_source`, `overlap`.
        """
        values = {metric.name: measures.get(metric.name) for metric in self.metrics}
        options = {"seed": seed, "task": self.describe(), **options}
        return Evaluation(self.kind, self.metrics, values, finite, options, held_out=self.held_out, **more)

    def sequences_asked(self, n_train: int, *, quickly: bool) -> int:
        """Sequences that `evaluate` asks at most, or `measure`, of a model trained on `n_train` examples.

        As many held-out ones are assumed as it asks of its training set, for a log at most 1,024 of each. A
        task with far shorter sequences gives as many of `seq_len` tokens as they have tokens in all.
        """
        return 2 * min(n_train, 1024 if quickly else _MOST_ASKED)

    def bytes_to_ask(self, n_train: int) -> int:
        """Bytes that `evaluate` takes beside the model's, about: tokens, targets, and what is right."""
        n_sequences = n_train + self.sequences_asked(n_train, quickly=False)
        return 3 * 8 * n_sequences * (2 * self.seq_len + 2)

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


Task = TaskConfig
"""Any task, in annotations."""
