"""Every number that the verdicts by the inside might go by, of a trained run of the zoo."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from anchorlens import Checkpoint, save_checkpoint, train
from anchorlens.probes import holdout
from anchorlens.probes.shared.anchor_sequences import at_trained_places
from anchorlens.probes.shared.edge_effects import margin
from anchorlens.probes.two_anchor.survival import DOSES, survival
from anchorlens.tasks.shared.phases import LABELS
from anchorlens.verdict.readings import MEASURED, measurements
from calibration.runs import Planned

HOW_ASKED = ("seed", "key_position", "chain_length", "n_sequences", "n_route_sequences", "perplexity")
HOW_ASKED += ("target", "answer", "second_anchor", "threshold", "layer")
"""Scalars of results that say nothing of the model."""
MODEL_FIELDS = ("variant", "n_layers", "n_heads", "d_model", "gamma")
TRAIN_FIELDS = ("seed", "weight_decay", "lr", "n_samples")

MEASURED_ALONE = tuple(name for name in MEASURED if name not in ("holdout", "survival"))
"""What `numbers` measures; the others train copies, and `further_numbers` measures them."""
N_MARGINS = 1000
"""Sequences that margins are means over."""
ENOUGH_UPDATES = 80
"""Mean number of updates from which a larger dose of `survival` is not tried."""


def trained(name: str, planned: Planned, folder: Path) -> tuple[list[dict[str, Any]], Path]:
    """Train a run and measure it at its end.

    Args:
        name: of the run.
        planned: what it is.
        folder: empty; for the file of its checkpoint.

    Returns:
        One row, and the file of its last checkpoint.
    """
    torch.set_num_threads(1)
    started = time.process_time()
    result = train(*planned.run, progress=False)
    checkpoint, path = result.checkpoint, folder / "ckpt.safetensors"
    save_checkpoint(path, checkpoint)
    row = {"name": name, **about_run(planned), **at_end(result.behaviour)}
    row |= {"moment": 1.0, "step": checkpoint.step, "now": None, "seconds": time.process_time() - started}
    row |= numbers(checkpoint)
    if row["regime"] == "reasoning" and str(row["label"]).startswith("Phase"):
        row |= further_numbers(checkpoint, str(row["label"]))
    return [row | {"all_seconds": time.process_time() - started}], path


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


def further_numbers(checkpoint: Checkpoint, phase: str) -> dict[str, float]:
    """What the second fit may go by beside `numbers`, of a run that came to a phase in `reasoning`.

    The margin on training sequences and on fresh ones of trained pairs, `holdout`, and, where the question
    whether it composes is asked, `survival` at each of its doses: the next one only while the others are back
    after few updates.

    Args:
        checkpoint: the last one of the run.
        phase: the label of its phase by behaviour, of which only Phase 1 or not matters.
    """
    model, task = checkpoint.build_model(), checkpoint.task
    training = checkpoint.training_set()
    random = np.random.default_rng(0)
    some = training.take(random.permutation(len(training))[:N_MARGINS])
    pairs = np.array(task.seen_pairs)[random.integers(0, len(task.seen_pairs), N_MARGINS)]
    fresh = at_trained_places(task, pairs, random)
    found: dict[str, float] = {}
    for name, batch in {"training": some, "fresh": fresh}.items():
        with torch.no_grad():
            margins = margin(model(batch.tokens)[:, -1], batch.targets)
        found |= {
            f"{name}.margin": float(margins.mean()),
            f"{name}.accuracy": float((margins > 0).double().mean()),
        }
        found[f"{name}.median_margin"] = float(margins.median())
    try:
        held = holdout(model, training_set=training)
        found |= {f"holdout.{name}": _number(held, name) for name in held.readings}
    except ValueError:
        pass  # fewer than 200 distinct sequences, or not wholly fit
    for dose in DOSES if phase != LABELS[0] else ():
        result = survival(model, task, noise=dose)
        found |= {f"survival at {dose:g}.{name}": _number(result, name) for name in result.readings}
        if result.mean_updates is None or result.mean_updates >= ENOUGH_UPDATES:
            break
    return found


def _number(result: Any, name: str) -> float:
    value = getattr(result, name)
    return float("nan") if value is None else float(value)


def numbers(checkpoint: Checkpoint) -> dict[str, float]:
    """`measurement.field` -> value of every scalar of a result that says something of the model.

    More than the readings: another choice of them needs no other measurement. Of what is measured at several
    positions of the key, the mean. None of a model that a probe refuses.
    """
    try:
        found = measurements(checkpoint.build_model(), checkpoint.task, names=MEASURED_ALONE)
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
