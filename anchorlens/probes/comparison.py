"""The results of one probe for several models, next to each other on one scale, and averaged over seeds."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from anchorlens.configuration import check_number, frozen_dataclass
from anchorlens.files.checkpoint import origin
from anchorlens.files.loaded_model import LoadedModel
from anchorlens.files.model_input import ModelInput
from anchorlens.plots import complete, in_words
from anchorlens.plots.picture import plotly_text
from anchorlens.plots.side_by_side import distinct, side_by_side
from anchorlens.probes.registry import apply, checked_probes
from anchorlens.probes.shared.contract import ProbeResult, given_for, needs_task
from anchorlens.recipes.run_config import RunConfig, identity
from anchorlens.tasks.shared.base import Task
from anchorlens.texts import safe_text, titles
from anchorlens.views import html

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

    from anchorlens.files.settings import ModelConfiguration
    from anchorlens.recipes.train_config import TrainConfig


@frozen_dataclass(eq=False)
class Comparison:
    """The results of one probe for several models."""

    labels: tuple[str, ...]
    """The label of each model, in order."""
    results: tuple[ProbeResult, ...]
    """The probe's result for each model."""
    seeds: tuple[int | None, ...] = ()
    """The seed of each model, or `None` if the seed is unknown."""
    recipes: tuple[str, ...] = ()
    """The recipe of each model, which is its configuration without the seed, as text. Models with the same
    recipe differ only in the seed."""

    def plot(self) -> go.Figure:
        """Plot the results next to each other, with shared colour scales.

        The plots share their axes if the axes are comparable.
        """
        share = self.results[0].comparable_axes
        title = in_words(self.results[0].probe)
        figures = [complete(result.plot(), title) for result in self.results]
        return side_by_side(figures, [plotly_text(label) for label in self.labels], share_axes=share)

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON data, in a dict from labels to results."""
        return dict(zip(self.labels, (result.to_dict() for result in self.results), strict=True))

    def to_frame(self) -> pandas.DataFrame:
        """Return a DataFrame with one row for each model.

        A row contains the recipe, the seed and the readings. The index is the label of the model.
        """
        import pandas

        known = {"recipe": self.recipes, "seed": pandas.array(self.seeds, dtype="Int64")}
        readings = pandas.DataFrame([result.numbers() for result in self.results], dtype=float)
        return pandas.concat([pandas.DataFrame(known), readings], axis=1).set_axis(
            pandas.Index(self.labels, name="model")
        )

    def over_seeds(self, level: float = 0.95) -> pandas.DataFrame:
        """Return the mean and the confidence interval of each reading over the seeds of each recipe.

        Args:
            level: the confidence level of the interval, above 0 and at most 1.

        Returns:
            A DataFrame with a row for each recipe and reading. The columns `n` and `mean` contain the number
            of values and their mean. The columns `low` and `high` contain the ends of Student's t interval
            for the mean. The ends are NaN for fewer than two values.

        Raises:
            ValueError: If the level is 0 or less, or above 1.
        """
        import pandas
        from scipy.stats import t

        check_number("level", level, above=0, maximum=1)
        readings = list(self.results[0].readings)
        groups = self.to_frame().groupby("recipe", sort=False)[readings]
        table = groups.agg(["count", "mean", "sem"]).stack(0, future_stack=True)
        half = t.ppf((1 + level) / 2, table["count"] - 1) * table["sem"]
        low, high = table["mean"] - half, table["mean"] + half
        columns = {"n": table["count"].astype(int), "mean": table["mean"], "low": low, "high": high}
        return pandas.DataFrame(columns).rename_axis(["recipe", "reading"])

    _repr_html_ = html

    def __repr__(self) -> str:
        lines = [f"  {label}: {result!r}" for label, result in zip(self.labels, self.results, strict=True)]
        return "\n".join(["Comparison(", *lines, ")"])


def compare(
    models: Sequence[ModelInput] | ModelInput,
    probe: Callable[..., ProbeResult] | str,
    task: Task | None = None,
    *,
    config: ModelConfiguration | None = None,
    labels: Sequence[str] | None = None,
    device: str | torch.device = "auto",
    **options: Any,
) -> Comparison:
    """Apply one probe to several models.

    Args:
        models: one or more HookedTransformers, Checkpoints, results of `train`, or paths. `compare` builds
            one model at a time.
        probe: a probe or the name of a probe.
        task: the task of the models in memory. A checkpoint contains its task.
        config: the configuration of a model whose file is a bare state dict (see `open_checkpoint`).
        labels: the label of each model. The default label of a file is the file's name. The default label of
            a model in memory consists of the initialisation rate gamma, the seed and the step, or is the
            model's name.
        device: the device for models from checkpoints (`auto`, `cpu`, `cuda`, `cuda:N` or `mps`).
        options: the options of the probe.

    Returns:
        A `Comparison` with a result for each model. The method `plot` returns the plots next to each other.
        The method `to_dict` returns the results as JSON data, and the method `to_frame` returns the readings
        as a DataFrame. The method `over_seeds` returns the means of the readings over seeds, with confidence
        intervals.

    Raises:
        ValueError: If `models` contains no model.
        ValueError: If the number of labels differs from the number of models.
        ValueError: If the probe refuses a model. The message then starts with the model's label.
        CheckpointError: If a file cannot be read.

    Example:
        >>> from anchorlens import AnchorTask, Checkpoint, ModelConfig, build_model
        >>> start = [
        ...     Checkpoint.from_model(build_model(config), config, AnchorTask())
        ...     for config in (ModelConfig(gamma=0.3), ModelConfig(gamma=0.7))
        ... ]
        >>> compare(start, "stable_rank").labels
        ('gamma 0.3', 'gamma 0.7')
        >>> compare(start, "stable_rank").to_frame().round(2)["w_q_normalized"].to_list()
        [1.01, 1.01]
    """
    (chosen,) = checked_probes([probe])
    several = list(models) if isinstance(models, Sequence) and not isinstance(models, str) else [models]
    if not several:
        raise ValueError("models must contain at least one model, got none. Give a model")
    if labels is not None and (isinstance(labels, str) or len(labels) != len(several)):
        got = "a text" if isinstance(labels, str) else len(labels)
        raise ValueError(
            f"labels must contain {len(several)} labels, got {got}. Give one label for each model"
        )
    rows = []
    called = iter(titles([model for model in several if isinstance(model, str | os.PathLike)]))
    for k, model in enumerate(several):
        name = safe_text(next(called)) if isinstance(model, str | os.PathLike) else None
        given = given_for(chosen, model, task, options, config=config, device=device, name=name)
        for note in given.notes if needs_task(chosen, options) else ():
            warnings.warn(f"{given.name}: {note}", stacklevel=2)
        train = given.checkpoint and given.checkpoint.train_config
        label = (name or _label(given, train)) if labels is None else str(labels[k])
        try:
            result = apply(chosen, given, **options)
        except ValueError as error:
            raise ValueError(f"{label}: {error}") from error
        rows.append((label, result, train and train.seed, _recipe(given, k)))
        del given  # only one model is in memory at a time
    found, results, seeds, recipes = zip(*rows, strict=True)
    kinds = list(dict.fromkeys(recipes))
    words = dict(zip(kinds, distinct([in_short for in_short, _ in kinds]), strict=True))
    return Comparison(distinct(found), results, seeds, tuple(words[recipe] for recipe in recipes))


def _label(given: LoadedModel, train: TrainConfig | None) -> str:
    checkpoint = given.checkpoint
    if checkpoint is None:
        return given.name
    words = ", ".join(origin(checkpoint.model_config.gamma, train, checkpoint.step))
    return words or checkpoint.model_config.overview


def _recipe(given: LoadedModel, k: int) -> tuple[str, str]:
    """Return a model's configuration without its seed, as text and as a key that identifies the recipe.

    Args:
        given: the model.
        k: the index of the model. A model without a training configuration has a recipe of its own.
    """
    checkpoint = given.checkpoint
    if checkpoint is None or checkpoint.train_config is None:
        return _label(given, None), str(k)
    run = RunConfig(checkpoint.task, checkpoint.model_config, replace(checkpoint.train_config, seed=0))
    return _label(given, None), f"{identity(run)} {checkpoint.step}"
