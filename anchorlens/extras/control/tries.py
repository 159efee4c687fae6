"""The execution of the attempts of `control`: processes, time estimates and the folder of results."""

from __future__ import annotations

import contextlib
import json
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from anchorlens.engine import numeric_settings
from anchorlens.extras.control.result import Attempt, Control, PhaseAnswers
from anchorlens.extras.shared.in_this_process import InThisProcess
from anchorlens.files.container import check_format
from anchorlens.files.writing import atomic_write
from anchorlens.models.devices import choose_device
from anchorlens.recipes.run_config import RunConfig
from anchorlens.safe import read_bytes, read_json, reading
from anchorlens.texts import safe_repr, safe_text
from anchorlens.training.child_processes import process_pool
from anchorlens.training.plan import plan
from anchorlens.training.progress import Show
from anchorlens.training.run import train_many
from anchorlens.training.run_folder import claim, has_ended

FILE = "control.json"
FORMAT = "anchorlens control"
VERSION = 1
_CHOOSE, _REPORT = 0, 1
"""The half of the OOD test inputs that chooses the best attempt, and the half that is reported."""


class Trial(NamedTuple):
    """The configuration of an attempt, and its record."""

    run: RunConfig | None
    """The run of the attempt; `None` if it cannot be tried."""
    attempt: Attempt


class _Outcome(NamedTuple):
    """The outcome of an attempt, as its process returns it."""

    status: str
    message: str | None
    minutes: float | None
    is_new: bool
    """Whether the whole attempt was trained in this call."""
    chosen_by: PhaseAnswers
    answers: PhaseAnswers


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
                if not isinstance(content, dict):
                    raise ValueError(
                        f"the file must hold a JSON object, got {safe_repr(content)}. Choose another folder"
                    )
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
class _Clock:
    """An estimator of the time of attempts: a time for each update, plus an overhead for each attempt."""

    seconds_per_update: float
    """The seconds of an update in the run's log, used until an attempt has been trained here."""
    attempts: int = 0
    updates: int = 0
    training: float = 0.0
    """The seconds of training in attempts that were trained in this call."""
    beside: float = 0.0
    """The seconds of everything else in these attempts: start, evaluation."""

    def minutes(self, steps: int) -> float:
        """Estimate the minutes of an attempt."""
        each = self.training / self.updates if self.updates else self.seconds_per_update
        return (steps * each + self.beside / max(1, self.attempts)) / 60

    def learn(self, steps: int, training: float, whole: float) -> None:
        """Add the times of an attempt that has ended."""
        self.attempts, self.updates = self.attempts + 1, self.updates + steps
        self.training += training
        self.beside += max(0.0, whole - training)


