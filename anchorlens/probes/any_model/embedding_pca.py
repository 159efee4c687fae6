"""Principal components and spectrum of the token embedding: does it contain the order of the rules?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, Literal, TypeAlias

import numpy as np
import plotly.graph_objects as go
import torch
from jaxtyping import Float
from plotly.subplots import make_subplots

from anchorlens.models.annotations import HookedTransformer
from anchorlens.plots import BLUE, CATEGORIES, GREY, ORANGE, styled
from anchorlens.probes.shared.checks import check_model, two_anchor_task, whole_numbers
from anchorlens.probes.shared.contract import ProbeResult, probe_result, takes_any
from anchorlens.probes.shared.linalg import gaussian_stable_rank, lag_cosines, principal_components
from anchorlens.randomness import generator
from anchorlens.tasks.two_anchor.task import AnchorTask
from anchorlens.texts import safe_repr

TokenSet: TypeAlias = Literal["number tokens", "tokens of the task", "all tokens", "given tokens"]
_LEAST_LAGS = 13
N_ORDERS = 20
"""The number of random orders of the tokens over which `step_baselines` are averaged."""
ARROWS = (ORANGE, CATEGORIES[2])
"""The colours of the arrows of the two steps in the plot."""
MOST_WRITTEN = 1000
"""The largest number of tokens that the plot writes as text. Above this number, the plot draws points."""
TINIEST = 1e-300
"""The smallest divisor of a difference. A difference of length 0 has cosine 0 with all other differences."""


@probe_result
class EmbeddingPCA(ProbeResult):
    """The coordinates and the spectrum of token embeddings, and their mean cosine at each lag."""

    probe = "embedding_pca"
    readings = ("lag_order", "step_constancy", "rank_normalized")
    tokens: np.ndarray
    """[token] The ids of the tokens."""
    coordinates: np.ndarray
    """[token, 2] The coordinates along the first two principal axes."""
    explained: np.ndarray
    """[2] The proportion of the variance along these axes, from 0 to 1."""
    spectrum: np.ndarray
    """[min(token - 1, d_model)] The eigenvalues of the covariance, largest first."""
    rank_normalized: float
    """The stable rank of the centred embedding, divided by the stable rank of a Gaussian matrix of this
    shape. The stable rank is the sum of `spectrum` divided by its largest value. The ratio is about 1 at a
    random start, and near 0 if the tokens lie along few directions."""
    lags: np.ndarray
    """[lag] The distance k of two tokens in the list. For number tokens, the distance is their difference."""
    lag_cosines: np.ndarray
    """[lag] The mean cosine of the centred embeddings of tokens at distance k, from -1 to 1."""
    rule_lags: tuple[int, ...]
    """The differences of the single-anchor shifts, at which models that compose have larger cosines. The
    tuple is empty if an anchor is not a shift, and without a two-anchor task."""
    lag_order: float | None
    """The mean cosine over `rule_lags` minus the mean cosine over the other lags. The value is above 0 in
    models that compose, and `None` if one of the two sets of lags is empty."""
    steps: tuple[int, ...] = ()
    """The two smallest values of `rule_lags`, which are 3 and 4 in the papers. The plot draws these steps as
    arrows."""
    step_cosines: tuple[float, ...] = ()
    """The mean cosine of two differences e(x + k) - e(x) over x, for each k of `steps`, from -1 to 1. The
    value is 1 if all differences are parallel."""
    step_baselines: tuple[float, ...] = ()
    """The mean cosines with the tokens in random order, averaged over 20 orders. These cosines are slightly
    below 0, since some differences share a token."""
    step_constancy: float | None = None
    """The mean of `step_cosines` minus the mean of `step_baselines`. The value is above 0 if the differences
    are similar, and `None` without steps."""
    token_set: TokenSet = "number tokens"
    """The description of the measured tokens, such as the number tokens of a two-anchor task."""

    def headline(self) -> str:
        """Return `lag_order` and the proportion of the variance along the first two axes as text."""
        order = "no order score" if self.lag_order is None else f"lag order {self.lag_order:+.3f}"
        which = "" if self.token_set == "number tokens" else f" of {self._which}"
        return f"{order}, {self.explained.sum():.0%} of the variance{which} in two dimensions"

    @property
    def _which(self) -> str:
        n = len(self.tokens)
        number = f"all {n:,}" if self.token_set != "given tokens" else f"{n:,}"
        return f"{number} {self.token_set.removeprefix('all ')}"

    def plot(self) -> go.Figure:
        """Plot the tokens as points, the spectrum of the embedding, and the mean cosine against the lag."""
        title = "Embedding of the numbers (orange: differences of the shifts)"
        if self.token_set != "number tokens":
            title = f"Embedding of {self._which}"
        points = self.coordinates / np.sqrt(self.spectrum.sum())  # comparable between different gamma
        named = zip(self.steps, ("orange", "green"), strict=False)
        arrows = ", ".join(f"+{step} {colour}" for step, colour in named)
        figure = make_subplots(
            rows=2,
            cols=2,
            specs=[[{"rowspan": 2}, {}], [None, {}]],
            column_widths=[0.62, 0.38],
            horizontal_spacing=0.24,
            vertical_spacing=0.34,
            subplot_titles=(f"arrows {arrows}" if arrows else self.token_set, "covariance", "order"),
        )
        for step, colour in zip(self.steps, ARROWS, strict=False):
            figure.add_scatter(**_arrows(points, step, colour), row=1, col=1)
        figure.add_scatter(
            x=points[:, 0],
            y=points[:, 1],
            mode="text" if len(self.tokens) <= MOST_WRITTEN else "markers",
            text=[str(token) for token in self.tokens],
            textfont={"size": 10, "color": BLUE},
            marker={"size": 3, "color": BLUE},
            row=1,
            col=1,
        )
        figure.update_xaxes(title=f"first axis ({self.explained[0]:.0%})", row=1, col=1)
        figure.update_yaxes(title=f"second axis ({self.explained[1]:.0%})", row=1, col=1)
        ranks, variance = np.arange(1, len(self.spectrum) + 1), self.spectrum / self.spectrum.sum()
        figure.add_scatter(x=ranks, y=variance, line={"color": BLUE}, row=1, col=2)
        figure.update_xaxes(title="rank", row=1, col=2)
        figure.update_yaxes(title="variance", type="log", exponentformat="power", nticks=4, row=1, col=2)
        colors = [ORANGE if lag in self.rule_lags else GREY for lag in self.lags]
        figure.add_bar(x=self.lags, y=self.lag_cosines, marker_color=colors, row=2, col=2)
        figure.update_xaxes(title="difference of two tokens", dtick=4, tickangle=0, row=2, col=2)
        figure.update_yaxes(title="mean cosine", row=2, col=2)
        figure.update_layout(showlegend=False)
        figure.update_annotations(font_size=12)  # the subplots' titles
        return styled(figure, title)


def rule_lags(task: AnchorTask) -> tuple[int, ...]:
    """Return the differences between the shifts of any two anchors, in ascending order.

    The result is empty if the function of an anchor is not a shift.

    >>> rule_lags(AnchorTask())
    (3, 4, 6, 7, 9, 13)
    """
    shifts = [f for f in task.anchors.values() if isinstance(f, int)]
    if len(shifts) < len(task.anchors):
        return ()
    return tuple(sorted({abs(a - b) for a, b in combinations(shifts, 2)} - {0}))


@takes_any()
def embedding_pca(
    model: HookedTransformer, task: AnchorTask | None = None, *, tokens: Sequence[int] | None = None
) -> EmbeddingPCA:
    """Measure the geometry of the token embeddings, and its relation to the shifts of a two-anchor task.

    Limitations: The probe does not show routes or answers, since the probe uses only the embedding. One-hot
    embeddings have no order even if the model composes.

    Args:
        model: a HookedTransformer with the measured tokens in its vocabulary. The probe does not change the
            model.
        task: the task, which defines the number tokens (its keys) and the single-anchor functions. For a task
            that is not a two-anchor task, the probe uses the tokens below the `d_vocab` of the task. Without
            a task, the probe uses all tokens. Without a two-anchor task, `lag_order` is `None`.
        tokens: the ids of at least three different tokens, which replace the tokens of the task. The order of
            the ids defines the lags. With your own tokens, `lag_order` is `None` unless the ids are
            consecutive ascending integers.

    Returns:
        The coordinates, the explained variance, the spectrum, and the mean cosine of two embeddings at each
        lag k. The lags go from 1 to 13, or further if two shifts differ by more than 13. In models that
        compose, the mean cosine is larger at the differences of the shifts than at other lags, so `lag_order`
        is above 0. `step_constancy` is above 0 if the differences e(x + k) - e(x) of embeddings are similar
        for all tokens x. The steps k are the two smallest differences of the shifts. The plot draws e(x + k)
        - e(x) as arrows. The papers show parallel arrows in models that compose.

    Raises:
        ValueError: If the vocabulary is too small for the tokens.
        ValueError: If you give fewer than three tokens.
        ValueError: If the embeddings are all equal.
        ValueError: If an embedding is not finite.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> embedding_pca(build_model(ModelConfig(gamma=0.5)), AnchorTask())
        EmbeddingPCA(lag order +0.004, 8% of the variance in two dimensions)
        >>> embedding_pca(build_model(ModelConfig(gamma=0.5)))
        EmbeddingPCA(no order score, 5% of the variance of all 201 tokens in two dimensions)

    Source: The papers arXiv 2405.05409 and 2501.08537 show the embedding space, with arrows for the steps 3
    and 4. The appendix of arXiv 2405.05409 shows the covariance spectrum. The readings `lag_order` and
    `step_constancy` are ours.
    """
    check_model(model)
    n_used = getattr(task, "d_vocab", 0)
    task = two_anchor_task(task)
    chosen, token_set = _tokens(model, task, n_used, tokens)
    rows = model.W_E.detach()[torch.as_tensor(chosen, device=model.W_E.device)]
    if rows.shape[1] < 2 or (rows == rows[0]).all():
        raise ValueError(
            f"the embeddings of the {token_set} must differ and have at least 2 dimensions, got "
            f"{'equal embeddings' if rows.shape[1] > 1 else 'd_model 1'}. Use a trained model"
        )
    coordinates, spectrum = principal_components(rows, 2)
    rules = rule_lags(task) if task is not None and (np.diff(chosen) == 1).all() else ()
    lags = range(1, min(len(chosen) - 1, max(_LEAST_LAGS, *rules, 0)) + 1)
    cosines = lag_cosines(rows, lags).cpu().numpy()
    variance = spectrum.cpu().numpy()
    embedded = rows.double().cpu().numpy()
    alike = tuple(step_cosine(embedded, step) for step in rules[:2])
    baselines = tuple(_in_random_order(embedded, step) for step in rules[:2])
    return EmbeddingPCA(
        tokens=chosen,
        coordinates=coordinates.cpu().numpy(),
        explained=variance[:2] / variance.sum(),
        spectrum=variance,
        rank_normalized=float(variance.sum() / variance[0]) / gaussian_stable_rank(*rows.shape),
        lags=np.array(lags),
        lag_cosines=cosines,
        rule_lags=rules,
        lag_order=_order(lags, cosines, rules),
        steps=rules[:2],
        step_cosines=alike,
        step_baselines=baselines,
        step_constancy=float(np.mean(alike) - np.mean(baselines)) if alike else None,
        token_set=token_set,
    )


def _tokens(
    model: HookedTransformer, task: AnchorTask | None, n_used: int, chosen: Sequence[int] | None
) -> tuple[np.ndarray, TokenSet]:
    """Return the measured tokens and their description.

    The argument `n_used` is the size of the vocabulary of a task of another kind.

    Raises:
        ValueError: If the model lacks a token, or there are too few tokens.
    """
    d_vocab, token_set = model.cfg.d_vocab, "all tokens"
    tokens = np.arange(d_vocab)
    if chosen is not None:
        tokens, token_set = np.array(whole_numbers("tokens", chosen)), "given tokens"
    elif task is not None:
        tokens, token_set = task.keys.copy(), "number tokens"
    elif 3 <= n_used < d_vocab:
        tokens, token_set = tokens[:n_used], "tokens of the task"
    if len(np.unique(tokens)) < max(3, len(tokens)) or tokens.min() < 0 or tokens.max() >= d_vocab:
        raise ValueError(
            f"the {token_set} must be at least 3 different tokens below d_vocab {d_vocab} of the model, got "
            f"{safe_repr(tokens.tolist())}. Give other tokens, or the task of the model"
        )
    return tokens, token_set


def step_cosine(rows: Float[np.ndarray, "row feature"], step: int) -> float:
    """Return the mean cosine between two of the differences `rows[i + step] - rows[i]`, from -1 to 1.

    The mean is NaN if there are fewer than two differences.

    >>> line = np.array([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [2.0, 1.0]])
    >>> round(step_cosine(line, 1), 2)  # right, right, up: one pair of three is parallel
    0.33
    """
    differences = rows[step:] - rows[:-step]
    units = differences / np.maximum(np.linalg.norm(differences, axis=1, keepdims=True), TINIEST)
    n = len(units)
    if n < 2:
        return float("nan")
    return float((np.square(units.sum(axis=0)).sum() - np.square(units).sum()) / (n * (n - 1)))


def _arrows(points: Float[np.ndarray, "token 2"], step: int, colour: str) -> dict[str, Any]:
    """Return a trace with an arrow from every token to the token that is `step` later."""
    gap = np.full_like(points[step:], np.nan)
    ends = np.stack([points[:-step], points[step:], gap], axis=1).reshape(-1, 2)
    marker = {"symbol": "arrow", "angleref": "previous", "size": np.tile([0, 7, 0], len(gap)), "opacity": 0.6}
    marker["color"] = colour
    line = {"mode": "lines+markers", "opacity": 0.35, "line": {"width": 1, "color": colour}}
    return {"x": ends[:, 0], "y": ends[:, 1], "marker": marker, "hoverinfo": "skip", **line}


def _in_random_order(rows: Float[np.ndarray, "row feature"], step: int) -> float:
    """Return the mean of `step_cosine` over random orders of the rows, which is the baseline of the value."""
    rng = generator(0, "probe")
    return float(np.mean([step_cosine(rng.permutation(rows), step) for _ in range(N_ORDERS)]))


def _order(lags: Sequence[int], cosines: np.ndarray, rules: Sequence[int]) -> float | None:
    at_rules = np.isin(lags, rules)
    if at_rules.all() or not at_rules.any():
        return None
    return float(cosines[at_rules].mean() - cosines[~at_rules].mean())
