"""Expert use: which expert of a mixture serves which kind of input, and what is lost without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from jaxtyping import Float

from anchorlens.configuration import check_number
from anchorlens.models.hooks import check_mixture, last_logits, routing, without_expert
from anchorlens.probes.plots.expert_use import expert_figure
from anchorlens.probes.result import ProbeResult, number, probe_result
from anchorlens.probes.shared.anchor_sequences import sequences_by_kind
from anchorlens.probes.shared.calling import takes_any
from anchorlens.probes.shared.checks import MOST_SEQUENCES, check_inputs
from anchorlens.tasks.two_anchor.sequences import AnchorBatch
from anchorlens.tasks.two_anchor.task import AnchorTask

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from anchorlens.models.library import HookedTransformer


@probe_result
class ExpertUse(ProbeResult):
    """Shares of a mixture's experts by kind of input, and accuracies with each of them taken out."""

    probe: ClassVar[str] = "expert_use"
    readings: ClassVar[tuple[str, ...]] = (
        "broken_apart",
        "exceptions_apart",
        "unseen_apart",
        "largest_share",
        "most_lost",
    )
    kinds: tuple[str, ...]
    """Kinds of input, those of `rules`, `broken`, `exceptions`, `unseen` that the task has."""
    shares: np.ndarray
    """[layer, kind, expert] What part of the last position's routing weight goes to each expert, 0..1, the
    mean over inputs; their sum is 1. Of a top-1 router: the share of inputs that are sent there."""
    accuracies: np.ndarray
    """[kind] Share of right answers, 0..1: trained targets, of unseen pairs the composition."""
    accuracies_without: np.ndarray
    """[layer, expert, kind] The same with one expert taken out."""
    broken_apart: float | None
    """How far the shares of broken pairs are from those of the rules: half the sum of the differences, in the
    layer where it is largest, 0..1; 1 = other experts serve them. None where there is no such kind."""
    exceptions_apart: float | None
    """The same for exceptions."""
    unseen_apart: float | None
    """The same for unseen pairs."""
    largest_share: float
    """The largest share of one expert over all kinds alike, the mean over layers: 1 = each router has
    collapsed onto one expert, 1 over the number of experts = all are used alike."""
    most_lost: float
    """The accuracy that is lost on the trained kinds, the mean of them, without the expert that matters most;
    below 0 where the model answers better without."""
    n_sequences: int
    """Inputs of each kind."""
    seed: int
    """Seed from which keys, positions and noise were drawn."""

    def headline(self) -> str:
        """How far apart the kinds are sent, and what is lost without the most important expert."""
        apart = {"broken": self.broken_apart, "exceptions": self.exceptions_apart}
        apart |= {"unseen": self.unseen_apart}
        words = [f"{kind} {value:.2f}" for kind, value in apart.items() if value is not None]
        far = f"shares differ from the rules': {', '.join(words)}; " if words else ""
        return f"{far}{self.most_lost:+.2f} of the accuracy lost without one expert"

    def plot(self) -> go.Figure:
        """Shares of the experts by layer and kind, and accuracies with and without each of them."""
        return expert_figure(
            "Which expert serves which?", self.kinds, self.shares, self.accuracies, self.accuracies_without
        )


@takes_any
def expert_use(
    model: HookedTransformer, task: AnchorTask, *, n_sequences: int = 512, seed: int = 0
) -> ExpertUse:
    """Measure which expert of a mixture serves which kind of input, and how it answers without each of them.

    The share of an expert is its part of the routing weight of the chosen experts at the last position, where
    the answer is read. An expert is taken out at every position: its weight is set to 0 behind the router's
    softmax and the others are divided by their sum, so that its inputs go to the next best expert.

    Blind to: what an expert computes, and to one that is needed at another position where the answer survives
    without it. With one expert taken out an input meets another with a weight that it never had in training;
    what is lost is what the model loses, and not what it could learn to do without.

    Args:
        model: a HookedTransformer with `num_experts`; it is only read.
        task: gives the kinds: `rules`, trained pairs on the composition; `broken`, pairs that are trained on
            another function; `exceptions`; `unseen` pairs. Keys stand at positions where they are trained.
        n_sequences: inputs of each kind, >= 1.
        seed: of keys, positions and noise.

    Returns:
        Shares by layer, kind and expert, 0..1, and accuracies by kind with each expert of each layer taken
        out.

    Raises:
        ValueError: a model with one MLP in each block, one that is too small for the task, or a number out of
            range.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> expert_use(build_model(ModelConfig(gamma=0.5, num_experts=2)), AnchorTask()).shares.shape
        (2, 2, 2)

    Source: ours; routing weights by kind of input as in Switch Transformers (Fedus et al., arXiv 2101.03961)
    and Mixtral (Jiang et al., arXiv 2401.04088).
    """
    check_inputs(model, task)
    check_mixture(model)
    check_number("n_sequences", n_sequences, minimum=1, limit=MOST_SEQUENCES, integer=True)
    check_number("seed", seed, minimum=0, integer=True)
    kinds = sequences_by_kind(task, n_sequences, seed)
    shares = np.stack([_shares(model, batch) for batch in kinds.values()], axis=1)
    accuracies = _accuracies(model, kinds)
    n_layers, _, n_experts = shares.shape
    without = np.zeros((n_layers, n_experts, len(kinds)))
    for layer, expert in np.ndindex(n_layers, n_experts):
        with without_expert(model, layer, expert):
            without[layer, expert] = _accuracies(model, kinds)
    trained = [k for k, kind in enumerate(kinds) if kind != "unseen"]
    return ExpertUse(
        kinds=tuple(kinds),
        shares=shares,
        accuracies=accuracies,
        accuracies_without=without,
        broken_apart=_apart(shares, tuple(kinds), "broken"),
        exceptions_apart=_apart(shares, tuple(kinds), "exceptions"),
        unseen_apart=_apart(shares, tuple(kinds), "unseen"),
        largest_share=float(shares.mean(axis=1).max(axis=-1).mean()),
        most_lost=float((accuracies - without)[..., trained].mean(axis=-1).max()),
        n_sequences=n_sequences,
        seed=seed,
    )


def _shares(model: HookedTransformer, batch: AnchorBatch) -> Float[np.ndarray, "layer expert"]:
    weights = routing(model, batch.tokens)
    return np.stack([weights[layer].double().mean(dim=0).cpu().numpy() for layer in sorted(weights)])


def _accuracies(model: HookedTransformer, kinds: dict[str, AnchorBatch]) -> Float[np.ndarray, " kind"]:
    right = [last_logits(model, b.tokens).argmax(dim=-1).cpu() == b.targets for b in kinds.values()]
    return np.array([one.double().mean() for one in right])


def _apart(shares: Float[np.ndarray, "layer kind expert"], kinds: tuple[str, ...], kind: str) -> float | None:
    """Total variation distance from the shares of the rules, in the layer where it is largest.

    >>> _apart(np.array([[[1.0, 0.0], [0.25, 0.75]]]), ("rules", "broken"), "broken")
    0.75
    """
    if not {"rules", kind} <= {*kinds}:
        return None
    difference = shares[:, kinds.index(kind)] - shares[:, kinds.index("rules")]
    return number(np.abs(difference).sum(axis=-1).max() / 2)
