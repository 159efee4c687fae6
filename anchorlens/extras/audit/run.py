"""`audit`: train models with small initialisation on a dataset, and find the mappings that they fit late."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from anchorlens import plots
from anchorlens.configuration import check_number
from anchorlens.extras.audit.files import open_dataset
from anchorlens.extras.audit.lateness import FIT
from anchorlens.extras.audit.mappings import Mappings, mappings_of, planted
from anchorlens.extras.audit.result import Audit, ControlModel
from anchorlens.extras.audit.watching import watch
from anchorlens.files import check_can_write, write_whole
from anchorlens.models import ModelConfig
from anchorlens.recipes import RunConfig, TrainConfig
from anchorlens.tasks import AnchorTask
from anchorlens.texts import safe_repr
from anchorlens.training import MOST_WORKERS

GAMMA = 0.8
"""The initialisation rate of an audit: small weights, with which a model learns compositions first."""
STEPS = 1000
MOST_MODELS = 1_000
MOST_EVALUATIONS = 100_000
MOST_DRAWS = 10_000
FILES = ("audit.json", "mappings.csv", "audit.html")
"""The files that are written to the folder."""


def audit(
    dataset: AnchorTask | Mappings | str | os.PathLike[str],
    *,
    model_config: ModelConfig | None = None,
    train_config: TrainConfig | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    n_evaluations: int = 100,
    n_draws: int = 4,
    fit: float = FIT,
    out: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    progress: bool | float | None = None,
) -> Audit:
    """Rank the mappings of a dataset by the step at which models with small initialisation fit each mapping.

    With small initial weights, a model learns compositional mappings first and exceptions late. A mapping
    assigns a target to a chain of anchors and a key. The function evaluates every mapping at evenly spaced
    steps of training. Each evaluation uses several sequences of each mapping, with the key at trained
    positions and random noise tokens. The fit step of a mapping is the first evaluation step from which the
    trained target's mean probability stays at least `fit`. The mean probability is over the sequences of the
    mapping at one evaluation. Mappings that are never fit are censored and rank last. The lateness of a
    mapping is its rank by fit step, averaged over the models. A mapping is flagged if its fit step is beyond
    Tukey's outer fence in more than half of the models. The flags do not depend on known violations in the
    dataset. A dataset without exceptions has no flags.

    The function trains one more model on the same data with wrong targets planted in some mappings
    (`Audit.power`). If this model does not rank the planted mappings later than other mappings, the dataset
    is too small for an audit.

    Args:
        dataset: a task, mappings from `mappings_of` or `read_csv`, or the path of a file for `open_dataset`.
            Mappings that a task's overrides change violate the rule.
        model_config: the shape and initialisation of the models. Default: the `quick` preset with gamma 0.8,
            fitted to the task.
        train_config: the training recipe. Default: the `quick` preset with 1,000 steps. The function ignores
            the recipe's seed, checkpoints and evaluations.
        seeds: the seed of each model.
        n_evaluations: the number of evaluations. The evaluations are evenly spaced up to the last step.
        n_draws: the number of sequences of each mapping at every evaluation.
        fit: the probability of the trained target from which a mapping counts as fit, above 0 and at most 1.
            A chain whose mappings all violate the rule ranks later if `fit` is 0.2 than if it is 0.5
            (docs/audit.md).
        out: the folder for `audit.json`, `mappings.csv` and `audit.html`. The function makes a missing
            folder.
        workers: the number of processes on the CPU. Default: one per core.
        progress: the display of progress, as for `train`.

    Returns:
        The fit step, rank and flag of each mapping. If the violations are known, the result also has the AUC
        of the ranking (chance 0.5) with its standard error.

    Raises:
        ValueError: If the dataset or an option is invalid, or the recipe stops early. Each output file must
            be an ordinary file and must not be the dataset.
        TrainingDiverged: If a loss became NaN or infinite.
        OSError: If a file cannot be read or written.

    Example:
        >>> from anchorlens import AnchorTask
        >>> tiny = ModelConfig(n_layers=1, d_model=16, d_head=8, d_mlp=16, gamma=0.8)
        >>> recipe = TrainConfig(steps=2, n_samples=512)
        >>> audit(AnchorTask(), model_config=tiny, train_config=recipe, seeds=[0], n_evaluations=2)
        Audit(task: no result, the models have not fit their data)

    Source: The use of small initialisation to find noise is from the closing remarks of arXiv 2405.05409 and
    arXiv 2501.08537.
    """
    seeds, folder = _checked_seeds(seeds), None if out is None else Path(out)
    check_number("n_evaluations", n_evaluations, minimum=1, limit=MOST_EVALUATIONS, integer=True)
    check_number("n_draws", n_draws, minimum=1, limit=MOST_DRAWS, integer=True)
    check_number("fit", fit, above=0, maximum=1)
    check_number("workers", workers, minimum=1, maximum=MOST_WORKERS, integer=True, optional=True)
    mappings = _as_mappings(dataset)
    model_config = model_config or ModelConfig.for_task(mappings.task, gamma=GAMMA)
    train_config = replace(train_config or TrainConfig(steps=STEPS), seed=seeds[0])
    if train_config.stop_at_loss is not None or train_config.early_stop_evaluations is not None:
        raise ValueError(
            "stop_at_loss and early_stop_evaluations must be unset for an audit, got a value. Use fewer "
            "steps instead"
        )
    last = train_config.total_steps
    steps = {max(1, round(k * last / n_evaluations)) for k in range(1, n_evaluations + 1)}
    evaluation_steps = tuple(sorted(steps))
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            check_can_write(folder / name, "out", (Path(name).suffix,), (mappings.file,))
    another = next(seed for seed in itertools.count() if seed not in seeds)
    control = planted(mappings, another)
    data = {seed: mappings for seed in seeds} | ({} if control is None else {another: control})
    runs = [RunConfig(mappings.task, model_config, replace(train_config, seed=seed)) for seed in data]
    right = watch(runs, list(data.values()), evaluation_steps, n_draws, workers=workers, progress=progress)
    checked = None
    if control is not None and control.planted is not None:
        checked = ControlModel(control.planted >= 0, right[-1])
    recipe = (seeds, n_draws, model_config, train_config, fit, checked)
    result = Audit(mappings, right[: len(seeds)], evaluation_steps, *recipe)
    if folder is not None:
        values, table, page = (folder / name for name in FILES)
        write_whole(values, json.dumps(result.to_dict(), allow_nan=False).encode())
        result.table(table)
        plots.save(result.plot(), page, result)
    return result


def _as_mappings(dataset: Any) -> Mappings:
    if isinstance(dataset, Mappings):
        return dataset
    if isinstance(dataset, str | os.PathLike):
        return open_dataset(dataset)
    if getattr(dataset, "has_anchors", False):
        return mappings_of(dataset)
    raise ValueError(
        f"the dataset must be an AnchorTask, Mappings or a file, got {type(dataset).__name__}. Give the "
        "path of a file"
    )


def _checked_seeds(seeds: Sequence[int]) -> tuple[int, ...]:
    is_list = isinstance(seeds, Sequence | np.ndarray) and not isinstance(seeds, str)
    some = tuple(itertools.islice(seeds, MOST_MODELS + 1)) if is_list else ()  # it may be very long
    for seed in some:
        check_number("a seed", seed, minimum=0, integer=True)
    if not 0 < len(some) <= MOST_MODELS or len(set(some)) < len(some):
        raise ValueError(
            f"seeds must be a list of 1 to {MOST_MODELS:,} different seeds, got {safe_repr(seeds)}. Correct "
            "the list"
        )
    return tuple(map(int, some))
