"""The cost of a training, estimated before it starts: parameters, memory, operations, time.

Operations of an update, and the activations that a forward pass keeps, are counted by tracing one update on
torch's `meta` device, which has shapes but no data. Other memory is estimated as multiples of the counted
sizes (a test compares the sum with a real process). Time is measured by updates of a small stack on the
device. From memory follows how many models are trained at the same time.
"""

from __future__ import annotations

import math
import multiprocessing
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import loky
import numpy as np
import psutil
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from anchorlens.configuration import frozen_dataclass
from anchorlens.engine import engine_of, numeric_settings
from anchorlens.engine.base import Engine
from anchorlens.engine.engines import Stack
from anchorlens.engine.forward import logits_at_end
from anchorlens.engine.interventions import check_interventions
from anchorlens.engine.layout import Transformer
from anchorlens.engine.linear import products_to_count
from anchorlens.engine.optimizers import MOMENTS
from anchorlens.files.checkpoint import starting_point, training_set
from anchorlens.models.devices import choose_device
from anchorlens.randomness import generator
from anchorlens.recipes.run_config import RunConfig, check_parts
from anchorlens.records import Record
from anchorlens.tasks.registry import task_or_default
from anchorlens.tasks.shared.base import Batch, Task
from anchorlens.tasks.shared.batch import on_device
from anchorlens.texts import safe_repr

MOST_WORKERS = 1024
"""Largest number of processes that may be asked for."""
USABLE = 0.8
"""Share of the free memory that a plan uses; the rest is left to libraries."""
PROCESS_BYTES = 500_000_000
"""Measured memory of a process before it trains anything: Python, torch, the task's tables."""
_ROW_COPIES = 1 + len(MOMENTS) + 2 + 2
"""Copies of a model's parameters in memory: weights, moments, gradients by parameter and as one row, and two
copies of good weights."""
_TRANSIENT = 5
"""Measured number of gradients and temporaries of the largest activation's size that an update holds at
once."""


@frozen_dataclass()
class Cost:
    """The cost of one update of one model."""

    parameters: int
    """The number of trained parameters."""
    flops: int
    """The floating-point operations of the matrix products in the forward and backward pass."""
    state_bytes: int
    """The memory of weights, gradients, optimizer moments and copies."""
    data_bytes: int
    """The memory of the training set and its order."""
    activation_bytes: int
    """The memory of activations that the forward pass keeps, and of temporary gradients."""

    @property
    def bytes(self) -> int:
        """The memory of one model in training, in bytes."""
        return self.state_bytes + self.data_bytes + self.activation_bytes


@frozen_dataclass()
class Plan(Record):
    """The estimated cost of training several models."""

    device: str
    """The device of the training."""
    n_models: int
    """The number of models to train."""
    at_once: int
    """The number of models trained at the same time, in one stack on CUDA or in processes on the CPU."""
    steps: int
    """The number of updates of each model."""
    cost: Cost
    """The cost of one update of the first model."""
    memory_bytes: int
    """The memory of all models that are trained at the same time, in bytes."""
    available_bytes: int
    """The free memory, in bytes."""
    seconds_per_update: float | None
    """The measured seconds of one update of all models trained at the same time, or None if memory is too
    small."""
    seconds: float | None
    """The estimated seconds of the training with its evaluations, at the speed that was measured now. Other
    programs on the machine make it slower."""
    on_the_way: Mapping[str, str] = field(default_factory=dict)
    """A map from fields of the first run's recipe to the changes that they make during training, in words."""