class Tries:
    """A set of attempts to run, with their outcomes."""

    def __init__(
        self,
        found: Control,
        seconds_per_update: float | None,
        trials: Sequence[Trial],
        out: Path | None,
        began: float,
        every: bool,
    ) -> None:
        """Plan every attempt.

        Args:
            found: the result so far: the run, its accuracies, the budget.
            seconds_per_update: the seconds of an update in the run's log; `None` to measure them.
            trials: the attempts, in the order in which they are tried.
            out: the folder of the attempts; `None` if no attempt is carried out.
            began: the time when the call began, by the monotonic clock.
            every: whether to try all attempts, even after one has reached Phase 3.
        """
        self.found = found
        self.out = out
        self.began = began
        self.every = every
        self.runs = [trial.run for trial in trials]
        self.ends = began + 60 * found.budget
        possible = [run for run in self.runs if run is not None]
        seconds = seconds_per_update
        if seconds is None and possible:
            measured = plan(possible[:1], seconds=1.0)
            seconds = (measured.seconds or 0.0) / measured.steps
        self.clock = _Clock(seconds or 0.0)
        self.attempts = [trial.attempt for trial in trials]
        for place, run in enumerate(self.runs):
            if run is not None:
                self._note(place, estimate=self.clock.minutes(run.train_config.total_steps))

    def result(self) -> Control:
        """Return the result so far."""
        minutes = (time.monotonic() - self.began) / 60
        return replace(self.found, attempts=tuple(self.attempts), minutes=minutes)

    def carry_out(self, workers: int, show: Show) -> None:
        """Read finished attempts, and begin further attempts until one reaches Phase 3 or the time is up."""
        self._write()
        order = [place for place, run in enumerate(self.runs) if run is not None]
        waiting = deque(sorted(order, key=lambda place: not has_ended(self._folder(place))))
        running: dict[Future[_Outcome], tuple[int, float]] = {}
        advice = ". Finished attempts are kept, and the same call or command continues"
        pool = contextlib.nullcontext(InThisProcess()) if workers == 1 else process_pool(workers, advice)
        with pool as executor:
            while (waiting or running) and not self._is_over():
                while waiting and len(running) < workers and not self._is_over():
                    self._begin(waiting.popleft(), executor, running)
                    if workers == 1:
                        break  # it has ended
                left = max(0.0, self.ends - time.monotonic())
                ended, _ = wait(running, timeout=min(1.0, left), return_when=FIRST_COMPLETED)
                for future in sorted(ended, key=lambda one: one.exception() is not None):
                    self._take_in(*running.pop(future), future)
                names = ", ".join(self.attempts[place].name for place, _ in running.values())
                show(round(time.monotonic() - self.began), f"{names} ({len(self.result().tried)} tried)")
        over = (
            f"{'generalises' if self.found.before.phase.solution else 'Phase 3'} was reached"
            if self._is_enough()
            else "the time was up"
        )
        for place, _ in running.values():
            self._note(place, outcome="cut off", note=f"{over} before it ended; the same call continues it")
        for place in waiting:
            estimate = self.clock.minutes(self.attempts[place].steps)  # with the times measured since
            self._note(place, outcome="skipped", estimate=estimate, note=f"{over} before it began")
        self._write()

    def _folder(self, place: int) -> Path:
        assert self.out is not None
        return self.out / self.attempts[place].name

    def _is_enough(self) -> bool:
        in_phase_3 = (a.chosen_by is not None and a.chosen_by.stage == 3 for a in self.attempts)
        return not self.every and any(in_phase_3)

    def _is_over(self) -> bool:
        return self._is_enough() or time.monotonic() >= self.ends

    def _begin(
        self, place: int, executor: Executor, running: dict[Future[_Outcome], tuple[int, float]]
    ) -> None:
        """Begin an attempt, if it is expected to end in time."""
        run = self.runs[place]
        now = time.monotonic()
        folder = self._folder(place)
        assert run is not None
        if not has_ended(folder):
            needed, left = self.clock.minutes(run.train_config.total_steps), (self.ends - now) / 60
            self._note(place, estimate=needed)
            if needed > left:
                note = f"it takes about {needed:.2g} minutes, and {left:.2g} were left"
                self._note(place, outcome="skipped", note=note)
                return
        self._note(place, out=str(folder))
        running[executor.submit(_tried, run, folder, self.found.seed, self.found.halves)] = (place, now)

    def _take_in(self, place: int, began: float, future: Future[_Outcome]) -> None:
        """Record the outcome of an attempt."""
        try:
            outcome = future.result()
        except ValueError as error:  # includes CheckpointError, for a state that cannot be read
            self._note(place, outcome="failed", note=safe_text(error, 600))
            return
        run = self.runs[place]
        assert run is not None
        if outcome.is_new and outcome.minutes is not None:
            self.clock.learn(run.train_config.total_steps, 60 * outcome.minutes, time.monotonic() - began)
        self._note(
            place,
            outcome="diverged" if outcome.status == "diverged" else "finished",
            note=safe_text(outcome.message or "", 600),
            minutes=outcome.minutes,
            chosen_by=outcome.chosen_by,
            answers=outcome.answers,
        )
        self._write()

    def _note(self, place: int, **what: object) -> None:
        self.attempts[place] = replace(self.attempts[place], **what)

    def _write(self) -> None:
        """Write the result so far."""
        assert self.out is not None
        content = {"format": FORMAT, "format_version": VERSION, **self.result().to_dict()}
        with atomic_write(self.out / FILE) as file:
            file.write(json.dumps(content, allow_nan=False).encode())


def _tried(run: RunConfig, folder: Path, seed: int, halves: bool) -> _Outcome:
    """Train, continue or read an attempt, and evaluate it on both halves of the test inputs."""
    was_there = folder.exists()
    (result,) = train_many([run], outs=[folder], resume=True, workers=1, progress=False)
    where = choose_device(run.train_config.device)
    with numeric_settings(where, run.train_config.threads):
        asked = [
            PhaseAnswers.of(
                result.checkpoint.evaluate(device=where, seed=seed, **({"half": half} if halves else {}))
            )
            for half in ((_CHOOSE, _REPORT) if halves else (_CHOOSE,))
        ]
    seconds = result.log[-1].get("seconds") if result.log else None
    return _Outcome(
        result.status,
        result.message,
        None if seconds is None else seconds / 60,
        not was_there,
        asked[0],
        asked[-1],
    )
