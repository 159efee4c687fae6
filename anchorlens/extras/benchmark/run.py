"""`benchmark`: apply a probe to models whose solution is known, and score its readings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from anchorlens.configuration import checked_arguments
from anchorlens.extras.benchmark.result import Benchmark, BenchmarkModel, ReadingScore, question_scores
from anchorlens.extras.benchmark.shipped import shipped_models
from anchorlens.files import Checkpoint, resolve
from anchorlens.models import choose_device
from anchorlens.probes import probe_named, what_went_wrong, with_own
from anchorlens.probes.shared import ProbeResult, call, finite_number, result_of
from anchorlens.texts import safe_repr, safe_text

MOST_READINGS = 200
"""The largest number of readings of a probe, over all models."""
_LONGEST_NAME = 200


@checked_arguments()
def benchmark(
    probe: Callable[..., Any] | str, *, first: int | None = None, device: str | torch.device = "auto"
) -> Benchmark:
    """Score a probe by how well its readings distinguish 60 small models whose solution is known.

    No part of anchorlens was fit on the runs of these models. Models whose training data obey the rules are
    in Phase 1, 2 or 3. Models whose training data conflict with the rules have the inferential solution or
    another solution. The benchmark has about equally many models of each kind, from as many tasks as
    possible. `QUESTIONS` holds the questions.

    Args:
        probe: a function with the parameter `model`, `task` or both, or the name of a shipped probe. The
            function returns a number, a mapping from names to numbers, or a ProbeResult with `readings`.
            `None` and NaN count as missing values.
        first: the number of models to use. The used models are balanced over the kinds of model. With few
            models, intervals are wide or missing. Default: all models.
        device: the device of the models.

    Returns:
        The AUC (0..1) of every reading on every question, with a 95% bootstrap interval over tasks. The
        result also has the raw values, and the models on which the probe failed. The result is deterministic
        if the probe is deterministic.

    Raises:
        ValueError: If the probe is unknown or fails on every model, or the file of the models is missing. If
            the probe fails on every model, the message contains the first error of the probe.

    Example:
        >>> from anchorlens import benchmark
        >>> def width(model, task):
        ...     return model.cfg.d_model
        >>> benchmark(width)  # doctest: +SKIP
        Benchmark(width, AUC: memorised ..., generalises 0.55 (0.37 to 0.72), composes ...; 60 models)

    Source: The phases are from arXiv 2501.08537, and the solutions are from arXiv 2405.05409. The models are
        ours.
    """
    if isinstance(probe, str):
        probe = probe_named(probe, with_own([]))
    if not callable(probe):
        raise ValueError(
            "the probe must be a function of (model, task), or the name of a shipped probe, got "
            f"{safe_repr(probe)}. Give a function or a name"
        )
    return score_models(probe, shipped_models(first), device=device)


def score_models(
    probe: Callable[..., Any],
    models: Sequence[tuple[BenchmarkModel, Checkpoint]],
    *,
    device: str | torch.device = "auto",
) -> Benchmark:
    """Score a probe on your own models, with the method of `benchmark`.

    Args:
        probe: a function, as for `benchmark`.
        models: the description and checkpoint of at least one model, as `shipped_models` returns them.
        device: the device of the models.

    Raises:
        ValueError: If `models` is empty, or the probe fails on every model. A probe may have at most 200
            readings.
    """
    if not models:
        raise ValueError("models must contain at least one model, got none. Give at least one model")
    name = safe_text(getattr(probe, "__name__", type(probe).__name__), _LONGEST_NAME)
    where = choose_device(device)
    found: dict[str, dict[str, float | None]] = {}
    failures: dict[str, str] = {}
    for about, checkpoint in models:
        try:
            returned = call(probe, resolve(checkpoint, device=where))
            prefix = f"{name}." if isinstance(returned, ProbeResult) else ""
            numbers = result_of(name, returned).numbers()
            if not numbers:
                raise ValueError(
                    f"{name} must return one or more readings, got none. Name them in `readings`"
                )
            readings = {f"{prefix}{key}": finite_number(key, value) for key, value in numbers.items()}
        except Exception as error:
            failures[about.name] = safe_text(what_went_wrong(error, probe), 600)
            continue
        for reading, value in readings.items():
            found.setdefault(reading, {})[about.name] = value
        if len(found) > MOST_READINGS:
            raise ValueError(
                f"{name} must return at most {MOST_READINGS} different readings over all models, got "
                f"{len(found)} readings after the model {safe_text(about.name)}. Return fewer readings"
            )
    if len(failures) == len(models):
        raise ValueError(
            f"{name} must work on at least one model, got an error on each of the {len(models)} models. The "
            f"first error is: {next(iter(failures.values()))}"
        )
    asked = tuple(about for about, _ in models)
    values = {reading: {one.name: of.get(one.name) for one in asked} for reading, of in found.items()}
    scores = (ReadingScore(reading, question_scores(asked, of), of) for reading, of in values.items())
    return Benchmark(name, tuple(scores), asked, failures)
