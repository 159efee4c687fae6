"""The picture of the four phases at the head of the README, from the four shipped checkpoints.

    python examples/four_phases.py --out docs/images/four_phases.png

Above, what each model answers: accuracy for every anchor pair, at held-out keys for trained pairs and
against the composition for the two pairs that no model has seen (boxed). Below, what is inside: the t-SNE of
the answers' logits with the key token masked, a colour for a pair and its mirror.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from anchorlens import AnchorEvaluation, Checkpoint, evaluate, load_checkpoint, plots
from anchorlens.probes import mask_key_token
from anchorlens.probes.two_anchor.mask_key_token import MaskKeyToken
from anchorlens.tasks.shared.phases import Phase
from anchorlens.training.checkpoints import shipped

WORDS = {
    "Phase 1": "memorises",
    "Phase 2 without commutativity": "new keys, not new pairs",
    "Phase 2 with commutativity": "the same for (a, b) and (b, a)",
    "Phase 3": "composes the rules",
}
"""Label of a phase -> what its models do."""
COLOURS = plots.CATEGORIES
WIDTH, HEIGHT = 1200, 720


def measured(checkpoint: Checkpoint) -> tuple[AnchorEvaluation, MaskKeyToken]:
    """What one model answers, and what its answers are without the key token."""
    behaviour = evaluate(
        checkpoint.last_position_model(), checkpoint.task, training_set=checkpoint.training_set()
    )
    return behaviour, mask_key_token(checkpoint.build_model(), checkpoint.task)


def heading(phase: Phase, behaviour: AnchorEvaluation) -> str:
    """The phase, what it does, and the accuracies it is defined by."""
    assert behaviour.ood is not None and behaviour.commutativity is not None
    numbers = {"train": behaviour.train, "ID": behaviour.id, "OOD": behaviour.ood}
    shown = "   ".join(f"{name} {accuracy.value:.2f}" for name, accuracy in numbers.items())
    return (
        f"<b>{phase.label}</b><br>{WORDS[phase.label]}<br>"
        f"<span style='color:#555'>{shown}<br>commutativity {behaviour.commutativity.value:.2f}</span>"
    )


def draw(models: list[tuple[AnchorEvaluation, MaskKeyToken]], anchors: list[int]) -> go.Figure:
    """One column for each model.

    Args:
        models: what `measured` gave.
        anchors: of their task.
    """
    figure = make_subplots(rows=2, cols=len(models), horizontal_spacing=0.035, vertical_spacing=0.09)
    for column, (behaviour, masked) in enumerate(models, start=1):
        _pairs(figure, column, behaviour, anchors)
        _points(figure, column, masked)
        domain = figure.layout[f"xaxis{column if column > 1 else ''}"].domain
        figure.add_annotation(
            text=heading(behaviour.phase, behaviour), x=sum(domain) / 2, y=1.025, xref="paper",
            yref="paper", xanchor="center", yanchor="bottom", showarrow=False, align="center",
            font={"size": 14},
        )  # fmt: skip
    rows = {
        0.7725: "<b>accuracy by pair</b><br>first anchor",
        0.2275: "<b>answers, key token masked</b><br>t-SNE",
    }
    for y, text in rows.items():
        figure.add_annotation(
            text=text, x=0, xshift=-25, y=y, xref="paper", yref="paper", xanchor="right", yanchor="middle",
            textangle=-90, showarrow=False, font={"size": 14},
        )  # fmt: skip
    plots.styled(figure, "", width=WIDTH, height=HEIGHT)
    return figure.update_layout(showlegend=False, margin={"l": 80, "r": 10, "t": 110, "b": 10})


def _pairs(figure: go.Figure, column: int, behaviour: AnchorEvaluation, anchors: list[int]) -> None:
    """Accuracies of the pairs in a square, those never seen boxed."""
    by_pair = {pair.pair: pair for pair in behaviour.pairs}
    values = [[by_pair[first, second].accuracy.value for second in anchors] for first in anchors]
    names = [str(anchor) for anchor in anchors]
    texts = [[f"{value:.2f}" for value in row] for row in values]
    figure.add_heatmap(
        z=values, x=names, y=names, text=texts, texttemplate="%{text}", textfont={"size": 14},
        showscale=False, xgap=2, ygap=2, row=1, col=column, **plots.SHARE,
    )  # fmt: skip
    for (first, second), pair in by_pair.items():
        if pair.split == "ood":
            y, x = anchors.index(first), anchors.index(second)
            figure.add_shape(
                type="rect", x0=x - 0.5, x1=x + 0.5, y0=y - 0.5, y1=y + 0.5, row=1, col=column,
                line={"color": plots.ORANGE, "width": 4}, fillcolor="rgba(0,0,0,0)", opacity=1,
            )  # fmt: skip
    figure.update_yaxes(autorange="reversed", ticks="", showline=False, row=1, col=column)
    figure.update_xaxes(
        ticks="", showline=False, title={"text": "second anchor", "standoff": 2}, row=1, col=column
    )


def _points(figure: go.Figure, column: int, masked: MaskKeyToken) -> None:
    """The t-SNE, a pair and its mirror in one colour, the mirror as open circles."""
    assert masked.points is not None
    for label in np.unique(masked.labels):
        chosen = masked.points[masked.labels == label]
        figure.add_scatter(
            x=chosen[:, 0], y=chosen[:, 1], mode="markers", row=2, col=column,
            marker={
                "size": 6,
                "color": COLOURS[label // 2 % len(COLOURS)],
                "symbol": "circle-open" if label % 2 else "circle",
            },
        )  # fmt: skip
    hidden = {"showticklabels": False, "ticks": "", "showline": True, "mirror": True, "linecolor": "#BBB"}
    figure.update_xaxes(**hidden, row=2, col=column)
    figure.update_yaxes(**hidden, row=2, col=column)


def main() -> None:
    """Read the command line, measure the shipped models, draw."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--out", type=Path, default=Path("runs/four_phases.html"), help=".html, .png or .svg")
    out = parser.parse_args().out
    checkpoints = [load_checkpoint(path) for path in shipped()]
    out.parent.mkdir(parents=True, exist_ok=True)
    plots.save(draw([measured(c) for c in checkpoints], list(checkpoints[0].task.anchors)), out)
    print(f"the picture is in {out}")


if __name__ == "__main__":
    main()
