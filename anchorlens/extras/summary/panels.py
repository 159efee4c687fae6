"""The panels of a summary: each function draws one result into matplotlib axes, like its plotly picture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from plotly.colors import sample_colorscale

from anchorlens.plots import BLUE, CATEGORIES, COSINE, EFFECT, NO_EFFECT, ORANGE, SHARE, pair_styles
from anchorlens.probes import ARROWS, MOST_WRITTEN, drawn_edges
from anchorlens.show import MOST_ANCHORS, pair_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from anchorlens.probes import EmbeddingPCA, InformationFlow, MaskKeyToken, QCondensation, VSimilarity
    from anchorlens.tasks import Evaluation

SMALL = 6.5
"""The font size of the text within a panel, in points."""
MOST_BARS = 24
MOST_CELLS = 4_096
"""The largest number of cells of a heatmap drawn as vector shapes; larger heatmaps are raster images."""


def answers(axes: Axes, behaviour: Evaluation) -> str:
    """Draw the accuracy on every anchor pair and box unseen pairs, or draw every metric of another task.

    Returns:
        A line that explains the panel.
    """
    if anchors := pair_rows(behaviour, MOST_ANCHORS):
        pairs = list(anchors.values())
        values = np.array([[pair.accuracy.value if pair else np.nan for pair in row] for row in pairs])
        places = np.ndindex(values.shape)
        unseen = [(i, j) for i, j in places if (pair := pairs[i][j]) and pair.split == "ood"]
        _matrix(axes, values, SHARE, unseen, ORANGE)
        for (row, column), value in np.ndenumerate(values):
            text = "" if np.isnan(value) else f"{value:.2f}"
            colour = "white" if value > 0.55 else "black"
            axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=SMALL)
        _ticks(axes, list(map(str, anchors)), "second anchor", "first anchor")
        return "Accuracy; " + ("unseen pairs are boxed." if unseen else "every pair is trained.")
    rows = {title: value for title, value, _ in behaviour.rows()}
    shares = {title: value for title, value in rows.items() if 0 <= value.value <= 1}
    shown = list(shares)[:MOST_BARS]
    errors = [shares[title].standard_error for title in shown]
    axes.barh(shown, [shares[title].value for title in shown], xerr=errors, color=BLUE, height=0.7)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    left = [f"{title} {value}" for title, value in rows.items() if title not in shown]
    return "; ".join(["The measured accuracies, with standard errors", *left]) + "."


def information_flow(axes: Axes, result: InformationFlow) -> None:
    """Draw layers as rows of tokens, with attention as line width and the lost margin as line colour."""
    attention, fractions, _ = result.edges()
    n_layers, n_pos = attention.shape[:2]
    known = fractions is not None
    lost = np.zeros_like(attention) if fractions is None else fractions
    colours = _colours(EFFECT)
    for layer, query, key in drawn_edges(attention, lost):
        share = lost[layer, query, key]
        axes.plot(
            [key, query],
            [layer, layer + 1],
            color=colours((share + 1) / 2) if known else NO_EFFECT,
            linewidth=0.4 + 3 * attention[layer, query, key],
            alpha=0.95 if abs(share) > 0.1 or not known else 0.55,
            zorder=1,
        )
    key = result.key_position
    for position, token in enumerate(result.tokens):
        is_anchor = key < position <= key + result.chain_length
        colour = ORANGE if position == key else BLUE if is_anchor else "#E8E8E8"
        ink = "white" if position == key or is_anchor else "black"
        size = min(1.0, 12 / n_pos)
        axes.scatter(
            [position] * (n_layers + 1), range(n_layers + 1), s=130 * size**2, color=colour, zorder=2
        )
        for row in range(n_layers + 1):
            axes.text(position, row, str(token), ha="center", va="center", color=ink, fontsize=SMALL * size)
    answer = f"answer {result.answer}" + ("" if result.answer == result.target else f" (not {result.target})")
    axes.text(n_pos - 0.6, n_layers + 0.28, answer, ha="right", fontsize=SMALL, fontweight="bold")
    axes.set(xlim=(-0.6, n_pos - 0.4), ylim=(-0.35, n_layers + 0.6), xticks=[])
    axes.set_yticks(range(n_layers + 1), ["tokens", *(f"after layer {layer}" for layer in range(n_layers))])
    axes.set_xlabel("width: attention; orange: the key, blue: the anchors")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    if known:
        _bar(axes, EFFECT, "margin lost without the edge")


def v_similarity(axes: Axes, result: VSimilarity) -> None:
    """Draw the centred V cosines of the first pair of anchors, and box the cells with equal g(x; a)."""
    if not len(result.pairs):
        axes.set_axis_off()
        return
    first, second = result.pairs[0].tolist()
    rows, columns = (result.results[result.anchors.tolist().index(anchor)] for anchor in (first, second))
    _matrix(axes, result.centred_cosines[0], COSINE, np.argwhere(rows[:, None] == columns[None]))
    keys = [str(key) for key in result.keys]
    _ticks(axes, keys, f"key before anchor {second} (boxed: equal g)", f"key before anchor {first}")
    _bar(axes, COSINE, "cosine, centred")


def q_condensation(axes: Axes, result: QCondensation) -> None:
    """Draw the cosines between neurons of W_Q, with the neurons of each group next to each other."""
    _matrix(axes, result.cosines[np.ix_(result.order, result.order)], COSINE)
    axes.set(xlabel=f"neuron of W_Q, layer {result.layer}, grouped", ylabel="neuron")
    _bar(axes, COSINE, "cosine")


def embedding_pca(axes: Axes, result: EmbeddingPCA) -> None:
    """Draw token embeddings along the first two principal axes, with arrows for the two smallest steps."""
    points = result.coordinates / np.sqrt(result.spectrum.sum())
    for step, colour in zip(result.steps, ARROWS, strict=False):
        ends = points[step:] - points[:-step]
        arrows = {"angles": "xy", "scale_units": "xy", "scale": 1, "width": 0.002, "headwidth": 6}
        axes.quiver(*points[:-step].T, *ends.T, color=colour, alpha=0.3, zorder=1, **arrows)
    written = len(points) <= MOST_WRITTEN // 5
    axes.scatter(*points.T, s=0 if written else 3, color=BLUE)
    for (x, y), token in zip(points if written else [], result.tokens, strict=False):
        axes.text(x, y, str(token), ha="center", va="center", color=BLUE, fontsize=5)
    colours = zip(result.steps, ("orange", "green"), strict=False)
    arrows = ", ".join(f"+{step} {colour}" for step, colour in colours)
    axes.set_xlabel(f"first axis ({result.explained[0]:.0%})" + (f"; arrows {arrows}" if arrows else ""))
    axes.set_ylabel(f"second axis ({result.explained[1]:.0%})")
    axes.margins(0.08)


def mask_key_token(axes: Axes, result: MaskKeyToken) -> None:
    """Draw the t-SNE of the answers, with each reversed pair as open diamonds in the colour of its pair."""
    assert result.points is not None
    for label, (name, colour, mirror, turn) in enumerate(pair_styles(result.pairs.tolist())):
        axes.scatter(
            *result.points[result.labels == label].T,
            s=9 if mirror else 8,
            marker=("D" if mirror else "o") if turn == 0 else "s",
            facecolor="none" if mirror else colour,
            edgecolor=colour,
            linewidth=0.7 if mirror else 0,
            label=name,
        )
    if len(result.pairs) <= 2 * len(CATEGORIES):
        legend = {"fontsize": SMALL, "frameon": False, "handletextpad": 0.1, "labelspacing": 0.25}
        axes.legend(
            title="anchors", title_fontsize=SMALL, loc="upper left", bbox_to_anchor=(1.01, 1.03), **legend
        )
    axes.set(xlabel="t-SNE 1", ylabel="t-SNE 2", xticks=[], yticks=[])


PANELS: Mapping[str, tuple[str, Callable[[Axes, Any], None]]] = {
    "information_flow": ("Information flow", information_flow),
    "mask_key_token": ("t-SNE of the answers without the key", mask_key_token),
    "v_similarity": ("Values at the first anchor", v_similarity),
    "q_condensation": ("Condensation of W_Q", q_condensation),
    "embedding_pca": ("PCA of the embedding", embedding_pca),
}
"""A map from each probe to the title and the function of its panel; in page order, after the answers."""


def _matrix(
    axes: Axes, values: np.ndarray, scale: Mapping[str, Any], boxed: Iterable[Any] = (), line: str = "black"
) -> None:
    """Draw a heatmap with its first row on top, cells sharp at any size, and some boxed cells."""
    from matplotlib.patches import Rectangle

    n_rows, n_columns = values.shape
    edges = np.arange(n_columns + 1) - 0.5, np.arange(n_rows + 1) - 0.5
    ends = {"vmin": scale["zmin"], "vmax": scale["zmax"]}
    shown = axes.pcolormesh(*edges, values, cmap=_colours(scale), **ends, linewidth=0.05, edgecolor="face")
    shown.set_rasterized(values.size > MOST_CELLS)
    for row, column in boxed:
        place = (column - 0.5, row - 0.5)
        axes.add_patch(Rectangle(place, 1, 1, fill=False, edgecolor=line, linewidth=1.2, clip_on=False))
    axes.invert_yaxis()
    axes.set_aspect("equal")


def _ticks(axes: Axes, names: Sequence[str], x: str, y: str) -> None:
    """Draw at most `MOST_ANCHORS` of the names along both axes, and their titles."""
    places = range(0, len(names), -(-len(names) // MOST_ANCHORS))
    axes.set_xticks(places, [names[k] for k in places])
    axes.set_yticks(places, [names[k] for k in places])
    axes.set(xlabel=x, ylabel=y)


def _bar(axes: Axes, scale: Mapping[str, Any], title: str) -> None:
    """Draw the colour bar at the right, for values from -1 to 1."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    colours = ScalarMappable(Normalize(-1, 1), _colours(scale))
    bar = axes.figure.colorbar(colours, ax=axes, fraction=0.04, pad=0.03, shrink=0.8, ticks=[-1, 0, 1])
    bar.set_label(title, fontsize=SMALL)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=SMALL, length=2)


def _colours(scale: Mapping[str, Any]) -> Any:
    """Convert a plotly colour scale to a matplotlib one."""
    from matplotlib.colors import ListedColormap

    return ListedColormap(sample_colorscale(scale["colorscale"], 512, colortype="tuple"))
