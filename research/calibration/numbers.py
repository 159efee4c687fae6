"""Every number that the verdicts by the inside might go by, of a trained run of the zoo."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from anchorlens import Checkpoint, load_checkpoint, save_checkpoint, train
from anchorlens.verdict.forecast import sampled_behaviour
from anchorlens.verdict.readings import measurements
from calibration.runs import MOMENTS, Planned

HOW_ASKED = ("seed", "key_position", "chain_length", "n_sequences", "n_route_sequences", "perplexity")
HOW_ASKED += ("target", "answer", "second_anchor", "threshold", "layer")
"""Scalars of results that say nothing of the model."""
MODEL_FIELDS = ("variant", "n_layers", "n_heads", "d_model", "gamma")
TRAIN_FIELDS = ("seed", "weight_decay", "lr", "n_samples")


def trained(name: str, planned: Planned, folder: Path) -> tuple[list[dict[str, Any]], Path]:
    """Train a run and measure it.

    Args:
        name: of the run.
        planned: what it is.
        folder: empty; for what the run writes.

    Returns:
        A row for each moment that is measured, its end last, and the file of its last checkpoint.
    """
    torch.set_num_threads(1)
    out = folder / "run" if planned.run.train_config.n_checkpoints else None
    result = train(*planned.run, out=out, progress=False)
    path = folder / "ckpt.safetensors"
    save_checkpoint(path, result.checkpoint)
    about = {"name": name, **about_run(planned), **at_end(result.behaviour)}
    total = planned.run.train_config.total_steps
    rows = []
    for moment in MOMENTS if out is not None else MOMENTS[-1:]:
        checkpoint = (
            result.checkpoint if moment == 1 or out is None else load_checkpoint(nearest(out, moment * total))
        )
        now = sampled_behaviour(checkpoint).phase.label if moment < 1 else None
        rows.append(
            {
                **about,
                "moment": moment,
                "step": checkpoint.step,
                "now": now,
                **numbers(checkpoint, moment < 1),
            }
        )
    return rows, path


def about_run(planned: Planned) -> dict[str, Any]:
    """What is known of a run before it is trained."""
    task, model, recipe = planned.run
    return {
        "group": planned.group,
        "task": planned.task_name,
        "kind": planned.kind,
        "commutes": task.commutes,
        "regime": "conflict" if task.in_conflict else "reasoning",
        "n_anchors": len(task.anchors),
        "n_keys": len(task.keys),
        "seq_len": task.seq_len,
        "n_unseen": len(task.ood_pairs),
        **{name: getattr(model, name) for name in MODEL_FIELDS},
        **{name: getattr(recipe, name) for name in TRAIN_FIELDS},
    }


def at_end(behaviour: Any) -> dict[str, Any]:
    """How a run ended: its phase, accuracies with standard errors, and the solution where there are two."""
    found = {
        "label": behaviour.phase.label,
        "clear_label": behaviour.phase_if_clear().label,
        "solution": behaviour.solution,
    }
    for name in ("train", "id", "ood", "symmetric", "commutativity"):
        measure = behaviour.measure(name)
        found |= {name: measure and measure.value, f"{name}_error": measure and measure.standard_error}
    return found


def nearest(folder: Path, step: float) -> Path:
    """The checkpoint of a run's trajectory that is nearest to a step, on a log scale."""
    paths = sorted((folder / "checkpoints").glob("step_*.pt"))
    return min(paths, key=lambda path: abs(np.log1p(int(path.stem.removeprefix("step_"))) - np.log1p(step)))


def numbers(checkpoint: Checkpoint, early: bool) -> dict[str, float]:
    """`measurement.field` -> value of every scalar of a result that says something of the model.

    More than the readings: another choice of them needs no other measurement. Of what is measured at several
    positions of the key, the mean. None of a model that a probe refuses.
    """
    try:
        found = measurements(checkpoint.build_model(), checkpoint.task, early=early)
    except ValueError:
        return {}
    return {
        f"{measurement}.{field.name}": mean
        for measurement, results in found.items()
        for field in dataclasses.fields(results[0])
        if field.name not in HOW_ASKED and (mean := _mean(results, field.name)) is not None
    }


def _mean(results: Sequence[Any], field: str) -> float | None:
    values = [getattr(result, field) for result in results]
    there = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    return float(np.mean(there)) if there else None
