"""Gradient sharing: does a model use the same weights for trained pairs that share no anchor?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
import torch
from jaxtyping import Float
from plotly.subplots import make_subplots
from torch import Tensor

from anchorlens.models.annotations import HookedTransformer
from anchorlens.models.running import device_of, evaluation_mode
from anchorlens.plots import box_cells, cosine_heatmap, styled
from anchorlens.probes.shared.anchor_sequences import at_trained_places
from anchorlens.probes.shared.checks import check_count, check_inputs
from anchorlens.probes.shared.contract import ProbeResult, mean_number, probe_result, takes_any
from anchorlens.probes.shared.parameters import answered_with, differentiated, is_matrix, usable_state
from anchorlens.randomness import generator
from anchorlens.tasks.two_anchor.sequences import Pair
from anchorlens.tasks.two_anchor.task import AnchorTask

RELATIONS = ("none", "some", "mirror")
"""The relations of two pairs, which share no anchor, some anchor, or all anchors in reverse order."""


@probe_result
class GradientSharing(ProbeResult):
    """The cosines between the gradients of the trained pairs, in three parts of the model."""

    probe = "gradient_sharing"
    readings = ("sharing", "mlp_sharing", "attention_sharing", "order_blindness")
    pairs: np.ndarray
    """[pair, anchor] The compared trained pairs."""
    parts: tuple[str, ...]
    """The parts of the model, which are the embedding, the last attention and, unless the model has no MLP,
    the last MLP."""
    cosines: np.ndarray
    """[part, pair, pair] The cosine of the gradients of two pairs, from -1 to 1. The cosine is NaN if a
    gradient is zero."""
    relations: np.ndarray
    """[pair, pair] The relation of two pairs. The value is 0 without a common anchor, 1 with a common anchor,
    2 for a pair and its reversed pair, and -1 on the diagonal."""
    means: np.ndarray
    """[part, 3] The mean cosine over two pairs of each relation, in the order 0, 1 and 2 of `relations`. The
    mean is NaN if no two pairs have the relation."""
    sharing: float | None
    """The geometric mean of `mlp_sharing` and `attention_sharing`. Negative values count as 0. The mean is
    large if the same weights decode the target of every pair, as in Phase 3."""
    mlp_sharing: float | None
    """The mean cosine in the last MLP over two pairs that share no anchor."""
    attention_sharing: float | None
    """The mean cosine in the last attention over two pairs that share no anchor."""
    order_blindness: float | None
    """The mean cosine of a pair and its reversed pair in the embedding. The mean is near 1 if the model
    ignores the order of two anchors."""
    n_sequences: int
    """The number of inputs of each pair."""
    seed: int
    """The seed of the keys, positions and noise."""

    def headline(self) -> str:
        """Return the mean cosine of gradients over pairs without a common anchor as text."""
        if self.attention_sharing is None:
            return "no two trained pairs of this task share no anchor"
        parts = f"{self.attention_sharing:.2f} in the last attention"
        if self.mlp_sharing is not None:
            parts = f"{self.mlp_sharing:.2f} in the last MLP, {parts}"
        return f"pairs without a common anchor share {parts} (cosine of gradients)"

    def plot(self) -> go.Figure:
        """Plot the cosines of every two pairs, ordered by the first anchor, with a panel for each part."""
        names = [", ".join(map(str, pair)) for pair in self.pairs.tolist()]
        n = len(self.parts)
        figure = make_subplots(rows=1, cols=n, subplot_titles=self.parts, horizontal_spacing=0.22 / n)
        for i, matrix in enumerate(self.cosines):
            at: dict[str, Any] = {"row": 1, "col": i + 1}
            figure.add_trace(cosine_heatmap(matrix, names).update(showscale=i == n - 1), **at)
            box_cells(figure, np.argwhere(self.relations == 0), width=1, **at)
            figure.update_xaxes(title="pair of anchors", type="category", tickangle=-90, **at)
            figure.update_yaxes(type="category", autorange="reversed", showticklabels=i == 0, **at)
        return styled(figure, "Do pairs use the same weights?", height=320)


@takes_any()
def gradient_sharing(
    model: HookedTransformer, task: AnchorTask, *, n_sequences: int = 32, seed: int = 0
) -> GradientSharing:
    """Measure whether a model uses the same weights for trained pairs that share no anchor.

    G(p) is the gradient of log p(target - 1) - log p(target), averaged over trained inputs of the pair p. A
    change of the weights along G(p) moves the answer for p towards the next smaller number. The inputs of all
    pairs have the same keys, positions and noise tokens, and differ only in the anchors. A model that
    composes decodes the targets of all pairs by the same weights. In a model that composes, the gradients of
    pairs without a common anchor therefore have the same direction. A model that has learnt each pair as a
    whole uses separate weights for each pair. In a model with separate weights for each pair, the gradients
    of different pairs are orthogonal.

    The probe does not use unseen pairs.

    Limitations: The probe does not work for a decoder with separate neurons for each combination of g(x; a1)
    and second anchor. Two pairs without a common anchor never share these neurons. The reading `mlp_sharing`
    is therefore 0 for this decoder, even if the model composes. If pairs share the weights that decode the
    target, the probe does not show how the model computes the target.

    Args:
        model: a HookedTransformer. The probe changes neither the model nor its gradients.
        task: the task, which defines the trained pairs, their inputs and targets. The probe compares at most
            64 pairs, and fewer if the gradients do not fit into 256 MiB. If the task has more trained pairs,
            the probe compares a random sample of the trained pairs.
        n_sequences: the number of inputs of each pair, at least 1.
        seed: the seed of the keys, positions and noise, and of the draw of pairs.

    Returns:
        The cosine between the gradients of every two pairs, for each part of the model, from -1 to 1. The
        result also contains the mean cosine over two pairs that share no anchor, some anchor, or all anchors
        in reverse order.

    Raises:
        ValueError: If the model does not have the parameters of a HookedTransformer.
        ValueError: If the model is too small for the task.
        ValueError: If an option is out of range.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> gradient_sharing(build_model(ModelConfig(gamma=0.5)), AnchorTask()).cosines.shape
        (3, 14, 14)

    Source: The probe is ours. The inner product of the gradients of two examples is their first-order
    influence on each other (after Koh and Liang, arXiv 1703.04730). The probe measures the influence between
    anchor pairs, separately for each part of the model.
    """
    check_inputs(model, task)
    check_count("n_sequences", n_sequences)
    weights = weights_of_parts(model)
    pairs = compared_pairs(model, task, weights, seed)
    cosines = pair_gradients(model, task, pairs, weights, n_sequences, seed)
    relations = np.array([[_relation(p, q) for q in pairs] for p in pairs])
    means = {part: [mean_number(found[relations == k]) for k in range(3)] for part, found in cosines.items()}
    none, mirror = RELATIONS.index("none"), RELATIONS.index("mirror")
    mlp = means["last MLP"][none] if "last MLP" in means else None
    attention = means["last attention"][none]
    both = None if mlp is None or attention is None else float(np.sqrt(max(mlp, 0) * max(attention, 0)))
    return GradientSharing(
        pairs=np.array(pairs),
        parts=tuple(cosines),
        cosines=np.stack(list(cosines.values())),
        relations=relations,
        means=np.array(list(means.values()), dtype=float),
        sharing=both,
        mlp_sharing=mlp,
        attention_sharing=attention,
        order_blindness=means["embedding"][mirror],
        n_sequences=n_sequences,
        seed=seed,
    )


def _relation(p: tuple[int, ...], q: tuple[int, ...]) -> int:
    if p == q:
        return -1
    if p == q[::-1]:
        return RELATIONS.index("mirror")
    return RELATIONS.index("some" if set(p) & set(q) else "none")


PARTS = ("embedding", "last attention", "last MLP")
"""The parts of the model whose gradients are compared."""
MOST_PAIRS = 64
"""The largest number of compared pairs. If the task has more pairs, the probe compares a sample of this
size."""
_MOST_GRADIENTS = 2**26
"""The largest number of gradient elements that memory holds at once, which is 256 MiB in float32."""


def weights_of_parts(model: HookedTransformer) -> dict[str, list[str]]:
    """Return the names of the weight matrices in each part of a model.

    Raises:
        ValueError: If the parameter names are not the names of a HookedTransformer or of a native
            TransformerBridge.
    """
    last = model.cfg.n_layers - 1
    places = {  # in a HookedTransformer, and in the module that a TransformerBridge wraps
        "embedding": ("embed.", "tok_embed."),
        "last attention": (f"blocks.{last}.attn.", f"layers.{last}.attn."),
        "last MLP": (f"blocks.{last}.mlp.", f"layers.{last}.mlp."),
    }
    found = {
        part: [
            name
            for name, weight in differentiated(model).named_parameters()
            if name.replace("._original_component", "").startswith(starts) and is_matrix(name, weight)
        ]
        for part, starts in places.items()
    }
    if not all(found[part] for part in PARTS[:2]):
        raise ValueError(
            "model must have the parameters of a HookedTransformer or of a native TransformerBridge, got "
            "other parameters. Build a HookedTransformer with the weights of the model"
        )
    return {part: names for part, names in found.items() if names}


def compared_pairs(
    model: HookedTransformer, task: AnchorTask, weights: Mapping[str, Sequence[str]], seed: int
) -> list[Pair]:
    """Return the trained pairs, or a random sample of the trained pairs if their number is too large.

    The sample has at most 64 pairs, and fewer if the gradients do not fit into 256 MiB.
    """
    pairs = [tuple(pair) for pair in task.seen_pairs]
    sizes = {name: weight.numel() for name, weight in differentiated(model).named_parameters()}
    n_weights = sum(sizes[name] for names in weights.values() for name in names)
    most = max(2, min(MOST_PAIRS, _MOST_GRADIENTS // n_weights))
    if len(pairs) <= most:
        return pairs
    rows = generator(seed, "probe", 1).choice(len(pairs), most, replace=False)
    return [pairs[row] for row in sorted(rows)]


def pair_gradients(
    model: HookedTransformer,
    task: AnchorTask,
    pairs: Sequence[Pair],
    weights: Mapping[str, Sequence[str]],
    n_sequences: int,
    seed: int,
) -> dict[str, Float[np.ndarray, "pair pair"]]:
    """Compute the cosine between the gradients of every two pairs, for each part of the model.

    Each gradient is the gradient of log p(neighbour) - log p(target) at the last position, averaged over
    trained inputs of a pair. The neighbour is the token below the target, or the token 1 for the target 0.
    The inputs of all pairs have the same keys, positions and noise tokens.

    Returns:
        A dict from parts to cosines, from -1 to 1. The row of a pair whose gradient is zero contains NaN.
    """
    device = device_of(model)
    module = differentiated(model)
    rows: dict[str, list[Tensor]] = {part: [] for part in weights}
    with evaluation_mode(model), torch.inference_mode(False), torch.enable_grad():
        state = usable_state(module)
        asked = {name: state[name].requires_grad_() for names in weights.values() for name in names}
        for pair in pairs:
            of_pair = np.tile(np.array(pair), (n_sequences, 1))
            batch = at_trained_places(task, of_pair, generator(seed, "probe"))
            targets = batch.targets.to(device)[:, None]
            neighbours = torch.where(targets > 0, targets - 1, targets + 1)
            logits = answered_with(module, state, batch.tokens.to(device))[:, -1]
            says = logits.double().log_softmax(dim=-1)
            lost = (says.gather(1, neighbours) - says.gather(1, targets)).mean()
            gradients = dict(zip(asked, torch.autograd.grad(lost, list(asked.values())), strict=True))
            for part, names in weights.items():
                rows[part].append(torch.cat([gradients[name].flatten() for name in names]))
    return {part: _cosines(torch.stack(found)) for part, found in rows.items()}


def _cosines(rows: Float[Tensor, "pair weight"]) -> Float[np.ndarray, "pair pair"]:
    unit = rows / torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)[:, None].to(rows.dtype)
    return (unit @ unit.mT).clamp(-1, 1).double().cpu().numpy()
