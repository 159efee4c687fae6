"""The report: one self-contained HTML page with everything about one verdict, or several side by side."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from anchorlens.configuration import Setting, settings
from anchorlens.figures.side_by_side import distinct
from anchorlens.files.writing import PAGES, check_can_write
from anchorlens.models.config import sizes
from anchorlens.probes.registry import (
    OF_ANY_NETWORK,
    OF_MIXTURES,
    PROBES,
    REPORT_PROBES,
    checked_probes,
    needs_task,
)
from anchorlens.probes.result import ProbeResult
from anchorlens.runs.identity import places
from anchorlens.safe import safe_repr
from anchorlens.show.frame import framed, write_page
from anchorlens.show.report.panels import answer_figures, probe_figures, training_figures
from anchorlens.show.tables import verdict_table
from anchorlens.tasks.shared.metric import has_phases
from anchorlens.verdict.verdict import Subject, Verdict
from anchorlens.views import report

MODEL_FACTS = ("n_layers", "n_heads", "d_model", "d_head", "d_mlp", "act_fn", "normalization_type", "n_ctx")
"""Facts of a model that came without a checkpoint."""


def write_report(
    verdicts: Sequence[Verdict],
    path: str | os.PathLike[str],
    *,
    probes: Sequence[Callable[..., ProbeResult] | str] = REPORT_PROBES,
) -> None:
    """Write one HTML page about one verdict, or several side by side; it needs no network.

    Every probe measures its model again, for its picture: seconds for a small model. In the place of a
    picture that a probe refuses, or fails to give, the page says why.

    Args:
        verdicts: at least one.
        path: of the page, .html; a file that is there is replaced.
        probes: whose pictures, in order: functions, or names of shipped ones. `(*REPORT_PROBES, my_probe)`
            adds one of your own; its heading is its name, how it is read its docstring's first sentence.
            `PROBES` are all, with those that train a model too.

    Raises:
        ValueError: no verdict, something else than verdicts or probes, two probes of one name, a verdict
            that was read back without its model, another suffix, no such folder, or what is there is no
            ordinary file or is one of those that were classified.
        OSError: the disk refuses; a file that was there before is untouched.

    Example:
        >>> write_report([classify("a.pt"), classify("b.pt")], "report.html")  # doctest: +SKIP
    """
    check_verdicts(verdicts)
    path = check_can_write(path, "a report's name", PAGES, inputs(verdicts))
    write_page(path, page_html(verdicts, probes))


@report.register
def _of_one(verdict: Verdict, path: str | os.PathLike[str], **options: Any) -> None:
    write_report([verdict], path, **options)


def page_html(
    verdicts: Sequence[Verdict], probes: Sequence[Callable[..., ProbeResult] | str] = REPORT_PROBES
) -> str:
    """The page that `write_report` writes.

    Raises:
        ValueError: no verdict, something else than verdicts or probes, two probes of one name, or a verdict
            that was read back without its model.
    """
    check_verdicts(verdicts)
    requested = checked_probes(probes)
    has_anchors = any(verdict.subject.model_and_task()[1].has_anchors for verdict in verdicts)
    opened = any(hasattr(verdict.subject.model, "hook_dict") for verdict in verdicts)
    mixed = any(_is_mixture(verdict.subject.model) for verdict in verdicts)
    requested = tuple(probe for probe in requested if mixed or probe not in OF_MIXTURES)
    chosen = [
        probe
        for probe in requested
        if probe not in PROBES
        or ((has_anchors or not needs_task(probe)) and (opened or probe in OF_ANY_NETWORK))
    ]
    labels = distinct([verdict.subject.name for verdict in verdicts])
    figures = list(probe_figures(verdicts, labels, chosen))
    return framed(
        "page.html",
        scripts=("page.js",),
        heads=any(panel.heads for figure in figures for panel in figure.panels),
        overview=outline(verdicts[0].subject),
        entries=[
            {"label": label, "verdict": verdict, "settings": _configurations(verdict.subject)}
            for label, verdict in zip(labels, verdicts, strict=True)
        ],
        summary=verdict_table(verdicts, labels),
        figures=figures,
        opened=opened,
        without_anchors=len(chosen) < len(requested),
        has_phases=any(has_phases(verdict.behaviour.metrics) for verdict in verdicts),
        answers=list(answer_figures(verdicts, labels)),
        training=list(training_figures(verdicts, labels)),
    )


def _is_mixture(model: Any) -> bool:
    return getattr(getattr(model, "cfg", None), "num_experts", None) is not None


def check_verdicts(verdicts: Any) -> None:
    """Check that these are verdicts, each with its model.

    Raises:
        ValueError: no verdict, something else, or one that was read back without its model.
    """
    is_list = isinstance(verdicts, Sequence) and len(verdicts) > 0
    if not is_list or not all(isinstance(verdict, Verdict) for verdict in verdicts):
        raise ValueError(
            f"verdicts must be a list of one or more Verdict, got {safe_repr(verdicts)}; see classify"
        )
    for verdict in verdicts:
        verdict.subject.model_and_task()


def inputs(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """The files from which they came: checkpoints, and what their tasks read."""
    for subject in (verdict.subject for verdict in verdicts):
        if subject.path is not None:
            yield subject.path
        for field in places(subject.task):
            yield from str(getattr(subject.task, field)).split(os.pathsep)


def outline(subject: Subject) -> str:
    """What a model is, in a line."""
    checkpoint = subject.checkpoint
    return sizes(subject.model_and_task()[0].cfg) if checkpoint is None else checkpoint.overview


def _configurations(subject: Subject) -> dict[str, list[Setting]]:
    """Every field of each configuration, by its name; without a checkpoint what the model itself says."""
    checkpoint = subject.checkpoint
    if checkpoint is None:
        model, task = subject.model_and_task()
        meaning = "of the HookedTransformer"
        facts = [Setting(name, getattr(model.cfg, name, None), meaning) for name in MODEL_FACTS]
        return {"Model": facts, "Task": settings(task)}
    parts = {"Model": checkpoint.model_config, "Task": checkpoint.task, "Training": checkpoint.train_config}
    return {name: settings(part) for name, part in parts.items() if part is not None}
