"""`control`: try interventions from a run that ended in Phase 1 or 2, under a budget of time."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from anchorlens.configuration import check_number
from anchorlens.controlling.interventions import INTERVENTIONS, Intervention
from anchorlens.controlling.result import Attempt, Control, PhaseAnswers
from anchorlens.engine import numeric_settings
from anchorlens.files.checkpoint import Checkpoint
from anchorlens.files.container import check_format
from anchorlens.files.importers import open_checkpoint
from anchorlens.files.writing import atomic_write
from anchorlens.models.devices import choose_device
from anchorlens.runs.identity import identity
from anchorlens.runs.run_config import RunConfig
from anchorlens.safe import read_bytes, read_json, reading, safe_repr, safe_text
from anchorlens.tasks.shared.metric import has_phases
from anchorlens.training.child_processes import process_pool
from anchorlens.training.folder import claim, has_ended
from anchorlens.training.jobs import InThisProcess
from anchorlens.training.plan import MOST_WORKERS, check_runs, plan, processes
from anchorlens.training.progress import Update, progress_bar
from anchorlens.training.run import train_many

MINUTES = 20.0
FILE, FORMAT, VERSION = "control.json", "anchorlens control", 1
MOST_INTERVENTIONS = 100
_MOST_MINUTES = 10**6
_CHOOSE, _REPORT = 0, 1
"""The half of the left-out questions that chooses, and the one that is reported."""


def control(
    run: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    minutes: float = MINUTES,
    every: bool = False,
    interventions: Sequence[Intervention] = INTERVENTIONS,
    seed: int = 0,
    device: str | None = None,
    workers: int | None = None,
    dry_run: bool = False,
    progress: bool | None = None,
) -> Control:
    """Take a run that ended in Phase 1 or 2 further: try interventions from its checkpoint or its start.

    The list is tried in its order, on the CPU as many at a time as there are cores, until an attempt is in
    Phase 3. One that would not end within `minutes` is not begun; the time of an update is that of the run's
    log, and after the first attempt that of those before. What has ended is in `out` and is not trained
    again by the same call, which goes on with what was cut off.

    The best attempt is chosen by one half of the left-out questions (of two anchors: even keys) and reported
    on the other (odd keys), where the task can be asked by halves: what is reported chose nothing. Both
    halves ask the same unseen pairs, so whether it composes others is not said.

    Args:
        run: a run's folder, or a checkpoint of ours that says how it was trained.
        out: folder of the attempts, a run's folder each, and of `control.json`, this result; new, empty or
            that of a former call for the same checkpoint. Only a dry run needs none.
        minutes: time for everything, > 0. Attempts under way are ended then; with one worker they are not.
        every: whether to try all that fits, also when Phase 3 is reached.
        interventions: what is tried, in order.
        seed: of the evaluations' noise.
        device: where attempts are trained: auto, cpu, cuda or cuda:N; None for that of the run's recipe.
        workers: processes on the CPU; None for one per core.
        dry_run: train nothing: which attempts there would be, in which order, and the minutes of each.
        progress: None shows a bar in a terminal or a notebook; False never does.

    Returns:
        Every attempt with its phase, accuracies (0..1) and minutes, and the best as a run's folder.

    Raises:
        ValueError: a run in no phase or in Phase 3, a task without phases, a checkpoint that does not say how
            it was trained, unusable options, or a folder that holds something else.
        CheckpointError: a file that cannot be read safely and whole.
        OSError: the disk refuses; what has ended is kept.
        RuntimeError: a process was killed; what has ended is kept.

    Example:
        >>> control("runs/g0.5", "runs/g0.5-control", minutes=20)  # doctest: +SKIP
        Control(Phase 2 without commutativity; halve: Phase 3, in runs/g0.5-control/halve)

    Source: complexity control by initialisation and decay, arXiv 2405.05409 and 2501.08537; doing so from a
    trained model is ours.
    """
    began = time.monotonic()
    check_number("minutes", minutes, above=0, limit=_MOST_MINUTES)
    check_number("seed", seed, minimum=0, integer=True)
    if workers is not None:
        check_number("workers", workers, minimum=1, maximum=MOST_WORKERS, integer=True)
    _check_interventions(interventions)
    if out is None and not dry_run:
        raise ValueError("out must be the folder of the attempts, got none")
    origin = _opened(run, device)
    before = _answers_before(origin, seed)
    trials = [_trial(origin, one) for one in interventions]
    halves = bool(origin.run.task.halves)
    found = Control(str(run), origin.sha256, before, (), minutes, 0.0, halves, seed)
    with contextlib.nullcontext() if dry_run or out is None else _held(Path(out), origin.sha256):
        tries = _Tries(found, origin, trials, None if dry_run or out is None else Path(out), began, every)
        if not dry_run:
            runs = [trial.run for trial in trials if trial.run is not None]
            with progress_bar(round(60 * minutes), enabled=progress, what="trying", unit="s") as show:
                tries.carry_out(processes(runs, workers) if runs else 1, show)
    return tries.result()


class _Origin(NamedTuple):
    """The run that is to be helped."""

    run: RunConfig
    file: Path
    sha256: str
    checkpoint: Checkpoint
    seconds_per_update: float | None
    """As its log has it."""


class _Trial(NamedTuple):
    """An intervention on that run."""

    run: RunConfig | None
    """None where it cannot be tried."""
    attempt: Attempt


class _Outcome(NamedTuple):
    """What a process gives back of an attempt."""

    status: str
    message: str | None
    minutes: float | None
    is_new: bool
    """Whether all of it was trained now."""
    chosen_by: PhaseAnswers
    answers: PhaseAnswers


def _check_interventions(interventions: Sequence[Intervention]) -> None:
    some = list(interventions)
    if not 0 < len(some) <= MOST_INTERVENTIONS or not all(isinstance(one, Intervention) for one in some):
        raise ValueError(
            f"interventions must be a list of one Intervention or more, at most {MOST_INTERVENTIONS}, got "
            f"{safe_repr(interventions)}"
        )
    names = [one.name for one in some]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"interventions must have different names, got {twice} twice")


def _opened(path: str | os.PathLike[str], device: str | None) -> _Origin:
    """The run of a checkpoint that says how it was trained."""
    opened = open_checkpoint(path)
    checkpoint, train = opened.checkpoint, opened.checkpoint.train_config
    if train is None:
        raise ValueError(
            f"{safe_text(path)}: it does not say how it was trained ({opened.kind}), and an attempt needs "
            "the same data and recipe; give the folder or checkpoint of a run of anchorlens train"
        )
    if not has_phases(checkpoint.task.metrics):
        raise ValueError(
            f"{safe_text(path)}: the task {checkpoint.task.kind} has no phases, so that nothing says what "
            "helps; give a run of a task that measures train, ID and OOD accuracy"
        )
    if device is not None:
        train = replace(train, device=device)
    choose_device(train.device)
    step, seconds, known = checkpoint.metrics.get("step"), checkpoint.metrics.get("seconds"), None
    if isinstance(step, int) and isinstance(seconds, int | float) and step > 0 and seconds > 0:
        known = seconds / step
    run = RunConfig(checkpoint.task, checkpoint.model_config, train)
    return _Origin(run, opened.file.resolve(), opened.sha256, checkpoint, known)


def _answers_before(origin: _Origin, seed: int) -> PhaseAnswers:
    """What the run answers; it must be in Phase 1 or 2."""
    train = origin.run.train_config
    where = choose_device(train.device)
    with numeric_settings(where, train.threads):
        before = PhaseAnswers.of(origin.checkpoint.evaluate(device=where, seed=seed))
    phase, name = before.phase, safe_text(origin.file)
    if phase.number == 3:
        raise ValueError(f"{name}: it is in Phase 3 already ({phase.reason}); nothing is left to try")
    if phase.number is None:
        advice = "; control begins from Phase 1 or 2"
        if phase.cause == "underfit":
            advice = ", with train --from for example, then control it"
        raise ValueError(f"{name}: it is in no phase: {phase.label}: {phase.reason}{advice}")
    return before


def _trial(origin: _Origin, one: Intervention) -> _Trial:
    """What an intervention makes of the run, or why it can make nothing of it."""
    run, note, changes, steps = None, "", "", 0
    try:
        run = one.applied(origin.run, str(origin.file))
        changes, steps = _in_words(one, run), run.train_config.total_steps
        check_runs([run], starts=False)
        if identity(run) == identity(origin.run):
            raise ValueError("it is the run itself")
    except ValueError as error:
        run, note = None, f"cannot be tried: {safe_text(error, 600)}"
    outcome = "skipped" if run is None else "planned"
    words = (one.name, one.why, one.source, one.anew, one.baseline, changes)
    return _Trial(run, Attempt(*words, steps, outcome, note=note))


def _in_words(one: Intervention, run: RunConfig) -> str:
    """What an attempt changes, with the values that it has."""
    values = run.model_config.to_dict() | run.train_config.to_dict()
    return ", ".join(f"{name} {values[name]}" for name in (*one.fields, *one.added))


@contextlib.contextmanager
def _held(out: Path, sha256: str) -> Iterator[None]:
    """Hold the folder of the attempts; nobody else tries anything in it, and it is of this checkpoint."""
    in_use = "in use by another control; wait for it or choose another folder"
    lock = claim(out, FILE, what="control", in_use=in_use)
    try:
        path = out / FILE
        if path.exists():
            with reading(path, "is no result of control"):
                content = read_json(read_bytes(path))
                if not isinstance(content, dict):
                    raise ValueError("it holds no JSON object")
                check_format(path, content, FORMAT, VERSION)
            if content.get("sha256") != sha256:
                raise ValueError(
                    f"{safe_text(out)} holds attempts from another checkpoint, "
                    f"{safe_repr(content.get('path'))}; choose another folder"
                )
        yield
    finally:
        lock.release()


@dataclass
class _Clock:
    """How long attempts take here: so much for each update, and so much for all that comes with them."""

    seconds_per_update: float
    """As the run's log has it, for as long as nothing was trained here."""
    attempts: int = 0
    updates: int = 0
    training: float = 0.0
    """Seconds of updates, of attempts that were trained in this call."""
    beside: float = 0.0
    """Seconds of all else in them: beginning, measuring."""

    def minutes(self, steps: int) -> float:
        """Of an attempt."""
        each = self.training / self.updates if self.updates else self.seconds_per_update
        return (steps * each + self.beside / max(1, self.attempts)) / 60

    def learn(self, steps: int, training: float, whole: float) -> None:
        """Take in an attempt that has ended."""
        self.attempts, self.updates = self.attempts + 1, self.updates + steps
        self.training += training
        self.beside += max(0.0, whole - training)


