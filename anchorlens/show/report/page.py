"""The report, which is a self-contained HTML page on one verdict or on several verdicts side by side."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from anchorlens.configuration import Setting, settings
from anchorlens.files.writing import PAGES, check_can_write
from anchorlens.models.config import sizes
from anchorlens.models.wrappers import hooks_in_words
from anchorlens.plots.side_by_side import distinct
from anchorlens.probes.any_model.holdout import holdout
from anchorlens.probes.registry import OF_ANY_NETWORK, OF_MIXTURES, REPORT_PROBES, SHIPPED, checked_probes
from anchorlens.probes.shared.contract import ProbeResult, is_for, needs_task
from anchorlens.recipes.run_config import places
from anchorlens.show.frame import html_page, write_page
from anchorlens.show.report.panels import CARD, answer_figures, probe_figures, training_figures
from anchorlens.show.tables import pair_rows, verdict_table
from anchorlens.tasks.shared.measures import has_labels, has_phases
from anchorlens.texts import safe_repr
from anchorlens.verdict.readings import READINGS
from anchorlens.verdict.verdict import ClassifiedModel, Evidence, Verdict
from anchorlens.views import report

MOST_IN_MAP = 40
"""The largest number of anchors whose pairs the report draws as a map."""
MODEL_FACTS = ("n_layers", "n_heads", "d_model", "d_head", "d_mlp", "act_fn", "normalization_type", "n_ctx")
"""The fields of `cfg` that describe a model without a checkpoint."""

MOST_MOVED = 6
"""The largest number of readings in the first list of `reading_rows`."""


def write_report(
    verdicts: Sequence[Verdict],
    path: str | os.PathLike[str],
    *,
    probes: Sequence[Callable[..., ProbeResult] | str] = REPORT_PROBES,
) -> None:
    """Write one offline HTML page on one verdict, or on several verdicts side by side.

    Every probe measures the model again for its plot. A measurement takes seconds for a small model. If a
    probe refuses the model or fails, the page gives the reason instead of the plot.

    Args:
        verdicts: one or more verdicts.
        path: the path of the page, with the suffix `.html`. `write_report` replaces an existing file.
        probes: the probes whose plots the page shows, in order, as functions or names of shipped probes. The
            page also shows `holdout` if a verdict is based on `holdout`. `(*REPORT_PROBES, my_probe)` adds
            your own probe. The heading of your own probe is its name, and the first sentence of its docstring
            explains the plot. `SHIPPED` contains all probes, including the probes that train a model.

    Raises:
        ValueError: If there is no verdict, or a verdict was loaded from JSON without its model.
        ValueError: If an object is not a verdict or a probe, or two probes have the same name.
        ValueError: If the suffix of the path is not `.html`, or the folder is missing.
        ValueError: If the path is a file of a verdict, or is not an ordinary file.
        OSError: If the write fails. A failed write does not change an existing file.

    Example:
        >>> write_report([classify("a.pt"), classify("b.pt")], "report.html")  # doctest: +SKIP
    """
    check_verdicts(verdicts)
    path = check_can_write(path, "a report's name", PAGES, inputs(verdicts))
    write_page(path, page_html(verdicts, probes))


report.register(list, write_report)


def page_html(verdicts: Sequence[Verdict], probes: Sequence[Callable[..., ProbeResult] | str]) -> str:
    """Return the HTML of the page that `write_report` writes.

    Raises:
        ValueError: If an object is not a probe, or two probes have the same name.
    """
    requested, verdicts = checked_probes(probes), [_with_present_hooks(verdict) for verdict in verdicts]
    tasks = [verdict.subject.model_and_task()[1] for verdict in verdicts]
    has_anchors, kinds = any(task.has_anchors for task in tasks), {task.kind for task in tasks}
    opened = any(hasattr(verdict.subject.model, "hook_dict") for verdict in verdicts)
    configs = [getattr(verdict.subject.model, "cfg", None) for verdict in verdicts]
    mixed = any(getattr(config, "num_experts", None) is not None for config in configs)
    left_out = () if mixed else OF_MIXTURES
    requested = tuple(probe for probe in requested if probe not in left_out and is_for(probe, kinds))
    chosen = [
        probe
        for probe in requested
        if probe not in SHIPPED
        or (
            (has_anchors or not needs_task(probe) or not is_for(probe, ()))
            and (opened or probe in OF_ANY_NETWORK)
        )
    ]
    if holdout not in chosen and any(holdout in verdict.subject.measured for verdict in verdicts):
        chosen.append(holdout)
    labels = distinct([verdict.subject.name for verdict in verdicts])
    figures = list(probe_figures(verdicts, labels, chosen))
    order = {name: k for k, name in enumerate(("holdout", *CARD))}  # followed by your own probes
    first = [figure for figure in figures if figure.comes_first] or figures
    first.sort(key=lambda figure: order.get(figure.id, len(order)))
    answers = list(answer_figures(verdicts, labels))
    if not any(verdict.behaviour.by_pair() for verdict in verdicts):
        first, answers = [*answers[:1], *first], answers[1:]
    metrics = [verdict.behaviour.metrics for verdict in verdicts]
    without_ood = any(has_labels(one) and not has_phases(one) for one in metrics)
    training = list(training_figures(verdicts, labels))
    curves = [figure for figure in training if without_ood and figure.json]
    moved, others = reading_rows([verdict.by_probes.evidence for verdict in verdicts])
    return html_page(
        "report.html",
        scripts=("page.js",),
        overview=outline(verdicts[0].subject),
        labels=labels,
        verdicts=verdicts,
        maps=[pair_rows(verdict.behaviour, MOST_IN_MAP) for verdict in verdicts],
        summary=verdict_table(verdicts, labels),
        moved=moved,
        others=others,
        first=first,
        more=[figure for figure in figures if figure not in first],
        opened=opened,
        without_anchors=len(chosen) < len(requested),
        has_phases=any(map(has_phases, metrics)),
        without_ood=without_ood,
        curves=curves,
        answers=answers,
        training=[figure for figure in training if figure not in curves],
        configurations=_side_by_side([_configurations(verdict.subject) for verdict in verdicts]),
    )


def _with_present_hooks(verdict: Verdict) -> Verdict:
    """Return the verdict with a warning if its model has hooks, which affect the pictures."""
    note = hooks_in_words(verdict.subject.model_and_task()[0])
    known = note is None or note in verdict.warnings
    return verdict if known else dataclasses.replace(verdict, warnings=(*verdict.warnings, note))


def check_verdicts(verdicts: Any) -> None:
    """Check that each object is a verdict with its model.

    Raises:
        ValueError: If there is no verdict, or an object is not a verdict.
        ValueError: If a verdict was loaded from JSON without its model.
    """
    is_list = isinstance(verdicts, Sequence) and len(verdicts) > 0
    if not is_list or not all(isinstance(verdict, Verdict) for verdict in verdicts):
        raise ValueError(
            f"verdicts must be a list of at least one Verdict, got {safe_repr(verdicts)}. Call classify."
        )
    for verdict in verdicts:
        verdict.subject.model_and_task()


def inputs(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Return the checkpoints of the verdicts, and the files that the tasks of the verdicts read."""
    for subject in (verdict.subject for verdict in verdicts):
        if subject.path is not None:
            yield subject.path
        for field in places(subject.task):
            yield from str(getattr(subject.task, field)).split(os.pathsep)


