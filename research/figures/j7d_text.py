"""Figure 7D of arXiv 2501.08537, a tiny stand-in: bits per byte of a language model over gamma.

    python research/figures/j7d_text.py [--seed 0 1 2] [--corpus code text code+text] [--data PATH]

Claim: with smaller initial weights (a larger gamma) a language model reaches a lower perplexity on held-out
text from the same tokens. The paper trains GPT-2 Medium on 40 billion tokens of SlimPajama; here a network of
two layers reads five million bytes, so that what comes out says nothing about that size.

So that no gamma loses for its step size alone, the learning rate is chosen for each gamma, of --rates, by
bits per byte on held-out text with the first seed and the first weight decay, and then held. The order of the
data and the number of tokens are the same for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from anchorlens.extras.sweep import Cell, grid
from anchorlens.plots import styled
from anchorlens.recipes.presets import preset_parts
from anchorlens.training.plan import count_cost
from shared.arms import COMPLEXITY
from shared.common import add_means, network, on_its_way, options, trained, write
from shared.trends import by_value

GAMMAS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
DECAYS = (0.01, 0.1)
RATES = (4e-3, 8e-3, 1.6e-2, 3.2e-2, 6.4e-2)
PRESET, NETWORK = "text", {"d_model": 64, "n_heads": 2, "d_head": 32, "d_mlp": 256}
MEASURES = ("train_bits", "validation_bits", "perplexity", "gap")
PAPERS_FLOPS = 1e20
"""Of one run of the paper, about: 6 x 4e8 parameters x 4e10 tokens."""
_EVALUATIONS = 8
"""Of each run on its way."""
GPU_FLOPS = 2e14
"""A second of a GPU at a realistic share of its bfloat16 speed, for what a run of the paper's size takes."""


def measure(cell: Cell) -> dict[str, Any]:
    """What one cell comes to at its end and on its way, and how complex it is."""
    own = {name: cell.fields[name] for name in ("gamma", "weight_decay", "lr", "seed")}
    numbers = {name: cell.numbers[name] for name in MEASURES}
    complexity = {name: cell.numbers.get(name) for name in COMPLEXITY}
    each = cell.fields["batch_size"] * cell.fields["seq_len"]
    course = [
        {"tokens": each * line["step"], "validation_bits": line["validation_bits"]}
        for line in cell.log()
        if line.get("validation_bits") is not None
    ]
    return {**own, **numbers, **complexity, "on_its_way": course}


def best_rates(rows: Sequence[Mapping[str, Any]]) -> dict[float, float]:
    """Gamma -> the learning rate with the fewest bits per byte on held-out text."""
    gammas = sorted({row["gamma"] for row in rows})
    return {
        gamma: min((row for row in rows if row["gamma"] == gamma), key=lambda row: row["validation_bits"])[
            "lr"
        ]
        for gamma in gammas
    }


def over_tokens(rows: Sequence[Mapping[str, Any]]) -> go.Figure:
    """Bits per byte on held-out text against bytes read, a line for each gamma: the mean over seeds."""
    figure = on_its_way(rows, "tokens", "validation_bits")
    figure.update_xaxes(title="bytes read")
    figure.update_yaxes(title="bits per byte on held-out text")
    return styled(figure, "Text, byte by byte")


def over_gamma(rows: Sequence[Mapping[str, Any]], name: str, title: str) -> go.Figure:
    """A number over gamma, a line for each weight decay: the mean, and a point for each seed."""
    figure = go.Figure()
    for decay in sorted({row["weight_decay"] for row in rows}):
        own = [row for row in rows if row["weight_decay"] == decay and row[name] is not None]
        add_means(figure, f"weight decay {decay:g}", by_value(own, "gamma", name))
    gammas = sorted({row["gamma"] for row in rows})
    figure.update_xaxes(title="gamma (larger: smaller initial weights)", tickvals=gammas)
    figure.update_yaxes(title=title)
    figure.update_layout(showlegend=True)
    return styled(figure, f"{title[0].upper()}{title[1:]}, at each gamma's own learning rate")


def main() -> None:
    """Read the command line, choose the rates, train the rest, measure, draw."""
    parser = options(__doc__, seeds=(0, 1, 2), preset=PRESET)
    parser.add_argument("--gamma", type=float, nargs="+", default=list(GAMMAS))
    parser.add_argument("--weight-decay", type=float, nargs="+", default=list(DECAYS))
    parser.add_argument("--rates", type=float, nargs="+", default=list(RATES), help="tried for each gamma")
    parser.add_argument("--corpus", default="code", choices=["code", "text", "code+text"])
    parser.add_argument("--data", default="", help="paths of text files, instead of a corpus")
    parser.add_argument("--n-samples", type=int, help="sequences, each read once; 20,000, of text 8,000")
    given = parser.parse_args()
    given.n_samples = given.n_samples or (8_000 if given.corpus == "text" else 20_000)
    asked = dict(given.set)
    text = {"data": given.data} if given.data else {"corpus": given.corpus}
    fields = {"n_samples": given.n_samples, "epochs": 1, "n_checkpoints": 0, **NETWORK, **text}
    fields = {name: value for name, value in fields.items() if name not in asked}

    def runs(**axes: Sequence[Any]) -> list[Any]:
        every = {**axes, **asked}
        batch = min(asked.get("batch_size", (preset_parts(PRESET)["train"]["batch_size"],)))
        few = max(1, given.n_samples // (_EVALUATIONS * batch))
        return grid(PRESET, every, **{**fields, "eval_every": few})

    first = {"seed": [given.seed[0]], "weight_decay": [given.weight_decay[0]]}
    asked_first = runs(gamma=given.gamma, lr=given.rates, **first)
    tried = [measure(cell) for cell in trained(given, asked_first)]
    rates = best_rates(tried)
    wanted = [
        run
        for gamma in given.gamma
        for run in runs(gamma=[gamma], lr=[rates[gamma]], weight_decay=given.weight_decay, seed=given.seed)
    ]
    cells = trained(given, wanted)
    given.network = network([*asked_first, *wanted])
    rows = [measure(cell) for cell in cells]
    train = wanted[0].train_config
    tokens = train.total_steps * train.batch_size * wanted[0].task.seq_len
    name = f"j7d_text_{'files' if given.data else given.corpus.replace('+', '_')}"
    one_decay = [row for row in rows if row["weight_decay"] == given.weight_decay[0]]
    pictures = {
        name: over_gamma(rows, "validation_bits", "bits per byte on held-out text"),
        f"{name}_tokens": over_tokens(one_decay),
        f"{name}_complexity": over_gamma(rows, COMPLEXITY[0], "stable rank of W_Q / a Gaussian's"),
    }
    numbers = {
        "text": wanted[0].task.version,
        "corpus": wanted[0].task.corpus,
        "tokens": tokens,
        "flops": train.total_steps * count_cost(wanted[0]).flops,
        "papers_gpu_hours": PAPERS_FLOPS / GPU_FLOPS / 3600,
        "rates": [{"gamma": gamma, "lr": rate} for gamma, rate in rates.items()],
        "tried": [{key: row[key] for key in ("gamma", "lr", "validation_bits")} for row in tried],
        "cells": rows,
    }
    write(given, name, pictures, numbers)


if __name__ == "__main__":
    main()
