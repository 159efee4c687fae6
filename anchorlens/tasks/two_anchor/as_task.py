"""The two-anchor task as a task like others: its metrics, its training set, and how it is asked."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np

from anchorlens.tasks.shared.base import Answers, TaskConfig
from anchorlens.tasks.shared.evaluation import Evaluation
from anchorlens.tasks.shared.metric import Metric
from anchorlens.tasks.two_anchor import description
from anchorlens.tasks.two_anchor.drawing import DRAWN_AT_ONCE, Drawing
from anchorlens.tasks.two_anchor.evaluation import AnchorEvaluation
from anchorlens.tasks.two_anchor.metrics import KIND, METRICS
from anchorlens.tasks.two_anchor.sequences import AnchorBatch
from anchorlens.tasks.two_anchor.task_data import from_data, to_data


class TwoAnchor(TaskConfig):
    """What `AnchorTask` offers as a task; `AnchorTask` is the only class of this kind."""

    kind: ClassVar[str] = KIND
    metrics: ClassVar[tuple[Metric, ...]] = METRICS
    has_anchors: ClassVar[bool] = True
    sampling: ClassVar[Mapping[str, int]] = MappingProxyType(
        {"n_noise": 2, "max_cells": 2048, "max_train": 1024}
    )
    evaluation_class: ClassVar[type[Evaluation]] = AnchorEvaluation
    drawing: Any
    n_trials: Any
    pairs: Any
    keys: Any
    seq_len: Any
    chain_length: Any

    @property
    def held_out(self) -> str:
        """What is left out of training, in words."""
        return description.held_out(self)

    def describe(self) -> str:
        """In words: what is trained, and what is held out."""
        return description.describe(self)

    @property
    def table_size(self) -> int:
        """Targets of every pair and key."""
        return len(self.pairs) * len(self.keys)

    def training_set(self, n: int, seed: np.random.Generator) -> AnchorBatch:
        """`n` sequences of the train split."""
        return self.training_drawing(n, seed).all()

    def training_drawing(self, n: int, seed: np.random.Generator) -> Drawing:
        """The same, not yet drawn."""
        return self.drawing(n, split="train", seed=seed)

    def checked_training_set(self, given: Any) -> Any:
        """Training data that a caller gives, if they are sequences of this task."""
        from anchorlens.tasks.two_anchor import behaviour

        task: Any = self
        return behaviour.checked_training_set(given, task)

    def evaluate(
        self, model: Answers, *, training_set: Any = None, seed: int = 0, **options: Any
    ) -> AnchorEvaluation:
        """Measure what a model answers: `anchorlens.evaluate`, whose options are taken."""
        from anchorlens.tasks.two_anchor import behaviour

        task: Any = self
        return behaviour.evaluate(model, task, training_set=training_set, seed=seed, **options)

    def measure(self, model: Answers, training_set: Any, *, seed: int = 0) -> dict[str, float | None]:
        """Train, ID and OOD accuracy from one noise draw, by their names in a log."""
        from anchorlens.tasks.two_anchor import behaviour

        task: Any = self
        return behaviour.quick_accuracies(model, task, training_set, seed=seed)

    def sequences_asked(self, n_train: int, *, quickly: bool) -> int:
        """Sequences that `evaluate` asks at most, or `measure`, of a model trained on `n_train` sequences."""
        n_trained, n_id, n_ood = (self.n_trials(split) for split in ("train", "id", "ood"))
        if quickly:
            return min(1024, n_train) + min(2048, n_id) + min(2048, n_ood)
        n_trained, n_id, n_ood = (min(n, 20_000) for n in (n_trained, n_id, n_ood))
        return min(4096, n_train) + 2 * n_trained + 8 * (n_id + 2 * n_ood)

    def bytes_to_ask(self, n_train: int) -> int:
        """Of the table of all trials, of the sequences of the largest split, and of a part of the drawing."""
        trials = [self.n_trials(split) for split in ("train", "id", "ood")]
        tables = 2 * (self.chain_length + 2) * sum(trials) + 3 * self.seq_len * min(max(trials), 20_000)
        return 8 * (tables + 6 * min(n_train * self.seq_len, DRAWN_AT_ONCE))

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready fields; `AnchorTask.from_dict` gives an equal task back."""
        return to_data(super().to_dict())

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read a task from JSON or TOML data (anchors and pairs may be keys such as "3" and "3,4").

        Raises:
            ValueError: an unknown field or an unusable value.
        """
        return super().from_dict(from_data(values))
