"""The engine of tasks with a loss of their own: one model after another, by `task.loss`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from anchorlens.engine.base import Engine
from anchorlens.randomness import generator
from anchorlens.tasks.shared.batch import on_device

if TYPE_CHECKING:
    from jaxtyping import Float


class FunctionalEngine(Engine):
    """Trains models by whatever loss their task defines; everything else is as in every engine.

    The loss gets its model as a function (of a transformer: of tokens, which gives logits at every position),
    some of the training set, and a generator that is a function of the seed and the step, so that a resumed
    run draws what an uninterrupted one does.
    """

    captures = False

    def _place_data(self, sets: Sequence[Any]) -> None:
        """The training sets stay where they are; each batch is taken from them and put on the device."""
        self._sets = sets

    def _loss(self, rows: Tensor) -> Float[Tensor, " member"]:
        """What each member's task says of its batch."""
        losses = []
        for k, (run, chosen) in enumerate(zip(self.runs, rows.numpy(), strict=True)):
            which, first = divmod(self._starts[k], len(self._sets[0]))
            assert first == 0
            batch = on_device(self._sets[which].take(chosen - self._starts[k]), self.device)
            parameters = {name: leaf[k : k + 1] for name, leaf in self._merged.items()}
            model = self.layout.function(run.model_config, parameters)
            losses.append(run.task.loss(model, batch, generator(run.train_config.seed, "loss", self.step)))
        return torch.stack(losses)
