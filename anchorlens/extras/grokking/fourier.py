"""Fourier: the share of a model's answers that a few frequencies explain, and its circuit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from plotly.subplots import make_subplots
from torch import Tensor

from anchorlens.configuration import check_number
from anchorlens.extras.grokking import fourier_measures as measures
from anchorlens.models import EMBED, attached, device_of, evaluation_mode, last_logits
from anchorlens.plots import BLUE, GREY, ORANGE, figure_of, styled
from anchorlens.probes.shared import (
    ProbeResult,
    answered_with,
    check_model,
    differentiated,
    number,
    probe_result,
    takes_any,
    usable_state,
)
from anchorlens.randomness import generator
from anchorlens.show import CAPTIONS, captions_in
from anchorlens.tasks import Bars, check_capacity

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from anchorlens.extras.grokking.task import ModularTask
    from anchorlens.models import HookedTransformer

CAPTIONS.update(captions_in(Path(__file__).parent / "captions.toml"))

N_TRIPLES = 100
"""The number of triples (a, b, c) whose gradients are compared."""
AXES = {
    "add": ("a + b", "a − b"),
    "subtract": ("a − b", "a + b"),
    "multiply": ("log a + log b", "log a − log b"),
    "divide": ("log a − log b", "log a + log b"),
}
"""A map from each operation to the sum and the difference of two exponents, in words."""
SMALLEST_LOSS = 1e-16
"""The height of a bar whose loss is smaller: float64 has no smaller difference from a probability of 1."""


@probe_result
class Fourier(ProbeResult):
    """The frequencies in a model's logits over all pairs, with losses and readings of the circuit.

    For an operation that is not an addition of exponents, only `answer_share` and `loss` are defined.
    """

    probe = "fourier"
    readings = (
        "explained",
        "effective_number",
        "answer_share",
        "restricted_loss",
        "excluded_loss",
        "loss",
        "distance_irrelevance",
        "gradient_symmetry",
        "embedding_gini",
    )
    operation: str
    """The operation of the task."""
    n_pairs: int
    """The number of measured pairs: all pairs with an answer. Multiplication and division exclude 0."""
    explained: float | None
    """The fraction of the centred logits' variance that the key frequencies explain, 0..1. The fraction is 1
    in a model that computes with at most ten frequencies alone, and 0 without a key frequency, as in an
    untrained model. It is `None` if the logits do not vary."""
    effective_number: float | None
    """The effective number of frequencies, >= 1: 1 / sum of squares of `shares`, scaled to sum to 1."""
    answer_share: float | None
    """The fraction of the centred logits' variance between classes of pairs with equal answers, 0..1. The
    fraction is at least `explained`."""
    restricted_loss: float | None
    """The mean cross-entropy over the pairs of the key frequencies alone, in nats."""
    excluded_loss: float | None
    """The mean cross-entropy over the pairs of the logits without the key frequencies, in nats."""
    loss: float
    """The mean cross-entropy over the pairs, in nats, among the answers that the operation has."""
    distance_irrelevance: float | None
    """The independence of the correct answer's logit from the difference a - b, 0..1. The reading is 0 in an
    exact pizza and 1 in an exact clock. It is the standard deviation of the logit over sums, averaged over
    differences and divided by the standard deviation over all pairs."""
    gradient_symmetry: float | None
    """The mean cosine, -1..1, of the gradients of a logit with respect to the embeddings of a and of b, over
    random triples (a, b, c). The reading is 1 in an exact pizza, and `None` if the operation does not
    commute."""
    embedding_gini: float | None
    """The Gini coefficient of the embedding's power over frequencies, 0..1, near 1 for a few frequencies."""
    shares: np.ndarray | None
    """[frequency] The fraction of the centred logits' variance that frequency 1, 2, ... explains, 0..1."""
    key_frequencies: tuple[int, ...]
    """The frequencies that explain at least 0.01 of the variance, at most ten, the largest share first. For
    multiplication and division, the frequencies refer to exponents."""
    embedding_power: np.ndarray | None
    """[frequency] The squared length of the embedding's components at each frequency."""
    right_logits: np.ndarray | None
    """[difference, sum] The logit of the correct answer by the difference and the sum of the two exponents
    (for addition, of a and b). In a group of even order a column has two neighbouring sums."""
    seed: int
    """The seed of the triples."""

    def headline(self) -> str:
        """Name the key frequencies with their shares, the readings of the circuit, and the excluded loss."""
        if self.shares is None:
            share = "none" if self.answer_share is None else f"{self.answer_share:.2f}"
            return (
                f"{share} of the logits' variance lies between answers; {self.operation} has no frequencies "
                "here, so nothing else is measured"
            )
        if self.explained is None:
            return "the logits do not vary"
        symmetry = (
            "" if self.gradient_symmetry is None else f", gradient symmetry {self.gradient_symmetry:.2f}"
        )
        without_zero = " (pairs without 0)" if self.operation in ("multiply", "divide") else ""
        return (
            f"{self.in_short() or 'no key frequencies'}: {self.explained:.2f} of the logits' variance"
            f"{without_zero}; distance irrelevance {self.distance_irrelevance:.2f}{symmetry}; loss "
            f"{self.excluded_loss:.2g} without them"
        )

    def in_short(self) -> str:
        """Name the key frequencies with their shares, the largest share first."""
        if self.shares is None or not self.key_frequencies:
            return ""
        named = (f"{k} ({self.shares[k - 1]:.2f})" for k in self.key_frequencies)
        return f"frequenc{'y' if len(self.key_frequencies) == 1 else 'ies'} {', '.join(named)}"

    def plot(self) -> go.Figure:
        """Plot the fraction of variance by frequency, the three losses, and the correct answer's logit."""
        if self.shares is None or self.embedding_power is None or self.right_logits is None:
            share = self.answer_share or 0.0
            parts = {"between answers": share, "within an answer": 1 - share}
            title = "Variance of the logits between answers"
            return figure_of(Bars(title, "", x_title="share of the logits' variance", y=parts))
        figure = make_subplots(
            rows=2,
            cols=2,
            specs=[[{"colspan": 2}, None], [{}, {}]],
            subplot_titles=("", "loss", "logit of the right answer"),
            vertical_spacing=0.22,
            horizontal_spacing=0.2,
            row_heights=[0.42, 0.58],
            column_widths=[0.42, 0.58],
        )
        frequencies = np.arange(1, len(self.shares) + 1)
        is_key = np.isin(frequencies, self.key_frequencies)
        for name, colour, chosen in (("the key frequencies", BLUE, is_key), ("the others", GREY, ~is_key)):
            x, y = frequencies[chosen], self.shares[chosen]
            names = x if colour == BLUE else None
            figure.add_bar(x=x, y=y, text=names, marker_color=colour, name=name, width=0.8, row=1, col=1)
        figure.update_traces(textposition="outside", textangle=0, cliponaxis=False)
        power = self.embedding_power / max(self.embedding_power.sum(), np.finfo(float).tiny)
        line = {"color": ORANGE, "width": 1.5}
        figure.add_scatter(x=frequencies, y=power, mode="lines", line=line, name="embedding", row=1, col=1)
        losses = {"model": self.loss, "restricted": self.restricted_loss, "excluded": self.excluded_loss}
        _draw_losses(figure, {name: loss for name, loss in losses.items() if loss is not None})
        right = self.right_logits
        n, n_columns = right.shape
        figure.add_heatmap(
            z=right,
            x=np.arange(n_columns) * (n // n_columns),
            y=np.arange(n),
            zmin=min(right.min(), right.max() - 0.01 * abs(right.max())),  # rounding has no colours
            zmax=right.max(),
            colorscale="Blues",
            colorbar={"len": 0.5, "y": 0.22, "thickness": 12},
            row=2,
            col=2,
        )
        figure.update_xaxes(title="frequency", row=1, col=1)
        figure.update_yaxes(title="share", rangemode="tozero", row=1, col=1)
        of_sums, of_differences = AXES[self.operation]
        figure.update_xaxes(title=of_sums, row=2, col=2)
        figure.update_yaxes(title=of_differences, row=2, col=2)
        legend = {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}
        picture = styled(figure, "Frequencies in the answers", height=620)
        return picture.update_layout(barmode="overlay", legend=legend, margin_t=80)


def _draw_losses(figure: go.Figure, losses: Mapping[str, float]) -> None:
    """Draw a bar for each loss in nats, with a logarithmic axis."""
    heights = np.maximum([*losses.values()], SMALLEST_LOSS)
    powers = np.log10(heights)
    figure.add_bar(
        x=list(losses),
        y=heights,
        text=[f"{value:.2g}" for value in losses.values()],
        textposition="outside",
        marker_color=[GREY, BLUE, ORANGE],
        showlegend=False,
        row=2,
        col=1,
    )
    low, high = np.floor(powers.min() - 0.2), powers.max() + 0.08 * (powers.max() - powers.min() + 1) + 0.2
    figure.update_xaxes(tickangle=0, tickfont_size=10, row=2, col=1)
    figure.update_yaxes(
        title="nats",
        type="log",
        range=[low, high],
        dtick=float(np.ceil((high - low) / 6)),
        exponentformat="power",
        row=2,
        col=1,
    )


@takes_any(task_kind="modular")
def fourier(model: HookedTransformer, task: ModularTask, *, seed: int = 0) -> Fourier:
    """Measure the fraction of the variance of a model's logits that its key frequencies explain.

    The probe evaluates the model on every pair, and decomposes the logits at the last position. For
    multiplication and division modulo a prime, the probe replaces each number by its discrete logarithm. The
    logits are centred over pairs and over answers, because softmax ignores a constant that is added to all
    logits of a pair.

    A frequency is a *key frequency* if it explains at least 0.01 of the variance. There are at most ten,
    because even a lookup table of 30% of the pairs seems to generalise if the table is restricted to all its
    frequencies. Pizza and clock are the two circuits of arXiv 2306.17844. The pizza circuit has
    a distance irrelevance near 0 and a gradient symmetry near 1. The clock circuit has a distance irrelevance
    near 1 and a gradient symmetry near 0. Readings between 0.3 and 0.7 do not identify a circuit. A
    memorising model also has a distance irrelevance near 1. Distance irrelevance and gradient symmetry
    therefore identify a circuit only if `explained` is high.

    Limitations: The probe does not show which pairs were trained. The probe does not detect frequencies of an
    operation that is not an addition of exponents. For an operation that is not an addition of exponents, the
    probe measures only `answer_share` and `loss`.

    Args:
        model: any HookedTransformer with the task's tokens. The probe does not change the model.
        task: a ModularTask. The task gives the pairs, their format and their answers.
        seed: the seed of the triples whose gradients are compared.

    Returns:
        The fractions of variance, losses in nats, distance irrelevance, gradient symmetry and the embedding's
        power.

    Raises:
        ValueError: If the task is not a ModularTask, or the model is too small for the task.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> from anchorlens.extras.grokking.task import ModularTask
        >>> start = build_model(ModelConfig(d_vocab=60, n_ctx=3, gamma=0.5))
        >>> round(fourier(start, ModularTask()).explained, 3)
        0.0

    Source: The restricted and excluded losses are from arXiv 2301.05217. The distance irrelevance and the
    gradient symmetry are from arXiv 2306.17844. The fraction of the total variance that the key
    frequencies explain is our own measure.
    """
    check_model(model)
    check_capacity(model, task)
    check_number("seed", seed, minimum=0, integer=True)
    p = task.modulus
    order = measures.in_order(task.operation, p)
    if order is None:
        return _by_answer_alone(model, task, seed)
    n = len(order.answer)
    first, second = np.indices((n, n)).reshape(2, -1)
    logits = _logits(model, task, order.first[first] * p + order.second[second])[:, order.answer]
    cube = logits.reshape(n, n, n)
    shares = measures.frequency_shares(cube)
    keys = measures.key_frequencies(shares)
    right = measures.right_logits(cube)
    embedding = measures.power(model.W_E.detach().double().cpu().numpy()[order.first])
    whole, restricted, excluded = measures.losses(cube, keys)
    return Fourier(
        operation=task.operation,
        n_pairs=n * n,
        explained=number(shares[keys - 1].sum() if np.isfinite(shares).all() else np.nan),
        effective_number=number(measures.participation(shares)),
        answer_share=number(measures.answer_share(logits, (first + second) % n)),
        restricted_loss=restricted,
        excluded_loss=excluded,
        loss=whole,
        distance_irrelevance=measures.distance_irrelevance(right),
        gradient_symmetry=_gradient_symmetry(model, task, order, seed),
        embedding_gini=number(measures.gini(embedding)),
        shares=shares,
        key_frequencies=tuple(keys.tolist()),
        embedding_power=embedding,
        right_logits=measures.by_sum(right),
        seed=seed,
    )


def _by_answer_alone(model: HookedTransformer, task: ModularTask, seed: int) -> Fourier:
    """Measure the two readings that need no frequencies."""
    answers = task.answers[task.pairs]
    logits = _logits(model, task, task.pairs)
    return Fourier(
        operation=task.operation,
        n_pairs=len(task.pairs),
        answer_share=number(measures.answer_share(logits, answers)),
        loss=measures.cross_entropy(logits, answers),
        key_frequencies=(),
        seed=seed,
        **dict.fromkeys(("explained", "effective_number", "restricted_loss", "excluded_loss")),
        **dict.fromkeys(("distance_irrelevance", "gradient_symmetry", "embedding_gini")),
        **dict.fromkeys(("shares", "embedding_power", "right_logits")),
    )


def _logits(
    model: HookedTransformer, task: ModularTask, pairs: Int[np.ndarray, " pair"]
) -> Float[np.ndarray, "pair answer"]:
    """Compute the logits of the p numbers at the last position; other outputs are never an answer."""
    logits = last_logits(model, task.sequences(pairs).tokens)
    return logits[:, : task.modulus].double().cpu().numpy()


def _gradient_symmetry(
    model: HookedTransformer, task: ModularTask, order: measures.Order, seed: int
) -> float | None:
    """Compute the mean cosine of the gradients of a logit with respect to the two numbers' embeddings."""
    if not task.commutes:
        return None
    n = len(order.answer)
    i, j, c = generator(seed, "probe").integers(0, n, (3, N_TRIPLES))
    device = device_of(model)
    embedded: list[Tensor] = []

    def keep(value: Tensor, hook: Any) -> Tensor:
        embedded.append(value.detach().clone().requires_grad_())
        return embedded[-1]

    module = differentiated(model)
    hooks = [(EMBED, keep)]
    with attached(model, hooks), evaluation_mode(model), torch.inference_mode(False), torch.enable_grad():
        tokens = task.sequences(order.first[i] * task.modulus + order.second[j]).tokens.to(device)
        outputs = torch.from_numpy(order.answer[c]).to(device)
        logits = answered_with(module, usable_state(module), tokens)[:, -1]
        (gradient,) = torch.autograd.grad(logits.gather(1, outputs[:, None]).sum(), embedded)
    words = task.tokens.lower().split()
    of_both = [gradient[:, words.index(word)].double() for word in ("a", "b")]
    return float(torch.cosine_similarity(*of_both, dim=-1).mean())
