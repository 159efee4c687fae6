"""The report: one self-contained HTML page with everything about one verdict, or several side by side."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anchorlens.configuration import Setting, settings
from anchorlens.figures.page_scripts import circuitsvis_js, plotly_js
from anchorlens.figures.side_by_side import distinct
from anchorlens.files.container import atomic_write
from anchorlens.models.config import sizes
from anchorlens.probes.registry import PROBES, checked_probes
from anchorlens.probes.result import ProbeResult
from anchorlens.show.frame import framed
from anchorlens.show.report.exhibits import probe_exhibits, training_exhibits
from anchorlens.verdict.verdict import Subject, Verdict

MODEL_FACTS = ("n_layers", "n_heads", "d_model", "d_head", "d_mlp", "act_fn", "normalization_type", "n_ctx")
"""What is told of a model that came without a checkpoint."""


@dataclass(frozen=True, eq=False)
class Entry:
    """One model on the page."""

    label: str
    """What it is called, unlike the others."""
    verdict: Verdict
    """Of that model."""

    @property
    def outline(self) -> str:
        """What it is, in a line."""
        subject = self.verdict.subject
        model, _ = subject.model_and_task()
        return sizes(model.cfg) if subject.checkpoint is None else subject.checkpoint.outline

    @property
    def facts(self) -> list[tuple[str, Any]]:
        """Where it came from."""
        subject = self.verdict.subject
        step = None if subject.step is None else f"{subject.step:,}"
        return [("kind", subject.kind), ("path", subject.path), ("step", step), ("SHA-256", subject.sha256)]

    @property
    def settings(self) -> list[tuple[str, list[Setting]]]:
        """Configurations by name."""
        return _settings(self.verdict.subject)

    @property
    def versions(self) -> dict[str, str]:
        """Of the libraries that made the checkpoint."""
        checkpoint = self.verdict.subject.checkpoint
        return {} if checkpoint is None else dict(checkpoint.versions)


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
        path: of the page; a file that is there is replaced.
        probes: whose pictures, in order: functions, or names of shipped ones. `(*PROBES, my_probe)` adds
            one of your own; its heading is its name, how it is read its docstring's first sentence.

    Raises:
        ValueError: no verdict, something else than verdicts or probes, two probes of one name, or a verdict
            that was read back without its model.
        OSError: the disk refuses; a file that was there before is untouched.

    Example:
        >>> write_report([classify("a.pt"), classify("b.pt")], "report.html")  # doctest: +SKIP
    """
    html = page_html(verdicts, probes)
    with atomic_write(Path(path)) as file:
        file.write(html.encode(errors="replace"))  # a file's name may hold what is no text


def page_html(
    verdicts: Sequence[Verdict], probes: Sequence[Callable[..., ProbeResult] | str] = PROBES
) -> str:
    """The page that `write_report` writes.

    Raises:
        ValueError: no verdict, something else than verdicts or probes, two probes of one name, or a verdict
            that was read back without its model.
    """
    if (
        not isinstance(verdicts, Sequence)
        or not verdicts
        or not all(isinstance(v, Verdict) for v in verdicts)
    ):
        raise ValueError(f"verdicts must be a list of one or more Verdict, got {verdicts!r}; see classify")
    for verdict in verdicts:
        verdict.subject.model_and_task()
    chosen = checked_probes(probes)
    labels = distinct([verdict.subject.name for verdict in verdicts])
    exhibits = list(probe_exhibits(verdicts, labels, chosen))
    training = list(training_exhibits(verdicts, labels))
    libraries = [plotly_js()]
    if any(take.heads for exhibit in exhibits for take in exhibit.takes):
        libraries.append(circuitsvis_js())
    return framed(
        "page.html",
        libraries=libraries,
        scripts="page.js",
        entries=[Entry(label, verdict) for label, verdict in zip(labels, verdicts, strict=True)],
        exhibits=exhibits,
        training=training,
    )


def _settings(subject: Subject) -> list[tuple[str, list[Setting]]]:
    checkpoint = subject.checkpoint
    if checkpoint is None:
        model, task = subject.model_and_task()
        facts = [
            Setting(name, getattr(model.cfg, name, None), "of the HookedTransformer") for name in MODEL_FACTS
        ]
        return [("Model", facts), ("Task", settings(task))]
    tables = [("Model", settings(checkpoint.model)), ("Task", settings(checkpoint.task))]
    return tables + ([] if checkpoint.train is None else [("Training", settings(checkpoint.train))])
