"""The engine for token tasks and the engine for tasks with their own loss, and which of them trains a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from anchorlens.engine.base import Engine
from anchorlens.engine.forward import logits_at_end, table_rows
from anchorlens.engine.ragged import RaggedBatch, logits_where_scored
from anchorlens.randomness import generator
from anchorlens.recipes.run_config import RunConfig
from anchorlens.tasks.shared.batch import IGNORE, is_ragged, on_device
from anchorlens.tasks.shared.task_errors import task_errors

if TYPE_CHECKING:
    from jaxtyping import Float


class Stack(Engine):
    """An engine that trains models to predict target tokens.

    The engine skips computation that the loss does not need.

    For example, the engine computes the last layer and the unembedding only from the first scored position
    on. On the CPU, the engine skips positions after the end of a sequence if the mean length is below 75% of
    the width. On CUDA, the engine computes all positions, because a captured graph needs fixed shapes.
    """

    def _place_data(self, sets: Sequence[Any]) -> None:
        """Store the sequences (TokenBatch) as rows of the first layer's table, and the scored targets."""
        n, width = sets[0].tokens.shape
        counts = [b.tokens.flatten().bincount(minlength=self.runs[0].model_config.d_vocab) for b in sets]
        occurs = torch.stack(counts).any(dim=0)
        self.vocabulary = occurs.nonzero().squeeze(1).to(self.device)
        place = occurs.cumsum(0) - 1  # of each token in the vocabulary
        self.n_last = max(batch.n_last for batch in sets)
        if self.n_last == 0:
            raise ValueError("a training set must have a target at some position, got none. Correct the task")
        self._lengths = torch.cat([batch.lengths for batch in sets])
        self.ragged = self.device.type == "cpu" and is_ragged(self._lengths, width)
        if self.ragged:
            self._places = torch.cat([place[batch.tokens] for batch in sets])
            self._targets = torch.cat([batch.targets for batch in sets])
            return
        scored = [b.targets if b.targets.dim() == 1 else b.targets[:, -self.n_last :] for b in sets]
        self._has_gaps = any(bool((targets == IGNORE).any()) for targets in scored)
        # set by set, so that temporaries take the memory of one set only
        self._table_rows = torch.empty(len(sets) * n, width, dtype=torch.int64, device=self.device)
        self._targets = self._table_rows.new_empty(len(sets) * n, *scored[0].shape[1:])
        for k, (batch, targets) in enumerate(zip(sets, scored, strict=True)):
            own = slice(k * n, (k + 1) * n)
            self._table_rows[own].copy_(table_rows(place[batch.tokens]))  # [sequence, pos]
            self._targets[own].copy_(targets)  # [sequence], or [sequence, n_last]

    def _loss(self, rows: Tensor) -> Float[Tensor, " member"]:
        """Return the mean cross-entropy of each member's batch over the scored positions, in nats."""
        bf16 = self._train.matmul == "bf16"
        if self.ragged:
            return self._ragged_loss(rows, bf16)
        config, places = self.runs[0].model_config, self._table_rows[rows]
        logits = logits_at_end(
            self._merged, config, places, self.vocabulary, n_last=self.n_last, bf16=bf16
        )  # [member, batch, n_last, d_vocab_out]
        targets = self._targets[rows].flatten()
        losses = functional.cross_entropy(
            logits.flatten(0, 2), targets, reduction="none", ignore_index=IGNORE
        )
        losses = losses.view(len(self), -1)
        if not self._has_gaps:
            return losses.mean(dim=1)
        return losses.sum(dim=1) / (targets != IGNORE).view(len(self), -1).sum(dim=1)

    def _ragged_loss(self, rows: Tensor, bf16: bool) -> Float[Tensor, " member"]:
        """Compute the loss only up to the end of each sequence, one member after the other."""
        losses = []
        for k, own in enumerate(rows):
            targets = self._targets[own]  # [batch, pos]
            batch = RaggedBatch.of(self._places[own], self._lengths[own], targets != IGNORE)
            parameters = {name: value[k : k + 1] for name, value in self._merged.items()}
            logits = logits_where_scored(
                parameters, self.runs[k].model_config, batch, self.vocabulary, bf16=bf16
            )  # [end, d_vocab_out]
            losses.append(functional.cross_entropy(logits, targets.flatten()[batch.scored]))
        return torch.stack(losses)


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
            own = self._sets[self._starts[k] // len(self._sets[0])]
            batch = on_device(own.take(chosen - self._starts[k]), self.device)
            parameters = {name: leaf[k : k + 1] for name, leaf in self._merged.items()}
            model = self.layout.function(run.model_config, parameters)
            rng = generator(run.train_config.seed, "loss", self.step)
            with task_errors(run.task):
                losses.append(run.task.loss(model, batch, rng))
        return torch.stack(losses)


def engine_of(run: RunConfig) -> type[Engine]:
    """Return `FunctionalEngine` for a task that defines a loss, and `Stack` for every other task."""
    return FunctionalEngine if run.task.loss is not None else Stack
