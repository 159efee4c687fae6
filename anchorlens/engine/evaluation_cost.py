"""The cost of evaluating a checkpoint, estimated from its configuration before anything is built or drawn.

A file of a few kilobytes may describe a task or a shape that takes any amount of memory and time. The allowed
cost therefore grows with the weights in the file: a large honest model has a large file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from anchorlens.engine.layout import architecture
from anchorlens.models.config import ModelConfig
from anchorlens.models.gamma import parameter_shapes
from anchorlens.models.running import BATCH_BYTES, sequence_bytes
from anchorlens.recipes.train_config import TrainConfig
from anchorlens.safe import check_affordable, cost_factor
from anchorlens.tasks.shared.base import Task

FREE_BYTES, BYTES_FOR_BYTE = 1e9, 8
"""Bytes of memory that any file may take, and further bytes for each byte of its weights."""
FREE_OPERATIONS, OPERATIONS_FOR_BYTE = 1e13, 5e5
"""Operations that any file may take (some minutes), and further operations for each byte of its weights."""
MOST_LAYERS = 1000

_SINGLE = 50
"""Operations counted for one element-wise operation (exp, copy, ...), by the time it takes."""
_LOGIT = 500
_DRAW = 20_000
_LAYER_BYTES, _LAYER_OPERATIONS = 2e5, 3e9
"""Memory and time (in operations) of the Python objects of one block."""


@dataclass(frozen=True)
class AskingCost:
    """An estimate of the memory and operations of an evaluation, correct to a factor of two or three."""

    bytes: float
    """The peak memory of weights, tables, sequences and activations."""
    operations: float
    """The floating-point operations of the matrix products. Other work counts by its time."""


def check_cost(
    model: object,
    task: Task,
    train: TrainConfig | None = None,
    weights: Iterable[Tensor] = (),
) -> None:
    """Raise an error if an evaluation costs far more than the size of the model's file suggests.

    Args:
        model: the configuration of the model, a `ModelConfig` or an object with `input_bytes` and
            `input_operations`.
        task: the task on which the model is evaluated.
        train: the recipe whose training sequences are drawn again, or None.
        weights: the tensors of the file. A weight that several tensors share counts once. Default: all
            tensors of the configuration, without shared weights.

    Raises:
        ValueError: If the cost in memory or time is too high. The message tells the user how to allow this
            cost.
    """
    factor = cost_factor()
    if isinstance(model, ModelConfig):
        words = f"it has {model.n_layers:,} layers, and a file may have {MOST_LAYERS:,}"
        check_affordable(model.n_layers, factor * MOST_LAYERS, words)
    cost, passes = asking_cost(model, task, train), getattr(task, "passes", 1)
    storages = {weight.untyped_storage().data_ptr(): weight for weight in weights}.values()
    stored = 4 * sum(weight.untyped_storage().nbytes() // weight.element_size() for weight in storages)
    in_file = min(stored or math.inf, _weight_bytes(model))
    for what, unit, size, needed, free, for_byte in (
        ("memory", "GB", 1e9, cost.bytes, FREE_BYTES, BYTES_FOR_BYTE),
        ("operations", "TFLOP", 1e12, cost.operations, FREE_OPERATIONS, OPERATIONS_FOR_BYTE * passes),
    ):
        allowed = factor * (free + for_byte * in_file)
        words = (
            f"measuring it would take about {needed / size:,.1f} {unit} of {what}, and a file of its size "
            f"may take {allowed / size:,.1f}"
        )
        check_affordable(needed, allowed, words)


def asking_cost(model: object, task: Task, train: TrainConfig | None = None) -> AskingCost:
    """Estimate the cost of building a model and evaluating it on a task.

    Args:
        model: the configuration of the model.
        task: the task that `evaluate` uses.
        train: the recipe whose training sequences are drawn again, or None.
    """
    if not isinstance(model, ModelConfig):
        return _asking_another_network(model, task, train)
    n_pos, n_sequences = task.seq_len, task.sequences_asked(4096, quickly=False)
    heads = model.n_heads * model.d_head
    patterns = model.n_heads * n_pos
    width = 6 * model.d_model + 4 * heads + 2 * model.hidden_width + 3 * patterns
    blocks = sum(math.prod(s) for name, s in parameter_shapes(model).items() if name.startswith("blocks."))
    for_sequence = (
        2 * n_pos * blocks
        + 4 * model.n_layers * heads * n_pos**2
        + _SINGLE * model.n_layers * n_pos * width
        + (2 * model.d_model + _LOGIT) * model.n_answers
    )
    objects = 1 + (model.num_experts or 0) / 2  # an expert's modules are half as many as a block's
    drawn = n_sequences * n_pos + (0 if train is None else train.n_samples * (n_pos + 3))
    asked = max(sequence_bytes(model, n_pos), min(BATCH_BYTES, 1024 * sequence_bytes(model, n_pos)))
    return AskingCost(
        bytes=4 * _weight_bytes(model)
        + model.n_layers * (_LAYER_BYTES * objects + model.n_ctx**2)  # each block has a mask of its own
        + 4 * model.n_ctx**2
        + task.bytes_to_ask(0 if train is None else train.n_samples)
        + asked,
        operations=n_sequences * for_sequence + _DRAW * drawn + _LAYER_OPERATIONS * model.n_layers * objects,
    )


def _asking_another_network(model: Any, task: Task, train: TrainConfig | None) -> AskingCost:
    n_inputs, n_trained = task.sequences_asked(4096, quickly=False), 0 if train is None else train.n_samples
    return AskingCost(
        bytes=4 * _weight_bytes(model) + task.bytes_to_ask(n_trained) + max(BATCH_BYTES, model.input_bytes),
        operations=n_inputs * model.input_operations + _DRAW * n_trained,
    )


def _weight_bytes(model: object) -> int:
    return 4 * sum(map(math.prod, architecture(model).shapes.values()))
