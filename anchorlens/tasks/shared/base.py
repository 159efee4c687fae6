"""The base class of every task: its interface for training, evaluation, storage and figures."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, runtime_checkable

from anchorlens.configuration import Config
from anchorlens.models.config import ModelConfig
from anchorlens.tasks.shared.batch import token_batch
from anchorlens.tasks.shared.evaluation import Evaluation
from anchorlens.tasks.shared.measures import Accuracy, Metric

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Int
    from torch import Tensor

MOST_ASKED = 20_000
"""The default number of training sequences that a final evaluation uses."""


@runtime_checkable
class Batch(Protocol):
    """The interface of training data, which have a length and a method to select examples."""

    def __len__(self) -> int:
        """Return the number of examples."""
        ...

    def take(self, rows: Int[np.ndarray, " row"]) -> Batch:
        """Return the examples with the indices `rows`, in this order."""
        ...


LogitsModel = Callable[..., Any]
"""A function from tokens [batch, pos] to logits.

The logits have the shape [batch, pos, d_vocab], like the logits of a HookedTransformer. The logits may
also cover only the last positions, [batch, n_last, d_vocab].
"""


class TaskConfig(Config):
    """The base class of every task, a frozen configuration of training and test data.

    Your own task is a frozen dataclass that inherits from this class. The dataclass defines `kind`,
    `metrics`, `d_vocab`, `seq_len`, `training_set(n, seed)` and `evaluate(model, *, training_set=None,
    seed=0, quick=False)`. Every field has a default. The docstring below a field is the help of its option.
    anchorlens trains, stores, measures, sweeps and plots a registered task like a shipped task.
    """

    kind: ClassVar[str]
    """The name of the task in files and on the command line, such as `two_anchor` or `addition`."""
    metrics: ClassVar[tuple[Metric, ...]]
    """The metrics of the task; an instance may have fewer metrics than its class. The metric `train` measures
    how well the training data are fit. If `id` and `ood` exist too and all three are accuracies, the phases
    are defined."""
    d_vocab: Any
    """The size of the smallest vocabulary that holds every token, and every target unless `d_vocab_out` is
    defined too."""
    seq_len: Any
    """The number of tokens that a model reads per sequence."""
    evaluate: Any
    """`evaluate(model, *, training_set=None, seed=0)` returns an `Evaluation` of a model's answers.

    A task may have more options. `training_set` is the model's training data, for the metric `train`. Without
    them, the evaluation's `train_source` names the substitute, and if `train` is then below 0.90, there is no
    phase. `seed` determines every random draw. With `quick=True`, `evaluate` uses only a few examples, for a
    line of the log."""
    loss: Any = None
    """The task's own loss; None for cross-entropy on the tokens that have a target.

    `loss(model, batch, generator)` returns a differentiable tensor of one number. `model` returns logits at
    every position. `batch` is the result of `take` of the training set; if it is a dataclass, its tensors are
    on the model's device. `generator` is a NumPy generator for random draws, a function of the seed and the
    step. Tensors from `generator` are on the CPU, and `on_device` (`tasks.shared.batch`) moves them without
    waiting for CUDA. The functional engine trains tasks with a loss."""
    model_class: ClassVar[type[Any]] = ModelConfig
    """The configuration class of the task's models: `ModelConfig` for a HookedTransformer, or another
    class."""
    stored_fields: ClassVar[tuple[str, ...]] = ()
    """The fields that are computed if a task is made without them. A stored task must have these fields."""
    has_anchors: ClassVar[bool] = False
    """Whether the sequences hold anchors, which some probes and the verdicts by internals need."""
    halves: ClassVar[bool] = False
    """Whether `evaluate` has an option `half`, 0 or 1, to measure OOD on that half of the held-out examples
    only. One half can then select models, and the other half can test the selected models."""
    presets: ClassVar[Mapping[str, Mapping[str, Mapping[str, Any]]]] = MappingProxyType({})
    """The presets of `--preset`: for each preset and part of a run (task, model, train), the changed
    fields."""
    sampling: ClassVar[Mapping[str, int]] = MappingProxyType({})
    """The options that make `evaluate` cheap enough for each checkpoint of a trajectory."""
    evaluation_class: ClassVar[type[Evaluation]] = Evaluation
    """The class of the result of `evaluate`, also when it is read from JSON."""
    vocabulary: Any = None
    """The vocabulary of a task in words; None for a task in numbers."""
    table_size: Any = 0
    """The number of values that the task holds, which limits the number of tasks in one file."""
    held_out: Any = "what the task holds out"
    """The data that are held out of training, in words that can follow `it was never trained on`."""

    @property
    def d_vocab_out(self) -> Any:
        """The size of the smallest vocabulary that holds every target. Default: `d_vocab`."""
        return self.d_vocab

    @classmethod
    def architecture(cls, config: Any) -> Any:
        """Return the memory layout, initialisation and forward pass of a model with this configuration.

        Args:
            config: the configuration, an instance of the task's `model_class`.

        Returns:
            A `FlatLayout` of `anchorlens.engine`. Tasks with a `ModelConfig` do not need this
            method.
        """
        raise NotImplementedError

    def training_set(self, n: int, seed: int) -> Any:
        """Return `n` training examples, which depend only on the task, `n` and the seed."""
        raise NotImplementedError

    def lazy_training_set(self, n: int, seed: int) -> Any:
        """Return the same examples as `training_set`, drawn on demand if the task supports this."""
        return self.training_set(n, seed)

    def checked_training_set(self, training_set: object) -> Any:
        """Check that a caller's training data (tokens, targets) fit this task, and return a batch.

        Raises:
            ValueError: If the data are not a pair (tokens, targets), or do not have the task's shape or
                vocabulary.
        """
        return token_batch(training_set, seq_len=self.seq_len, d_vocab=self.d_vocab, every_position=None)

    def targets_of(self, tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch ..."] | None:
        """Return the task's own targets for the sequences of a caller's training data.

        Args:
            tokens: the tokens, in the format of a training set.

        Returns:
            The targets in the format of a training set, or None (the default) if the task does not determine
            targets. Positions without a known target have the value `IGNORE`. Sequences that are not inputs
            of the task have the value -1.
        """
        return None

    def measure(self, model: LogitsModel, training_set: object, *, seed: int = 0) -> dict[str, float | None]:
        """Return a map from each metric's name in the log to its value by `evaluate(..., quick=True)`."""
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
        """Build the result of `evaluate`.

        Args:
            measures: a map from the name of each metric to its value. A metric that is missing from
                `measures` is undefined.
            finite: whether every logit was finite.
            seed: the seed of the random draws.
            options: other settings of the evaluation, JSON-ready.
            **more: other fields of `Evaluation`, such as figures (`figure_specs`) and `train_source`.
        """
        values = {metric.name: measures.get(metric.name) for metric in self.metrics}
        options = {"seed": seed, "task": self.describe(), **options}
        return Evaluation(self.kind, self.metrics, values, finite, options, held_out=self.held_out, **more)

    def sequences_asked(self, n_train: int, *, quickly: bool) -> int:
        """Return the largest number of sequences on which `evaluate` tests a model.

        If `quickly` is true, the number is for `measure` instead of `evaluate`. The default implementation
        assumes equal numbers of held-out and training sequences. For `measure`, the default implementation
        assumes at most 1,024 held-out and 1,024 training sequences. A task whose sequences are far shorter
        than `seq_len` should return the total number of tokens divided by `seq_len`.
        """
        return 2 * min(n_train, 1024 if quickly else MOST_ASKED)

    def bytes_to_ask(self, n_train: int) -> int:
        """Return the approximate number of bytes that `evaluate` needs in addition to the model."""
        n_sequences = n_train + self.sequences_asked(n_train, quickly=False)
        return 3 * 8 * n_sequences * (2 * self.seq_len + 2)

    def describe(self) -> str:
        """Return the first paragraph of the class's docstring, a description of trained and held-out data."""
        return (inspect.getdoc(type(self)) or self.kind).split("\n\n")[0]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready fields and the kind, from which `from_dict` makes an equal task."""
        return {"kind": self.kind, **super().to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read a task from JSON or TOML data.

        Raises:
            ValueError: If a field is unknown or a value is invalid.
        """
        return super().from_dict({name: value for name, value in values.items() if name != "kind"})


Task = TaskConfig
"""The type of any task, for annotations."""
