"""`benchmark`: apply a probe to models whose solution is known, and score its readings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from anchorlens.configuration import checked_arguments
from anchorlens.extras.benchmark.auc import auc_with_interval
from anchorlens.extras.benchmark.questions import QUESTIONS, BenchmarkQuestion
from anchorlens.extras.benchmark.result import Benchmark, BenchmarkModel, QuestionScore, ReadingScore
from anchorlens.extras.benchmark.shipped import shipped_models
from anchorlens.files.checkpoint import Checkpoint
from anchorlens.files.importers.inputs import resolve
from anchorlens.models.devices import choose_device
from anchorlens.probes.from_file import what_went_wrong, with_own
from anchorlens.probes.registry import probe_named
from anchorlens.probes.shared.calling import call
from anchorlens.probes.shared.result import ProbeResult
from anchorlens.texts import safe_repr, safe_text

MOST_READINGS = 200
"""Largest number of readings of a probe, over all models."""
_LONGEST_NAME = 200


@checked_arguments()
def benchmark(
    probe: Callable[..., Any] | str, *, first: int | None = None, device: str | torch.device = "auto"
) -> Benchmark:
    """Score a probe by how well its readings distinguish 60 small models whose solution is known.

    The models are from runs that were not used to fit anything of ours. They are in Phase 1, 2 and 3, or,
    where the training data conflict with the rules, compose nevertheless or do not. Each kind has about as
    many models, from as many tasks as possible. `QUESTIONS` are the questions.

    Args:
        probe: a function with parameters `model` and `task`, or one of them, that returns a ProbeResult (its
            `readings` are scored), a number, or a mapping from names to numbers; None and NaN are no value.
            Or the name of a shipped probe.
        first: use only this number of models, for a quick look; the kinds take turns. Intervals are then wide
            or missing.
        device: the device of the models.

    Returns:
        For every reading and question the AUC, 0..1, with a 95% interval that draws tasks, not models; the
        raw values; and the models that the probe failed on. The result is deterministic if the probe is.

    Raises:
        ValueError: an unknown probe, missing models, or a probe that fails on all of them (the message has
            its first error).

    Example:
        >>> from anchorlens import benchmark
        >>> def width(model, task):
        ...     return model.cfg.d_model
        >>> benchmark(width)  # doctest: +SKIP
        Benchmark(width, AUC: memorised ..., generalises 0.55 (0.37 to 0.72), composes ...; 60 models)

    Source: the phases of arXiv 2501.08537 and the solutions of arXiv 2405.05409; the models are ours.
    """
    if isinstance(probe, str):
        probe = probe_named(probe, with_own([]))
    if not callable(probe):
        raise ValueError(
            "probe must be a function of (model, task), or the name of a shipped probe, got "
            f"{safe_repr(probe)}"
        )
    return score_models(probe, shipped_models(first), device=device)


def score_models(
    probe: Callable[..., Any],
    models: Sequence[tuple[BenchmarkModel, Checkpoint]],
    *,
    device: str | torch.device = "auto",
) -> Benchmark:
    """Score a probe on the user's own models, as `benchmark` does on the shipped ones.

    Args:
        probe: a function, as for `benchmark`.
        models: description and checkpoint of each, as `shipped_models` returns them; at least one.
        device: the device of the models.

    Raises:
        ValueError: no models, the probe fails on all of them, or it gives more than 200 readings.
    """
    if not models:
        raise ValueError("models must be one or more, got none")
    name = safe_text(getattr(probe, "__name__", type(probe).__name__), _LONGEST_NAME)
    where = choose_device(device)
    found: dict[str, dict[str, float | None]] = {}
    failures: dict[str, str] = {}
    for about, checkpoint in models:
        try:
            readings = _readings(name, _measured(probe, checkpoint, where))
        except Exception as error:
            failures[about.name] = safe_text(what_went_wrong(error, probe), 600)
            continue
        for reading, value in readings.items():
            found.setdefault(reading, {})[about.name] = value
        if len(found) > MOST_READINGS:
            raise ValueError(
                f"{name} must give the same readings for every model, at most {MOST_READINGS}, got more than "
                f"that by {safe_text(about.name)}"
            )
    if len(failures) == len(models):
        raise ValueError(
            f"{name} fails on all {len(models)} models; on the first: {next(iter(failures.values()))}"
        )
    asked = tuple(about for about, _ in models)
    values = {reading: {one.name: of.get(one.name) for one in asked} for reading, of in found.items()}
    scores = (ReadingScore(reading, _scores(asked, of), of) for reading, of in values.items())
    return Benchmark(name, tuple(scores), asked, failures)


def _measured(probe: Callable[..., Any], checkpoint: Checkpoint, where: torch.device) -> Any:
    return call(probe, resolve(checkpoint, device=where))


def _readings(name: str, result: object) -> dict[str, float | None]:
    """The numbers in a probe's return value, by name.

    Raises:
        ValueError: there is none, or something other than numbers.
    """
    named = {name: result}
    if isinstance(result, ProbeResult):
        named = {f"{name}.{field}": value for field, value in result.numbers().items()}
        if not named:
            raise ValueError(f"{name} has no readings; name the fields that are in `readings` of its result")
    elif isinstance(result, Mapping):
        named = {safe_text(key, _LONGEST_NAME): value for key, value in result.items()}
        if not named:
            raise ValueError(f"{name} must give one number or more, got an empty mapping")
        if len(named) < len(result):
            raise ValueError(
                f"{name} must give readings whose names differ as text, got {safe_repr(list(result))}"
            )
    return {reading: _number(reading, value) for reading, value in named.items()}


def _number(name: str, value: Any) -> float | None:
    """A value as a finite number; None for None, NaN and infinity.

    Raises:
        ValueError: it is something else.
    """
    try:
        plain = value.item() if hasattr(value, "item") else value  # a NumPy or torch scalar
        number = math.nan if plain is None else None if isinstance(plain, str | bytes) else float(plain)
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor of several numbers
        number = None
    if number is None:
        raise ValueError(f"{name} must be a number, or None for no value, got {safe_repr(value)}")
    return number if math.isfinite(number) else None


def _scores(models: Sequence[BenchmarkModel], values: Mapping[str, float | None]) -> dict[str, QuestionScore]:
    return {name: _score(question, models, values) for name, question in QUESTIONS.items()}


def _score(
    question: BenchmarkQuestion, models: Sequence[BenchmarkModel], values: Mapping[str, float | None]
) -> QuestionScore:
    asked = [one for one in models if question.answer(one.ending, one.outcome) is not None]
    there = [(one, value) for one in asked if (value := values[one.name]) is not None]
    is_yes = np.array([question.answer(one.ending, one.outcome) for one, _ in there], dtype=bool)
    numbers = np.array([value for _, value in there], dtype=float)
    interval = auc_with_interval(numbers, is_yes, [one.task for one, _ in there])
    n_yes = int(is_yes.sum())
    return QuestionScore(*interval, len(there) - n_yes, n_yes, len(asked) - len(there))
