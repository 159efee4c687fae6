"""Expert use: the experts of a mixture for each kind of input, and the accuracy lost without each expert."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import plotly.graph_objects as go
import torch
from jaxtyping import Float, Int
from plotly.subplots import make_subplots
from torch import Tensor

from anchorlens.models import attached, hook_name, last_logits, read
from anchorlens.plots import SHARE, styled
from anchorlens.probes.shared import (
    ProbeResult,
    at_trained_places,
    check_count,
    check_inputs,
    number,
    probe_result,
    takes_any,
)
from anchorlens.randomness import generator
from anchorlens.show import CAPTIONS, captions_in
from anchorlens.tasks import AnchorBatch, AnchorTask

if TYPE_CHECKING:
    from transformer_lens.hook_points import HookPoint

    from anchorlens.models import HookedTransformer

CAPTIONS.update(captions_in(Path(__file__).parent / "captions.toml"))

KINDS = ("rules", "broken", "exceptions", "unseen")
"""The kinds of a task's inputs, by the source of the answer (see `sequences_by_kind`)."""

EXPERT_WEIGHTS = "mlp.hook_expert_weights"
"""The softmax weights of a mixture's router, before the largest are selected, [batch * pos, expert]."""


@probe_result
class ExpertUse(ProbeResult):
    """The routing shares of a mixture's experts by kind of input, and accuracies with each expert ablated."""

    probe = "expert_use"
    readings = ("broken_apart", "exceptions_apart", "unseen_apart", "largest_share", "most_lost")
    kinds: tuple[str, ...]
    """The kinds of input of the task, out of `rules`, `broken`, `exceptions` and `unseen`."""
    shares: np.ndarray
    """[layer, kind, expert] The share of the routing weight at the last position for each expert, 0..1, mean
    over inputs. Shares sum to 1. For a top-1 router, the share is the fraction of inputs routed to the
    expert."""
    accuracies: np.ndarray
    """[kind] The accuracy, 0..1, on trained targets. For unseen pairs, the accuracy on the composition."""
    accuracies_without: np.ndarray
    """[layer, expert, kind] The accuracy with one expert ablated, 0..1."""
    broken_apart: float | None
    """The distance of the shares of broken pairs from the shares of the rules, 0..1. The distance is half the
    sum of the absolute differences, in the layer with the largest distance. At 1, the kinds use different
    experts. `None` without broken pairs."""
    exceptions_apart: float | None
    """The distance of the shares of exceptions from the shares of the rules, 0..1."""
    unseen_apart: float | None
    """The distance of the shares of unseen pairs from the shares of the rules, 0..1."""
    largest_share: float
    """The largest share of one expert, with all kinds weighted equally, mean over layers. At 1, each router
    uses one expert alone. At 1 / number of experts, the routers use all experts equally."""
    most_lost: float
    """The mean accuracy lost on the trained kinds without the most important expert. The value is below 0 if
    the model is more accurate without any single expert."""
    n_sequences: int
    """The number of inputs drawn for each kind."""
    seed: int
    """The seed of keys, positions and noise."""

    def headline(self) -> str:
        """State each kind's routing distance from `rules`, and the largest accuracy loss by an ablation."""
        apart = {kind: getattr(self, f"{kind}_apart") for kind in KINDS[1:]}
        words = [f"{kind} {value:.2f}" for kind, value in apart.items() if value is not None]
        far = f"distance of shares from the rules' shares: {', '.join(words)}; " if words else ""
        return f"{far}{self.most_lost:+.2f} of the accuracy lost without one expert"

    def plot(self) -> go.Figure:
        """Plot two heatmaps with a row for each expert: its shares by kind, and the accuracy without it."""
        n_layers, n_kinds, n_experts = self.shares.shape
        experts = [f"layer {layer}, expert {expert}" for layer, expert in np.ndindex(n_layers, n_experts)]
        names = ["the whole model", *experts]
        by_expert = self.shares.transpose(0, 2, 1).reshape(-1, n_kinds)  # [layer and expert, kind]
        left_out = self.accuracies_without.reshape(-1, n_kinds)
        panels = {
            "share of the routing weight": [[None] * n_kinds, *by_expert.tolist()],
            "accuracy without the expert": [self.accuracies.tolist(), *left_out.tolist()],
        }
        figure = make_subplots(
            rows=1, cols=2, subplot_titles=list(panels), shared_yaxes=True, horizontal_spacing=0.05
        )
        look = {"texttemplate": "%{z:.2f}", "colorbar": {"title": "0..1", "len": 0.9}, **SHARE}
        for column, values in enumerate(panels.values(), start=1):
            heatmap = go.Heatmap(z=values, x=self.kinds, y=names, showscale=column == 2, **look)
            figure.add_trace(heatmap, row=1, col=column)
        figure.update_xaxes(title="kind of input", type="category")
        figure.update_yaxes(type="category", autorange="reversed")
        return styled(figure, "Experts by kind of input", height=160 + 34 * len(names))


