"""The layers of a HookedTransformer: embeddings, normalisation, attention, MLPs and the block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from einops import rearrange, repeat
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import functional
from transformer_lens import FactoredMatrix
from transformer_lens.hook_points import HookPoint
from transformer_lens.utilities.activation_functions import SUPPORTED_ACTIVATIONS
from transformer_lens.utilities.addmm import batch_addmm
from transformer_lens.utilities.attention import complex_attn_linear, simple_attn_linear
from transformer_lens.utilities.tensors import get_offset_position_ids, repeat_along_head_dimension

from anchorlens.extras.transformer_lens_4.configuration import HookedTransformerConfig

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


def norm_of(cfg: HookedTransformerConfig, kind: str | None = None) -> nn.Module:
    """Make a norm, of the configuration's kind by default, or the identity for a model without norms."""
    return nn.Identity() if cfg.normalization_type is None else Norm(cfg, kind)


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

    def forward(
        self,
        tokens: Int[Tensor, "batch pos"],
        past_kv_pos_offset: int = 0,
        attention_mask: Shaped[Tensor, "batch offset_pos"] | None = None,
    ) -> Residual:
        """Return the rows of W_pos at the positions, counted from the first token that is not padding.

        The tokens follow `past_kv_pos_offset` other tokens, which the mask also covers.
        """
        here = slice(past_kv_pos_offset, past_kv_pos_offset + tokens.size(1))
        if attention_mask is None:
            return repeat(self.W_pos[here], "pos d -> batch pos d", batch=tokens.size(0)).clone()
        embedded = self.W_pos[get_offset_position_ids(past_kv_pos_offset, attention_mask)]
        return torch.where(attention_mask[:, here].bool()[..., None], embedded, 0)


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


class Attention(nn.Module):
    """Attention whose heads each have separate keys and values."""

    W_K: Any
    W_V: Any

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
        n_kept = cfg.n_key_value_heads or cfg.n_heads
        self.mark = "_" if cfg.n_key_value_heads else ""  # TransformerLens' mark of shared keys and values
        self.groups = cfg.n_heads // n_kept
        for name in ("W_K", "W_V"):
            weight = empty_weight(cfg, n_kept, cfg.d_model, cfg.d_head)
            self.register_parameter(f"{self.mark}{name}", weight)
        for name in ("b_K", "b_V"):
            self.register_parameter(f"{self.mark}{name}", zero_bias(cfg, n_kept, cfg.d_head))

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
        past_kv_cache_entry: object = None,
        attention_mask: Mask | None = None,
    ) -> Residual:
        """Compute the output of attention, without a key-value cache."""
        mark = "" if self.cfg.ungroup_grouped_query_attention else self.mark
        W_K, b_K, W_V, b_V = (getattr(self, f"{mark}{name}") for name in ("W_K", "b_K", "W_V", "b_V"))
        in_heads = complex_attn_linear if query_input.dim() == 4 else simple_attn_linear
        q = self.hook_q(in_heads(query_input, self.W_Q, self.b_Q))  # [batch, pos, head_index, d_head]
        k = self.hook_k(in_heads(key_input, W_K, b_K))  # [batch, pos, kv_head_index, d_head]
        v = self.hook_v(in_heads(value_input, W_V, b_V))  # [batch, pos, kv_head_index, d_head]
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

    W_K = property(lambda self: self._W_K.repeat_interleave(self.groups, dim=0))
    W_V = property(lambda self: self._W_V.repeat_interleave(self.groups, dim=0))
    b_K = property(lambda self: self._b_K.repeat_interleave(self.groups, dim=0))
    b_V = property(lambda self: self._b_V.repeat_interleave(self.groups, dim=0))


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
        pre = self.hook_pre(batch_addmm(self.b_in, self.W_in, x))
        return batch_addmm(self.b_out, self.W_out, self.hook_post(self.act_fn(pre)))


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


