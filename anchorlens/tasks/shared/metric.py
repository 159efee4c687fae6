"""Metric: a number that a task measures of a model's answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from anchorlens.configuration import documented


@documented
@dataclass(frozen=True)
class Metric:
    """A number that is measured of a model's answers; declared once, for all that stores or shows it."""

    name: str
    """For programs: `id`."""
    title: str
    """Title in tables: `ID`."""
    heading: str
    """Title of a picture: `ID accuracy`."""
    meaning: str
    """In a few words: `trained pairs at held-out (key, position)`."""
    asks: str = ""
    """What it is measured on, in the words of a verdict: `held-out keys` for ID, `unseen pairs` for OOD; for
    train, what is used where the training data are not known: `every training sum`."""
    logged_as: str = ""
    """Its name in the lines of a run's log; empty where it is not measured while training."""
    in_tables: bool = True
    """Whether it is a column of tables with a row for each model."""
    map_caption: str = ""
    """How to read its map over a sweep, in sentences; empty if it has no map."""
    absent: str = "no trained run has a value"
    """Why it may be undefined in every cell of a sweep."""
    lowest: float | None = 0.0
    """Its smallest value; None where there is none."""
    highest: float | None = 1.0
    """Its largest value; None where there is none."""
    unit: str = "accuracy"
    """Unit, on the axis of its values."""
    higher_is_better: bool | None = True
    """Whether a larger value is better; None where neither is."""


def phase_metrics(
    *,
    meanings: tuple[str, str, str],
    asks: tuple[str, str, str],
    score: str = "accuracy",
    thresholds: tuple[str, str] = ("0.90", "0.50"),
    ood_absent: str = Metric.absent,
) -> tuple[Metric, Metric, Metric]:
    """Train, ID and OOD accuracy, which define the phases.

    Args:
        meanings: what each of the three is measured on: trained, held-out and left-out data.
        asks: what train is measured on where the training data are not known, and what ID and OOD are
            measured on, in the words of a verdict.
        score: what is measured: `accuracy`, `exact match`.
        thresholds: ID below the first is Phase 1, OOD above the second is Phase 3; in words.
        ood_absent: why OOD may be undefined in every cell of a sweep.
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
    """Whether a task that measures these labels its models: by the phases, or without OOD by train and ID.

    >>> from anchorlens import TextTask
    >>> has_labels(TextTask().metrics)
    False
    """
    return {"train", "id"} <= {metric.name for metric in metrics}


def has_phases(metrics: Iterable[Metric]) -> bool:
    """Whether the phases are defined for a task that measures these: train, ID and OOD accuracy.

    >>> from anchorlens import AnchorTask, TextTask
    >>> has_phases(AnchorTask().metrics), has_phases(TextTask().metrics)
    (True, False)
    """
    return {"train", "id", "ood"} <= {metric.name for metric in metrics}
