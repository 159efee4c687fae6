"""The runs that the verdicts by the inside are fit on, and those held out, drawn at random.

The draw is the same each time. Groups are held out whole (`research/calibration/README.md`); nothing of them
is looked at while readings and fits are chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anchorlens import AnchorTask, preset
from anchorlens.recipes.run_config import RunConfig
from calibration.family import Draw, Kind, drawn

MOMENTS = (0.1, 0.25, 0.5, 1.0)
"""Fractions of the steps at which the runs of the papers' task in `zoo.parquet` were measured."""

AXES: Mapping[str, Sequence[Any]] = {
    "gamma": tuple(round(0.35 + 0.05 * k, 2) for k in range(12)),
    "weight_decay": (0.0, 0.01, 0.1, 0.1, 1.0),
    "n_layers": (2, 2, 2, 2, 2, 3, 4),
    "n_heads": (1, 1, 2),
    "d_model": (48, 64, 64, 96),
    "variant": ("gpt2", "postnorm"),
    "lr": (3e-3, 2e-3),
    "samples": (1.5, 3.0, 6.0, 12.0, 24.0),
}
"""What is drawn for each run; a value that stands twice is drawn twice as often. `samples` is the number of
training sequences over that of all (pair, key)."""
STEPS: Mapping[float, int] = {3e-3: 1000, 2e-3: 1200, 1.5e-3: 4000, 1e-3: 1500, 1e-4: 8000}
"""Learning rate -> steps."""
STOP_AT_LOSS = 0.05
"""Nats at which a run of the family ends; those of the papers' task take all their steps."""
LEAST_SAMPLES, MOST_SAMPLES = 1_500, 40_000

REASONING = ("reasoning",)
PAPERS, PAPERS_HELD_OUT = "papers' task", "papers' task, held-out seeds"


@dataclass(frozen=True)
class Group:
    """Runs that are fit on or held out together."""

    n_tasks: int
    """Tasks that are drawn for it."""
    n_runs: int
    """Runs of each task."""
    first_seed: int
    """Their seeds begin here; no two groups share one."""
    of: str | None = None
    """The group whose tasks these are, where it has none of its own."""
    draw: Draw | None = field(default_factory=Draw)
    """What its tasks are drawn from; None for the papers' task."""
    axes: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """What is drawn otherwise than in `AXES`."""

    @property
    def n(self) -> int:
        """Its runs."""
        return self.n_tasks * self.n_runs


GROUPS: Mapping[str, Group] = {
    "fit": Group(40, 6, 0),
    PAPERS: Group(1, 72, 1000, draw=None),
    "held-out seeds": Group(40, 1, 2000, of="fit"),
    PAPERS_HELD_OUT: Group(1, 60, 3000, draw=None),
    "held-out tasks": Group(16, 4, 4000),
    "held-out kind": Group(6, 4, 5000, draw=Draw(kinds=("affine",))),
    "held-out anchors": Group(6, 4, 6000, draw=Draw(anchors=(7, 8))),
    "beyond: depth": Group(6, 1, 7000, axes={"n_layers": (8,), "d_model": (48, 64)}),
    "beyond: learning rate": Group(6, 1, 8000, axes={"lr": (1e-4,), "d_model": (48, 64), "n_layers": (2,)}),
    "beyond: width": Group(5, 1, 9000, axes={"d_model": (512,), "n_layers": (2,), "lr": (1e-3,)}),
}
"""Group -> its runs in the first zoo. Those of `FITTED` are fit on; all others are held out."""
LONGER = {"lr": (1.5e-3,)}
AGAIN: Mapping[str, Group] = {
    "again: kind": Group(8, 4, 10000, None, Draw(("affine",), keys=(40, 60), regimes=REASONING), LONGER),
    "again: anchors": Group(
        8, 4, 11000, None, Draw(anchors=(7, 8), keys=(40, 80), regimes=REASONING), LONGER
    ),
    "again: depth": Group(
        7, 4, 12000, None, Draw(regimes=REASONING), {**LONGER, "n_layers": (8,), "d_model": (48, 64)}
    ),
}
"""What is asked again, held out too: in the groups of those names few runs came to a phase in their updates.

Drawn after the others were opened; a group of these is looked at when all of its runs are trained.
"""
_REASONING_LONGER = {
    **LONGER,
    "gamma": tuple(round(0.45 + 0.05 * k, 2) for k in range(10)),
    "weight_decay": (0.0, 0.01, 0.1, 0.1, 0.3),
    "samples": (6.0, 12.0, 16.0, 24.0),
}
"""As `LONGER`, with initializations and data of which more runs come to Phase 2 or 3."""
_MANY = Draw(("shifts", "shifts", "multiplication"), (6, 7, 8), keys=(40, 80), regimes=REASONING)
_TABLES = Draw(("affine", "permutations"), keys=(40, 60), regimes=REASONING)
_RELEASED = Draw(("shifts", "multiplication"), keys=(40, 120), regimes=REASONING)
_SHAPES = {
    **_REASONING_LONGER,
    "n_layers": (2, 3, 4, 6, 8),
    "d_model": (48, 64, 96, 128),
    "n_heads": (1, 2, 4),
}
_ANY = Draw(keys=(40, 120), regimes=REASONING)
SECOND: Mapping[str, Group] = {
    "second: papers": Group(1, 48, 20000, None, None, _REASONING_LONGER),
    "second: anchors": Group(8, 8, 21000, None, _MANY, _REASONING_LONGER),
    "second: tables": Group(8, 8, 22000, None, _TABLES, _REASONING_LONGER),
    "second: released": Group(6, 6, 23000, None, _RELEASED, {**_REASONING_LONGER, "variant": ("released",)}),
    "second: shapes": Group(6, 8, 24000, None, _ANY, _SHAPES),
    "second, held-out: papers": Group(1, 36, 30000, None, None, _REASONING_LONGER),
    "second, held-out: anchors": Group(6, 5, 31000, None, _MANY, _REASONING_LONGER),
    "second, held-out: tables": Group(6, 5, 32000, None, _TABLES, _REASONING_LONGER),
    "second, held-out: released": Group(
        5, 4, 33000, None, _RELEASED, {**_REASONING_LONGER, "variant": ("released",)}
    ),
    "second, held-out: shapes": Group(6, 5, 34000, None, _ANY, _SHAPES),
    "second, held-out: tasks": Group(8, 5, 35000, None, _ANY, _REASONING_LONGER),
}
"""What the zoo is enlarged by, where it was thin: Phases 2 and 3 of many tasks and shapes, in `reasoning`.

Those of "second: ..." are fit on from the second fit on, those of "second, held-out: ..." are opened once.
"""
FITTED = ("fit", PAPERS, *(name for name in SECOND if name.startswith("second:")))
"""What verdicts are fit on: in `reasoning`, runs of the second zoo, and in `conflict`, of the first."""


