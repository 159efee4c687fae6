"""The engine for tasks with their own loss: it calls `task.loss` for one model after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from anchorlens.engine.base import Engine
from anchorlens.randomness import generator
from anchorlens.tasks.shared.batch import on_device
from anchorlens.tasks.shared.task_errors import task_errors

if TYPE_CHECKING:
    from jaxtyping import Float


class FunctionalEngine(Engine):
    """An engine that trains models with the loss that their task defines.

    The arguments of the loss are the model as a function, a batch of the training set and a random generator.
    The function of a transformer maps tokens to logits at every position. The seed and the step determine the
    random generator. A resumed run therefore makes the same draws as an uninterrupted run.
    """

    captures = False

    def _place_data(self, sets: Sequence[Any]) -> None:
        """Keep the training sets where they are; `_loss` puts each batch on the device."""
        self._sets = sets

    def _loss(self, rows: Tensor) -> Float[Tensor, " member"]:
        """Return the task's loss on each member's batch."""
        losses = []
        for k, (run, chosen) in enumerate(zip(self.runs, rows.numpy(), strict=True)):
            which, first = divmod(self._starts[k], len(self._sets[0]))
            assert first == 0
            batch = on_device(self._sets[which].take(chosen - self._starts[k]), self.device)
            parameters = {name: leaf[k : k + 1] for name, leaf in self._merged.items()}
            model = self.layout.function(run.model_config, parameters)
            with task_errors(run.task):
                losses.append(
                    run.task.loss(model, batch, generator(run.train_config.seed, "loss", self.step))
                )
        return torch.stack(losses)
