"""The metric of a task: a number that the task measures of a model's answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from anchorlens.configuration import documented


@documented
@dataclass(frozen=True)
class Metric:
    """A measure of a model's answers, declared once for storage, tables and figures."""

    name: str
    """The name in programs: `id`."""
    title: str
    """The title in tables: `ID`."""
    heading: str
    """The title of a figure: `ID accuracy`."""
    meaning: str
    """The meaning in a few words: `trained pairs at held-out (key, position)`."""
    asks: str = ""
    """The test inputs, in the words of a verdict: `held-out keys` for ID, `unseen pairs` for OOD. For train,
    the substitute for unknown training data: `every training sum`."""
    logged_as: str = ""
    """The name in the lines of a run's log; empty if training does not measure the metric."""
    in_tables: bool = True
    """Whether the metric is a column of tables with a row for each model."""
    map_caption: str = ""
    """The caption of the metric's map over a sweep, in sentences; empty if the metric has no map."""
    absent: str = "no trained run has a value"
    """The reason why the metric may be undefined in every square of a sweep."""
    lowest: float | None = 0.0
    """The smallest possible value; None if the metric has no lower bound."""
    highest: float | None = 1.0
    """The largest possible value; None if the metric has no upper bound."""
    unit: str = "accuracy"
    """The unit, on the axis of the metric's values."""
    higher_is_better: bool | None = True
    """Whether a larger value is better; None if neither direction is better."""


def phase_metrics(
    *,
    meanings: tuple[str, str, str],
    asks: tuple[str, str, str],
    score: str = "accuracy",
    thresholds: tuple[str, str] = ("0.90", "0.50"),
    ood_absent: str = Metric.absent,
) -> tuple[Metric, Metric, Metric]:
    """Return the metrics of train, ID and OOD accuracy, which define the phases.

    Args:
        meanings: the descriptions of the trained, held-out and out-of-distribution data of the three metrics.
        asks: the descriptions of the three data in the words of a verdict. The first description is for the
            substitute for unknown training data.
        score: the measured quantity, such as `accuracy` or `exact match`.
        thresholds: the thresholds of ID and OOD accuracy as text. A model with ID accuracy below the first
            threshold is in Phase 1. A model with OOD accuracy above the second threshold is in Phase 3.
        ood_absent: the reason why OOD accuracy may be undefined in every square of a sweep.
    """
    titles = {"train": "train", "id": "ID", "ood": "OOD"}
    rules = (
        "A run below 0.90 is underfit, and the phases do not describe it.",
        f"A run below {thresholds[0]} is in Phase 1.",
        f"A run above {thresholds[1]} is in Phase 3.",
    )
    train, id, ood = (
        Metric(
            name,
            title,
            f"{title[0].upper()}{title[1:]} {score}",
            meaning,
            asked,
            f"{name}_accuracy",
            map_caption=f"The colour shows the {score} on {meaning}. {rule}",
            absent=ood_absent if name == "ood" else Metric.absent,
        )
        for (name, title), meaning, asked, rule in zip(titles.items(), meanings, asks, rules, strict=True)
    )
    return train, id, ood


def has_labels(metrics: Iterable[Metric]) -> bool:
    """Return whether these metrics include train and ID accuracy, which a label of a model requires.

    >>> from anchorlens import TextTask
    >>> has_labels(TextTask().metrics)
    False
    """
    return {"train", "id"} <= {metric.name for metric in metrics}


def has_phases(metrics: Iterable[Metric]) -> bool:
    """Return whether these metrics include train, ID and OOD accuracy, which define the phases.

    >>> from anchorlens import AnchorTask, TextTask
    >>> has_phases(AnchorTask().metrics), has_phases(TextTask().metrics)
    (True, False)
    """
    return {"train", "id", "ood"} <= {metric.name for metric in metrics}
