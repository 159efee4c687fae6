"""The zoo: which models are trained, and what is read off each of them."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from loky import ProcessPoolExecutor

from anchorlens import Checkpoint, evaluate, load_checkpoint, preset, train_many
from anchorlens.runs.run_config import RunConfig
from anchorlens.training.child_processes import end_with_parent, safe_children
from anchorlens.training.folder import stored_run
from anchorlens.training.progress import progress_bar
from anchorlens.verdict import take_readings
from anchorlens.verdict.forecast import sampled_behaviour

STEPS = 960
MOMENTS = {0.05: 49, 0.1: 97, 0.25: 243, 0.5: 483}
"""Fraction of the steps -> the checkpoint of the trajectory that is nearest."""

AXES: Mapping[str, Sequence[Any]] = {
    "gamma": (0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8),
    "weight_decay": (0.0, 0.01, 0.1, 1.0),
    "n_layers": (2, 2, 3, 4),
    "n_heads": (1, 2, 4),
    "n_samples": (4_000, 20_000, 50_000, 50_000),
    "regime": ("reasoning", "conflict"),
}
"""What is drawn for each run; a value that stands twice is drawn twice as often."""

MOST_HEADS = 8
"""Runs of more layers times heads are drawn but not trained: they would cost most of the time."""

SEEDS, HELD_OUT_SEEDS = (0, 1, 2, 3, 4, 5), (6, 7, 8)
WIDTHS, VARIANTS = (64, 128), ("gpt2", "released")

GROUPS: Mapping[str, tuple[int, Sequence[int], Sequence[int], Sequence[str]]] = {
    "fit": (140, SEEDS, WIDTHS, VARIANTS),
    "held-out seeds": (110, HELD_OUT_SEEDS, WIDTHS, VARIANTS),
    "unseen width": (40, HELD_OUT_SEEDS, (192,), VARIANTS),
    "unseen variant": (70, HELD_OUT_SEEDS, WIDTHS, ("postnorm",)),
    "unseen width 96": (30, HELD_OUT_SEEDS, (96,), VARIANTS),
}
"""Group -> how many are drawn; their seeds, widths and variants."""


def zoo() -> dict[str, RunConfig]:
    """Every run by its name, `group-number`; the same each time."""
    random = np.random.default_rng(2501)
    runs = {}
    for group, (n, seeds, widths, variants) in GROUPS.items():
        for k in range(n):
            fields = {name: values[int(random.integers(len(values)))] for name, values in AXES.items()}
            width = int(random.choice((*widths, widths[0])))  # the first twice as often: it costs least
            run = preset(
                "quick",
                **fields,
                d_model=width,
                d_head=width // 2,
                d_mlp=2 * width,
                variant=str(random.choice(variants)),
                seed=seeds[k % len(seeds)],
                batch_size=256,
                steps=STEPS,
                lr=2e-3,
                warmup_steps=60,
                n_checkpoints=31,
                eval_every=480,
                log_every=20,
            )
            if run.model.n_layers * run.model.n_heads <= MOST_HEADS:
                runs[f"{group.replace(' ', '-')}-{k:03d}"] = run
    return runs


def train_zoo(runs: Mapping[str, RunConfig], out: Path) -> None:
    """Train what is missing, in an order that mixes the groups."""
    names = np.random.default_rng(0).permutation(sorted(runs)).tolist()
    missing = [name for name in names if not (out / name / "ckpt.pt").exists()]
    if missing:
        train_many([runs[name] for name in missing], outs=[out / name for name in missing], resume=True)


def measure_zoo(runs: Mapping[str, RunConfig], out: Path) -> list[dict[str, Any]]:
    """Readings and behaviour of every run that has ended, kept in `readings.jsonl`."""
    kept = out / "readings.jsonl"
    rows = {}
    if kept.exists():
        rows = {row["name"]: row for row in map(json.loads, kept.read_text().splitlines())}
    missing = [name for name in runs if name not in rows and (out / name / "ckpt.pt").exists()]
    with (
        safe_children(),
        ProcessPoolExecutor(
            env={"OMP_NUM_THREADS": "1"}, initializer=end_with_parent, initargs=(os.getpid(),)
        ) as executor,
        kept.open("a") as file,
        progress_bar(len(missing), enabled=None) as show,
    ):
        for done, row in enumerate(executor.map(measure, [out / name for name in missing]), start=1):
            rows[row["name"]] = row
            file.write(json.dumps(row) + "\n")
            file.flush()
            show(done, row["name"])
    return [rows[name] for name in runs if name in rows]


def measure(folder: Path) -> dict[str, Any]:
    """One run: its behaviour in full, readings at the end and at each early moment."""
    torch.set_num_threads(1)
    checkpoint = load_checkpoint(folder / "ckpt.pt")
    run = stored_run(folder)
    assert run is not None
    behaviour = evaluate(
        checkpoint.last_position_model(), checkpoint.task, training_set=checkpoint.training_set()
    )
    early = {}
    for fraction, step in MOMENTS.items():
        then = load_checkpoint(folder / f"checkpoints/step_{step:08d}.pt")
        now = sampled_behaviour(then).phase.label
        early[str(fraction)] = {"readings": readings(then), "now": now}
    return {
        "name": folder.name,
        "group": folder.name.rsplit("-", 1)[0],
        "seed": run.train.seed,
        "model": checkpoint.model.to_dict(),
        "regime": checkpoint.task.regime,
        "behaviour": behaviour.headline(),
        "borderline": behaviour.phase_if_clear().label,
        "readings": readings(checkpoint),
        "early": early,
    }


def readings(checkpoint: Checkpoint) -> dict[str, float | None] | None:
    """Its readings; None where they cannot be taken (weights that are not finite)."""
    try:
        return take_readings(checkpoint.build_model(), checkpoint.task)
    except ValueError:
        return None