@takes_any(of_mixtures=True)
def expert_use(
    model: HookedTransformer, task: AnchorTask, *, n_sequences: int = 512, seed: int = 0
) -> ExpertUse:
    """Measure the routing to a mixture's experts by kind of input, and the accuracy without each expert.

    The share of an expert is its fraction of the routing weight of all chosen experts. The probe measures the
    share at the last position, where the model answers. The probe ablates an expert at every position. After
    the router's softmax, the weight of the expert is set to 0, and the other weights are divided by their
    sum. Inputs of the ablated expert therefore go to the next best expert.

    Limitations: The probe does not show what an expert computes. The probe does not detect the use of an
    expert at earlier positions if the answer does not need the expert. After the ablation, experts get inputs
    and routing weights that never occurred in training. The lost accuracy is therefore the loss of this
    model, not of a model trained without the expert.

    Args:
        model: the HookedTransformer with `num_experts`. The probe does not change the model.
        task: the task that gives the kinds of input. The kinds are `rules` (pairs trained on the
            composition), `broken` (pairs trained on another function), `exceptions` and `unseen` pairs. Keys
            are at trained positions.
        n_sequences: the number of inputs drawn for each kind, >= 1. An input that is an exception counts only
            as the kind `exceptions`.
        seed: the seed of the keys, positions and noise.

    Returns:
        The shares by layer, kind and expert, 0..1, and the accuracy on each kind with each expert ablated.

    Raises:
        ValueError: If the model is dense or too small for the task, or a number is out of range.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> expert_use(build_model(ModelConfig(gamma=0.5, num_experts=2)), AnchorTask()).shares.shape
        (2, 2, 2)

    Source: The probe is ours. The measurement of routing weights by kind of input follows Switch Transformers
    (Fedus et al., arXiv 2101.03961) and Mixtral (Jiang et al., arXiv 2401.04088).
    """
    check_inputs(model, task)
    if getattr(model.cfg, "num_experts", None) is None:
        raise ValueError(
            "model must be a mixture of experts (num_experts), got a model with a single MLP in each block. "
            "Use another probe"
        )
    check_count("n_sequences", n_sequences)
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


