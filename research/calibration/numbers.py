"""Every number that the mechanism verdict might go by, of a run at each of its moments."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from anchorlens import AnchorTask, load_checkpoint
from anchorlens.sweep import Cell
from anchorlens.verdict.forecast import sampled_behaviour
from anchorlens.verdict.readings import measurements
from calibration.runs import MOMENTS

HOW_ASKED = ("seed", "key_position", "chain_length", "n_sequences", "n_route_sequences", "perplexity")
HOW_ASKED += ("target", "answer", "second_anchor", "threshold", "layer")
"""Scalars of results that say nothing of the model."""


def measured(cell: Cell) -> list[dict[str, Any]]:
    """A row for each moment of a run.

    Args:
        cell: of the sweep that trained it, done.

    Returns:
        Its moment and step, its phase then (`now`, from a sample) and at its end (`label`, `borderline`,
        accuracies with standard errors), and every number; None where a probe gives none.
    """
    torch.set_num_threads(1)
    assert cell.path is not None and cell.verdict is not None
    behaviour = cell.verdict.behaviour
    end = {"label": behaviour.phase.label, "clear_label": cell.verdict.phase.label}
    for name in ("train", "id", "ood", "commutativity"):
        measure = behaviour.measure(name)
        end |= {name: measure and measure.value, f"{name}_error": measure and measure.standard_error}
    total = cell.run.train_config.total_steps
    rows = []
    for moment in MOMENTS:
        checkpoint = load_checkpoint(nearest(cell.path, moment * total))
        assert isinstance(checkpoint.task, AnchorTask)
        now = sampled_behaviour(checkpoint).phase.label if moment < 1 else None
        values = numbers(checkpoint.build_model(), checkpoint.task, early=moment < 1)
        rows.append({"moment": moment, "step": checkpoint.step, "now": now, **end, **dict(values)})
    return rows


def nearest(folder: Path, step: float) -> Path:
    """The checkpoint of a run's trajectory that is nearest to a step, on a log scale."""
    paths = sorted((folder / "checkpoints").glob("step_*.pt"))
    return min(paths, key=lambda path: abs(np.log1p(int(path.stem.removeprefix("step_"))) - np.log1p(step)))


def numbers(model: Any, task: AnchorTask, *, early: bool) -> Iterator[tuple[str, float]]:
    """(`measurement.field`, value) of every scalar of a result that says something of the model.

    More than the readings: another choice of them needs no other measurement. None of a model that a probe
    refuses.
    """
    try:
        results = measurements(model, task, early=early)
    except ValueError:
        return
    for name, result in results.items():
        for field in dataclasses.fields(result):
            value = getattr(result, field.name)
            if field.name not in HOW_ASKED and isinstance(value, int | float) and not isinstance(value, bool):
                yield f"{name}.{field.name}", float(value)
