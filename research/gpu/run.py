"""Run the next jobs of the queue on a borrowed GPU, and end in time.

    python research/gpu/run.py --minutes 9 --out DIR            # the next jobs that are not done
    python research/gpu/run.py --minutes 9 --out DIR --last     # the last command of the loan
    python research/gpu/run.py --dry-run                        # minutes and memory of every job
    python research/gpu/run.py --minutes 9 --out DIR --scale 0.01 --device cpu    # a rehearsal

A job that was begun continues from its states in --work, where the machine keeps them between commands. A job
is started only if it ends within the command, or if it can be continued. --last starts no job that would not
end, and sends the states of an unfinished job home if they fit. A job that ends in an error is left, and the
next one starts; remove its folder in --work to try it again. `bring_home.py` takes what lies in --out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import anchorlens
import jobs
import measurements
import parcel
from anchorlens.extras.sweep import sweep
from anchorlens.extras.sweep.sweep_folder import NamedRun, SweepFolder
from anchorlens.files.checkpoint import library_versions, load_checkpoint
from anchorlens.models.devices import choose_device
from anchorlens.recipes.run_config import RunConfig
from anchorlens.training.loop import OnLogError
from anchorlens.training.run import train_many
from anchorlens.training.run_folder import has_ended, read_log
from jobs import Choice, Job

RESERVE = 40.0
"""Seconds at the end of a command that are kept for saving states and for writing."""
LEAST = 1.5
"""Minutes under which no job is begun that would not end: to choose its precision takes as long."""
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class TimeIsUp(Exception):
    """The command must end; the states are saved."""


class Work:
    """The folder of a job on the machine: what was chosen when it began, states, finished networks."""

    def __init__(self, job: Job, folder: Path) -> None:
        """Set the folder; nothing is read or written."""
        self.job, self.path = job, folder / job.id / "job.json"
        self.sweep = SweepFolder(folder / job.id / "sweep")

    @property
    def begun(self) -> dict[str, Any] | None:
        """What `begin` wrote; None before."""
        return json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else None

    def write(self, content: Mapping[str, Any]) -> None:
        """Keep what the next command must know."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(content), encoding="utf-8")

    def share_left(self) -> float:
        """Share of the updates that are still to be made, 0..1; 1 before the job began."""
        begun = self.begun
        if begun is None or not self.sweep.path.exists():
            return 1.0
        named = self.sweep.stored()
        return sum(1 - self._share(name, run.train_config.total_steps) for name, run in named) / len(named)

    def _share(self, name: str, n_steps: int) -> float:
        if self.sweep.cell(name).exists() or (self.sweep.unfinished(name) / "ckpt.pt").exists():
            return 1.0
        log = read_log(self.sweep.unfinished(name) / "log.jsonl")
        return log[-1]["step"] / n_steps if log else 0.0


def next_job(
    queue: Sequence[Job], given: argparse.Namespace, left: float, tried: Sequence[str]
) -> Job | None:
    """The first job that was begun; where none was, the first that ends in time or can be continued.

    Args:
        queue: the jobs.
        given: the command line.
        left: minutes of the command.
        tried: ids of the jobs that this command has run.
    """
    found: list[tuple[bool, Job]] = []
    for job in queue:
        work = Work(job, given.work)
        begun = work.begun
        ended = jobs.is_done(job) or (begun is not None and ("sent" in begun or "error" in begun))
        if ended or job.id in tried or (job.data and not given.data) or not fits(job, given):
            continue
        needed = job.minutes * work.share_left() * given.scale**2
        may_stop = job.resumable and not given.last and left >= LEAST
        if begun is not None or needed <= left or may_stop:
            found.append((begun is None, job))
    return min(found, key=lambda one: one[0])[1] if found else None


def fits(job: Job, given: argparse.Namespace) -> bool:
    """Whether the card has the memory; a CPU is for rehearsals, which need little."""
    chosen = choose_device(given.device)
    needed = job.memory_gib * given.scale * 2**30
    return chosen.type == "cpu" or torch.cuda.mem_get_info(chosen)[0] > needed


