"""The result of an audit: the lateness of every mapping, the outliers, and the score."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from anchorlens.configuration import frozen_dataclass
from anchorlens.extras.audit.lateness import FIT, Score, fence, fit_steps, lateness, ranks, score, stand_out
from anchorlens.extras.audit.mappings import Mappings
from anchorlens.files import check_can_write, library_versions, write_whole
from anchorlens.models import ModelConfig
from anchorlens.recipes import TrainConfig
from anchorlens.views import figure, html

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from jaxtyping import Bool, Float, Int

FEW = 0.2
"""The fraction of mappings never fit by some model from which the steps were too few."""
POWER = 0.75
"""The least AUC of planted wrong mappings at which an audit is informative."""
SCHEMA_VERSION = 1
"""The version of `to_dict`, which grows by one if a key changes its meaning or is removed."""


@frozen_dataclass(eq=False)
class ControlModel:
    """An additional model, trained on the same dataset with planted wrong targets."""

    wrong: Bool[np.ndarray, " mapping"]
    """Whether each mapping got a wrong target in this model alone."""
    right: Float[np.ndarray, "evaluation mapping"]
    """The probability of the target that this model was trained on, 0..1, averaged over the draws."""

    def __repr__(self) -> str:
        return f"ControlModel({int(self.wrong.sum()):,} wrong targets in {len(self.wrong):,} mappings)"


@frozen_dataclass(eq=False)
class Audit:
    """The step at which each mapping of a dataset is fit by models with a small initialisation.

    Lateness and flags depend on `right`, `evaluation_steps` and `fit`. Known violations do not affect
    lateness or flags. If the dataset states which mappings violate the rule, `score` and `group_score`
    compare lateness and flags with these violations.
    """

    mappings: Mappings
    """The mappings of the dataset."""
    right: Float[np.ndarray, "seed evaluation mapping"]
    """The probability of the trained target, 0..1, averaged over the draws, which is the raw measurement."""
    evaluation_steps: tuple[int, ...]
    """The steps at which all mappings were evaluated, ascending."""
    seeds: tuple[int, ...]
    """The seed of each model."""
    n_draws: int
    """The number of sequences of each mapping at every evaluation, at trained positions with fresh noise."""
    model_config: ModelConfig
    """The shape and initialisation of the models."""
    train_config: TrainConfig
    """The recipe, with the seed of the first model."""
    fit: float = FIT
    """The probability of the trained target from which a mapping counts as fit, 0..1."""
    planted: ControlModel | None = None
    """The model that measures the audit's power, or `None` if the dataset is too small for planting."""

    @cached_property
    def fit_steps(self) -> Float[np.ndarray, "seed mapping"]:
        """The first evaluation step from which each mapping stays fit, or infinity.

        An infinite value is censored: the model has not fit the mapping by the end of training.
        """
        return fit_steps(self.right, self.evaluation_steps, self.fit)

    @cached_property
    def never_fit(self) -> Int[np.ndarray, " mapping"]:
        """For each mapping, the number of models that have not fit the mapping at the end of training."""
        return (~np.isfinite(self.fit_steps)).sum(axis=0)

    @cached_property
    def lateness(self) -> Float[np.ndarray, " mapping"]:
        """The rank of each mapping by fit step, 0..1, averaged over the models.

        A mapping that every model fits last has rank 1. Mappings that are never fit rank last.
        """
        return lateness(self.fit_steps)

    @cached_property
    def tied(self) -> Int[np.ndarray, " mapping"]:
        """For each mapping, the number of mappings with the same lateness, including the mapping itself."""
        _, place, counts = np.unique(self.lateness, return_inverse=True, return_counts=True)
        return counts[place]

    @cached_property
    def end_loss(self) -> Float[np.ndarray, " mapping"]:
        """The cross-entropy of the trained target at the last step, in nats, averaged over the models.

        The largest possible value is 87 nats, because probabilities are at least float32's smallest normal
        number.
        """
        smallest = float(np.finfo(np.float32).tiny)
        return -np.log(np.fmax(self.right[:, -1], smallest, dtype=float)).mean(axis=0)

    @cached_property
    def fences(self) -> tuple[float | None, ...]:
        """Tukey's outer fence of each model: a fit step after this step is an outlier.

        The fence is `None` for a model that never fits about a quarter of the mappings or more.

        If the fence of a model is beyond the last step, no mapping counts as late for this model.
        """
        return tuple(fence(steps, self.evaluation_steps) for steps in self.fit_steps)

    @property
    def late_fences(self) -> tuple[float, ...]:
        """The fences beyond the last step, of the models that have not fit all mappings at the last step."""
        by_model = zip(self.fences, self.fit_steps, strict=True)
        unfit = (limit for limit, steps in by_model if not np.isfinite(steps).all())
        return tuple(limit for limit in unfit if limit is not None and limit > self.evaluation_steps[-1])

    @property
    def too_few_steps(self) -> bool:
        """Whether a fifth or more of the mappings are each unfit in some model, or `late_fences` has a fence.

        If training is too short, late mappings may obey the rule but be slow to learn.
        """
        return bool((self.never_fit > 0).mean() >= FEW or self.late_fences)

    @cached_property
    def power(self) -> Score | None:
        """The agreement of the ranking and flags of the model `planted` with its planted mappings.

        The value is `None` if the audit does not have planted mappings.

        The ranking of several models is a little better than the ranking of this single model. The score
        counts wrong mappings of the dataset itself as correct mappings.
        """
        if self.planted is None:
            return None
        moments = self.evaluation_steps
        steps = fit_steps(self.planted.right, moments, self.fit)
        flagged = stand_out(steps[None], [fence(steps, moments)], moments[-1])
        return score(ranks(steps), flagged, self.planted.wrong)

    @property
    def too_few_to_tell(self) -> bool:
        """Whether the AUC of planted wrong mappings is below 0.75 (chance 0.5).

        At an AUC below 0.75, an audit without flags is not evidence of a clean dataset.
        """
        return self.power is not None and self.power.auc is not None and self.power.auc < POWER

    @cached_property
    def flagged(self) -> Bool[np.ndarray, " mapping"]:
        """Whether each mapping is an outlier in most models. A flag predicts a violation of the rule."""
        return stand_out(self.fit_steps, self.fences, self.evaluation_steps[-1])

    @cached_property
    def mirror_flagged(self) -> Bool[np.ndarray, " mapping"]:
        """Whether the mapping with the same key and the anchors in reverse order is flagged.

        Early in training, models give both orders of a pair the same answer. One exception can therefore make
        two mappings late. If the mappings of both orders are flagged, often only one of the two mappings
        violates the rule.
        """
        mirror = self.mappings.mirror
        return (mirror >= 0) & self.flagged[mirror]

    @cached_property
    def group_lateness(self) -> Float[np.ndarray, " group"]:
        """The median lateness of the mappings of each group, 0..1."""
        return np.array([np.median(self.lateness[rows]) for rows in self.mappings.rows_of])

    @cached_property
    def group_flagged(self) -> Bool[np.ndarray, " group"]:
        """Whether more than half of a group's mappings are flagged."""
        return np.array([self.flagged[rows].mean() > 0.5 for rows in self.mappings.rows_of])

    @cached_property
    def score(self) -> Score | None:
        """The score of the mappings' ranking and flags, or `None` if the violations are unknown."""
        violates = self.mappings.violates
        return None if violates is None else score(self.lateness, self.flagged, violates)

    @cached_property
    def group_score(self) -> Score | None:
        """The score of the groups' ranking and flags, or `None` if the violations are unknown.

        A group violates the rule if most of its mappings violate the rule.
        """
        violates = self.mappings.group_violates
        return None if violates is None else score(self.group_lateness, self.group_flagged, violates)

    @cached_property
    def auc_by_seed(self) -> tuple[float | None, ...]:
        """The AUC of each model's ranking of the mappings (chance 0.5), or `None` if the AUC is undefined.

        The AUC is undefined if the violations are unknown, or if all or none of the mappings violate the
        rule.
        """
        violates = self.mappings.violates
        if violates is None:
            return (None,) * len(self.seeds)
        return tuple(score(ranks(steps), self.flagged, violates).auc for steps in self.fit_steps)

    @property
    def order(self) -> Int[np.ndarray, " mapping"]:
        """The indices of the mappings, from the largest lateness to the smallest.

        Mappings of equal lateness are in descending order of `end_loss`.
        """
        return np.lexsort((-self.end_loss, -self.lateness))

    @property
    def group_order(self) -> Int[np.ndarray, " group"]:
        """The indices of the groups, from the largest lateness to the smallest."""
        return np.argsort(-self.group_lateness, kind="stable")

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a record for each mapping, from the largest lateness to the smallest.

        The fields of a record are:

        - `a1`, `a2`, ..., `key` and `target`
        - `lateness`, `tied` and `end_loss`
        - `fit_step 0` and so on, one for each seed, which is `None` if the model never fits the mapping
        - `never_fit`, `flagged` and `mirror_flagged`
        - `violates`, which is `None` if the violations are unknown
        """
        data = self.mappings
        for row in self.order.tolist():
            record: dict[str, Any] = {f"a{k + 1}": a for k, a in enumerate(data.chains[row].tolist())}
            record |= {"key": int(data.keys[row]), "target": int(data.targets[row])}
            record |= {"lateness": float(self.lateness[row]), "tied": int(self.tied[row])}
            record["end_loss"] = float(self.end_loss[row])
            for seed, step in zip(self.seeds, self.fit_steps[:, row].tolist(), strict=True):
                record[f"fit_step {seed}"] = int(step) if math.isfinite(step) else None
            record |= {"never_fit": int(self.never_fit[row]), "flagged": bool(self.flagged[row])}
            record["mirror_flagged"] = bool(self.mirror_flagged[row])
            yield {**record, "violates": None if data.violates is None else bool(data.violates[row])}

    def group_rows(self) -> Iterator[dict[str, Any]]:
        """Yield a record for each group, from the largest lateness to the smallest."""
        data = self.mappings
        for group in self.group_order.tolist():
            here = data.rows_of[group]
            steps = float(np.median(self.fit_steps[:, here]))
            yield {
                "group": list(data.groups[group]),
                "n_mappings": len(here),
                "lateness": float(self.group_lateness[group]),
                "median_fit_step": steps if math.isfinite(steps) else None,
                "n_never_fit": int((self.never_fit[here] > 0).sum()),
                "n_flagged": int(self.flagged[here].sum()),
                "flagged": bool(self.group_flagged[group]),
                "n_violating": None if data.violates is None else int(data.violates[here].sum()),
            }

    def to_dict(self) -> dict[str, Any]:
        """Return the audit, except `right`, as JSON data, with null for a missing step or fence."""
        data = self.mappings
        return {
            "schema_version": SCHEMA_VERSION,
            "dataset": {
                "name": data.name,
                "n_mappings": len(data),
                "n_groups": len(data.groups),
                "n_violating": None if self.score is None else self.score.n_violating,
                "disagreeing": [
                    {"anchors": data.chains[k].tolist(), "key": int(data.keys[k]), "rows": rows}
                    for k, rows in data.disagreeing.items()
                ],
            },
            "n_flagged": int(self.flagged.sum()),
            "n_flagged_with_mirror": int((self.flagged & self.mirror_flagged).sum()),
            "n_never_fit": int((self.never_fit > 0).sum()),
            "too_few_steps": self.too_few_steps,
            "power": None if self.power is None else self.power.to_dict(),
            "too_few_to_tell": self.too_few_to_tell,
            "score": None if self.score is None else self.score.to_dict(),
            "group_score": None if self.group_score is None else self.group_score.to_dict(),
            "seeds": list(self.seeds),
            "auc_by_seed": list(self.auc_by_seed),
            "fences": list(self.fences),
            "evaluation_steps": list(self.evaluation_steps),
            "n_draws": self.n_draws,
            "fit": self.fit,
            "model_config": self.model_config.to_dict(),
            "train_config": self.train_config.to_dict(),
            "groups": list(self.group_rows()),
            "mappings": list(self.rows()),
            "versions": library_versions(),
        }

    def table(self, path: str | os.PathLike[str]) -> None:
        """Write a CSV file with a row for each record of `rows`. A value `None` becomes an empty field.

        Raises:
            ValueError: If the path does not end in .csv, the folder does not exist, or the path is not an
                ordinary file.
            OSError: If writing fails. An existing file is then unchanged.
        """
        path = check_can_write(path, "a table's name", (".csv",))
        text = io.StringIO(newline="")
        rows = list(self.rows())
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: int(v) if isinstance(v, bool) else v for k, v in row.items()})
        write_whole(path, text.getvalue().encode())

    def plot(self) -> go.Figure:
        """Plot the fraction of mappings that each model fits against the step, and the lateness of groups.

        Mappings that violate the rule are vermilion. If the violations are unknown, flagged mappings are
        vermilion.
        """
        return figure(self)

    _repr_html_ = html

    def __repr__(self) -> str:
        n, n_flagged = len(self.mappings), int(self.flagged.sum())
        if all(limit is None for limit in self.fences):
            return f"Audit({self.mappings.name}: no result, the models have not fit their data)"
        words = f"{n_flagged:,} of {n:,} mappings are outliers" if n_flagged else "no outliers"
        words = f"too few mappings; {words}" if self.too_few_to_tell else words
        words = f"too few steps; {words}" if self.too_few_steps else words
        if self.score is not None and self.score.auc is not None:
            words += f"; AUC {self.score.auc:.3f} ± {self.score.auc_error:.3f}"
        return f"Audit({self.mappings.name}: {words})"
