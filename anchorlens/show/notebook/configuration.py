"""Notebook views of configurations, tasks, batches and evaluations, which do not import torch."""

from __future__ import annotations

import numpy as np

from anchorlens.configuration import Config, settings
from anchorlens.recipes.run_config import PARTS, RunConfig
from anchorlens.show.tables import MOST_ANCHORS
from anchorlens.show.templating import view
from anchorlens.tasks.shared.base import TaskConfig
from anchorlens.tasks.shared.evaluation import Evaluation
from anchorlens.tasks.two_anchor.anchor_functions import formula
from anchorlens.tasks.two_anchor.sequences import AnchorBatch, Pair, marked, placed
from anchorlens.tasks.two_anchor.task import AnchorTask, composition
from anchorlens.views import html

MOST_SEQUENCES = 8
"""The largest number of sequences of a batch in a view."""


@html.register
def config_html(config: Config) -> str:
    """Return a list of every field with its value and meaning, as HTML."""
    return view("configuration.html", name=type(config).__name__, rows=settings(config))


@html.register
def run_html(run: RunConfig) -> str:
    """Return a description of a run, and the fields that differ from the defaults, as HTML."""
    parts = [(part, settings(config)) for part, config in zip(PARTS, run, strict=True)]
    return view("run.html", overview=run.overview, lines=run.task.describe().split("\n"), parts=parts)


@html.register
def task_html(task: TaskConfig) -> str:
    """Return a description of the task and its fields as HTML."""
    lines = task.describe().split("\n")
    return view("task_in_words.html", title=type(task).__name__, lines=lines, rows=settings(task))


@html.register
def anchor_task_html(task: AnchorTask) -> str:
    """Return a description of the task, a training sequence, the pairs and the fields as HTML."""
    pair = next((pair for pair in task.seen_pairs if len(set(pair)) > 1), task.seen_pairs[0])
    allowed = task.splits.allowed("train")
    places = task.positions[allowed.any(axis=0)]
    position = places[len(places) // 2]
    keys = task.keys[allowed[:, position]]
    trials = task.product([pair], keys[len(keys) // 2 :][:1], np.array([position]))
    tokens = placed(trials, task.noise(1, np.random.default_rng(0)))[0].tolist()
    key, target = int(trials.keys[0]), int(task.targets(trials)[0])
    values = [key]
    for anchor in pair:
        values.append(task.apply(anchor, values[-1]))
    steps = " → ".join(map(str, values)) if values[-1] == target else ""
    square = task.chain_length == 2 and len(task.anchors) <= MOST_ANCHORS
    return view(
        "task.html",
        task=task,
        lines=task.describe().split("\n"),
        example=marked(tokens, int(position), task.chain_length),
        steps=steps,
        target=target,
        grid={pair: _trained_on(task, pair) for pair in task.pairs} if square else None,
        rows=settings(task),
    )


def _trained_on(task: AnchorTask, pair: Pair) -> tuple[str, str]:
    """Return the kind of a pair, and the function on which the pair is trained, in words."""
    if pair in task.ood_pairs:
        return "unseen", "unseen"
    if pair in task.trained_overrides:
        return "other", f"{formula(task.trained_overrides[pair])}, not {composition(task, pair)}"
    return "trained", composition(task, pair)


@html.register
def batch_html(batch: AnchorBatch) -> str:
    """Return HTML with the first sequences of a batch, their marked keys and anchors, and their targets."""
    trials = batch.trials.take(np.arange(min(MOST_SEQUENCES, len(batch))))
    tokens, targets = (array[:MOST_SEQUENCES].tolist() for array in (batch.tokens, batch.targets))
    rows = [
        (marked(sequence, position, len(pair)), pair, key, target)
        for sequence, target, (pair, key, position) in zip(tokens, targets, trials, strict=True)
    ]
    return view("batch.html", rows=rows, total=len(batch), length=batch.tokens.shape[-1])


@html.register
def evaluation_html(behaviour: Evaluation) -> str:
    """Return the behavioural phase and all measurements as HTML."""
    return view("behaviour.html", behaviour=behaviour)
