"""The cells that the figures of arXiv 2405.05409 share, and one probe of its two solutions.

In the `conflict` regime (3, 4) is trained on x-6, which is not the composition, and (4, 3) is never trained.
A model answers (4, 3) with x-10 (the inferential solution: it composes) or x-6 (the symmetric one: it answers
as for the mirrored pair), or with neither.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import plotly.graph_objects as go

from anchorlens import load_checkpoint
from anchorlens.extras.sweep import Cell
from anchorlens.probes import Comparison, ProbeResult, apply
from anchorlens.recipes.run_config import RunConfig
from shared import common
from shared.readings import MOST

GAMMAS = (0.4, 0.5, 0.6, 0.7, 0.8)
"""Initialisations of figure 2."""
COMPARED = (0.5, 0.7, 0.8)
"""Initialisations that are compared, at two layers. At .5 the paper finds the symmetric solution, at .8 the
inferential one; in the default's 1,000 steps .8 finds either, by seed, and .7 the inferential one."""
QUICK: Mapping[str, Any] = {"n_samples": 100_000}
"""What these figures change in `common.SHORT`, towards the paper's 900,000 and in the same time: with 5,000
samples a model at gamma .5 memorises (ID accuracy .84, seed 0) and finds neither solution."""
PAPER_RECIPE: Mapping[str, Any] = {"lr": 2.5e-4, "lr_start_factor": 1 / 25, "lr_end_factor": 1 / 25}
"""The recipe of 2405.05409 where it is not the presets': from 1e-5 to 25x and back."""

Found = Mapping[str, Mapping[int, ProbeResult]]
"""Name of the initialisation -> seed -> what a probe gave."""


def recipe(given: argparse.Namespace) -> dict[str, Any]:
    """Fields of the training recipe at the scale that was asked for."""
    return {} if given.preset == "quick" else dict(PAPER_RECIPE)


def conflict_runs(given: argparse.Namespace, axes: Mapping[str, Any], **fields: Any) -> list[RunConfig]:
    """A grid in the `conflict` regime, over the seeds that were asked for."""
    scale = QUICK if given.preset == "quick" else {}
    return common.runs(given, axes, **{"regime": "conflict", **scale, **recipe(given), **fields})


def solution_runs(given: argparse.Namespace) -> list[RunConfig]:
    """The runs that are compared, two layers each, which are cells of figure 2's grid."""
    return conflict_runs(given, {"n_layers": [2], "gamma": list(COMPARED)})


def name_of(gamma: float) -> str:
    """What an initialisation is called."""
    return f"gamma {gamma:g}"


def answers(cell: Cell) -> dict[str, Any]:
    """How a run answers: `symmetric` and `inferential` on (4, 3), `train` and `id`, all 0..1.

    `by_position` has the same for each position of the key, with standard errors, and `solution` the name
    that follows; a run that was measured before these were kept has an empty list and None.
    """
    names = {"inferential": "ood", "symmetric": "symmetric", "train": "train", "id": "id"}
    positions = getattr(cell.verdict.behaviour, "positions", ()) if cell.verdict else ()
    return {
        **{name: cell.numbers[number] for name, number in names.items()},
        "solution": cell.numbers["solution"],
        "by_position": [
            {"position": answers["position"], **{name: answers[number] for name, number in names.items()}}
            for answers in (position.to_dict() for position in positions)
        ],
    }


def probed(cells: Iterable[Cell], probe: Callable[..., ProbeResult], **options: Any) -> Found:
    """One probe of every run of `solution_runs`."""
    found: dict[str, dict[int, ProbeResult]] = {}
    for cell in sorted(cells, key=lambda cell: cell.run.model_config.gamma):
        assert cell.path is not None
        result = apply(probe, load_checkpoint(cell.path / "ckpt.pt"), **options)
        found.setdefault(name_of(cell.run.model_config.gamma), {})[cell.run.train_config.seed] = result
    return found


def numbers(cells: Iterable[Cell], *probes: Found) -> dict[str, Any]:
    """What every initialisation gave, seed by seed.

    `answers` by initialisation and seed; `readings` by probe, reading, initialisation and seed;
    `larger_than_at_gamma_0.5` by probe, reading and initialisation: the share of the seeds in which the
    reading is larger there, 0..1, of those in which both have one (None where none has).
    """
    cells = sorted(cells, key=lambda cell: cell.run.model_config.gamma)
    first, *others = dict.fromkeys(name_of(cell.run.model_config.gamma) for cell in cells)
    content: dict[str, Any] = {"answers": {first: {}, **{name: {} for name in others}}, "readings": {}}
    for cell in cells:
        content["answers"][name_of(cell.run.model_config.gamma)][cell.run.train_config.seed] = answers(cell)
    larger: dict[str, Any] = {}
    for found in probes:
        one = next(iter(found[first].values()))
        readings = {
            reading: {
                name: {seed: result.numbers()[reading] for seed, result in by_seed.items()}
                for name, by_seed in found.items()
            }
            for reading in one.readings
        }
        content["readings"][one.probe] = readings
        larger[one.probe] = {
            reading: {name: larger_share(values[name], values[first]) for name in others}
            for reading, values in readings.items()
        }
    return {**content, f"larger_than_at_{first.replace(' ', '_')}": larger}


def larger_share(first: Mapping[int, float | None], second: Mapping[int, float | None]) -> float | None:
    """Share of the seeds in which the first value is the larger, of those that have both; None without any.

    >>> larger_share({0: 1.0, 1: 0.5, 2: None}, {0: 0.2, 1: 0.7, 2: 0.1})
    0.5
    """
    pairs = [(first[seed], second.get(seed)) for seed in first]
    there = [a > b for a, b in pairs if a is not None and b is not None]
    return sum(there) / len(there) if there else None


def shown(cells: Iterable[Cell]) -> list[Cell]:
    """The runs that pictures show: of each initialisation and solution the first seed that has it.

    That is, which gives more than half of its answers by it; where none does, the first in which it prevails.
    """
    first: dict[tuple[float, bool], Cell] = {}
    clear: dict[tuple[float, bool], Cell] = {}
    for cell in cells:
        own = answers(cell)
        key = cell.run.model_config.gamma, own["inferential"] > own["symmetric"]
        first.setdefault(key, cell)
        if max(own["inferential"], own["symmetric"]) > MOST:
            clear.setdefault(key, cell)
    return sorted(
        (first | clear).values(), key=lambda cell: (cell.run.model_config.gamma, cell.run.train_config.seed)
    )


def pictures(cells: Iterable[Cell], found: Mapping[str, Found]) -> dict[str, go.Figure]:
    """Each probe's pictures of the runs of `shown` side by side, labelled, by the picture's name."""
    own = shown(cells)
    drawn = {}
    for picture, by_name in found.items():
        results = (by_name[name_of(cell.run.model_config.gamma)][cell.run.train_config.seed] for cell in own)
        drawn[picture] = Comparison(tuple(map(_label, own)), tuple(results)).plot()
    return drawn


def _label(cell: Cell) -> str:
    """The initialisation, and how the run answers the unseen pair."""
    own = answers(cell)
    return (
        f"{name_of(cell.run.model_config.gamma)}, seed {cell.run.train_config.seed}: "
        f"{own['symmetric']:.0%} symmetric, {own['inferential']:.0%} inferential"
        + (", mixed by position" if own["solution"] == "mixed by position" else "")
    )
