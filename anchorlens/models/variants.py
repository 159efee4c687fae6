"""The two transformer blocks that TransformerLens lacks, with its usual hook points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens.cache.key_value_cache_entry import TransformerLensKeyValueCacheEntry
from transformer_lens.utilities.tensors import repeat_along_head_dimension

from anchorlens.models.library import TransformerBlock

Residual = Float[Tensor, "batch pos d_model"]
PerHead = Float[Tensor, "batch pos *head_index d_model"]


class _Block(TransformerBlock):
    """A block without LayerNorms, of which variants add two."""

    norms: ClassVar[Mapping[str, str]] = {}
    """The LayerNorm at each place: query_input, resid_mid, mlp_input or resid_post."""

    def normed(self, place: str, x: PerHead) -> PerHead:
        return getattr(self, self.norms[place])(x) if place in self.norms else x

    def forward(
        self,
        resid_pre: Residual,
        shortformer_pos_embed: Residual | None = None,
        past_kv_cache_entry: TransformerLensKeyValueCacheEntry | None = None,
        attention_mask: Int[Tensor, "batch offset_pos"] | None = None,
    ) -> Residual:
        """Run the block, and ignore `shortformer_pos_embed`.

        The variants in this module do not have shortformer position embeddings.
        """
        resid_pre = self.hook_resid_pre(resid_pre)
        query_input, key_input, value_input = self.attention_inputs(resid_pre)
        attn_out = self.hook_attn_out(
            self.attn(
                query_input=self.normed("query_input", query_input),
                key_input=key_input,
                value_input=value_input,
                past_kv_cache_entry=past_kv_cache_entry,
                attention_mask=attention_mask,
            )
        )  # [batch, pos, d_model]
        resid_mid = self.hook_resid_mid(self.normed("resid_mid", resid_pre + attn_out))
        mlp_in = self.hook_mlp_in(resid_mid.clone()) if self.cfg.use_hook_mlp_in else resid_mid
        mlp_out = self.apply_mlp(self.normed("mlp_input", mlp_in))  # [batch, pos, d_model]
        return self.hook_resid_post(self.normed("resid_post", resid_mid + mlp_out))

    def attention_inputs(self, resid_pre: Residual) -> tuple[PerHead, PerHead, PerHead]:
        """Return the inputs for queries, keys and values, after the hooks that flags of `cfg` switch on."""
        if self.cfg.use_split_qkv_input:
            split = repeat_along_head_dimension(resid_pre, n_heads=self.cfg.n_heads)
            return (
                self.hook_q_input(split.clone()),
                self.hook_k_input(split.clone()),
                self.hook_v_input(split.clone()),
            )
        if self.cfg.use_attn_in:
            split = repeat_along_head_dimension(resid_pre, n_heads=self.cfg.n_heads)
            resid_pre = self.hook_attn_in(split)
        return resid_pre, resid_pre, resid_pre


class PostNormBlock(_Block):
    """The block x -> LN(x + attn(x)) -> LN(x + mlp(x)) of arXiv 2405.05409.

    `hook_resid_mid` and `hook_resid_post` hold the residual stream after the LayerNorm. The next module reads
    this normalised stream. The sum before the LayerNorm does not have a hook point. TransformerLens'
    `decompose_resid` and `logit_attrs` do not apply, because the residual stream is not the sum of its parts.
    """

    norms = {"resid_mid": "ln1", "resid_post": "ln2"}


class QueryNormBlock(_Block):
    """The block of the released code, where keys and values read the raw residual stream."""

    norms = {"query_input": "ln1", "mlp_input": "ln2"}


BLOCKS: dict[str, type[_Block]] = {"postnorm": PostNormBlock, "released": QueryNormBlock}
"""The blocks by variant; any other variant uses TransformerLens' block."""