def sequences_by_kind(task: AnchorTask, n_sequences: int, seed: int) -> dict[str, AnchorBatch]:
    """Draw inputs of each kind, with each key at a position where the key is trained.

    The kind of an input states what determines its target, for example the composition or an exception.

    Args:
        task: the task, which defines the pairs and exceptions.
        n_sequences: the number of inputs of each kind, spread evenly over the pairs or exceptions of the
            kind. The kinds `rules`, `broken` and `unseen` omit each (key, pair) that is an exception. These
            kinds can therefore have fewer than `n_sequences` inputs.
        seed: the seed of the positions, keys and noise.

    Returns:
        A dict from kinds to inputs. The dict contains only kinds that have inputs.

        - `rules` contains inputs whose pairs are trained on the composition.
        - `broken` contains inputs whose pairs are trained on another function.
        - `exceptions` contains inputs whose key and pair are together trained on a random answer.
        - `unseen` contains inputs with untrained pairs. The target of these inputs is the composition.
    """
    pairs = {
        "rules": task.composed_pairs,
        "broken": [pair for pair in task.seen_pairs if pair in task.trained_overrides],
        "unseen": list(task.ood_pairs),
    }
    kinds: dict[str, AnchorBatch] = {}
    for kind, of_kind in pairs.items():
        if of_kind:
            chosen = np.array(of_kind)[np.arange(n_sequences) % len(of_kind)]
            batch = at_trained_places(task, chosen, generator(seed, "probe"))
            kinds[kind] = batch.take(np.flatnonzero(~task.is_exception(batch.trials)))
    if task.n_exceptions:
        rng = generator(seed, "probe")
        every = task.exception_trials
        trials = every.take(np.arange(n_sequences) * len(every) // n_sequences)
        kinds["exceptions"] = task.place(trials, task.noise(len(trials), rng))
    return {kind: kinds[kind] for kind in KINDS if len(kinds.get(kind, ()))}


def _shares(model: HookedTransformer, batch: AnchorBatch) -> Float[np.ndarray, "layer expert"]:
    weights = routing(model, batch.tokens)
    return np.stack([weights[layer].double().mean(dim=0).cpu().numpy() for layer in sorted(weights)])


def _accuracies(model: HookedTransformer, kinds: dict[str, AnchorBatch]) -> Float[np.ndarray, " kind"]:
    right = [last_logits(model, b.tokens).argmax(dim=-1).cpu() == b.targets for b in kinds.values()]
    return np.array([one.double().mean() for one in right])


def _apart(shares: Float[np.ndarray, "layer kind expert"], kinds: tuple[str, ...], kind: str) -> float | None:
    """Compute the total variation distance of a kind's shares from the rules' in the layer with the largest.

    >>> _apart(np.array([[[1.0, 0.0], [0.25, 0.75]]]), ("rules", "broken"), "broken")
    0.75
    """
    if not {"rules", kind} <= {*kinds}:
        return None
    difference = shares[:, kinds.index(kind)] - shares[:, kinds.index("rules")]
    return number(np.abs(difference).sum(axis=-1).max() / 2)


def routing(
    model: HookedTransformer, tokens: Int[Tensor, "batch pos"]
) -> dict[int, Float[Tensor, "batch expert"]]:
    """Compute the router weights at the last position, with 0 for experts that are not chosen.

    Returns:
        A map from each layer to its router weights. The weights of each sequence sum to 1. With a top-1
        router, the chosen expert has the weight 1.
    """
    places = [(layer, EXPERT_WEIGHTS) for layer in range(model.cfg.n_layers)]
    found = {}
    for (layer, _), weights in read(model, tokens, places).items():
        last = weights.unflatten(0, tokens.shape)[:, -1]  # [batch, expert]
        top = last.topk(model.cfg.experts_per_token or 1, dim=-1)
        chosen = torch.zeros_like(last).scatter(-1, top.indices, top.values)
        found[layer] = chosen / chosen.sum(dim=-1, keepdim=True)
    return found


def without_expert(model: HookedTransformer, layer: int, expert: int) -> AbstractContextManager[None]:
    """Remove one expert from a router within a `with` block.

    The function sets the expert's weight to 0 after the softmax, and divides the other weights by their sum.
    The removal has the same effect as a router logit of minus infinity. The router sends the removed expert's
    tokens to the next best expert, with the new weight of the next best expert.

    Args:
        model: a mixture of experts.
        layer: the index of the block.
        expert: the index of the expert in that block, from 0.
    """

    def edit(weights: Tensor, hook: HookPoint) -> Tensor:
        left = weights.index_fill(-1, torch.tensor(expert, device=weights.device), 0)
        return left / left.sum(dim=-1, keepdim=True).clamp_min(torch.finfo(left.dtype).tiny)

    return attached(model, [(hook_name(layer, EXPERT_WEIGHTS), edit)])
