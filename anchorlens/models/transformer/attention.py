"""The attention of a block: heads with separate or shared keys and values, rotary and ALiBi positions."""

from __future__ import annotations

from typing import Any

import torch
from einops import rearrange, repeat
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from transformer_lens import FactoredMatrix
from transformer_lens.hook_points import HookPoint
from transformer_lens.utilities.tensors import get_offset_position_ids

from anchorlens.models.transformer.configuration import HookedTransformerConfig
from anchorlens.models.transformer.parts import (
    Mask,
    Norm,
    PerHead,
    PerKeyHead,
    Residual,
    empty_weight,
    zero_bias,
)


def _heads(x: PerHead, weight: Tensor, bias: Tensor) -> Float[Tensor, "batch pos head_index d_head"]:
    """Project x (common or one per head) with the weight [head_index, d_model, d_head]."""
    if x.dim() == 4:
        return torch.einsum("bphm,hmd->bphd", x, weight) + bias
    flat = functional.linear(x, rearrange(weight, "head m d -> (head d) m"), bias.flatten())
    return flat.reshape(*x.shape[:2], *bias.shape)


class Attention(nn.Module):
    """Attention whose heads each have separate keys and values."""

    groups = 1

    def __init__(self, cfg: HookedTransformerConfig, layer: int) -> None:
        super().__init__()
        self.cfg, self.layer_id = cfg, layer
        self.W_Q = empty_weight(cfg, cfg.n_heads, cfg.d_model, cfg.d_head)
        self.W_O = empty_weight(cfg, cfg.n_heads, cfg.d_head, cfg.d_model)
        self.b_Q = zero_bias(cfg, cfg.n_heads, cfg.d_head)
        self.b_O = zero_bias(cfg, cfg.d_model)
        self.q_norm = Norm(cfg, "RMS", cfg.d_head) if cfg.use_qk_norm else None
        self.k_norm = Norm(cfg, "RMS", cfg.d_head) if cfg.use_qk_norm else None
        here = torch.get_default_device()
        self.mask: Tensor
        self.register_buffer("mask", torch.empty((0, 0), dtype=torch.bool, device=here))  # stored, never read
        self.IGNORE: Tensor
        self.register_buffer("IGNORE", torch.tensor(-torch.inf, device=here))
        self.attn_scale = cfg.attn_scale if cfg.use_attn_scale else 1.0
        if cfg.scale_attn_by_inverse_layer_idx:
            self.attn_scale *= layer + 1
        self.hook_k = HookPoint()  # [batch, pos, kv_head_index, d_head]
        self.hook_q = HookPoint()  # [batch, pos, head_index, d_head]
        self.hook_v = HookPoint()  # [batch, pos, kv_head_index, d_head]
        self.hook_z = HookPoint()  # [batch, pos, head_index, d_head]
        self.hook_attn_scores = HookPoint()  # [batch, head_index, query_pos, key_pos]
        self.hook_pattern = HookPoint()  # [batch, head_index, query_pos, key_pos]
        self.hook_result = HookPoint()  # [batch, pos, head_index, d_model]
        if cfg.positional_embedding_type == "shortformer":
            self.hook_attn_input = HookPoint()  # of TransformerLens 3.9, where it is not used either
        elif cfg.positional_embedding_type == "rotary":
            self.hook_rot_k, self.hook_rot_q = HookPoint(), HookPoint()
            self.rotary_sin: Tensor
            self.rotary_cos: Tensor
            sin, cos = _rotary_angles(cfg)
            self.register_buffer("rotary_sin", sin)
            self.register_buffer("rotary_cos", cos)
        self._add_keys_and_values()

    def _add_keys_and_values(self) -> None:
        cfg = self.cfg
        self.W_K = empty_weight(cfg, cfg.n_heads, cfg.d_model, cfg.d_head)
        self.W_V = empty_weight(cfg, cfg.n_heads, cfg.d_model, cfg.d_head)
        self.b_K = zero_bias(cfg, cfg.n_heads, cfg.d_head)
        self.b_V = zero_bias(cfg, cfg.n_heads, cfg.d_head)

    def _keys_and_values(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.W_K, self.b_K, self.W_V, self.b_V

    @property
    def OV(self) -> FactoredMatrix:
        """The product W_V @ W_O as a FactoredMatrix, [head_index, d_model, d_model]."""
        return FactoredMatrix(self.W_V, self.W_O)

    @property
    def QK(self) -> FactoredMatrix:
        """The product W_Q @ W_K.T as a FactoredMatrix, [head_index, d_model, d_model]."""
        return FactoredMatrix(self.W_Q, self.W_K.transpose(-2, -1))

    def forward(
        self,
        query_input: PerHead,
        key_input: PerKeyHead,
        value_input: PerKeyHead,
        past_kv_cache_entry: Any = None,
        attention_mask: Mask | None = None,
    ) -> Residual:
        """Compute the output of attention, without a key-value cache."""
        W_K, b_K, W_V, b_V = self._keys_and_values()
        q = self.hook_q(_heads(query_input, self.W_Q, self.b_Q))  # [batch, pos, head_index, d_head]
        k = self.hook_k(_heads(key_input, W_K, b_K))  # [batch, pos, kv_head_index, d_head]
        v = self.hook_v(_heads(value_input, W_V, b_V))  # [batch, pos, kv_head_index, d_head]
        if self.q_norm is not None and self.k_norm is not None:
            q, k = (norm(x.flatten(0, 2)).view_as(x) for norm, x in ((self.q_norm, q), (self.k_norm, k)))
        if self.cfg.positional_embedding_type == "rotary":
            q = self.hook_rot_q(self._rotated(q, attention_mask))
            k = self.hook_rot_k(self._rotated(k, attention_mask))
        if k.shape[2] < q.shape[2]:
            k = k.repeat_interleave(self.groups, dim=2)
        scores = q.transpose(1, 2) @ k.permute(0, 2, 3, 1) / self.attn_scale  # [batch, head, query, key]
        if self.cfg.positional_embedding_type == "alibi":
            scores += _alibi(self.cfg.n_heads, scores.shape[-1], scores.device)
        if self.cfg.attention_dir == "causal":
            scores = self._causal(scores, attention_mask)
        pattern = functional.softmax(self.hook_attn_scores(scores), dim=-1)
        pattern = torch.where(pattern.isnan(), torch.zeros_like(pattern, device=pattern.device), pattern)
        pattern = self.hook_pattern(pattern).to(v.dtype)
        if v.shape[2] < q.shape[2]:
            v = v.repeat_interleave(self.groups, dim=2)
        z = self.hook_z((pattern @ v.transpose(1, 2)).transpose(1, 2)).to(self.W_O.dtype)
        if self.cfg.use_attn_result:
            return self.hook_result((z[..., None] * self.W_O).sum(-2)).sum(2) + self.b_O
        W_O = rearrange(self.W_O, "head d m -> m (head d)").contiguous()
        return functional.linear(z.reshape(*z.shape[:2], -1), W_O, self.b_O)

    def _causal(self, scores: Tensor, attention_mask: Mask | None) -> Tensor:
        """Set the scores of later positions and of padding to minus infinity."""
        positions = torch.arange(scores.shape[-1], device=scores.device)
        seen = positions[None, :] <= positions[:, None]  # [query_pos, key_pos]
        if attention_mask is not None:
            seen = seen & attention_mask[:, None, None, :].bool()
        return torch.where(seen, scores, self.IGNORE)

    def _rotated(self, x: Float[Tensor, "batch pos head d_head"], attention_mask: Mask | None) -> Tensor:
        """Rotate pairs of the first `rotary_dim` numbers of each head, by angles that grow with position."""
        turned, rest = x[..., : self.cfg.rotary_dim], x[..., self.cfg.rotary_dim :]
        if self.cfg.rotary_adjacent_pairs:
            across = torch.stack([-turned[..., 1::2], turned[..., ::2]], dim=-1).flatten(-2)
        else:
            half = turned.shape[-1] // 2
            across = torch.cat([-turned[..., half:], turned[..., :half]], dim=-1)
        at = slice(x.shape[1]) if attention_mask is None else get_offset_position_ids(0, attention_mask)
        cos, sin = self.rotary_cos[at].unsqueeze(-2), self.rotary_sin[at].unsqueeze(-2)
        return torch.cat([turned * cos + across * sin, rest], dim=-1)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: object, **kwargs: object) -> None:
        """Keep our buffers, which follow from the configuration; older versions stored other shapes."""
        own = {prefix + name: buffer for name, buffer in self.named_buffers(recurse=False)}
        super()._load_from_state_dict({**state_dict, **own}, prefix, *args, **kwargs)


