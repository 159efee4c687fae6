"""The runs that the three questions of the mechanism verdict are to be fit on, and those held out.

Drawn at random, the same each time. Groups are held out whole: seeds, two widths, a depth, a variant and a
learning rate; nothing of them is looked at while readings and fits are chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anchorlens import preset
from anchorlens.runs.run_config import RunConfig

MOMENTS = (0.1, 0.25, 0.5, 1.0)
"""Fractions of the steps at which a run is measured: on its way, and at its end."""
N_CHECKPOINTS = 31
"""Of every run, log-spaced: one of them is near each moment."""

AXES: Mapping[str, Sequence[Any]] = {
    "gamma": tuple(round(0.35 + 0.05 * k, 2) for k in range(13)),
    "weight_decay": (0.0, 0.01, 0.1, 1.0),
    "n_layers": (2, 2, 2, 3, 3, 4, 6),
    "n_heads": (1, 1, 2, 4),
    "n_samples": (4_000, 10_000, 20_000, 20_000, 50_000, 50_000),
    "regime": ("reasoning", "conflict"),
}
"""What is drawn for each run; a value that stands twice is drawn twice as often."""

STEPS: Mapping[float, int] = {2e-3: 960, 1.4e-3: 1200, 1e-3: 1500, 7e-4: 1800, 3e-4: 2800}
"""Learning rate -> steps: a smaller one takes more to fit its data."""
SLOW = 8e-4
"""Below this rate a run with gamma under .5 has seldom fit its data at its end; gamma is drawn from .5 on."""
MOST_WORK = 2 * 400**2
"""Layers times d_model squared: what is larger is drawn again."""
MOST_HEADS = 8
"""Layers times heads, likewise."""


@dataclass(frozen=True)
class Group:
    """Runs that are fit on or held out together."""

    n: int
    seeds: tuple[int, ...] = (6, 7, 8)
    widths: tuple[int, ...] = (*(64,) * 7, *(128,) * 6, *(256,) * 2, 400)
    variants: tuple[str, ...] = ("gpt2", "postnorm")
    rates: tuple[float, ...] = (2e-3, 2e-3, 1.4e-3, 7e-4, 3e-4)
    axes: Mapping[str, Sequence[Any]] = field(default_factory=dict)


GROUPS: Mapping[str, Group] = {
    "fit": Group(440, seeds=(0, 1, 2, 3, 4, 5)),
    "held-out seeds": Group(420),
    "unseen width": Group(70, widths=(96, 192)),
    "unseen depth": Group(70, axes={"n_layers": (5,)}),
    "unseen variant": Group(70, variants=("released",)),
    "unseen learning rate": Group(70, rates=(1e-3,)),
}
"""Group -> its runs. All but the first are held out, and have seeds of their own."""


def group_of(name: str) -> str:
    """The group of a run, from its name."""
    slug = name.rsplit("-", 1)[0]
    return next(group for group in GROUPS if group.replace(" ", "-") == slug)


def runs() -> dict[str, RunConfig]:
    """Every run by its name, `group-number`, in an order that mixes the groups."""
    random = np.random.default_rng(2405)
    found = {}
    for name, group in GROUPS.items():
        for k in range(group.n):
            seed = group.seeds[k % len(group.seeds)]
            found[f"{name.replace(' ', '-')}-{k:03d}"] = _drawn(group, seed, random)
    return {name: found[name] for name in random.permutation(sorted(found)).tolist()}


def _drawn(group: Group, seed: int, random: np.random.Generator) -> RunConfig:
    axes = {**AXES, "d_model": group.widths, "variant": group.variants, "lr": group.rates, **group.axes}
    while True:
        one = {name: values[int(random.integers(len(values)))] for name, values in axes.items()}
        if one["lr"] < SLOW and one["gamma"] < 0.5:
            continue
        if one["n_layers"] * one["d_model"] ** 2 > MOST_WORK or one["n_layers"] * one["n_heads"] > MOST_HEADS:
            continue
        width = one["d_model"]
        return preset(
            "quick",
            **one,
            d_head=width // (4 if one["n_heads"] == 4 else 2),
            d_mlp=2 * width,
            seed=seed,
            batch_size=256,
            steps=STEPS[one["lr"]],
            warmup_steps=60,
            n_checkpoints=N_CHECKPOINTS,
            eval_every=STEPS[one["lr"]],
            log_every=50,
        )
