"""The gradients of each trained pair's answer, by part of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from anchorlens.models.running import device_of, evaluation_mode
from anchorlens.probes.shared.anchor_sequences import at_trained_places
from anchorlens.probes.shared.tangent_kernel import differentiated, is_matrix, usable_state
from anchorlens.randomness import generator
from anchorlens.tasks.two_anchor.sequences import Pair
from anchorlens.tasks.two_anchor.task import AnchorTask

if TYPE_CHECKING:
    from anchorlens.models.library import HookedTransformer

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
            logits = torch.func.functional_call(module, state, (batch.tokens.to(device),))[:, -1]
            says = logits.double().log_softmax(dim=-1)
            lost = (says.gather(1, neighbours) - says.gather(1, targets)).mean()
            gradients = dict(zip(asked, torch.autograd.grad(lost, list(asked.values())), strict=True))
            for part, names in weights.items():
                rows[part].append(torch.cat([gradients[name].flatten() for name in names]))
    return {part: _cosines(torch.stack(found)) for part, found in rows.items()}


def _cosines(rows: Float[Tensor, "pair weight"]) -> Float[np.ndarray, "pair pair"]:
    unit = rows / torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)[:, None].to(rows.dtype)
    return (unit @ unit.mT).clamp(-1, 1).double().cpu().numpy()
