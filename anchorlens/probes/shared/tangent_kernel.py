"""The empirical tangent kernel of a model on a few sequences, computed with torch.func."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from anchorlens.models.running import device_of, evaluation_mode

if TYPE_CHECKING:
    from anchorlens.models.library import HookedTransformer

_MOST_GRADIENTS = 2**25
"""The largest number of gradient elements that memory holds at once, which is 128 MiB in float32."""


def tangent_kernel(
    model: HookedTransformer, tokens: Int[Tensor, "batch pos"], targets: Int[Tensor, " batch"]
) -> Float[np.ndarray, "batch batch"]:
    """Compute the empirical tangent kernel over the weight matrices.

    The entry K_ij is the inner product of grad f(x_i) and grad f(x_j).

    The function f is the logit of the target at the last position. The function processes groups of
    parameters. Memory therefore holds at most 128 MiB of gradients, or the gradients of one larger matrix.
    """
    module = differentiated(model)
    device = device_of(model)
    # under no_grad, torch.func.grad still differentiates the chosen group, and no graph is kept for the rest
    with evaluation_mode(model), torch.inference_mode(False), torch.no_grad():
        kernel = torch.zeros(len(tokens), len(tokens), dtype=torch.float64, device="cpu")
        state = usable_state(module)
        matrices = {name: tensor for name, tensor in state.items() if is_matrix(name, tensor)}
        pairs = zip(tokens, targets, strict=True)
        samples = [(x.to(device, copy=True), y.to(device, copy=True)) for x, y in pairs]

        def target_logit(chosen: Mapping[str, Tensor], sequence: Tensor, target: Tensor) -> Tensor:
            logits = answered_with(module, {**state, **chosen}, sequence[None])
            return logits[0, -1].gather(0, target[None])[0]

        gradient = torch.func.grad(target_logit)
        for group in _groups(matrices, _MOST_GRADIENTS // len(tokens)):
            rows = [gradient(group, sequence, target) for sequence, target in samples]
            for name in group:
                flat = torch.stack([row[name].flatten() for row in rows]).double()
                kernel += (flat @ flat.mT).cpu()
    return kernel.numpy()


def differentiated(model: HookedTransformer) -> nn.Module:
    """Return the module to differentiate, which is the model or the module that a TransformerBridge wraps."""
    return getattr(model, "original_model", model)


def usable_state(module: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and buffers of a module in a form that autograd can use after inference mode."""
    return {
        name: tensor.clone() if tensor.is_inference() else tensor.detach()
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    }


def answered_with(module: nn.Module, state: Mapping[str, Tensor], tokens: Int[Tensor, "batch pos"]) -> Any:
    """Return the output of a module with other parameters and buffers, and leave the module unchanged.

    `torch.func.functional_call` sets a tensor twice if a module has two names, as the blocks of a
    TransformerBridge have, and then restores the new tensor. This function sets each tensor once at each
    module that has it.
    """
    tensors = [*module.named_parameters(), *module.named_buffers()]
    known = {id(tensor): name for name, tensor in tensors}
    placed = {
        f"{path}.{name}".lstrip("."): state[known[id(tensor)]]
        for path, part in module.named_modules()
        for name, tensor in (*part.named_parameters("", False), *part.named_buffers("", False))
    }
    return torch.func.functional_call(module, placed, (tokens,), tie_weights=False)


def is_matrix(name: str, tensor: Tensor) -> bool:
    """Return whether a parameter of a HookedTransformer or of a plain module is a weight matrix."""
    own = name.rsplit(".", 1)[-1].lstrip("_")
    return own.startswith("W_") or (own.endswith("weight") and tensor.dim() == 2)


def _groups(parameters: dict[str, Tensor], most: int) -> list[dict[str, Tensor]]:
    """Group parameters in order, with at most `most` elements in a group unless one parameter has more."""
    groups: list[dict[str, Tensor]] = [{}]
    for name, parameter in parameters.items():
        if groups[-1] and sum(p.numel() for p in groups[-1].values()) + parameter.numel() > most:
            groups.append({})
        groups[-1][name] = parameter
    return groups
