"""The cost of one update of one model: parameters, memory and operations.

Operations, and the activations that a forward pass keeps, are counted by tracing one update on torch's `meta`
device, which has shapes but no data. Other memory is estimated as multiples of the counted sizes (a test
compares the sum with a real process).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from anchorlens.configuration import documented
from anchorlens.files.checkpoint import training_set
from anchorlens.training.engine import engine_of
from anchorlens.training.engine.forward import logits_at_end
from anchorlens.training.engine.kernels import products_to_count
from anchorlens.training.engine.optimizers import MOMENTS
from anchorlens.training.engine.stack import Stack
from anchorlens.training.engine.transformer import Transformer
from anchorlens.training.recipes.run_config import RunConfig

_ROW_COPIES = 1 + len(MOMENTS) + 2 + 2
"""Copies of a model's parameters in memory: weights, moments, gradients by parameter and as one row, and two
copies of good weights."""
_TRANSIENT = 5
"""Measured number of gradients and temporaries of the largest activation's size that an update holds at
once."""


@documented
@dataclass(frozen=True)
class Cost:
    """What one update of one model costs."""

    parameters: int
    """Trained parameters."""
    flops: int
    """Floating-point operations of the matrix products, forward and backward, as they are executed."""
    state_bytes: int
    """Weights, gradients, optimizer moments and copies."""
    data_bytes: int
    """The training set, as far as it is held in memory, and its order."""
    activation_bytes: int
    """Activations that the forward pass keeps for the backward pass, and temporary gradients."""

    @property
    def bytes(self) -> int:
        """Memory of one model in training."""
        return self.state_bytes + self.data_bytes + self.activation_bytes


def count_cost(run: RunConfig) -> Cost:
    """Count the cost of one update of one model, traced on the `meta` device where possible."""
    train, task = run.train_config, run.task
    few = replace(train, n_samples=min(train.n_samples, max(train.batch_size, 10_000)))
    data = training_set(task, few)
    loss_of_batch, leaves = _traced(run._replace(train_config=few), data)
    kept: dict[int, int] = {}
    largest = 0

    def keep(tensor: Tensor) -> Tensor:
        nonlocal largest
        storage = tensor.untyped_storage()
        kept[storage._cdata] = storage.nbytes()
        largest = max(largest, storage.nbytes())
        return tensor

    with FlopCounterMode(display=False, custom_mapping=products_to_count()) as flops:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = loss_of_batch()
        torch.autograd.grad(loss, leaves)
    for leaf in leaves:
        kept.pop(leaf.untyped_storage()._cdata, None)
    size, itemsize = sum(leaf.numel() for leaf in leaves), leaves[0].itemsize
    example_bytes = getattr(data, "example_bytes", 8 * (task.seq_len + 1))
    return Cost(
        parameters=size,
        flops=flops.get_total_flops(),
        state_bytes=_ROW_COPIES * size * itemsize,
        data_bytes=train.n_samples * (8 + example_bytes),  # 8 for its place in the order
        activation_bytes=sum(kept.values()) + _TRANSIENT * largest,
    )


def _traced(run: RunConfig, data: Any) -> tuple[Callable[[], Tensor], list[Tensor]]:
    """A function that returns the loss of one model on one batch, and the parameters it depends on.

    A task's own loss may do anything, so it is computed on the CPU; every other loss is traced without data.
    """
    if engine_of(run) is not Stack:
        engine = engine_of(run)([run], [data], torch.device("cpu"))
        return engine.first_loss, engine.leaves
    layout, dtype = Transformer(run.model_config), getattr(torch, run.train_config.dtype)
    parameters = layout.merged(torch.empty(1, layout.size, dtype=dtype, device="meta"))
    leaves = [leaf.requires_grad_() for leaf in parameters.values()]
    vocabulary = data.tokens.unique().to("meta")
    n_last, n_sequences = data.n_last, run.train_config.batch_size
    batch = torch.empty(1, n_sequences, run.task.seq_len, dtype=torch.int64, device="meta")
    targets = torch.empty(n_sequences * n_last, dtype=torch.int64, device="meta")

    def loss_of_batch() -> Tensor:
        logits = logits_at_end(parameters, run.model_config, batch, vocabulary, n_last=n_last)
        return functional.cross_entropy(logits.flatten(0, 2), targets)

    return loss_of_batch, leaves