def outline(subject: ClassifiedModel) -> str:
    """Describe a model in one line."""
    checkpoint = subject.checkpoint
    return sizes(subject.model_and_task()[0].cfg) if checkpoint is None else checkpoint.overview


def _configurations(subject: ClassifiedModel) -> dict[str, list[Setting]]:
    """Return all fields of each configuration by name, or facts of a model without a checkpoint."""
    checkpoint = subject.checkpoint
    about = {"kind": subject.kind, "path": subject.path, "step": subject.step, "SHA-256": subject.sha256}
    versions = (f"{name} {version}" for name, version in (subject.versions or {}).items())
    about["made with"] = ", ".join(versions) or "not known"
    parts = {"Checkpoint": [Setting(name, value, "") for name, value in about.items()]}
    if checkpoint is None:
        model, task = subject.model_and_task()
        meaning = "of the HookedTransformer"
        facts = [Setting(name, getattr(model.cfg, name, None), meaning) for name in MODEL_FACTS]
        return {**parts, "Model": facts, "Task": settings(task)}
    configs = {"Model": checkpoint.model_config, "Task": checkpoint.task, "Training": checkpoint.train_config}
    return parts | {name: settings(config) for name, config in configs.items() if config is not None}


def _side_by_side(of_models: Sequence[dict[str, list[Setting]]]) -> dict[str, list[list[Setting | None]]]:
    """Return the setting of each field in each model, by configuration.

    The setting is None if the model does not have the field.
    """
    rows = {}
    for part in dict.fromkeys(itertools.chain(*of_models)):
        by_name = [{setting.name: setting for setting in parts.get(part, ())} for parts in of_models]
        names = dict.fromkeys(itertools.chain(*by_name))
        rows[part] = [[known.get(name) for known in by_name] for name in names]
    return rows


class ReadingRow(NamedTuple):
    """One reading of several models."""

    reading: str
    """The name of the reading, `probe.field`."""
    meaning: str
    """The meaning of the reading, in a few words."""
    evidence: Sequence[Evidence | None]
    """The evidence of each model, or None if the model does not have the reading."""


def reading_rows(of_models: Sequence[Sequence[Evidence]]) -> tuple[list[ReadingRow], list[ReadingRow]]:
    """Sort the readings of several models by their contributions to the verdicts.

    Args:
        of_models: the readings of each model, the strongest evidence first.

    Returns:
        Two lists of readings. The first list contains at most `MOST_MOVED` readings that vote for a label. In
        this list, the first reading of every model comes before any second reading. The second list contains
        all other readings, in the order of the probes.
    """
    by_name = [{one.reading: one for one in evidence} for evidence in of_models]
    votes = [[one.reading for one in evidence if one.vote is not None] for evidence in of_models]
    in_turn = [name for turn in itertools.zip_longest(*votes) for name in turn if name is not None]
    moved = list(dict.fromkeys(in_turn))[:MOST_MOVED]
    order = {reading.name: k for k, reading in enumerate(READINGS)}
    others = [name for name in dict.fromkeys(itertools.chain(*by_name)) if name not in moved]
    others.sort(key=lambda name: order.get(name, len(order)))

    def row(name: str) -> ReadingRow:
        evidence = [known.get(name) for known in by_name]
        return ReadingRow(name, next(one.meaning for one in evidence if one is not None), evidence)

    return list(map(row, moved)), list(map(row, others))