class GroupedQueryAttention(Attention):
    """Attention whose heads share keys and values in `n_key_value_heads` groups."""

    def _add_keys_and_values(self) -> None:
        cfg, n_shared = self.cfg, self.cfg.n_key_value_heads
        assert n_shared is not None
        self.groups = cfg.n_heads // n_shared
        self._W_K = empty_weight(cfg, n_shared, cfg.d_model, cfg.d_head)
        self._W_V = empty_weight(cfg, n_shared, cfg.d_model, cfg.d_head)
        self._b_K = zero_bias(cfg, n_shared, cfg.d_head)
        self._b_V = zero_bias(cfg, n_shared, cfg.d_head)

    def _keys_and_values(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        if self.cfg.ungroup_grouped_query_attention:
            return self.W_K, self.b_K, self.W_V, self.b_V
        return self._W_K, self._b_K, self._W_V, self._b_V

    W_K: Any = property(lambda self: self._W_K.repeat_interleave(self.groups, dim=0))
    W_V: Any = property(lambda self: self._W_V.repeat_interleave(self.groups, dim=0))
    b_K: Any = property(lambda self: self._b_K.repeat_interleave(self.groups, dim=0))
    b_V: Any = property(lambda self: self._b_V.repeat_interleave(self.groups, dim=0))


def _rotary_angles(cfg: HookedTransformerConfig) -> tuple[Tensor, Tensor]:
    """Compute the sines and cosines of all positions' angles, [n_ctx, rotary_dim] each."""
    assert cfg.rotary_dim is not None
    dtype, device = torch.promote_types(cfg.dtype, torch.float32), torch.get_default_device()
    pair = torch.arange(cfg.rotary_dim // 2, dtype=dtype, device=device)
    wavelength = cfg.rotary_base ** (pair / (cfg.rotary_dim / 2)) * cfg.rotary_scaling_factor
    wavelength = repeat(wavelength, "d -> (d 2)" if cfg.rotary_adjacent_pairs else "d -> (2 d)")
    angles = torch.arange(cfg.n_ctx, dtype=dtype, device=device)[:, None] / wavelength[None, :]
    return angles.sin().to(cfg.dtype), angles.cos().to(cfg.dtype)


def _alibi(n_heads: int, n_pos: int, device: torch.device) -> Float[Tensor, "head_index query_pos key_pos"]:
    """Compute each head's ALiBi bias: minus its slope times the distance between query and key."""
    positions = torch.arange(n_pos, device=device)
    distance = (positions[None, :] - positions[:, None]).clamp(max=0).to(torch.float32)
    start = 2 ** (-8 / n_heads)
    slopes = start * start ** torch.arange(n_heads, device=device)
    return slopes[:, None, None] * distance
