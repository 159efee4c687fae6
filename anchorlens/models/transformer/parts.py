"""Parameters, normalisation, embeddings and the unembedding, and the names of shapes."""

from __future__ import annotations

import torch
from einops import repeat
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import functional
from transformer_lens.hook_points import HookPoint
from transformer_lens.utilities.tensors import get_offset_position_ids

from anchorlens.models.transformer.configuration import HookedTransformerConfig

Residual = Float[Tensor, "batch pos d_model"]
PerHead = Float[Tensor, "batch pos *head_index d_model"]
PerKeyHead = Float[Tensor, "batch pos *kv_head_index d_model"]
Mask = Shaped[Tensor, "batch pos"]


def empty_weight(cfg: HookedTransformerConfig, *shape: int) -> nn.Parameter:
    """Make a weight whose values are drawn later."""
    return nn.Parameter(torch.empty(*shape, dtype=cfg.dtype, device=torch.get_default_device()))


def zero_bias(cfg: HookedTransformerConfig, *shape: int) -> nn.Parameter:
    """Make a bias of zeros."""
    return nn.Parameter(torch.zeros(*shape, dtype=cfg.dtype, device=torch.get_default_device()))


class Norm(nn.Module):
    """A LayerNorm or RMSNorm over the last axis.

    A norm whose weights are folded into the next map (`LNPre` or `RMSPre`) has no weights.
    """

    def __init__(
        self, cfg: HookedTransformerConfig, kind: str | None = None, length: int | None = None
    ) -> None:
        super().__init__()
        self.cfg, kind = cfg, kind or cfg.normalization_type or ""
        self.centred, self.folded = kind.startswith("LN"), kind.endswith("Pre")
        if not self.folded:
            self.w = nn.Parameter(torch.ones_like(empty_weight(cfg, length or cfg.d_model)))
            if self.centred:
                self.b = zero_bias(cfg, length or cfg.d_model)
        self.hook_scale = HookPoint()  # [batch, pos, 1]
        self.hook_normalized = HookPoint()  # [batch, pos, length]

    def forward(self, x: Float[Tensor, "*batch length"]) -> Float[Tensor, "*batch length"]:
        """Compute (x - mean) / std * w + b, at least in float32.

        An RMSNorm omits the mean and b.
        """
        if self.cfg.dtype not in (torch.float32, torch.float64):
            x = x.to(torch.float32)
        if self.centred:
            x = x - x.mean(-1, keepdim=True)
        scale = self.hook_scale((x.pow(2).mean(-1, keepdim=True) + self.cfg.eps).sqrt())
        x = self.hook_normalized(x / scale).to(self.cfg.dtype)
        if self.folded:
            return x
        return x * self.w + self.b if self.centred else x * self.w


def norm_of(cfg: HookedTransformerConfig) -> nn.Module:
    """Make the normalisation that a configuration sets, or the identity if no normalisation is set."""
    return nn.Identity() if cfg.normalization_type is None else Norm(cfg)


class Embed(nn.Module):
    """The embedding of tokens as vectors."""

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        self.W_E = empty_weight(cfg, cfg.d_vocab, cfg.d_model)
        if cfg.post_embedding_ln:
            self.ln = Norm(cfg, "LN")

    def forward(self, tokens: Int[Tensor, "batch pos"]) -> Residual:
        """Return the rows of W_E that belong to the tokens."""
        embedded = self.W_E[tokens, :]
        return self.ln(embedded) if hasattr(self, "ln") else embedded


class PosEmbed(nn.Module):
    """The embedding of positions as vectors."""

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        self.W_pos = empty_weight(cfg, cfg.n_ctx, cfg.d_model)

    def forward(self, tokens: Int[Tensor, "batch pos"], attention_mask: Mask | None = None) -> Residual:
        """Return the rows of W_pos at the positions, counted from the first token that is not padding."""
        if attention_mask is None:
            return repeat(self.W_pos[: tokens.size(1)], "pos d -> batch pos d", batch=tokens.size(0)).clone()
        embedded = self.W_pos[get_offset_position_ids(0, attention_mask)]
        return torch.where(attention_mask.bool()[..., None], embedded, 0)


class Unembed(nn.Module):
    """The map from the residual stream to logits."""

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        self.W_U = empty_weight(cfg, cfg.d_model, cfg.d_vocab_out)
        self.b_U = zero_bias(cfg, cfg.d_vocab_out)
        self.hook_in, self.hook_out = HookPoint(), HookPoint()

    def forward(self, residual: Residual) -> Float[Tensor, "batch pos d_vocab_out"]:
        """Compute residual @ W_U + b_U."""
        return self.hook_out(functional.linear(self.hook_in(residual), self.W_U.T.contiguous(), self.b_U))
