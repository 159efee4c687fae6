"""The execution of the attempts of `control`: processes, time estimates and the folder of results."""

from __future__ import annotations

import contextlib
import json
import time
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anchorlens.engine import numeric_settings
from anchorlens.extras.control.result import Control, PhaseAnswers
from anchorlens.extras.shared.in_this_process import InThisProcess
from anchorlens.files import check_format, write_whole
from anchorlens.models import choose_device
from anchorlens.recipes import RunConfig
from anchorlens.safe import read_bytes, read_json, reading
from anchorlens.texts import safe_repr, safe_text
from anchorlens.training import Show, claim, has_ended, process_pool, train_many

FILE = "control.json"
FORMAT = "anchorlens control"
VERSION = 1
_CHOOSE, _REPORT = 0, 1
"""The half of the OOD test inputs that chooses the best attempt, and the half that is reported."""


@contextlib.contextmanager
def folder_lock(out: Path, sha256: str) -> Iterator[None]:
    """Lock the folder of the attempts, and check that the folder belongs to this checkpoint."""
    in_use = "in use by another control. Wait for its end, or choose another folder"
    lock = claim(out, FILE, what="control", in_use=in_use)
    try:
        path = out / FILE
        if path.exists():
            with reading(path, "is not a result of control"):
                content = read_json(read_bytes(path))
                check_format(path, content, FORMAT, VERSION)
            if content.get("sha256") != sha256:
                raise ValueError(
                    f"{safe_text(out)} must hold attempts from this checkpoint, got attempts from "
                    f"{safe_repr(content.get('path'))}. Choose another folder"
                )
        yield
    finally:
        lock.release()


@dataclass
class Tries:
    """A set of attempts to run, with their outcomes."""

    found: Control
    """The result so far: the run, its accuracies, the budget, and the plan of the attempts."""
    runs: Mapping[str, RunConfig]
    """A map from the name of each attempt that can be tried to its run, in order."""
    seconds_per_update: float
    """The seconds of an update in the run's log, used until an attempt has been trained here."""
    out: Path
    """The folder of the attempts."""
    began: float
    """The time when the call began, by the monotonic clock."""
    every: bool
    """Whether to try all attempts, even after one has reached Phase 3."""

    def __post_init__(self) -> None:
        """Set the end of the budget and the attempts as planned; nothing is run."""
        self.ends = self.began + 60 * self.found.budget
        self.updates, self.seconds = 0, 0.0  # of the attempts that were trained in this call
        self.attempts = {attempt.name: attempt for attempt in self.found.attempts}

    def result(self) -> Control:
        """Return the result so far."""
        minutes = (time.monotonic() - self.began) / 60
        return replace(self.found, attempts=tuple(self.attempts.values()), minutes=minutes)

    def carry_out(self, workers: int, show: Show) -> None:
        """Read finished attempts, and begin further attempts until one reaches Phase 3 or the time is up."""
        self._write()
        waiting = deque(sorted(self.runs, key=lambda name: not has_ended(self.out / name)))
        running: dict[Future[_Tried], tuple[str, float]] = {}
        advice = ". Finished attempts are kept, and the same call or command continues"
        with InThisProcess() if workers == 1 else process_pool(workers, advice) as executor:
            while (waiting or running) and not self._is_over():
                while waiting and len(running) < workers and not self._is_over():
                    self._begin(waiting.popleft(), executor, running)
                left = max(0.0, self.ends - time.monotonic())
                ended, _ = wait(running, timeout=min(1.0, left), return_when=FIRST_COMPLETED)
                for future in sorted(ended, key=lambda one: one.exception() is not None):
                    self._take_in(*running.pop(future), future)
                names = ", ".join(name for name, _ in running.values())
                show(round(time.monotonic() - self.began), f"{names} ({len(self.result().tried)} tried)")
        goal = "generalises" if self.found.before.phase.solution else "Phase 3"
        over = f"{goal} was reached" if self._is_enough() else "the time was up"
        for name, _ in running.values():
            self._note(name, outcome="cut off", note=f"{over} before it ended; the same call continues it")
        for name in waiting:
            estimate = self._minutes(name)  # with the times measured since
            self._note(name, outcome="skipped", estimate=estimate, note=f"{over} before it began")
        self._write()

    def _minutes(self, name: str) -> float:
        """Estimate the minutes of an attempt from the log, or from the attempts that have ended here."""
        per_update = self.seconds / self.updates if self.updates else self.seconds_per_update
        return self.attempts[name].steps * per_update / 60

    def _is_enough(self) -> bool:
        in_phase_3 = (a.chosen_by is not None and a.chosen_by.stage == 3 for a in self.attempts.values())
        return not self.every and any(in_phase_3)

    def _is_over(self) -> bool:
        return self._is_enough() or time.monotonic() >= self.ends

    def _begin(self, name: str, executor: Executor, running: dict[Future[_Tried], tuple[str, float]]) -> None:
        """Begin an attempt, if it is expected to end in time."""
        now, folder = time.monotonic(), self.out / name
        if not has_ended(folder):
            needed, left = self._minutes(name), (self.ends - now) / 60
            self._note(name, estimate=needed)
            if needed > left:
                note = f"it takes about {needed:.2g} minutes, and {left:.2g} were left"
                self._note(name, outcome="skipped", note=note)
                return
        self._note(name, out=str(folder))
        future = executor.submit(_tried, self.runs[name], folder, self.found.seed, self.found.halves)
        running[future] = (name, now)

    def _take_in(self, name: str, began: float, future: Future[_Tried]) -> None:
        """Record the outcome of an attempt."""
        try:
            is_new, outcome = future.result()
        except ValueError as error:  # includes CheckpointError, for a state that cannot be read
            self._note(name, outcome="failed", note=safe_text(error, 600))
            return
        if is_new and outcome["minutes"] is not None:
            self.updates += self.attempts[name].steps
            self.seconds += time.monotonic() - began
        self._note(name, **outcome)
        self._write()

    def _note(self, name: str, **what: object) -> None:
        self.attempts[name] = replace(self.attempts[name], **what)

    def _write(self) -> None:
        """Write the result so far."""
        content = {"format": FORMAT, "format_version": VERSION, **self.result().to_dict()}
        write_whole(self.out / FILE, json.dumps(content, allow_nan=False).encode())


_Tried = tuple[bool, dict[str, Any]]
"""Whether the whole attempt was trained in this call, and the fields of its record."""


def _tried(run: RunConfig, folder: Path, seed: int, halves: bool) -> _Tried:
    """Train, continue or read an attempt, and evaluate it on both halves of the test inputs."""
    is_new = not folder.exists()
    (result,) = train_many([run], outs=[folder], resume=True, workers=1, progress=False)
    where = choose_device(run.train_config.device)
    asked = [{"half": half} for half in (_CHOOSE, _REPORT)] if halves else [{}]
    with numeric_settings(where, run.train_config.threads):
        answers = [
            PhaseAnswers.of(result.checkpoint.evaluate(device=where, seed=seed, **half)) for half in asked
        ]
    seconds = result.log[-1].get("seconds") if result.log else None
    return is_new, {
        "outcome": "diverged" if result.status == "diverged" else "finished",
        "note": safe_text(result.message or "", 600),
        "minutes": None if seconds is None else seconds / 60,
        "chosen_by": answers[0],
        "answers": answers[-1],
    }
