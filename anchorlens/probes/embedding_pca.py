"""Principal components of the number tokens' embedding, its spectrum, and the order it carries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from anchorlens.configuration import documented
from anchorlens.figures import BLUE, GREY, ORANGE, styled
from anchorlens.probes.result import ProbeResult
from anchorlens.probes.shared.checks import check_model, check_task
from anchorlens.probes.shared.linalg import lag_cosines, principal_components
from anchorlens.tasks.two_anchor.task import AnchorTask

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from transformer_lens import HookedTransformer

_LEAST_LAGS = 13


@documented
@dataclass(frozen=True, eq=False, repr=False)
class EmbeddingPCA(ProbeResult):
    """Where the number tokens lie, in how many dimensions, and whether neighbours by the rules are near."""

    probe: ClassVar[str] = "embedding_pca"
    readings: ClassVar[tuple[str, ...]] = ("lag_order",)
    tokens: np.ndarray
    """[token] The number tokens."""
    coordinates: np.ndarray
    """[token, 2] Along the first two principal axes."""
    explained: np.ndarray
    """[2] Share of the variance along them, 0..1."""
    spectrum: np.ndarray
    """[min(token - 1, d_model)] Eigenvalues of the covariance, largest first."""
    lags: np.ndarray
    """[lag] k, the difference of two tokens."""
    lag_cosines: np.ndarray
    """[lag] Mean cosine of the centred embeddings of tokens that differ by k, -1..1."""
    rule_lags: tuple[int, ...]
    """Differences of the single-anchor shifts: where composing models have raised cosines. Empty where
    an anchor is no shift."""
    lag_order: float | None
    """Mean over `rule_lags` minus mean over the other lags; above 0 in models that compose. None where
    there is no such lag or no other."""

    def headline(self) -> str:
        """The order score, or the share of the first two axes."""
        order = "no order score" if self.lag_order is None else f"lag order {self.lag_order:+.3f}"
        return f"{order}, {self.explained.sum():.0%} of the variance in two dimensions"

    def plot(self) -> go.Figure:
        """Tokens at their points, the spectrum, and the cosine over the lag."""
        from plotly.subplots import make_subplots

        titles = ("number tokens, in units of their spread", "covariance", "order")
        spread = np.sqrt(self.spectrum.sum())  # so that pictures of different gamma compare
        figure = make_subplots(
            rows=2,
            cols=2,
            specs=[[{"colspan": 2}, None], [{}, {}]],
            row_heights=[0.6, 0.4],
            horizontal_spacing=0.2,
            vertical_spacing=0.16,
            subplot_titles=titles,
        )
        figure.add_scatter(
            x=self.coordinates[:, 0] / spread,
            y=self.coordinates[:, 1] / spread,
            mode="text",
            text=[str(token) for token in self.tokens],
            textfont={"size": 10, "color": BLUE},
            row=1,
            col=1,
        )
        figure.update_xaxes(title=f"first axis ({self.explained[0]:.0%})", row=1, col=1)
        figure.update_yaxes(title=f"second axis ({self.explained[1]:.0%})", row=1, col=1)
        figure.add_scatter(
            x=np.arange(1, len(self.spectrum) + 1),
            y=self.spectrum / self.spectrum.sum(),
            line={"color": BLUE},
            row=2,
            col=1,
        )
        figure.update_xaxes(title="rank", row=2, col=1)
        figure.update_yaxes(title="share of variance", type="log", exponentformat="power", row=2, col=1)
        colors = [ORANGE if lag in self.rule_lags else GREY for lag in self.lags]
        figure.add_bar(x=self.lags, y=self.lag_cosines, marker_color=colors, row=2, col=2)
        figure.update_xaxes(title="difference of two tokens", dtick=2, row=2, col=2)
        figure.update_yaxes(title="mean cosine", row=2, col=2)
        figure.update_layout(showlegend=False)
        figure.update_annotations(font_size=12)  # the subplots' titles
        return styled(figure, "Embedding of the numbers (orange: differences of the shifts)", height=680)


def rule_lags(task: AnchorTask) -> tuple[int, ...]:
    """Differences of the single-anchor shifts, ascending; empty where an anchor is no shift.

    >>> rule_lags(AnchorTask())
    (3, 4, 6, 7, 9, 13)
    """
    shifts = [f for f in task.anchors.values() if isinstance(f, int)]
    if len(shifts) < len(task.anchors):
        return ()
    return tuple(sorted({abs(a - b) for a, b in combinations(shifts, 2)} - {0}))


def embedding_pca(model: HookedTransformer, task: AnchorTask) -> EmbeddingPCA:
    """Measure where the number tokens' embeddings lie and whether they carry the order of the rules.

    Args:
        model: any HookedTransformer with the task's tokens in its vocabulary; it is only read.
        task: gives the number tokens (its keys) and the single-anchor functions.

    Returns:
        Coordinates, explained variance, spectrum, and the mean cosine of tokens that differ by
        k = 1..13 (or further, where two shifts differ by more): in models that compose it is raised at
        the differences of the shifts, and `lag_order` is above 0.

    Raises:
        ValueError: a vocabulary too small for the task, fewer than three number tokens, or embeddings
            that are all the same or not finite.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> embedding_pca(build_model(ModelConfig(gamma=0.5)), AnchorTask())
        EmbeddingPCA(lag order +0.004, 8% of the variance in two dimensions)

    Source: embedding space of arXiv 2501.08537; covariance spectrum of arXiv 2405.05409, appendix.
    """
    check_model(model)
    check_task(task)
    tokens = np.asarray(task.keys)
    if model.cfg.d_vocab <= tokens.max():
        raise ValueError(
            f"the model must have the number tokens up to {tokens.max()} in its vocabulary, "
            f"got d_vocab {model.cfg.d_vocab}; is it of this task?"
        )
    if len(tokens) < 3:
        raise ValueError(
            f"the task must have at least 3 number tokens, got {len(tokens)}; widen its key range"
        )
    rows = model.W_E.detach()[torch.as_tensor(tokens, device=model.W_E.device)]
    if rows.shape[1] < 2 or (rows == rows[0]).all():
        raise ValueError(
            "the number tokens' embeddings must differ, in 2 dimensions or more, got "
            f"{'one' if rows.shape[1] > 1 else 'd_model 1'} for all; is it trained?"
        )
    coordinates, spectrum = principal_components(rows, 2)
    rules = rule_lags(task)
    lags = range(1, min(len(tokens) - 1, max(_LEAST_LAGS, *rules, 0)) + 1)
    cosines = lag_cosines(rows, lags).cpu().numpy()
    variance = spectrum.cpu().numpy()
    return EmbeddingPCA(
        tokens=tokens.copy(),
        coordinates=coordinates.cpu().numpy(),
        explained=variance[:2] / variance.sum(),
        spectrum=variance,
        lags=np.array(lags),
        lag_cosines=cosines,
        rule_lags=rules,
        lag_order=_order(lags, cosines, rules),
    )


def _order(lags: Sequence[int], cosines: np.ndarray, rules: Sequence[int]) -> float | None:
    at_rules = np.isin(lags, rules)
    if at_rules.all() or not at_rules.any():
        return None
    return float(cosines[at_rules].mean() - cosines[~at_rules].mean())