def begin(work: Work, given: argparse.Namespace) -> dict[str, Any]:
    """Choose precision and number of updates by what is measured on the spot, and keep the choice."""
    job = work.job
    choice = Choice(scale=given.scale, data=str(given.data / job.data) if job.data else "")
    check = None
    if job.check:
        short = replace(choice, updates=job.updates[-1] if job.updates else None)
        check = measurements.precisions(jobs.runs(job, short, given.device), scaled(job.check, given.scale))
        say(f"{job.id}: tf32 against float32: {check}")
        on_cuda = choose_device(given.device).type == "cuda"
        choice = replace(choice, matmul="tf32" if check["agrees"] and on_cuda else "float32")
    if job.updates:
        seconds = check["seconds_an_update"][choice.matmul] * job.networks if check else 0.0
        fitting = [n for n in job.updates if n * seconds <= 60 * jobs.LONGEST]
        choice = replace(choice, updates=(fitting or job.updates)[0 if fitting else -1])
    begun = {"choice": jobs.stored(choice), "check": check, "seconds": 0.0}
    work.write(begun)
    return begun


def scaled(n: int, scale: float) -> int:
    """A number of updates, at least two."""
    return max(2, round(n * scale))


def do(job: Job, given: argparse.Namespace, ends: float) -> bool:
    """Begin or continue a job; whether it ended in time."""
    work, started = Work(job, given.work), time.monotonic()
    if job.kind == "profile":
        rows = measurements.speed(jobs.runs(job, Choice(scale=given.scale), given.device))
        send(work, given, {"seconds": time.monotonic() - started, "choice": {}, "check": None}, rows=rows)
        return True
    begun = work.begun or begin(work, given)
    runs = jobs.runs(job, Choice(**begun["choice"]), given.device)
    say(f"{job.id}: {len(runs)} networks, {runs[0].train_config.total_steps:,} updates, {begun['choice']}")
    ended = train(work, runs, ends - RESERVE) and measure(work, runs, ends)
    begun["seconds"] += time.monotonic() - started
    work.write(begun)
    say(f"{job.id}: {1 - work.share_left():.0%} of the updates, {begun['seconds']:.0f} s so far")
    if ended:
        send(work, given, begun)
    return ended


def train(work: Work, runs: Sequence[RunConfig], until: float) -> bool:
    """Train in one stack what has not ended; whether all of it ended before the time was up."""
    with work.sweep.lock(runs) as named:
        missing = work.sweep.missing(named)

    def watch(line: Mapping[str, Any]) -> None:
        if time.monotonic() >= until:
            raise TimeIsUp

    going = [(work.sweep.unfinished(name), run) for name, run in missing]
    going = [(out, run) for out, run in going if not has_ended(out)]
    one_thread = [run._replace(train_config=replace(run.train_config, threads=1)) for _, run in going]
    outs = [out for out, _ in going]
    if not going:
        return True
    try:
        train_many(one_thread, outs=outs, resume=True, workers=1, progress=False, on_log=watch)
    except OnLogError as error:
        if isinstance(error.__cause__, TimeIsUp):
            return False
        raise
    return True


def measure(work: Work, runs: Sequence[RunConfig], until: float) -> bool:
    """Measure the networks that are trained, one by one; whether all were before the time was up."""
    for run in runs:
        if time.monotonic() >= until:
            return False
        (cell,) = sweep([run], work.sweep.out, engine="serial", progress=False)
        if not cell.done:
            raise RuntimeError(f"the network {cell.id} could not be measured: {cell.error}")
    return True


def send(work: Work, given: argparse.Namespace, begun: dict[str, Any], rows: Any = None) -> None:
    """Write the results of a job to the folder that goes home."""
    job = work.job
    networks: dict[str, Any] = {}
    tensors: dict[str, torch.Tensor] = {}
    if rows is None:
        named = work.sweep.stored()
        networks = {name: network(work, name) for name, _ in named}
        if job.weights in PRECISIONS:
            tensors = weights(work, named, PRECISIONS[job.weights])
    content = {**about(job, given, begun), "rows": rows, "networks": networks}
    if why := parcel.pack(given.out, job.id, content, tensors):
        say(f"{job.id}: {why}; the weights stay in {work.sweep.out}")
    work.write({**begun, "sent": True})
    say(f"{job.id}: done, results in {given.out}")


def network(work: Work, name: str) -> dict[str, Any]:
    """What a finished network left: its measurements, and its log."""
    folder = work.sweep.cell(name)
    return {"cell": json.loads((folder / "cell.json").read_bytes()), "log": read_log(folder / "log.jsonl")}


