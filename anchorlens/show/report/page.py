"""The report: one self-contained HTML page with everything about one verdict, or several side by side."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from anchorlens.configuration import Setting, settings
from anchorlens.figures.side_by_side import distinct
from anchorlens.files.writing import PAGES, atomic_write, check_can_write
from anchorlens.models.config import sizes
from anchorlens.probes.registry import OF_ANY_NETWORK, PROBES, checked_probes, needs_task
from anchorlens.probes.result import ProbeResult
from anchorlens.runs.identity import places
from anchorlens.safe import shown
from anchorlens.show.frame import framed
from anchorlens.show.report.panels import answer_figures, probe_figures, training_figures
from anchorlens.show.tables import verdict_table
from anchorlens.tasks.shared.metric import has_phases
from anchorlens.verdict.verdict import Verdict
from anchorlens.views import report

MODEL_FACTS = ("n_layers", "n_heads", "d_model", "d_head", "d_mlp", "act_fn", "normalization_type", "n_ctx")
"""Facts of a model that came without a checkpoint."""


class Entry(NamedTuple):
    """One model on the page."""

    label: str
    """What it is called, unlike the others."""
    verdict: Verdict
    """On that model."""
    outline: str
    """What it is, in a line."""
    facts: list[tuple[str, Any]]
    """Where it came from."""
    settings: dict[str, list[Setting]]
    """Configurations by name."""
    versions: Mapping[str, str]
    """Of the libraries that made the checkpoint."""


def write_report(
    verdicts: Sequence[Verdict],
    path: str | os.PathLike[str],
    *,
    probes: Sequence[Callable[..., ProbeResult] | str] = PROBES,
) -> None:
    """Write one HTML page about one verdict, or several side by side; it needs no network.

    Every probe measures its model again, for its picture: seconds for a small model. In the place of a
    picture that a probe refuses, or fails to give, the page says why.

    Args:
        verdicts: at least one.
        path: of the page, .html; a file that is there is replaced.
        probes: whose pictures, in order: functions, or names of shipped ones. `(*PROBES, my_probe)` adds
            one of your own; its heading is its name, how it is read its docstring's first sentence.

    Raises:
        ValueError: no verdict, something else than verdicts or probes, two probes of one name, a verdict
            that was read back without its model, another suffix, no such folder, or what is there is no
            ordinary file or is one of those that were classified.
        OSError: the disk refuses; a file that was there before is untouched.

    Example:
        >>> write_report([classify("a.pt"), classify("b.pt")], "report.html")  # doctest: +SKIP
    """
    _check_verdicts(verdicts)
    path = check_can_write(path, "a report's name", PAGES, _inputs(verdicts))
    html = page_html(verdicts, probes)
    with atomic_write(path) as file:
        file.write(html.encode(errors="replace"))  # a file's name may hold what is no text


@report.register
def _of_one(verdict: Verdict, path: str | os.PathLike[str], **options: Any) -> None:
    write_report([verdict], path, **options)


def page_html(
    verdicts: Sequence[Verdict], probes: Sequence[Callable[..., ProbeResult] | str] = PROBES
) -> str:
    """The page that `write_report` writes.

    Raises:
        ValueError: no verdict, something else than verdicts or probes, two probes of one name, or a verdict
            that was read back without its model.
    """
    _check_verdicts(verdicts)
    chosen = checked_probes(probes)
    n_asked = len(chosen)
    if not any(verdict.subject.model_and_task()[1].has_anchors for verdict in verdicts):
        chosen = tuple(probe for probe in chosen if probe not in PROBES or not needs_task(probe))
    opened = any(hasattr(verdict.subject.model, "hook_dict") for verdict in verdicts)
    if not opened:
        chosen = tuple(probe for probe in chosen if probe not in PROBES or probe in OF_ANY_NETWORK)
    labels = distinct([verdict.subject.name for verdict in verdicts])
    figures = list(probe_figures(verdicts, labels, chosen))
    return framed(
        "page.html",
        scripts=("page.js",),
        heads=any(panel.heads for figure in figures for panel in figure.panels),
        entries=[_entry(label, verdict) for label, verdict in zip(labels, verdicts, strict=True)],
        summary=verdict_table(verdicts, labels),
        figures=figures,
        opened=opened,
        without_anchors=len(chosen) < n_asked,
        has_phases=any(has_phases(verdict.behaviour.metrics) for verdict in verdicts),
        answers=list(answer_figures(verdicts, labels)),
        training=list(training_figures(verdicts, labels)),
    )


def _check_verdicts(verdicts: object) -> None:
    if (
        not isinstance(verdicts, Sequence)
        or not verdicts
        or not all(isinstance(one, Verdict) for one in verdicts)
    ):
        raise ValueError(
            f"verdicts must be a list of one or more Verdict, got {shown(verdicts)}; see classify"
        )
    for verdict in verdicts:
        verdict.subject.model_and_task()


def _inputs(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """The files from which they came: checkpoints, and what their tasks read."""
    for verdict in verdicts:
        if verdict.subject.path is not None:
            yield verdict.subject.path
        for field in places(verdict.subject.task):
            yield from str(getattr(verdict.subject.task, field)).split(os.pathsep)


def _entry(label: str, verdict: Verdict) -> Entry:
    subject = verdict.subject
    step = None if subject.step is None else f"{subject.step:,}"
    facts = [("kind", subject.kind), ("path", subject.path), ("step", step), ("SHA-256", subject.sha256)]
    checkpoint = subject.checkpoint
    if checkpoint is None:
        hooked, task = subject.model_and_task()
        meaning = "of the HookedTransformer"
        model = [Setting(name, getattr(hooked.cfg, name, None), meaning) for name in MODEL_FACTS]
        tables = {"Model": model, "Task": settings(task)}
        return Entry(label, verdict, sizes(hooked.cfg), facts, tables, {})
    parts = {"Model": checkpoint.model, "Task": checkpoint.task, "Training": checkpoint.train}
    tables = {name: settings(part) for name, part in parts.items() if part is not None}
    return Entry(label, verdict, checkpoint.outline, facts, tables, checkpoint.versions)
