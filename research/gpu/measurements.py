"""What a job measures on the spot: whether tf32 will do, and how fast an update is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from anchorlens.engine import engine_of, numeric_settings
from anchorlens.engine.base import Engine
from anchorlens.files.checkpoint import training_set
from anchorlens.models.devices import choose_device
from anchorlens.recipes.run_config import RunConfig
from anchorlens.training.plan import count_cost

WARM_UP = 3
"""Updates before the clock starts: the first captures the graph."""
OTHER_SEED = 1000
"""Added to a seed for the run that the two precisions are held against."""


def stack(runs: Sequence[RunConfig], matmul: str, seed: int = 0) -> Engine:
    """A stack of these runs in another precision and with other seeds."""
    runs = [
        run._replace(train_config=replace(run.train_config, matmul=matmul, seed=run.train_config.seed + seed))
        for run in runs
    ]
    sets = {run.train_config.seed: run for run in runs}
    data = {key: training_set(run.task, run.train_config) for key, run in sets.items()}
    device = choose_device(runs[0].train_config.device)
    return engine_of(runs[0])(runs, [data[run.train_config.seed] for run in runs], device)


def precisions(runs: Sequence[RunConfig], n_updates: int) -> dict[str, Any]:
    """Whether tf32 follows float32 over the first updates more closely than one seed follows another.

    Two of the runs are asked, the first and the last. On the CPU there is no tf32, and both are float32.

    Returns:
        The mean distance of the losses over all updates but the first tenth, in nats, by run: between
        precisions and between seeds; `agrees` where the first is the smaller in every run; and the seconds of
        an update of one network.
    """
    runs = [runs[0], runs[-1]] if len(runs) > 1 else list(runs)
    device = choose_device(runs[0].train_config.device)
    courses: dict[str, list[list[float]]] = {}
    seconds: dict[str, float] = {}
    for name, seed in (("float32", 0), ("tf32", 0), ("seed", OTHER_SEED)):
        matmul = "tf32" if name == "tf32" and device.type == "cuda" else "float32"
        with numeric_settings(device, tf32=matmul == "tf32"):
            engine = stack(runs, matmul, seed)
            losses, began = [], 0.0
            while engine.step < n_updates:
                losses.append([update.loss for update in engine.advance(engine.step + 1)])
                if engine.step == min(WARM_UP, n_updates - 1):
                    began = time.perf_counter()
            seconds[name] = (time.perf_counter() - began) / max(1, n_updates - WARM_UP) / len(runs)
        courses[name] = losses
    distances = {name: _distances(courses["float32"], courses[name]) for name in ("tf32", "seed")}
    return {
        "updates": n_updates,
        "between_precisions": distances["tf32"],
        "between_seeds": distances["seed"],
        "agrees": all(a <= b for a, b in zip(distances["tf32"], distances["seed"], strict=True)),
        "seconds_an_update": {name: seconds[name] for name in ("float32", "tf32")},
    }


def _distances(one: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> list[float]:
    """The mean distance of two courses of losses, [update][run], without the first tenth; a number a run."""
    rows = list(zip(one, other, strict=True))[len(one) // 10 :]
    return [sum(abs(a[k] - b[k]) for a, b in rows) / len(rows) for k in range(len(one[0]))]


def speed(runs: Sequence[RunConfig], n_updates: int = 50) -> list[dict[str, Any]]:
    """Time of an update of a stack in every precision, its share of the limit, and its slowest kernels.

    The limit is the time of the matrix products alone, at the rate of a large product in that precision.
    """
    device = choose_device(runs[0].train_config.device)
    on_cuda = device.type == "cuda"
    n_updates = n_updates if on_cuda else 3
    of_update, rows = count_cost(runs[0]), []
    for matmul in ("float32", "tf32", "bf16") if on_cuda else ("float32", "bf16"):
        with numeric_settings(device, tf32=matmul == "tf32"):
            engine, rate = stack(runs, matmul), product_rate(device, matmul)
            engine.advance(WARM_UP)
            began = time.perf_counter()
            engine.advance(WARM_UP + n_updates)
            seconds = (time.perf_counter() - began) / n_updates / len(runs)
            activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_cuda else [])]
            with profile(activities=activities) as profiled:
                engine.advance(engine.step + 1)
        rows.append(
            {
                "matmul": matmul,
                "networks": len(runs),
                "ms_an_update": 1000 * seconds,
                "tflop_s": of_update.flops / seconds / 1e12,
                "limit_tflop_s": rate / 1e12,
                "share_of_limit": of_update.flops / rate / seconds,
                "kernels": kernels(profiled, on_cuda),
            }
        )
    return rows


def kernels(profiled: Any, on_cuda: bool, n: int = 12) -> list[list[Any]]:
    """The slowest kernels of what was profiled: name, calls, microseconds."""
    name = "self_device_time_total" if on_cuda else "self_cpu_time_total"
    found = sorted(profiled.key_averages(), key=lambda each: -getattr(each, name))[:n]
    return [[each.key, each.count, round(float(getattr(each, name)), 1)] for each in found]


def product_rate(device: torch.device, matmul: str) -> float:
    """Operations a second of a large matrix product."""
    n = 8192 if device.type == "cuda" else 512
    dtype = torch.bfloat16 if matmul == "bf16" else torch.float32
    a = torch.randn(n, n, device=device, dtype=dtype)
    times = []
    for _ in range(6):
        began = time.perf_counter()
        (a @ a)[0, 0].item()  # waits for the device
        times.append(time.perf_counter() - began)
    return 2 * n**3 / min(times)