@dataclass(frozen=True)
class Planned:
    """A run of the zoo."""

    group: str
    kind: Kind
    """What the functions of its task are."""
    task_name: str
    """The same for all runs of one task: they are not independent of each other."""
    run: RunConfig


def runs() -> dict[str, Planned]:
    """Every run by its name, those that are fit on first; of the others, the groups mixed."""
    found: dict[str, Planned] = {}
    tasks: dict[str, list[tuple[Kind, AnchorTask]]] = {}
    for place, (name, group) in enumerate({**GROUPS, **AGAIN, **SECOND}.items()):
        random = np.random.default_rng([2501, place])
        if group.of is None and group.draw is not None:
            tasks[name] = [drawn(group.draw, random) for _ in range(group.n_tasks)]
        for k in range(group.n):
            if group.draw is None:
                regime = "conflict" if k % 3 == 2 and name not in SECOND else "reasoning"
                kind, task, task_name = "shifts", AnchorTask(regime=regime), f"papers, {regime}"
            else:
                own = group.of or name
                kind, task = tasks[own][k % group.n_tasks]
                task_name = f"{own} {k % group.n_tasks}"
            run = _drawn(group, task, group.first_seed + k, random)
            found[f"{name} {k:03d}"] = Planned(name, kind, task_name, run)
    order = np.random.default_rng(2501).permutation(sorted(found)).tolist()
    return {name: found[name] for name in sorted(order, key=lambda name: _turn(found[name]))}


def _turn(planned: Planned) -> int:
    """When a run's turn comes: what is fit on, what is newly held out, what was opened before, conflict."""
    if planned.run.task.in_conflict:
        return 3
    if planned.group in FITTED:
        return 0
    return 1 if planned.group in SECOND else 2


def _drawn(group: Group, task: AnchorTask, seed: int, random: np.random.Generator) -> RunConfig:
    axes = {**AXES, **group.axes}
    one = {name: values[int(random.integers(len(values)))] for name, values in axes.items()}
    samples = one.pop("samples") * len(task.seen_pairs) * len(task.keys)
    steps, width = STEPS[one["lr"]], one["d_model"]
    papers = group.draw is None and not group.axes  # their runs take all steps, as the papers' do
    run = preset(
        "quick",
        **one,
        d_head=width // 2,
        d_mlp=2 * width,
        seed=seed,
        n_samples=int(np.clip(samples, LEAST_SAMPLES, MOST_SAMPLES)),
        batch_size=128,
        steps=steps,
        warmup_steps=60,
        n_checkpoints=0,
        eval_every=steps,
        stop_at_loss=None if papers else STOP_AT_LOSS,
        log_every=20,
    )
    parts = {part: values for part, values in run.to_dict().items() if part != "task"}
    for fitted in ("d_vocab", "n_ctx"):
        parts["model"].pop(fitted)
    return RunConfig.from_dict(parts, task)
