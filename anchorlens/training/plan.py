"""What a training will cost, known before it starts: parameters, memory, arithmetic, time.

Memory and arithmetic are counted, not estimated by formula: one update is traced on torch's `meta`
device, which has shapes and no data. Time is measured on the device, by updates that change nothing.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import psutil
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from anchorlens.behaviour import evaluate, quick_accuracies
from anchorlens.checkpoint import training_set
from anchorlens.configuration import documented
from anchorlens.presets import RunConfig
from anchorlens.stacked.forward import last_logits
from anchorlens.stacked.layout import Layout
from anchorlens.training.numerics import choose_device, numeric_settings
from anchorlens.training.stack import MOMENTS, Stack

USABLE = 0.8
"""Share of the free memory that is planned with; the rest is for what libraries keep for themselves."""
_ROW_COPIES = 1 + len(MOMENTS) + 2 + 2
"""Times a model's parameters are held: weights, moments, gradients as they come and as one row, and the
copies of the last good weights."""
_TRANSIENT = 5
"""Gradients and temporaries of the largest activation's size that an update holds at once, as measured."""


@documented
@dataclass(frozen=True)
class Cost:
    """What one update of one model costs."""

    parameters: int
    """Trained parameters."""
    flops: int
    """Floating-point operations of the matrix products, forward and backward, as they are carried out."""
    state_bytes: int
    """Weights, gradients, optimizer moments and copies."""
    data_bytes: int
    """The training set and its order on the device."""
    activation_bytes: int
    """What the forward pass keeps for the backward pass, and the gradients in flight."""

    @property
    def bytes(self) -> int:
        """Memory of one model in training."""
        return self.state_bytes + self.data_bytes + self.activation_bytes


@documented
@dataclass(frozen=True)
class Plan:
    """What a training will cost."""

    device: str
    """Where it would run."""
    n_models: int
    """Models to train."""
    at_once: int
    """Models trained at the same time: members of one stack on CUDA, processes on the CPU."""
    steps: int
    """Updates of each model."""
    cost: Cost
    """Of one update of one model (of the first, where they differ)."""
    memory_bytes: int
    """Memory of all that are trained at the same time."""
    available_bytes: int
    """Memory that is free now."""
    seconds_per_update: float
    """Measured: time of one update of everything that is trained at the same time."""
    seconds: float
    """Estimated time of the whole training, evaluations included, if nothing else uses the machine."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready content."""
        return asdict(self)


def plan(runs: Sequence[RunConfig], *, workers: int | None = None, seconds: float = 2.0) -> Plan:
    """Count what training these runs costs, and measure for how long.

    Args:
        runs: as for `train_many`, of equal shape and duration (the first is counted).
        workers: processes on the CPU, as for `train_many`.
        seconds: time to spend on the measurement, > 0.

    Returns:
        Parameters, bytes, floating-point operations, and seconds.

    Raises:
        ValueError: no runs, or a device that is not there.
    """
    if not runs:
        raise ValueError("there must be at least one run to plan, got none")
    run = runs[0]
    device = choose_device(run.train.device)
    cost = count_cost(run)
    at_once = processes(runs, workers) if device.type == "cpu" else members_at_once(run, len(runs))
    threads = run.train.threads or (1 if at_once > 1 and device.type == "cpu" else None)
    with numeric_settings(device, threads, tf32=run.train.matmul == "tf32"):
        stack_size = 1 if device.type == "cpu" else at_once
        data = training_set(run.task, run.train)
        stack = Stack(runs[:stack_size], [data] * stack_size, device)
        per_update = _seconds_per_update(stack, seconds)
        evaluations = stack_size * _evaluation_seconds(stack, run, data)
    rounds = math.ceil(len(runs) / at_once)
    return Plan(
        device=str(device),
        n_models=len(runs),
        at_once=at_once,
        steps=run.train.total_steps,
        cost=cost,
        memory_bytes=at_once * cost.bytes,
        available_bytes=available_bytes(device),
        seconds_per_update=per_update,
        seconds=rounds * (run.train.total_steps * per_update + evaluations),
    )


def _seconds_per_update(stack: Stack, seconds: float) -> float:
    stack.idle(2)
    _wait(stack.device)
    updates, started = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        stack.idle(1)
        _wait(stack.device)
        updates += 1
    return elapsed / updates


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _evaluation_seconds(stack: Stack, run: RunConfig, data: Any) -> float:
    """Time that the evaluations of one model take over its whole training."""
    started = time.perf_counter()
    quick_accuracies(stack.model(0), run.task, data)
    quick = time.perf_counter() - started
    evaluate(stack.model(0), run.task, training_set=data)
    final = time.perf_counter() - started - quick
    return quick * math.ceil(run.train.total_steps / run.train.eval_every) + final


def count_cost(run: RunConfig) -> Cost:
    """Trace one update of one model on the `meta` device and count."""
    train, task = run.train, run.task
    layout, dtype = Layout(run.model), getattr(torch, run.train.dtype)
    parameters = layout.merged(torch.empty(1, layout.size, dtype=dtype, device="meta"))
    leaves = [leaf.requires_grad_() for leaf in parameters.values()]
    vocabulary = training_set(task, train).tokens.unique().to("meta")
    batch = torch.empty(1, train.batch_size, task.seq_len, dtype=torch.int64, device="meta")
    targets = torch.empty(train.batch_size, dtype=torch.int64, device="meta")
    kept: dict[int, int] = {}
    largest = 0

    def keep(tensor: Tensor) -> Tensor:
        nonlocal largest
        storage = tensor.untyped_storage()
        kept[storage._cdata] = storage.nbytes()
        largest = max(largest, storage.nbytes())
        return tensor

    with FlopCounterMode(display=False) as flops:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            logits = last_logits(parameters, run.model, batch, vocabulary)
            loss = functional.cross_entropy(logits.flatten(0, 1), targets)
        torch.autograd.grad(loss, leaves)
    for leaf in leaves:
        kept.pop(leaf.untyped_storage()._cdata, None)
    itemsize = torch.empty(0, dtype=dtype).itemsize
    return Cost(
        parameters=layout.size,
        flops=flops.get_total_flops(),
        state_bytes=_ROW_COPIES * layout.size * itemsize,
        data_bytes=8 * train.n_samples * (task.seq_len + 2),  # tokens, target and order, as int64
        activation_bytes=sum(kept.values()) + _TRANSIENT * largest,
    )


def available_bytes(device: torch.device) -> int:
    """Memory that is free on a device now."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return psutil.virtual_memory().available


def members_at_once(run: RunConfig, n_runs: int) -> int:
    """How many of `n_runs` runs like `run` the memory holds at the same time, >= 1, in equal shares."""
    if n_runs == 1:
        return 1
    free = USABLE * available_bytes(choose_device(run.train.device))
    most = max(1, min(n_runs, int(free // count_cost(run).bytes)))
    return math.ceil(n_runs / math.ceil(n_runs / most))


def processes(runs: Sequence[RunConfig], workers: int | None) -> int:
    """How many processes train these runs: on the CPU one per core, as far as the memory reaches."""
    if len(runs) < 2 or any(choose_device(run.train.device).type == "cuda" for run in runs):
        return 1
    if workers is None:
        workers = max(1, len(os.sched_getaffinity(0)) // max(run.train.threads or 1 for run in runs))
    return 1 if workers == 1 else min(workers, max(members_at_once(run, len(runs)) for run in runs[:1]))
