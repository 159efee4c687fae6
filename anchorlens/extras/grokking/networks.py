"""The exact conversion of published networks to a HookedTransformer without LayerNorm.

The matrices of Nanda, ARENA and Zhong are stored transposed under the same names, and may have no biases.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from einops import rearrange
from torch import Tensor

from anchorlens.configuration import check_number
from anchorlens.extras.grokking.layouts import is_transposed

_TURNS = {
    **{"W_E": "m v -> v m", "W_in": "h m -> m h", "W_out": "m h -> h m", "W_O": "m (i h) -> i h m"},
    **dict.fromkeys(("W_Q", "W_K", "W_V"), "i h m -> i m h"),
}
_WITH_BIAS = ("attn.W_Q", "attn.W_K", "attn.W_V", "attn.W_O", "mlp.W_in", "mlp.W_out", "unembed.W_U")


def hooked(weights: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return weights in TransformerLens' layout, with zero biases if the network lacks biases.

    Args:
        weights: the weights by TransformerLens' names, in either orientation.
        config: the configuration, where `attn_coeff` is the fraction of attention that is a softmax.

    Raises:
        ValueError: If no HookedTransformer computes the same function.
    """
    found = {name: weight for name, weight in weights.items() if not name.endswith((".mask", ".IGNORE"))}
    for name in ("x_embed", "y_embed"):  # rep_theory stores the embedding again for each number
        if name in found and not torch.equal(found.pop(name), found["embed.W_E"]):
            raise ValueError(f"{name} must equal embed.W_E, got another embedding. {_INSTEAD}")
    if is_transposed(weights):
        n_heads = len(found["blocks.0.attn.W_Q"])
        found = {name: _turned(name, weight, n_heads) for name, weight in found.items()}
    if "attn_coeff" in config:
        found = _without_mask(found, config["attn_coeff"])
    for name, weight in tuple(found.items()):
        if name.endswith(_WITH_BIAS):
            shape = weight.shape[::2] if weight.ndim == 3 and name[-1] in "QKV" else weight.shape[-1:]
            found.setdefault(name.replace(".W_", ".b_"), weight.new_zeros(shape))
    return found


_INSTEAD = "Give the model itself: fourier(model, task), evaluate(model, task)"


def _turned(name: str, weight: Tensor, n_heads: int) -> Tensor:
    pattern = _TURNS.get(name.rpartition(".")[2])
    if pattern is None:
        return weight
    if weight.ndim != (3 if pattern.startswith("i") else 2):
        raise ValueError(
            f"{name} must be a matrix of a modular-arithmetic network, got shape {list(weight.shape)}. "
            f"{_INSTEAD}"
        )
    return rearrange(weight, pattern, **({"i": n_heads} if "(i h)" in pattern else {}))


def _without_mask(weights: dict[str, Tensor], rate: Any) -> dict[str, Tensor]:
    """Convert attention of `rate` times a softmax plus 1 - rate everywhere, as in pizza without a mask.

    The same number of additional heads attends evenly, which is the constant divided by the number of
    positions. At the last position of one layer that is exact.
    """
    check_number("attn_coeff", rate, minimum=0, maximum=1)
    if any(name.startswith("blocks.1.") for name in weights):
        raise ValueError(
            f"a network without a causal mask (attn_coeff {rate:g}) must have one layer, got more. {_INSTEAD}"
        )
    if rate == 1:
        return weights
    found, n_positions = dict(weights), len(weights["pos_embed.W_pos"])
    for matrix, even in (("Q", 0.0), ("K", 0.0), ("V", 1.0)):
        name = f"blocks.0.attn.W_{matrix}"
        found[name] = torch.cat([weights[name], even * weights[name]])
    output = weights["blocks.0.attn.W_O"]
    found["blocks.0.attn.W_O"] = torch.cat([rate * output, (1 - rate) * n_positions * output])
    return found
