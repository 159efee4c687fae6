"""The MLPs of a block: plain, gated, and a mixture of experts."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from transformer_lens.hook_points import HookPoint
from transformer_lens.utilities.activation_functions import SUPPORTED_ACTIVATIONS

from anchorlens.models.transformer.configuration import HookedTransformerConfig
from anchorlens.models.transformer.parts import Residual, empty_weight, zero_bias


def _affine(bias: Tensor, weight: Tensor, x: Tensor) -> Tensor:
    """Compute x @ weight + bias in one step, like GPT-2's Conv1D."""
    return torch.addmm(bias, x.view(-1, x.size(-1)), weight).view(*x.shape[:-1], weight.shape[-1])


class MLP(nn.Module):
    """The MLP act(x @ W_in + b_in) @ W_out + b_out."""

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        assert cfg.d_mlp is not None
        self.act_fn: Callable[..., Tensor] = SUPPORTED_ACTIVATIONS[cfg.act_fn]
        self.W_in = empty_weight(cfg, cfg.d_model, cfg.d_mlp)
        self.b_in = zero_bias(cfg, cfg.d_mlp)
        self.W_out = empty_weight(cfg, cfg.d_mlp, cfg.d_model)
        self.b_out = zero_bias(cfg, cfg.d_model)
        self.hook_pre = HookPoint()  # [batch, pos, d_mlp]
        self.hook_post = HookPoint()  # [batch, pos, d_mlp]

    def forward(self, x: Residual) -> Residual:
        """Compute the output of the MLP."""
        pre = self.hook_pre(_affine(self.b_in, self.W_in, x))
        return _affine(self.b_out, self.W_out, self.hook_post(self.act_fn(pre)))


class GatedMLP(nn.Module):
    """The gated MLP (act(x @ W_gate) * (x @ W_in) + b_in) @ W_out + b_out."""

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        assert cfg.d_mlp is not None
        self.act_fn: Callable[..., Tensor] = SUPPORTED_ACTIVATIONS[cfg.act_fn]
        self.W_in = empty_weight(cfg, cfg.d_model, cfg.d_mlp)
        self.W_out = empty_weight(cfg, cfg.d_mlp, cfg.d_model)
        self.W_gate = empty_weight(cfg, cfg.d_model, cfg.d_mlp)
        self.b_in = zero_bias(cfg, cfg.d_mlp)
        self.b_out = zero_bias(cfg, cfg.d_model)
        self.hook_pre = HookPoint()  # [batch, pos, d_mlp]
        self.hook_pre_linear = HookPoint()  # [batch, pos, d_mlp]
        self.hook_post = HookPoint()  # [batch, pos, d_mlp]

    def forward(self, x: Residual) -> Residual:
        """Compute the output of the MLP."""
        pre = self.hook_pre(functional.linear(x, self.W_gate.T.contiguous()))
        linear = self.hook_pre_linear(functional.linear(x, self.W_in.T.contiguous()))
        post = self.hook_post(self.act_fn(pre) * linear + self.b_in)
        return functional.linear(post, self.W_out.T.contiguous(), self.b_out)


def _linear(cfg: HookedTransformerConfig, d_in: int, d_out: int) -> nn.Linear:
    return nn.Linear(d_in, d_out, bias=False, dtype=cfg.dtype, device=torch.get_default_device())


class Expert(nn.Module):
    """An expert, which computes (act(x @ W_gate) * (x @ W_in)) @ W_out.

    Each row of x is a token that a router sends to the expert.
    """

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        assert cfg.d_mlp is not None
        self.act_fn: Callable[..., Tensor] = SUPPORTED_ACTIVATIONS[cfg.act_fn]
        self.W_in = _linear(cfg, cfg.d_model, cfg.d_mlp)
        self.W_out = _linear(cfg, cfg.d_mlp, cfg.d_model)
        self.W_gate = _linear(cfg, cfg.d_model, cfg.d_mlp)
        self.hook_gate = HookPoint()  # [row, d_mlp]
        self.hook_pre = HookPoint()  # [row, d_mlp]
        self.hook_post = HookPoint()  # [row, d_mlp]

    def forward(self, x: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_model"]:
        """Compute the output of the expert."""
        gate = self.hook_gate(self.W_gate(x))
        return self.W_out(self.hook_post(self.act_fn(gate) * self.hook_pre(self.W_in(x))))


class MixtureOfExperts(nn.Module):
    """A mixture of experts, which sums the outputs of the chosen experts times their router weights.

    The router chooses the experts with the largest softmax weights.
    """

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        assert cfg.num_experts is not None and cfg.experts_per_token is not None
        self.cfg, self.n_active = cfg, cfg.experts_per_token
        self.experts = nn.ModuleList([Expert(cfg) for _ in range(cfg.num_experts)])
        self.W_gate = _linear(cfg, cfg.d_model, cfg.num_experts)
        self.hook_expert_weights = HookPoint()  # [batch * pos, expert] before the largest are chosen
        self.hook_expert_indices = HookPoint()  # [batch * pos, experts_per_token]

    def forward(self, x: Residual) -> Residual:
        """Compute the output of the experts."""
        rows = x.view(-1, x.shape[-1])
        weights = self.hook_expert_weights(functional.softmax(self.W_gate(rows), dim=1, dtype=torch.float))
        weights, chosen = weights.topk(self.n_active, dim=-1)
        if self.cfg.norm_topk_prob:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        chosen, weights = self.hook_expert_indices(chosen), weights.to(x.dtype)
        added = torch.zeros_like(rows)
        for index, expert in enumerate(self.experts):
            place, row = torch.where((chosen == index).T)
            added.index_add_(0, row, expert(rows[row]) * weights[row, place, None])
        return added.view(x.shape)
