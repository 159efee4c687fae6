"""The queue of jobs for a borrowed GPU (queue.toml): what each trains, how long it takes, what it needs."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anchorlens.extras.sweep import grid
from anchorlens.recipes.run_config import RunConfig
from anchorlens.training.plan import Cost, count_cost

HERE = Path(__file__).parent
QUEUE, DONE = HERE / "queue.toml", HERE / "done"
"""The jobs, and the folder with one JSON for each that is done."""
LONGEST = 23.0
"""Minutes of training that a loan of 30 minutes has room for."""
WIDE, NARROW = 20.3e12, 7.8e12
"""Operations a second of a float32 stack on one H200, from d_model 256 on and below (examples/benchmarks)."""
RECORDED = {"n_checkpoints": 0, "state_every_seconds": 480}
"""Fields of every run of the queue: what it records on its way."""


@dataclass(frozen=True)
class Job:
    """One job; queue.toml says what each field is."""

    id: str
    decides: str
    claims: Sequence[str]
    preset: str
    set: Mapping[str, Any]
    seed: Sequence[int]
    networks: int
    minutes: float
    memory_gib: float
    arms: Sequence[Mapping[str, Any]] = ({},)
    matmul: str = "float32"
    check: int = 0
    updates: Sequence[int] = ()
    resumable: bool = True
    weights: str = "none"
    kind: str = "train"
    tag: str = ""
    figures: Sequence[str] = ()
    data: str = ""
    rehearsal: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    """What is chosen when a job begins, and kept until it ends."""

    matmul: str = "float32"
    updates: int | None = None
    """One of the job's `updates`, if it has any."""
    scale: float = 1.0
    """Share of the updates and sequences; below 1 it is a rehearsal."""
    data: str = ""
    """The folder of the task's files, if the job needs any."""


def queue(path: Path = QUEUE) -> list[Job]:
    """The jobs, in order of value; one that is `like` another has the other's fields beside its own."""
    tables = {table["id"]: table for table in tomllib.loads(path.read_text(encoding="utf-8"))["job"]}
    return [Job(**{**tables.get(own.get("like"), {}), **_without(own, "like")}) for own in tables.values()]


def _without(table: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in table.items() if name not in names}


def fields(job: Job, choice: Choice) -> dict[str, Any]:
    """Every field that the recipe changes in its preset, the seed and the arms excepted."""
    found = {**job.set, **RECORDED}
    if choice.matmul != "float32":
        found["matmul"] = choice.matmul
    if choice.data:
        found["data"] = choice.data
    if choice.updates is not None:
        found = {"warmup_steps": choice.updates // 21, **found, "steps": choice.updates}  # 10 of 210 epochs
    if choice.scale < 1:
        found |= _rehearsed(job, found, choice.scale)
    return found


def _rehearsed(job: Job, found: Mapping[str, Any], scale: float) -> dict[str, Any]:
    """A fraction of the updates and sequences, the ends of every axis, and the network of the rehearsal."""
    ends = {name: values[:1] + values[1:][-1:] for name, values in found.items() if isinstance(values, list)}
    train = grid(job.preset, {**found, **job.arms[0]})[0].train_config
    n_samples, steps = max(256, round(scale * train.n_samples)), max(12, round(scale * train.total_steps))
    return {
        **ends,
        "n_samples": n_samples,
        "batch_size": min(64, train.batch_size),
        "steps": steps,
        "warmup_steps": steps // 10,
        "log_every": max(1, steps // 10),
        "eval_every": steps,
        "state_every_seconds": 0,
        **job.rehearsal,
    }


def seeds(job: Job, choice: Choice) -> list[int]:
    """The seeds; of a rehearsal the first."""
    return list(job.seed) if choice.scale == 1 else list(job.seed[:1])


def runs(job: Job, choice: Choice, device: str = "auto") -> list[RunConfig]:
    """The runs of a job, as `grid` makes them."""
    common = {**fields(job, choice), "seed": seeds(job, choice), "device": device}
    return [run for arm in job.arms for run in grid(job.preset, {**common, **arm})]


def cost(job: Job, choice: Choice) -> Cost | None:
    """The cost of one update of one network; None of a task with its own loss, whose count takes a minute."""
    run = runs(job, choice, "cpu")[0]
    return None if run.task.loss is not None else count_cost(run)


def minutes(job: Job, choice: Choice, of_update: Cost) -> float:
    """Minutes of all updates of all networks in float32 on one H200."""
    every = runs(job, choice, "cpu")
    rate = WIDE if every[0].model_config.d_model >= 256 else NARROW
    return len(every) * every[0].train_config.total_steps * of_update.flops / rate / 60


def smallest(job: Job, data: str = "") -> Choice:
    """The choice that the queue's minutes are of: float32, and the last of `updates`."""
    return Choice(updates=job.updates[-1] if job.updates else None, data=data)


def is_done(job: Job) -> bool:
    """Whether the job's results are in the repository."""
    return (DONE / f"{job.id}.json").exists()


def options(job: Job, choice: Choice) -> list[str]:
    """The recipe as the options of a script of research/figures."""
    words = {}
    for name, value in fields(job, choice).items():
        words[name] = ",".join(map(str, value)) if isinstance(value, list) else value
    return ["--set", *(f"{name}={word}" for name, word in words.items())]


def stored(choice: Choice) -> dict[str, Any]:
    """A choice, JSON-ready."""
    return dataclasses.asdict(choice)
