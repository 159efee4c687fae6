"""The router of a mixture of experts: the weights that it gives, and the model without one expert."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from anchorlens.configuration import check_number
from anchorlens.models.hooks import hook_name, read
from anchorlens.models.running import attached

if TYPE_CHECKING:
    from transformer_lens.hook_points import HookPoint

    from anchorlens.models.library import HookedTransformer

EXPERT_WEIGHTS = "mlp.hook_expert_weights"
"""The softmax weights of a mixture's router, before the largest are selected, [batch * pos, expert]."""


def check_mixture(model: HookedTransformer) -> None:
    """Check that the MLPs are mixtures of experts.

    Raises:
        ValueError: If the MLPs are not mixtures of experts, or lack TransformerLens' hook at the router.
    """
    if getattr(model.cfg, "num_experts", None) is None:
        raise ValueError(
            "model must be a mixture of experts (num_experts), got a model with a single MLP in each block. "
            "Use another probe"
        )
    for layer in range(model.cfg.n_layers):
        if hook_name(layer, EXPERT_WEIGHTS) not in model.hook_dict:
            raise ValueError(
                f"model must have the hook {hook_name(layer, EXPERT_WEIGHTS)}, got a {type(model).__name__} "
                "without this hook. Use a HookedTransformer with the same weights"
            )


def routing(
    model: HookedTransformer, tokens: Int[Tensor, "batch pos"]
) -> dict[int, Float[Tensor, "batch expert"]]:
    """Compute the router weights at the last position, with 0 for experts that are not chosen.

    Returns:
        A map from each layer to its router weights. The weights of each sequence sum to 1. With a top-1
        router, the chosen expert has the weight 1.

    Raises:
        ValueError: If the model is not a mixture of experts, or cannot read the tokens.
    """
    check_mixture(model)
    places = [(layer, EXPERT_WEIGHTS) for layer in range(model.cfg.n_layers)]
    found = {}
    for (layer, _), weights in read(model, tokens, places).items():
        last = weights.unflatten(0, tokens.shape)[:, -1]  # [batch, expert]
        top = last.topk(model.cfg.experts_per_token or 1, dim=-1)
        chosen = torch.zeros_like(last).scatter(-1, top.indices, top.values)
        found[layer] = chosen / chosen.sum(dim=-1, keepdim=True)
    return found


@contextlib.contextmanager
def without_expert(model: HookedTransformer, layer: int, expert: int) -> Iterator[None]:
    """Remove one expert from a router.

    The function sets the expert's weight to 0 after the softmax, and divides the other weights by their sum.
    The removal has the same effect as a router logit of minus infinity. The router sends the removed expert's
    tokens to the next best expert, with the new weight of the next best expert.

    Args:
        model: a mixture of experts.
        layer: the index of the block.
        expert: the index of the expert in that block, from 0.

    Raises:
        ValueError: If the model is not a mixture of experts, or the layer or expert does not exist.
    """
    check_mixture(model)
    check_number("layer", layer, minimum=0, maximum=model.cfg.n_layers - 1, integer=True)
    check_number("expert", expert, minimum=0, maximum=(model.cfg.num_experts or 1) - 1, integer=True)

    def edit(weights: Tensor, hook: HookPoint) -> Tensor:
        left = weights.index_fill(-1, torch.tensor(expert, device=weights.device), 0)
        return left / left.sum(dim=-1, keepdim=True).clamp_min(torch.finfo(left.dtype).tiny)

    with attached(model, [(hook_name(layer, EXPERT_WEIGHTS), edit)]):
        yield
