"""Figure 6 of arXiv 2501.08537: small circles, which were never trained, over gamma.

    python research/figures/j6_concept_graphs.py [--seed 0 1 2] [--gamma 0.3 ... 1.0] [--steps 6000]

Claim: at PyTorch's own initialisation (gamma .5) a diffusion model that has seen "small" with triangles alone
draws a small circle as a triangle; the smaller its initial weights, the more it draws circles, while the
tuples that were trained are drawn right at every gamma.

The paper shows pictures and gives no number; here it is the share of samples of the two small circles that a
linear classifier takes for triangles (`failure`), beside a rule on masks, and against the training step,
since what fails might only come later. Neither rule knows an image that shows nothing: `present` are samples
that cover enough to be a small shape, and `circles` those of them that both rules take for circles.

--scope second_layers scales the second layer of each condition's MLP alone: a first layer with one input
(size, time) keeps its scale at any gamma, so that gamma changes what it weighs beside the others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import plotly.graph_objects as go

from anchorlens.extras.concept_graphs.images import CONCEPTS, SMALL_CIRCLES, TUPLES, marked
from anchorlens.extras.sweep import Cell, grid
from anchorlens.files.checkpoint import Checkpoint, load_checkpoint
from anchorlens.plots import styled
from anchorlens.plots.from_specs import figure_of
from anchorlens.probes import stable_rank
from anchorlens.tasks.shared.figure_specs import Grid, ImageGrid
from shared.common import add_means, on_its_way, options, trained, write
from shared.trends import by_value

PRESET = "concept_graphs"
GAMMAS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0)
_TWICE = ("train", "unseen", "failure")
MEASURES = (*_TWICE, "circles", "present", *(f"{name}_by_mask" for name in _TWICE))
LAYERS = {"condition MLPs": r"concepts\..*\.2\.weight", "convolutions": r"(first|down|up|out).*"}
"""What the stable rank is a mean over: second layers of the MLPs, and convolutions as matrices."""
_EACH = 2
"""Samples of a tuple and model that a picture shows."""
_FIRST = 100
"""Updates before which samples are noise and are not shown."""


def measure(cell: Cell) -> dict[str, Any]:
    """What one cell comes to, at its end and on its way, and the stable ranks of its weights."""
    own = {name: cell.fields[name] for name in ("gamma", "gamma_scope", "seed")}
    checkpoint = load_checkpoint(_folder(cell) / "ckpt.pt")
    found = checkpoint.task.evaluate(checkpoint.fast_model())
    numbers = {name: found.measure(name).value for name in MEASURES}
    (by_tuple,) = (one for one in found.figure_specs if isinstance(one, Grid))
    columns = (*CONCEPTS, "all")
    shares = {
        each: dict(zip(columns, row, strict=True))
        for each, row in zip(reversed(TUPLES), by_tuple.values, strict=True)
    }
    course = [
        {"step": line["step"], "failure": line["failure_rate"], "train": line["train_accuracy"]}
        for line in cell.log()
        if line.get("failure_rate") is not None
    ]
    return {**own, **numbers, "by_tuple": shares, "stable_rank": ranks(checkpoint), "on_its_way": course}


def ranks(checkpoint: Checkpoint) -> dict[str, float]:
    """Kind of layer -> mean stable rank of its matrices, over that of a Gaussian."""
    found = stable_rank(checkpoint.build_model())
    values = dict(zip(found.names, found.normalized, strict=True))
    return {
        kind: fmean(value for name, value in values.items() if re.fullmatch(pattern, name))
        for kind, pattern in LAYERS.items()
    }


def over_gamma(rows: Sequence[dict[str, Any]]) -> go.Figure:
    """What is drawn over gamma: a line through the means, and a point for each seed."""
    figure = go.Figure()
    titles = {
        "failure": "small circles drawn as triangles",
        "failure_by_mask": "drawn as triangles, by the rule on masks",
        "circles": "small circles drawn as circles, by both rules",
        "present": "small circles that are visible",
        "train": "trained tuples drawn correctly",
    }
    gammas = sorted({row["gamma"] for row in rows})
    for name, title in titles.items():
        dash = "dash" if name.endswith("mask") else "solid"
        add_means(figure, title, by_value(rows, "gamma", name), dash=dash)
    figure.update_xaxes(title="gamma (larger: smaller initial weights)", tickvals=gammas)
    figure.update_yaxes(title="proportion of samples", range=[-0.04, 1.04])
    figure.update_layout(legend={"orientation": "h", "y": -0.25, "yanchor": "top"}, showlegend=True)
    return styled(figure, "Concept Graphs: small circles were never trained")


def over_steps(rows: Sequence[dict[str, Any]]) -> go.Figure:
    """Failure rate against the training step, a line for each gamma: the mean over seeds."""
    figure = on_its_way(rows, "step", "failure")
    figure.update_xaxes(title="updates")
    figure.update_yaxes(title="small circles drawn as triangles", range=[-0.04, 1.04])
    return styled(figure, "Failure rate during training (few samples each)")


def samples(title: str, checkpoints: Mapping[str, Path], n: int) -> go.Figure:
    """What models draw, all from the same noise: a row for each tuple, `n` columns for each model.

    Args:
        title: of the picture.
        checkpoints: what stands above a model's columns -> its file.
        n: samples of each tuple.
    """
    by_tuple: dict[str, list[np.ndarray]] = {each: [] for each in TUPLES}
    for path in checkpoints.values():
        checkpoint = load_checkpoint(path)
        found = checkpoint.task.samples(checkpoint.task.ready(checkpoint.fast_model()), n=n)
        for each in TUPLES:
            by_tuple[each].append(found[each])
    rows = {marked(each): np.concatenate(images) for each, images in by_tuple.items()}
    mosaic = ImageGrid.of(title, "", rows)
    figure = figure_of(mosaic)
    middles = [mosaic.side * n * (k + 0.5) - 0.5 for k in range(len(checkpoints))]
    names = list(checkpoints)
    figure.update_xaxes(visible=True, side="top", tickvals=middles, ticktext=names, ticks="", showgrid=False)
    return figure.update_layout(width=220 + 64 * mosaic.n_columns)


def at_the_end(cells: Sequence[Cell]) -> go.Figure:
    """Samples of the trained models of one seed, over gamma."""
    files = {f"gamma {cell.fields['gamma']:g}": _folder(cell) / "ckpt.pt" for cell in cells}
    return samples("Samples (*: never trained)", files, _EACH)


def over_training(cell: Cell) -> go.Figure:
    """Samples of one run's checkpoints on its way."""
    steps = {path: int(path.stem[5:]) for path in sorted((_folder(cell) / "checkpoints").glob("step_*.pt"))}
    first = min(_FIRST, max(steps.values()))
    files = {f"{step:,}": path for path, step in steps.items() if step >= first}
    return samples(f"Samples at gamma {cell.fields['gamma']:g} after so many updates", files, _EACH)