def training_plan(runs: Sequence[RunConfig], *, workers: int | None = None, seconds: float = 2.0) -> Plan:
    """Count the memory and operations of training these runs, and estimate the time.

    Args:
        runs: the runs, as for `train_many`, of equal shape and duration. The function counts the cost of the
            first run.
        workers: the number of processes on the CPU, as for `train_many`.
        seconds: the time for the measurement, in seconds, above 0.

    Returns:
        The parameters, bytes, floating-point operations and seconds of the training.

    Raises:
        ValueError: If there are no runs, or the runs are invalid for `train_many`.
    """
    runs = check_runs(runs)
    if not runs:
        raise ValueError("runs must contain at least one run, got none. Give a run")
    run = runs[0]
    device, cost = choose_device(run.train_config.device), count_cost(run)
    on_cpu = device.type == "cpu"
    at_once = processes(runs, workers) if on_cpu else members_at_once(run, len(runs))
    memory = at_once * cost.bytes + (at_once * PROCESS_BYTES if on_cpu and at_once > 1 else 0)
    per_update = total = None
    if memory <= available_bytes(device):
        members = runs[:1] if on_cpu else runs[:at_once]
        threads = run.train_config.threads or (1 if at_once > 1 and on_cpu else None)
        with numeric_settings(device, threads, tf32=run.train_config.matmul == "tf32"):
            per_update, per_sequence = _measure(members, device, seconds)
        n_asked = len(members) * _sequences_asked(run)
        rounds = math.ceil(len(runs) / at_once)
        total = rounds * (run.train_config.total_steps * per_update + n_asked * per_sequence)
    return Plan(
        device=str(device),
        n_models=len(runs),
        at_once=at_once,
        steps=run.train_config.total_steps,
        cost=cost,
        memory_bytes=memory,
        available_bytes=available_bytes(device),
        seconds_per_update=per_update,
        seconds=total,
        on_the_way=run.train_config.on_the_way,
    )


def check_runs(runs: Iterable[RunConfig], *, starts: bool = True) -> list[RunConfig]:
    """Check that this machine can train the runs.

    Args:
        runs: the runs, which may differ in all fields.
        starts: whether to check the checkpoints that the runs start from. Ended runs do not need the
            checkpoints that they start from.

    Raises:
        ValueError: If an item is not a RunConfig.
        ValueError: If a model is too small for its task, or lacks a part that the recipe names.
        ValueError: If the device is not available, or does not support the precision.

    A gamma below 0 is allowed, with a warning.
    """
    runs = list(runs if isinstance(runs, Iterable) else [runs])
    for run in runs:
        if not isinstance(run, RunConfig):
            raise ValueError(
                f"runs must be a list of RunConfigs, such as [preset()], got {safe_repr(run)}. Give a list"
            )
        check_parts(task_or_default(run.task), run.model_config, run.train_config)
        run.model_config.check_task(run.task)
        check_interventions(run)
        if starts:
            check_start(run)
        if choose_device(run.train_config.device).type != "cuda" and run.train_config.matmul == "tf32":
            raise ValueError("device must be CUDA for matmul 'tf32', got 'cpu'. Omit matmul, or use bf16")
    numbers = (item for run in runs for item in run.model_config.to_dict().items())
    below = any(n.startswith("gamma") and isinstance(v, int | float) and v < 0 for n, v in numbers)
    if below and multiprocessing.parent_process() is None:  # not in each process of a sweep
        warnings.warn(
            "gamma is below 0, so initial weights have a standard deviation above 1, and training may "
            "diverge. The papers use gammas from 0.3 to 1",
            stacklevel=4,
        )
    return runs


def check_start(run: RunConfig) -> None:
    """Check that a run can start from the checkpoint that its recipe names.

    Raises:
        ValueError: If the checkpoint's model or task differs from the model or task of the run.
    """
    start = starting_point(run.train_config)
    if start is None:
        return
    if start.model_config != run.model_config:
        theirs, ours = start.model_config.to_dict(), run.model_config.to_dict()
        names = ", ".join(name for name in ours if theirs.get(name) != ours[name])
        raise ValueError(
            f"start must be a checkpoint of the model that is trained, got another {names}. Omit {names}"
        )
    if start.task != run.task:
        raise ValueError(
            "start must be a checkpoint of the task that is trained, got another task. The training data of "
            "the other task would count as held out. Omit the changes of the task"
        )