class _Tries:
    """Carries out attempts, and keeps what came of them."""

    def __init__(
        self,
        found: Control,
        origin: _Origin,
        trials: Sequence[_Trial],
        out: Path | None,
        began: float,
        every: bool,
    ) -> None:
        self.found, self.out, self.began, self.every = found, out, began, every
        self.runs = [trial.run for trial in trials]
        self.ends = began + 60 * found.budget
        possible = [run for run in self.runs if run is not None]
        seconds = origin.seconds_per_update
        if seconds is None and possible:
            measured = plan(possible[:1], seconds=1.0)
            seconds = (measured.seconds or 0.0) / measured.steps
        self.clock = _Clock(seconds or 0.0)
        self.attempts = [trial.attempt for trial in trials]
        for place, run in enumerate(self.runs):
            if run is not None:
                self._note(place, estimate=self.clock.minutes(run.train_config.total_steps))

    def result(self) -> Control:
        """What was found up to now."""
        minutes = (time.monotonic() - self.began) / 60
        return replace(self.found, attempts=tuple(self.attempts), minutes=minutes)

    def carry_out(self, workers: int, show: Update) -> None:
        """Try what fits into the time, what has ended before first, until one is in Phase 3."""
        self._write()
        order = [place for place, run in enumerate(self.runs) if run is not None]
        waiting = deque(sorted(order, key=lambda place: not has_ended(self._folder(place))))
        running: dict[Future[_Outcome], tuple[int, float]] = {}
        advice = "; what has ended is kept, the same call goes on"
        pool = contextlib.nullcontext(InThisProcess()) if workers == 1 else process_pool(workers, advice)
        with pool as executor:
            while (waiting or running) and not self._is_over():
                while waiting and len(running) < workers and not self._is_over():
                    self._begin(waiting.popleft(), executor, running)
                    if workers == 1:
                        break  # it has ended
                left = max(0.0, self.ends - time.monotonic())
                ended, _ = wait(running, timeout=min(1.0, left), return_when=FIRST_COMPLETED)
                for future in ended:
                    self._take_in(*running.pop(future), future)
                names = ", ".join(self.attempts[place].name for place, _ in running.values())
                show(round(time.monotonic() - self.began), f"{names} ({len(self.result().tried)} tried)")
        over = "Phase 3 was reached" if self._is_enough() else "the time was up"
        for place, _ in running.values():
            self._note(
                place, outcome="cut off", note=f"{over} before it ended; the same call goes on with it"
            )
        for place in waiting:
            estimate = self.clock.minutes(self.attempts[place].steps)  # by what was learnt since
            self._note(place, outcome="skipped", estimate=estimate, note=f"{over} before it was begun")
        self._write()

    def _folder(self, place: int) -> Path:
        assert self.out is not None
        return self.out / self.attempts[place].name

    def _is_enough(self) -> bool:
        in_phase_3 = (a.chosen_by is not None and a.chosen_by.phase.number == 3 for a in self.attempts)
        return not self.every and any(in_phase_3)

    def _is_over(self) -> bool:
        return self._is_enough() or time.monotonic() >= self.ends

    def _begin(
        self, place: int, executor: Executor, running: dict[Future[_Outcome], tuple[int, float]]
    ) -> None:
        """Begin an attempt, if it can be expected to end in time."""
        run, now, folder = self.runs[place], time.monotonic(), self._folder(place)
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
        """Keep what came of an attempt."""
        try:
            outcome = future.result()
        except ValueError as error:  # also a state that cannot be read
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

    def _note(self, place: int, **what: Any) -> None:
        self.attempts[place] = replace(self.attempts[place], **what)

    def _write(self) -> None:
        """Write what was found up to now."""
        assert self.out is not None
        content = {"format": FORMAT, "format_version": VERSION, **self.result().to_dict()}
        with atomic_write(self.out / FILE) as file:
            file.write(json.dumps(content, allow_nan=False).encode())


def _tried(run: RunConfig, folder: Path, seed: int, halves: bool) -> _Outcome:
    """Train an attempt, or go on with it or read it, and ask it both halves of the questions."""
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
    seconds = result.log[-1]["seconds"] if result.log else None
    return _Outcome(
        result.status,
        result.message,
        None if seconds is None else seconds / 60,
        not was_there,
        asked[0],
        asked[-1],
    )