def weights(work: Work, named: Sequence[NamedRun], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """`CELL/PARAMETER` -> the last weights."""
    return {
        f"{name}/{parameter}": weight.to(dtype)
        for name, _ in named
        for parameter, weight in load_checkpoint(work.sweep.cell(name) / "ckpt.pt").weights.items()
    }


def send_states(work: Work, given: argparse.Namespace, begun: dict[str, Any]) -> None:
    """At the end of a loan: the states of an unfinished job, which another machine can continue."""
    tensors = {}
    for name, _ in work.sweep.stored():
        for path in sorted(work.sweep.unfinished(name).glob("*.pt")):
            data = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)
            tensors[f"{name}/{path.name}"] = data
    logs = {name: read_log(work.sweep.unfinished(name) / "log.jsonl") for name, _ in work.sweep.stored()}
    content = {**about(work.job, given, begun), "unfinished": logs}
    why = parcel.pack(given.out, f"{work.job.id}.states", content, tensors)
    say(f"{work.job.id}: {why or 'its states are in ' + str(given.out)}")


def about(job: Job, given: argparse.Namespace, begun: Mapping[str, Any]) -> dict[str, Any]:
    """What is said of a job beside its results."""
    return {
        "job": job.id,
        "choice": begun["choice"],
        "check": begun["check"],
        "seconds": begun["seconds"],
        "card": card(given.device),
        "versions": library_versions(),
        "source": source(),
    }


def card(device: str) -> str:
    """The name of the device."""
    chosen = choose_device(device)
    return torch.cuda.get_device_name(chosen) if chosen.type == "cuda" else platform.processor() or "CPU"


def source() -> str:
    """`code_of` the package that runs here."""
    root = Path(anchorlens.__file__).parent
    blobs = {f"anchorlens/{path.relative_to(root)}": path.read_bytes() for path in root.rglob("*.py")}
    return code_of(
        {name: hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest() for name, data in blobs.items()}
    )


def code_of(blobs: Mapping[str, str]) -> str:
    """A SHA-256 of code, by which its commit is known where there is no repository.

    Args:
        blobs: path -> the SHA-1 that git gives the file; only .py files count.
    """
    lines = sorted(f"{name} {blob}" for name, blob in blobs.items() if name.endswith(".py"))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def say(text: str) -> None:
    """Print at once."""
    print(text, flush=True)


def dry_run(queue: Sequence[Job], given: argparse.Namespace) -> None:
    """Print minutes and memory of every job, as counted now, and what the next command would start."""
    for job in queue:
        state = "done" if jobs.is_done(job) else f"{1 - Work(job, given.work).share_left():.0%} trained"
        counted = "not counted"
        if job.kind == "train" and not (job.data and not given.data):
            choice = jobs.smallest(job, str(given.data / job.data) if job.data else "")
            if of_update := jobs.cost(job, choice):
                gib = len(jobs.runs(job, choice, "cpu")) * of_update.bytes / 2**30
                counted = f"counted {jobs.minutes(job, choice, of_update):.1f} min, {gib:.0f} GiB"
        claims = ", ".join(job.claims) or "no claim"
        say(f"{job.id:6} {job.minutes:5.1f} min, {job.memory_gib:3.0f} GiB ({counted}); {state}; {claims}")
    chosen = next_job(queue, given, given.minutes, ())
    say(f"next: {chosen.id + ': ' + chosen.decides if chosen else 'no job'}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and run the next jobs."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--minutes", type=float, default=9.0, help="length of this command")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu/out"), help="folder that goes home")
    parser.add_argument("--work", type=Path, default=Path("runs/gpu/work"), help="folder that stays here")
    parser.add_argument("--data", type=Path, help="folder that holds `cogs`, the files of job d2")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--only", nargs="+", help="ids of jobs, instead of the whole queue")
    parser.add_argument("--last", action="store_true", help="this is the last command of the loan")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the work, for a rehearsal")
    parser.add_argument("--dry-run", action="store_true")
    given = parser.parse_args(arguments)
    ends = time.monotonic() + 60 * given.minutes
    queue = [job for job in jobs.queue() if not given.only or job.id in given.only]
    if given.dry_run:
        dry_run(queue, given)
        return
    given.out.mkdir(parents=True, exist_ok=True)
    tried: list[str] = []
    while job := next_job(queue, given, (ends - time.monotonic() - RESERVE) / 60, tried):
        tried.append(job.id)
        say(f"{job.id}: {job.decides}")
        work = Work(job, given.work)
        try:
            ended = do(job, given, ends)
        except Exception as error:  # the next job may still use the loan
            traceback.print_exc()
            work.write({**(work.begun or {}), "error": f"{type(error).__name__}: {error}"})
            continue
        if not ended:
            if given.last and work.begun:
                send_states(work, given, work.begun)
            break
    say("no further job fits into this command")


if __name__ == "__main__":
    main()