def _measure(runs: Sequence[RunConfig], device: torch.device, seconds: float) -> tuple[float, float]:
    """Measure the seconds for one update of a stack of the runs, and for evaluation on one sequence.

    The stack is made for the measurement, with a training set of limited size.
    """
    train = runs[0].train_config
    n_samples = min(train.n_samples, max(train.batch_size, 10_000))
    steps = max(10_000, train.total_steps)  # so that every step named in the recipe exists
    runs = [
        r._replace(train_config=replace(r.train_config, n_samples=n_samples, steps=steps, epochs=None))
        for r in runs
    ]
    data = training_set(runs[0].task, runs[0].train_config)
    starts = [start and start.weights for start in (starting_point(run.train_config) for run in runs)]
    stack = engine_of(runs[0])(runs, [data] * len(runs), device, starts)
    started, first = time.perf_counter(), 0.0
    while (elapsed := time.perf_counter() - started) < seconds + first or stack.step < 1:
        stack.advance(stack.step + 1)
        if stack.step == 1:  # it allocates and captures, so it only counts if a single update takes long
            first = time.perf_counter() - started
            if first > seconds:
                return first, _per_sequence(stack, data, 64, runs[0].task)
    return (elapsed - first) / (stack.step - 1), _per_sequence(stack, data, 1024, runs[0].task)


def _per_sequence(stack: Engine, data: Batch, n: int, task: Task) -> float:
    """Return the seconds for one sequence of full length, or for one example of a task with its own loss."""
    model = stack.model(0)

    def ask(some: Any) -> int:
        if task.loss is not None:
            batch = on_device(some, stack.device)
            task.loss(model, batch, generator(0, "loss")).item()  # waits for the device
            return len(some) * task.seq_len
        model(some.tokens).sum().item()
        return some.tokens.numel()

    with torch.inference_mode():
        ask(data.take(np.arange(min(8, len(data)))))
        some = data.take(np.arange(min(n, len(data))))
        started = time.perf_counter()
        n_tokens = ask(some)
    return (time.perf_counter() - started) / n_tokens * task.seq_len


def _sequences_asked(run: RunConfig) -> int:
    """Return the number of sequences in all evaluations of one run, during training and at its end."""
    train = run.train_config
    quick, final = (run.task.sequences_asked(train.n_samples, quickly=how) for how in (True, False))
    return quick * math.ceil(train.total_steps / train.eval_every) + final


def available_bytes(device: torch.device) -> int:
    """Return the free memory of a device in bytes, including unused memory that torch has reserved."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    return psutil.virtual_memory().available


def count_cost(run: RunConfig) -> Cost:
    """Count the cost of one update of one model, without data on torch's `meta` device if possible."""
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
    """Return a function for the loss of one model on one batch, and the parameters of the model.

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


def members_at_once(run: RunConfig, n_runs: int) -> int:
    """Return the number of runs like `run` that one stack trains at the same time, from 1 to `n_runs`.

    All `n_runs` runs are divided into stacks of about equal size. The host's memory must also hold the
    training sets and saved states.
    """
    if n_runs == 1:
        return 1
    cost, device = count_cost(run), choose_device(run.train_config.device)
    at_once = _that_fit(n_runs, cost.bytes, device)
    return min(at_once, _that_fit(n_runs, cost.data_bytes + cost.state_bytes, torch.device("cpu")))


def trained_together(run: RunConfig, n_runs: int) -> int:
    """Return the number of runs like `run` that one process trains at the same time, at most `n_runs`.

    On the CPU, a process trains one run. On CUDA, a process trains as many runs as fit in memory.
    """
    return members_at_once(run, n_runs) if choose_device(run.train_config.device).type == "cuda" else 1


def processes(runs: Sequence[RunConfig], workers: int | None) -> int:
    """Return the number of processes that train the runs.

    Default: one process per CPU core, or fewer if the memory does not suffice.
    """
    if len(runs) < 2 or any(choose_device(run.train_config.device).type == "cuda" for run in runs):
        return 1
    if multiprocessing.current_process().daemon:  # such a process may have no children
        return 1
    if workers is None:
        workers = max(1, loky.cpu_count() // max(run.train_config.threads or 1 for run in runs))
    if min(workers, len(runs)) == 1:
        return 1
    sizes = [r.train_config.batch_size * r.task.seq_len * r.model_config.activations for r in runs]
    largest = runs[int(np.argmax(sizes))]
    return min(workers, _that_fit(len(runs), count_cost(largest).bytes + PROCESS_BYTES, torch.device("cpu")))


def _that_fit(n: int, n_bytes: int, device: torch.device) -> int:
    """Return how many of `n` items of `n_bytes` each fit in the free memory, in equal groups."""
    most = max(1, min(n, int(USABLE * available_bytes(device) // n_bytes)))
    return math.ceil(n / math.ceil(n / most))