class TransformerBlock(nn.Module):
    """A block that computes y + mlp(ln2(y)) with y = x + attn(ln1(x)).

    With `parallel_attn_mlp`, the block computes y + mlp(ln2(x)).
    """

    hook_out_is_single_residual_stream = True
    """The mark by which `transformer_lens.tools.analysis.logit_lens` knows the residual stream of a block."""

    def __init__(self, cfg: HookedTransformerConfig, block_index: int) -> None:
        super().__init__()
        self.cfg = cfg
        self.ln1 = norm_of(cfg)
        if cfg.use_normalization_before_and_after:
            self.ln1_post = norm_of(cfg, "RMS")
        if not cfg.attn_only:
            self.ln2 = norm_of(cfg)
            if cfg.use_normalization_before_and_after:
                self.ln2_post = norm_of(cfg, "RMS")
        self.attn = (Attention if cfg.n_key_value_heads is None else GroupedQueryAttention)(cfg, block_index)
        if not cfg.attn_only:
            kind = MixtureOfExperts if cfg.num_experts else GatedMLP if cfg.gated_mlp else MLP
            self.mlp: Any = kind(cfg)
        self.hook_attn_in = HookPoint()  # [batch, pos, head_index, d_model]
        self.hook_q_input = HookPoint()  # [batch, pos, head_index, d_model]
        self.hook_k_input = HookPoint()  # [batch, pos, kv_head_index, d_model]
        self.hook_v_input = HookPoint()  # [batch, pos, kv_head_index, d_model]
        self.hook_mlp_in = HookPoint()  # [batch, pos, d_model]
        self.hook_attn_out = HookPoint()  # [batch, pos, d_model]
        self.hook_mlp_out = HookPoint()  # [batch, pos, d_model]
        self.hook_resid_pre = HookPoint()  # [batch, pos, d_model]
        if not cfg.attn_only and not cfg.parallel_attn_mlp:
            self.hook_resid_mid = HookPoint()  # [batch, pos, d_model]
        self.hook_resid_post = HookPoint()  # [batch, pos, d_model]

    def forward(
        self,
        resid_pre: Residual,
        shortformer_pos_embed: Residual | None = None,
        past_kv_cache_entry: object = None,
        attention_mask: Mask | None = None,
    ) -> Residual:
        """Compute the residual stream after the block, without a key-value cache."""
        resid_pre = self.hook_resid_pre(resid_pre)
        queries, keys, values = self._attention_inputs(resid_pre)
        queries = self.ln1(queries)
        keys, values = self.ln1(keys), self.ln1(values)
        if shortformer_pos_embed is not None:
            positions = shortformer_pos_embed
            if queries.dim() == 4:
                positions = repeat_along_head_dimension(positions, n_heads=self.cfg.n_heads)
            queries, keys = queries + positions, keys + positions
        attn_out = self.attn(queries, keys, values, attention_mask=attention_mask)
        if self.cfg.use_normalization_before_and_after:
            attn_out = self.ln1_post(attn_out)
        attn_out = self.hook_attn_out(attn_out)
        if self.cfg.attn_only:
            return self.hook_resid_post(resid_pre + attn_out)
        if self.cfg.parallel_attn_mlp:
            mlp_out = self._mlp_out(resid_pre)
            return self.hook_resid_post(resid_pre + attn_out + mlp_out)
        resid_mid = self.hook_resid_mid(resid_pre + attn_out)
        return self.hook_resid_post(resid_mid + self._mlp_out(resid_mid))

    def _attention_inputs(self, resid_pre: Residual) -> tuple[Tensor, Tensor, Tensor]:
        """Return query, key and value input, after the hooks that flags of `cfg` switch on."""
        cfg, attn_in = self.cfg, resid_pre
        if cfg.use_attn_in:
            attn_in = self.hook_attn_in(repeat_along_head_dimension(resid_pre, n_heads=cfg.n_heads))
        if not cfg.use_split_qkv_input:
            return attn_in, attn_in, attn_in
        n_shared = None if cfg.ungroup_grouped_query_attention else cfg.n_key_value_heads
        n_keys = n_shared or cfg.n_heads
        return (
            self.hook_q_input(repeat_along_head_dimension(resid_pre, n_heads=cfg.n_heads)),
            self.hook_k_input(repeat_along_head_dimension(resid_pre, n_heads=n_keys)),
            self.hook_v_input(repeat_along_head_dimension(resid_pre, n_heads=n_keys)),
        )

    def _mlp_out(self, mlp_in: Residual) -> Residual:
        mlp_in = self.hook_mlp_in(mlp_in.clone()) if self.cfg.use_hook_mlp_in else mlp_in
        return self.apply_mlp(self.ln2(mlp_in))

    def apply_mlp(self, normalized_resid: Residual) -> Residual:
        """Compute the output of the MLP, [batch, pos, d_model]."""
        mlp_out = self.mlp(normalized_resid)
        if self.cfg.use_normalization_before_and_after:
            mlp_out = self.ln2_post(mlp_out)
        return self.hook_mlp_out(mlp_out)
