"""Models as functions of their parameters: their tangent kernel, and copies that are trained further."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.adamw import adamw

from anchorlens.engine.forward import logits_at_end, table_rows
from anchorlens.engine.layout import Transformer
from anchorlens.models.config import VARIANTS, ModelConfig
from anchorlens.models.running import device_of, evaluation_mode, sequences_per_batch
from anchorlens.tasks.shared.batch import IGNORE
from anchorlens.tasks.shared.evaluator import logits_in

if TYPE_CHECKING:
    from anchorlens.models.library import HookedTransformer

_MOST_GRADIENTS = 2**25
"""The largest number of gradient elements that memory holds at once, which is 128 MiB in float32."""
_A_FEW = 16
"""The number of sequences on which the logits of the training engine and of the model must agree."""


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


class CopyAnswers(NamedTuple):
    """The loss and the number of correct predictions of each copy on its sequences."""

    losses: Float[Tensor, " copy"]
    """The mean cross-entropy over scored tokens, in nats."""
    n_right: Int[Tensor, " copy"]
    """The number of scored tokens that the copy predicts correctly."""
    n_scored: Int[Tensor, " copy"]
    """The number of scored tokens."""


class Copies:
    """Copies of a model, each with separate weights and sequences.

    The training engine computes all copies at once if its logits agree with the logits of the model.
    Otherwise, the model's own code computes one copy after the other. The logits disagree for models of other
    architectures, and for models with hooks that change the logits.
    """

    def __init__(
        self,
        model: HookedTransformer,
        n_copies: int,
        tokens: Int[Tensor, "batch pos"],
        *,
        noise: float = 0.0,
        rng: np.random.Generator | None = None,
    ) -> None:
        """Copy the weights of a model in evaluation mode.

        Args:
            model: a HookedTransformer, or a native TransformerBridge.
            n_copies: the number of copies K, at least 1.
            tokens: sequences with every token of the inputs of the copies.
            noise: the standard deviation of the Gaussian noise in each weight matrix of each copy, in units
                of the root mean square of the matrix.
            rng: the generator of the noise.
        """
        self._module, self._device = differentiated(model), device_of(model)
        self._at_once = max(1, sequences_per_batch(model, tokens.shape[1]) // n_copies)
        self._vocabulary = tokens.unique().long().to(self._device)
        self._state = usable_state(self._module)
        self.config = None
        own = {name: self._state[name].unsqueeze(0) for name, _ in self._module.named_parameters()}
        disturbed = {
            name: weight + noise * weight.square().mean().sqrt() * _gaussian(n_copies, weight, rng)
            for name, weight in own.items()
            if rng is not None and is_matrix(name, weight[0])
        }
        some = tokens[:_A_FEW].long().to(self._device)
        with torch.no_grad():
            wanted = self._by_module(own, some.unsqueeze(0), tokens.shape[1])
            for config in _configs(model.cfg, own):
                layout = Transformer(config)
                merged = layout.merged(layout.row({name: own[name][0] for name in own}).unsqueeze(0))
                found = self._by_engine(config, merged, some.unsqueeze(0), tokens.shape[1])
                if torch.allclose(found, wanted, rtol=1e-3, atol=1e-3):
                    self.config = config
                    break
        each = {
            name: disturbed.get(name, weight.expand(n_copies, *weight.shape[1:])).detach()
            for name, weight in own.items()
        }
        if self.config is not None:
            layout = Transformer(self.config)
            rows = [layout.row({name: weight[k] for name, weight in each.items()}) for k in range(n_copies)]
            each = layout.merged(torch.stack(rows))
        self.weights = {name: weight.clone().requires_grad_() for name, weight in each.items()}

    def answers(
        self, tokens: Int[Tensor, "copy batch pos"], targets: Int[Tensor, "copy batch ..."]
    ) -> CopyAnswers:
        """Compute the loss and the number of correct predictions of each copy.

        The targets have the format of a `TokenBatch`.
        """
        targets = targets.unsqueeze(-1) if targets.dim() == 2 else targets
        columns = (targets != IGNORE).flatten(0, 1).any(dim=0)
        n_last = len(columns) - int(columns.int().argmax())
        tokens, targets = tokens.to(self._device), targets[..., -n_last:].to(self._device)
        if self.config is None:
            logits = self._by_module(self.weights, tokens, n_last)
        else:
            logits = self._by_engine(self.config, self.weights, tokens, n_last)
        is_scored = targets != IGNORE
        losses = functional.cross_entropy(
            logits.flatten(0, 2), targets.flatten(), ignore_index=IGNORE, reduction="none"
        ).view(targets.shape)
        is_right = (logits.argmax(dim=-1) == targets) & is_scored
        n_scored = is_scored.sum(dim=(1, 2))
        return CopyAnswers(losses.sum(dim=(1, 2)) / n_scored, is_right.sum(dim=(1, 2)), n_scored)

    @cached_property
    def _moments(self) -> list[list[Tensor]]:
        """The first and second moments of the weights, and the numbers of updates, as torch's own."""
        moments = [[torch.zeros_like(weight) for weight in self.weights.values()] for _ in range(2)]
        return [*moments, [torch.zeros((), dtype=torch.float32, device="cpu") for _ in self.weights]]

    def update(self, losses: Float[Tensor, " copy"], lr: float, weight_decay: Float[Tensor, " copy"]) -> None:
        """Update the weights with AdamW, with decoupled weight decay and without gradient clipping.

        The betas are 0.9 and 0.999. The method calls torch's function `adamw`, because torch's optimiser
        classes import torch's compiler. The import of the compiler takes 2 s.
        """
        weights, (first, second, steps) = list(self.weights.values()), self._moments
        gradients = torch.autograd.grad(losses.sum(), weights, materialize_grads=True)
        kept = 1 - lr * weight_decay
        with torch.no_grad():
            for weight in weights:
                weight.mul_(kept.to(weight).view(-1, *[1] * (weight.dim() - 1)))
            adamw(
                weights, list(gradients), first, second, [], steps,
                foreach=False, amsgrad=False, beta1=0.9, beta2=0.999, lr=lr, weight_decay=0.0, eps=1e-8,
                maximize=False,
            )  # fmt: skip

    def keep(self, kept: list[int]) -> None:
        """Keep the copies with these indices, with their moments, and drop all others."""
        self.weights = {name: weight.detach()[kept].requires_grad_() for name, weight in self.weights.items()}
        self._moments[:2] = [[moment[kept] for moment in moments] for moments in self._moments[:2]]

    @torch.no_grad()
    def accuracies(
        self, tokens: Int[Tensor, "copy batch pos"], targets: Int[Tensor, "copy batch ..."]
    ) -> Float[Tensor, " copy"]:
        """Compute the proportion of the scored tokens that each copy predicts correctly, from 0 to 1."""
        chunks = zip(tokens.split(self._at_once, dim=1), targets.split(self._at_once, dim=1), strict=True)
        found = [self.answers(*chunk) for chunk in chunks]
        n_right = torch.stack([one.n_right for one in found]).sum(dim=0)
        n_scored = torch.stack([one.n_scored for one in found]).sum(dim=0)
        return n_right.double() / n_scored

    def _by_module(self, weights: dict[str, Tensor], tokens: Tensor, n_last: int) -> Tensor:
        logits = []
        for k, own in enumerate(tokens):
            state = {**self._state, **{name: weight[k] for name, weight in weights.items()}}
            output = answered_with(self._module, state, own)
            logits.append(logits_in(output, own, 1)[:, -n_last:])
        return torch.stack(logits)

    def _by_engine(
        self, config: ModelConfig, weights: dict[str, Tensor], tokens: Tensor, n_last: int
    ) -> Tensor:
        places = torch.searchsorted(self._vocabulary, tokens.contiguous())
        return logits_at_end(weights, config, table_rows(places), self._vocabulary, n_last=n_last)


def _gaussian(n_copies: int, weight: Float[Tensor, "1 ..."], rng: np.random.Generator) -> Tensor:
    """Draw Gaussian numbers for each copy of a weight, which are equal on every device."""
    drawn = rng.standard_normal((n_copies, *weight.shape[1:]), dtype=np.float32)
    return torch.from_numpy(drawn).to(weight)


def _configs(cfg: object, weights: Mapping[str, Tensor]) -> Iterator[ModelConfig]:
    """Yield the configurations of our variants that have these parameters.

    Each weight has the shape [1, ...].
    """
    shapes = {name: tuple(weight.shape[1:]) for name, weight in weights.items()}
    names = [field.name for field in fields(ModelConfig) if hasattr(cfg, field.name)]
    for variant in VARIANTS:
        try:
            own = {name: getattr(cfg, name) for name in names}
            layout = Transformer(config := ModelConfig(**{**own, "variant": variant, "gamma": None}))
        except ValueError:  # the architecture is none of ours
            continue
        if layout.shapes == shapes and not any(weights[name].any() for name in layout.frozen):
            yield config
