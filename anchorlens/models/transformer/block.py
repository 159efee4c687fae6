"""The transformer block: attention and MLP, with a hook point at every activation."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint
from transformer_lens.utilities.tensors import repeat_along_head_dimension

from anchorlens.models.transformer.attention import Attention, GroupedQueryAttention
from anchorlens.models.transformer.configuration import HookedTransformerConfig
from anchorlens.models.transformer.feed_forward import MLP, GatedMLP, MixtureOfExperts
from anchorlens.models.transformer.parts import Mask, Norm, Residual, norm_of


class TransformerBlock(nn.Module):
    """A block that computes y + mlp(ln2(y)) with y = x + attn(ln1(x)).

    With `parallel_attn_mlp`, the block computes y + mlp(ln2(x)).
    """

    def __init__(self, cfg: HookedTransformerConfig, block_index: int) -> None:
        super().__init__()
        self.cfg = cfg
        around = cfg.use_normalization_before_and_after
        self.ln1 = norm_of(cfg)
        if around:
            self.ln1_post = nn.Identity() if cfg.normalization_type is None else Norm(cfg, "RMS")
        if not cfg.attn_only:
            self.ln2 = norm_of(cfg)
            if around:
                self.ln2_post = nn.Identity() if cfg.normalization_type is None else Norm(cfg, "RMS")
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
        past_kv_cache_entry: Any = None,
        attention_mask: Mask | None = None,
    ) -> Residual:
        """Compute the residual stream after the block, without a key-value cache."""
        resid_pre = self.hook_resid_pre(resid_pre)
        queries, keys, values = self._attention_inputs(resid_pre)
        queries, keys, values = self.ln1(queries), self.ln1(keys), self.ln1(values)
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
        return self.apply_mlp(
            self.ln2(self.hook_mlp_in(mlp_in.clone()) if self.cfg.use_hook_mlp_in else mlp_in)
        )

    def apply_mlp(self, normalized_resid: Residual) -> Residual:
        """Compute the output of the MLP, [batch, pos, d_model]."""
        mlp_out = self.mlp(normalized_resid)
        if self.cfg.use_normalization_before_and_after:
            mlp_out = self.ln2_post(mlp_out)
        return self.hook_mlp_out(mlp_out)