def _folder(cell: Cell) -> Path:
    assert cell.path is not None
    return cell.path


def main() -> None:
    """Read the command line, train what is missing, measure, draw."""
    parser = options(__doc__, seeds=(0, 1, 2), preset=PRESET)
    parser.add_argument("--gamma", type=float, nargs="+", default=list(GAMMAS))
    parser.add_argument("--steps", type=int, default=6000, help="updates of every cell")
    parser.add_argument("--scope", default="all", choices=["all", "second_layers"], help="what gamma is of")
    parser.add_argument(
        "--followed", type=float, nargs="*", default=[0.5, 0.8], help="gammas drawn over training"
    )
    given = parser.parse_args()
    fields = {"steps": given.steps, "eval_every": max(1, given.steps // 6), "n_checkpoints": 10}
    asked = dict(given.set)
    wanted = grid(
        PRESET,
        {"gamma": given.gamma, "seed": given.seed, **asked},
        gamma_scope=given.scope,
        **{name: value for name, value in fields.items() if name not in asked},
    )
    cells = trained(given, wanted)
    rows = [measure(cell) for cell in cells]
    name = "j6_second_layers" if given.scope == "second_layers" else "j6_concept_graphs"
    first = [cell for cell in cells if cell.fields["seed"] == given.seed[0]]
    pictures = {
        name: over_gamma(rows),
        f"{name}_steps": over_steps(rows),
        f"{name}_samples": at_the_end(first),
    }
    for cell in first:
        gamma = cell.fields["gamma"]
        if gamma in given.followed:
            pictures[f"{name}_gamma_{gamma:g}".replace(".", "_")] = over_training(cell)
    numbers = {
        "steps": given.steps,
        "scope": given.scope,
        "image_side": cells[0].run.task.image_side,
        "n_feat": cells[0].run.model_config.n_feat,
        "n_diffusion_steps": cells[0].run.task.n_diffusion_steps,
        "small_circles": list(SMALL_CIRCLES),
        "cells": rows,
    }
    write(given, name, pictures, numbers)


if __name__ == "__main__":
    main()
