"""Named configurations of whole runs: the quick one, the papers', one for each phase, and those of tasks.

`transfer` converts gamma and learning rate to another width.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from anchorlens.configuration import check_choice, check_number, checked_arguments
from anchorlens.recipes.run_config import Parts, RunConfig, merged, sorted_by_part
from anchorlens.tasks.registry import tasks

_PAPER = {
    "n_samples": 900_000,
    "batch_size": 2048,
    "epochs": 210,
    "warmup_epochs": 10,
    "lr_end_factor": 1 / 15,
    "lr_start_factor": 1 / 15,
    "lr": 1.5e-4,
    "eval_every": 1000,
    "log_every": 100,
    "n_checkpoints": 20,
}
"""The recipe of 2501.08537: a learning rate of 1e-5, warmed up to 15x and decayed back; 2405.05409 uses
25x."""

_TEN_LAYERS = {"n_layers": 10, "n_heads": 10, "d_model": 640, "d_head": 64, "d_mlp": 1280}
"""The larger network of 2501.08537, figures 3, 5C and 10; its released code uses the variant `released`."""

PRESETS: dict[str, Parts] = {
    "quick": {},
    "paper-2l1h": {
        "model": {"variant": "postnorm", "d_model": 400, "d_head": 200, "d_mlp": 1200},
        "train": _PAPER,
    },
    "paper-gpt2": {"model": {"variant": "gpt2", **_TEN_LAYERS}, "train": _PAPER},
    "paper-released": {"model": {"variant": "released", **_TEN_LAYERS}, "train": _PAPER},
    # One preset for each phase, found on seeds 0 to 2 and 4 (research/presets.md has their results).
    "phase1": {"model": {"gamma": 0.4}, "train": {"n_samples": 5_000, "steps": 1000}},
    "phase2": {"model": {"gamma": 0.4}, "train": {"n_samples": 20_000, "steps": 1000}},
    "phase2-commutative": {
        "model": {"variant": "released", "n_heads": 4, "gamma": 0.6},
        "train": {"steps": 700},
    },
    "phase3": {"model": {"gamma": 0.7}, "train": {"steps": 1000}},
}
"""A map from presets to the fields that they change. The defaults of all fields are the values of the `quick`
preset. A task may define further presets."""


def presets() -> dict[str, Parts]:
    """Return a map from each preset of `PRESETS` and of the known tasks to the fields that it changes."""
    return PRESETS | {name: parts for task in tasks() for name, parts in task.presets.items()}


def preset(name: str = "quick", **fields: object) -> RunConfig:
    """Return the configuration of a preset, with the given fields of task, model or training replaced.

    Args:
        name: the name of a preset, from `presets()`.
        **fields: the fields of the task, ModelConfig and TrainConfig to replace, and the task's `kind`.

    Returns:
        A `RunConfig` of task, model and training that unpacks into the arguments of `train`.

    Raises:
        ValueError: If a preset or field is unknown, or a value is invalid.

    Example:
        >>> preset("quick", gamma=0.5, seed=3).train_config.seed
        3

    Source: the models and recipe of arXiv 2405.05409 and 2501.08537. The phase presets are our own.
    """
    return RunConfig.from_dict(merged(preset_parts(name), sorted_by_part(fields)), is_new=True)


def preset_parts(name: str) -> Parts:
    """Return the fields that a preset changes.

    Raises:
        ValueError: If the preset is unknown.
    """
    if name in PRESETS:  # without loading the tasks
        return PRESETS[name]
    known = presets()
    check_choice("preset", name, tuple(known))
    return known[name]


_MOST = 1_000_000


class WidthTransfer(NamedTuple):
    """The gamma and learning rate at the new width."""

    gamma: float
    """The initialisation rate, with a weight std of d_in^-gamma."""
    lr: float
    """The peak learning rate."""


@checked_arguments()
def transfer(gamma: float, lr: float, from_width: int, to_width: int) -> WidthTransfer:
    """Convert gamma and learning rate from a model of one width to a model of another width.

    The effect of gamma depends on the width. A layer multiplies the scale of its input by about std *
    sqrt(width) = width^(1/2 - gamma). At gamma 0.8, this factor is 0.17 at width 400 and 0.23 at width 128.
    The conversion keeps the factor, and changes the learning rate in proportion to the weights' std:

        to_width^(1/2 - gamma') = from_width^(1/2 - gamma)
        lr' / lr = to_width^-gamma' / from_width^-gamma = sqrt(from_width / to_width)

    A gamma of 1/2 therefore stays 1/2 at every width. The conversion is our own rule of thumb, and
    research/figures/replication/widths.md reports a test of the rule on two widths.

    Args:
        gamma: the initialisation rate at `from_width`.
        lr: the learning rate at `from_width`, above 0.
        from_width: the d_model of the first model, at least 2. The rule assumes that d_head and d_mlp grow
            with d_model.
        to_width: the d_model of the other model, at least 2.

    Returns:
        The gamma and learning rate at `to_width`.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> gamma, lr = transfer(0.8, 1.5e-4, from_width=400, to_width=128)  # 2501.08537, at our width
        >>> round(gamma, 3), round(lr, 6)
        (0.87, 0.000265)

    Source: std = d_in^-gamma of arXiv 2405.05409 and 2501.08537. The rule is our own.
    """
    check_number("gamma", gamma)
    check_number("lr", lr, above=0)
    for name, width in (("from_width", from_width), ("to_width", to_width)):
        check_number(name, width, minimum=2, limit=_MOST, integer=True)
    kept = 0.5 + (gamma - 0.5) * math.log(from_width) / math.log(to_width)
    return WidthTransfer(kept, lr * math.sqrt(from_width / to_width))
