"""TaskConfig: the base class of every task, the interface for training, evaluation, storage and pictures."""

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
"""Training sequences that a final evaluation uses, where a task does not say how many."""


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
    """Base class of the tasks: a frozen configuration of what is trained and evaluated, stored as data.

    A task of your own is a frozen dataclass that inherits from it and defines six names: `kind`, `metrics`,
    `d_vocab`, `seq_len`, `training_set(n, seed)` and
    `evaluate(model, *, training_set=None, seed=0, quick=False)`. Every field has a default and, under it, a
    docstring, which is the help of its option. Once registered, it is trained, stored, measured, swept and
    plotted like every other task.
    """

    kind: ClassVar[str]
    """Its name in files and on the command line: `two_anchor`, `addition`."""
    metrics: ClassVar[tuple[Metric, ...]]
    """What it measures; an instance may have fewer metrics than its class. The metric `train` says how well
    the training data are fit; with `id` and `ood` as well, all three accuracies, the phases are defined."""
    d_vocab: Any
    """Smallest vocabulary that holds every token, and every target unless `d_vocab_out` is defined too."""
    seq_len: Any
    """Tokens per sequence, as a model reads them."""
    evaluate: Any
    """`evaluate(model, *, training_set=None, seed=0)` gives an `Evaluation` of what a model answers.

    A task may take more options. `training_set` is what the model was trained on, for the metric `train`:
    without it the evaluation's `train_source` says what was used instead, and if `train` is then below .90
    there is no phase. `seed` determines what is drawn at random. With `quick=True` only a few examples are
    used, for a line of the log."""
    loss: Any = None
    """Its own loss; None for cross-entropy on the tokens that have a target.

    `loss(model, batch, generator)` gives a differentiable tensor of one number. `model` gives logits at every
    position. `batch` is what `take` of the training set gives; if that is a dataclass, its tensors are on the
    model's device. `generator` is a NumPy generator for random draws, a function of the seed and the step;
    tensors made from it are on the CPU, and `on_device` (`tasks.shared.batch`) moves them without waiting for
    CUDA. The functional engine trains such a task."""
    model_class: ClassVar[type[Any]] = ModelConfig
    """The class of configuration of its models: `ModelConfig` for a HookedTransformer, or another."""
    stored_fields: ClassVar[tuple[str, ...]] = ()
    """Fields that are filled in when a task is made without them; a stored task must hold them."""
    has_anchors: ClassVar[bool] = False
    """Whether its sequences hold anchors, which some probes and the verdicts by internals need."""
    halves: ClassVar[bool] = False
    """Whether `evaluate` takes `half`, 0 or 1, and measures OOD on that half of the left-out examples only.
    One half can then select models, and the other test the selected ones."""
    presets: ClassVar[Mapping[str, Mapping[str, Mapping[str, Any]]]] = MappingProxyType({})
    """Preset -> part of a run (task, model, train) -> the fields that it changes: what `--preset` offers."""
    sampling: ClassVar[Mapping[str, int]] = MappingProxyType({})
    """Options that make `evaluate` cheap, for each checkpoint of a trajectory."""
    evaluation_class: ClassVar[type[Evaluation]] = Evaluation
    """The class of what `evaluate` gives, and of what is read back from JSON."""
    vocabulary: Any = None
    """The vocabulary of a task in words; None for a task in numbers."""
    table_size: Any = 0
    """How many numbers the task itself holds; limits how many tasks one file may name."""
    held_out: Any = "what the task holds out"
    """What is left out of training, in words that can follow `it was never trained on`."""

    @property
    def d_vocab_out(self) -> Any:
        """Smallest vocabulary that holds every target: `d_vocab`, unless a task has one for its answers."""
        return self.d_vocab

    @classmethod
    def architecture(cls, config: Any) -> Any:
        """The memory layout, initialisation and forward pass of a model of a `model_class` of its own.

        Args:
            config: an instance of `model_class`.

        Returns:
            A `FlatLayout` of `anchorlens.training.engine`. Tasks of a `ModelConfig` need none.
        """
        raise NotImplementedError

    def training_set(self, n: int, seed: int) -> Any:
        """The training set of a run, `n` examples; it depends on `n` and the seed alone."""
        raise NotImplementedError

    def lazy_training_set(self, n: int, seed: int) -> Any:
        """The same; if the task supports it, examples are drawn only when they are taken."""
        return self.training_set(n, seed)

    def checked_training_set(self, training_set: object) -> Any:
        """Check that training data from a caller, (tokens, targets), are of this task, and return them.

        Raises:
            ValueError: they are something else, or of another shape or vocabulary.
        """
        from anchorlens.tasks.shared.checked_batch import token_batch  # with torch

        return token_batch(training_set, seq_len=self.seq_len, d_vocab=self.d_vocab, every_position=None)

    def targets_of(self, tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch ..."] | None:
        """The targets that the task gives to sequences, by which the training data of a caller are checked.

        Args:
            tokens: as a training set has them.

        Returns:
            Targets as a training set has them: `IGNORE` where nothing is scored or the task cannot tell, -1
            for a sequence that asks nothing of the task. None, as here, if it can tell of none.
        """
        return None

    def measure(self, model: LogitsModel, training_set: object, *, seed: int = 0) -> dict[str, float | None]:
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
            measures: metric -> its value; a metric that is missing is not defined.
            finite: whether every logit was finite.
            seed: of what was drawn at random.
            options: other settings of the evaluation, JSON-ready.
            **more: other fields of `Evaluation`: pictures (`figure_specs`), `train_source`, `overlap`,
                `other_targets`, `by_symmetry`.
        """
        values = {metric.name: measures.get(metric.name) for metric in self.metrics}
        options = {"seed": seed, "task": self.describe(), **options}
        return Evaluation(self.kind, self.metrics, values, finite, options, held_out=self.held_out, **more)

    def sequences_asked(self, n_train: int, *, quickly: bool) -> int:
        """Most sequences that `evaluate` (if `quickly`, `measure`) runs a model on, for `n_train` examples.

        By default it assumes as many held-out as training sequences, for `measure` at most 1,024 of each. A
        task with sequences far shorter than `seq_len` counts the tokens in all, divided by `seq_len`.
        """
        return 2 * min(n_train, 1024 if quickly else _MOST_ASKED)

    def bytes_to_ask(self, n_train: int) -> int:
        """Approximate bytes that `evaluate` needs in addition to the model: tokens, targets and results."""
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
