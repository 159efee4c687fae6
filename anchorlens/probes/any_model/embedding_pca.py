"""Principal components and spectrum of the token embedding, and whether it carries the order of the rules."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Float

from anchorlens.probes.plots.embedding import embedding_picture
from anchorlens.probes.shared.calling import takes_any
from anchorlens.probes.shared.checks import check_model, two_anchor_task, whole_numbers
from anchorlens.probes.shared.linalg import gaussian_stable_rank, lag_cosines, principal_components
from anchorlens.probes.shared.result import ProbeResult, probe_result
from anchorlens.randomness import generator
from anchorlens.tasks.two_anchor.task import AnchorTask
from anchorlens.texts import safe_repr

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from anchorlens.models.library import HookedTransformer

TokenSet: TypeAlias = Literal["number tokens", "tokens of the task", "all tokens", "given tokens"]
_LEAST_LAGS = 13
N_ORDERS = 20
"""Number of random orders of the tokens over which `step_baselines` are averaged."""
TINIEST = 1e-300
"""Smallest length by which a difference is divided; a difference of length 0 has cosine 0 with all others."""


@probe_result
class EmbeddingPCA(ProbeResult):
    """Where tokens lie, in how many dimensions, and whether tokens that the rules relate are near."""

    probe: ClassVar[str] = "embedding_pca"
    readings: ClassVar[tuple[str, ...]] = ("lag_order", "step_constancy", "rank_normalized")
    tokens: np.ndarray
    """[token] Ids of the tokens."""
    coordinates: np.ndarray
    """[token, 2] Coordinates along the first two principal axes."""
    explained: np.ndarray
    """[2] Share of the variance along these axes, 0..1."""
    spectrum: np.ndarray
    """[min(token - 1, d_model)] Eigenvalues of the covariance, largest first."""
    rank_normalized: float
    """Stable rank of the centred embedding (sum of `spectrum` divided by its largest value), divided by that
    of a Gaussian of this shape: about 1 at a random start, near 0 if the tokens lie along few directions."""
    lags: np.ndarray
    """[lag] k, the distance of two tokens in the list; for number tokens, their difference."""
    lag_cosines: np.ndarray
    """[lag] Mean cosine of the centred embeddings of tokens k apart, -1..1."""
    rule_lags: tuple[int, ...]
    """Differences of the single-anchor shifts; models that compose have raised cosines there. Empty where
    an anchor is not a shift, and without a two-anchor task."""
    lag_order: float | None
    """Mean cosine over `rule_lags` minus the mean over the other lags; above 0 in models that compose. None
    where one of the two sets is empty."""
    steps: tuple[int, ...] = ()
    """The two smallest of `rule_lags`, 3 and 4 in the papers; the picture draws them as arrows."""
    step_cosines: tuple[float, ...] = ()
    """For each k of `steps`, how constant e(x + k) - e(x) is over x: the mean cosine of two such differences,
    -1..1; 1 = all differences are parallel."""
    step_baselines: tuple[float, ...] = ()
    """The same with the tokens in random order, mean over 20 orders: a little below 0, since some differences
    share a token."""
    step_constancy: float | None = None
    """Mean of `step_cosines` minus mean of `step_baselines`; above 0 where the differences are similar. None
    without steps."""
    token_set: TokenSet = "number tokens"
    """Which tokens were taken: the number tokens of a two-anchor task, those that another task uses, all
    tokens of the vocabulary (without a task), or the given ones."""

    def headline(self) -> str:
        """The order score, and the share of the variance along the first two axes."""
        order = "no order score" if self.lag_order is None else f"lag order {self.lag_order:+.3f}"
        which = "" if self.token_set == "number tokens" else f" of {self._which}"
        return f"{order}, {self.explained.sum():.0%} of the variance{which} in two dimensions"

    @property
    def _which(self) -> str:
        n = len(self.tokens)
        number = f"all {n:,}" if self.token_set != "given tokens" else f"{n:,}"
        return f"{number} {self.token_set.removeprefix('all ')}"

    def plot(self) -> go.Figure:
        """The tokens as points, the spectrum, and the cosine against the lag."""
        title = "Embedding of the numbers (orange: differences of the shifts)"
        if self.token_set != "number tokens":
            title = f"Embedding of {self._which}"
        return embedding_picture(
            self.tokens,
            self.coordinates / np.sqrt(self.spectrum.sum()),  # makes pictures of different gamma comparable
            self.explained,
            self.spectrum,
            self.lags,
            self.lag_cosines,
            marked=self.rule_lags,
            steps=self.steps,
            token_set=self.token_set,
            title=title,
        )


def rule_lags(task: AnchorTask) -> tuple[int, ...]:
    """Differences of the single-anchor shifts, ascending; empty where an anchor is not a shift.

    >>> rule_lags(AnchorTask())
    (3, 4, 6, 7, 9, 13)
    """
    shifts = [f for f in task.anchors.values() if isinstance(f, int)]
    if len(shifts) < len(task.anchors):
        return ()
    return tuple(sorted({abs(a - b) for a, b in combinations(shifts, 2)} - {0}))


@takes_any
def embedding_pca(
    model: HookedTransformer, task: AnchorTask | None = None, *, tokens: Sequence[int] | None = None
) -> EmbeddingPCA:
    """Measure where token embeddings lie and, in a two-anchor task, whether they carry the rules' order.

    Limitations: The probe does not show routes or answers, since it uses only the embedding. One-hot
    embeddings have no order even if the model composes.

    Args:
        model: any HookedTransformer with these tokens in its vocabulary; it is only read.
        task: gives the number tokens (its keys) and the single-anchor functions. With a task of another kind
            the tokens below its `d_vocab` are taken, without a task all tokens; there is then no order score.
        tokens: ids to take instead, three or more different ones; their order in the list defines the lags.
            They get an order score if they are consecutive ascending integers.

    Returns:
        Coordinates, explained variance, spectrum, and the mean cosine of tokens that differ by
        k = 1..13 (or further, if two shifts differ by more): in models that compose it is raised at the
        differences of the shifts, and `lag_order` is above 0. Also how constant the differences
        e(x + k) - e(x) are for the two smallest of those k, which the picture draws as arrows: the papers
        show parallel ones in models that compose.

    Raises:
        ValueError: a vocabulary too small for the tokens, fewer than three of them, or embeddings
            that are all equal or not finite.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> embedding_pca(build_model(ModelConfig(gamma=0.5)), AnchorTask())
        EmbeddingPCA(lag order +0.004, 8% of the variance in two dimensions)
        >>> embedding_pca(build_model(ModelConfig(gamma=0.5)))
        EmbeddingPCA(no order score, 5% of the variance of all 201 tokens in two dimensions)

    Source: embedding space of arXiv 2405.05409 and 2501.08537, with the arrows of 3 and 4; covariance
    spectrum of arXiv 2405.05409, appendix. The numbers of the order and of the steps are ours.
    """
    check_model(model)
    n_used = getattr(task, "d_vocab", 0)
    task = two_anchor_task(task)
    chosen, token_set = _tokens(model, task, n_used, tokens)
    rows = model.W_E.detach()[torch.as_tensor(chosen, device=model.W_E.device)]
    if rows.shape[1] < 2 or (rows == rows[0]).all():
        raise ValueError(
            f"the {token_set}' embeddings must differ, in 2 dimensions or more, got "
            f"{'one' if rows.shape[1] > 1 else 'd_model 1'} for all; is it trained?"
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
    """The tokens to take, and the name of this set; `n_used` is the vocabulary of a task of another kind.

    Raises:
        ValueError: the model lacks some of them, or there are too few.
    """
    d_vocab = model.cfg.d_vocab
    if chosen is not None:
        tokens = np.array(whole_numbers("tokens", chosen))
        if len(np.unique(tokens)) < max(3, len(tokens)) or tokens.min() < 0 or tokens.max() >= d_vocab:
            raise ValueError(
                f"tokens must be 3 or more different ones of the model's vocabulary, 0..{d_vocab - 1}, "
                f"got {safe_repr(chosen)}"
            )
        return tokens, "given tokens"
    if task is None:
        if d_vocab < 3:
            raise ValueError(f"the model must have at least 3 tokens, got d_vocab {d_vocab}")
        if 3 <= n_used < d_vocab:
            return np.arange(n_used), "tokens of the task"
        return np.arange(d_vocab), "all tokens"
    tokens = task.keys.copy()
    if d_vocab <= tokens.max():
        raise ValueError(
            f"the model must have the number tokens up to {tokens.max()} in its vocabulary, "
            f"got d_vocab {d_vocab}; is it of this task?"
        )
    if len(tokens) < 3:
        raise ValueError(
            f"the task must have at least 3 number tokens, got {len(tokens)}; widen its key range"
        )
    return tokens, "number tokens"


def step_cosine(rows: Float[np.ndarray, "row feature"], step: int) -> float:
    """Mean cosine of two different differences between rows `step` apart, -1..1; NaN for fewer than two.

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


def _in_random_order(rows: Float[np.ndarray, "row feature"], step: int) -> float:
    """The mean of `step_cosine` over random orders of the rows: the value to expect without any order."""
    rng = generator(0, "probe")
    return float(np.mean([step_cosine(rng.permutation(rows), step) for _ in range(N_ORDERS)]))


def _order(lags: Sequence[int], cosines: np.ndarray, rules: Sequence[int]) -> float | None:
    at_rules = np.isin(lags, rules)
    if at_rules.all() or not at_rules.any():
        return None
    return float(cosines[at_rules].mean() - cosines[~at_rules].mean())
