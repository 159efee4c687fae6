"""A HookedTransformer for TransformerLens 4, which no longer has one.

It is built on `HookedRootModule` and `HookPoint`, which TransformerLens 4 keeps. Names, shapes, hook points
and the state dict's keys, in their order, are those of TransformerLens 3.9's class, and so are logits and
gradients, bit for bit. `library.py` chooses between the two.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import torch
from einops import rearrange, repeat
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.nn import functional
from transformer_lens import ActivationCache, FactoredMatrix, HookedRootModule
from transformer_lens.config import TransformerLensConfig
from transformer_lens.hook_points import HookPoint
from transformer_lens.utilities.activation_functions import SUPPORTED_ACTIVATIONS
from transformer_lens.utilities.devices import move_to_and_update_config
from transformer_lens.utilities.lm_utils import lm_cross_entropy_loss
from transformer_lens.utilities.matrix import composition_scores
from transformer_lens.utilities.tensors import get_offset_position_ids, repeat_along_head_dimension
from transformer_lens.utilities.typed_module_list import TypedModuleList

from anchorlens.configuration import check_choice
from anchorlens.texts import safe_repr

ACTIVATIONS = ("relu", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "silu", "solu", "relu2")
NORMALIZATIONS = ("LN", "LNPre", "RMS", "RMSPre")
POSITIONS = ("standard", "rotary", "shortformer", "alibi")
OTHER_BLOCKS = ("OlmoeForCausalLM", "Olmo2ForCausalLM", "Olmo3ForCausalLM", "GptOssForCausalLM")
"""Values of `original_architecture` that make TransformerLens 3.9 build other blocks."""

NOT_READ = (
    *(
        "from_checkpoint",
        "checkpoint_index",
        "checkpoint_label_type",
        "checkpoint_value",
        "trust_remote_code",
    ),
    *("tokenizer_prepends_bos", "quantization_method", "window_size", "attn_types", "train_seq_length"),
    *("rotary_base_local", "relative_attention_max_distance", "relative_attention_num_buckets"),
    *("decoder_start_token_id", "tie_word_embeddings", "NTK_by_parts_low_freq_factor"),
    *("NTK_by_parts_high_freq_factor", "NTK_by_parts_factor", "NTK_original_ctx_len", "yarn_factor"),
    *("yarn_attention_factor", "yarn_beta_fast", "yarn_beta_slow", "yarn_original_max_position_embeddings"),
    *("yarn_truncate", "yarn_global_attn_only"),
)
"""Fields of TransformerLens 3.9's configuration that do not affect any model that this class supports."""

Residual = Float[Tensor, "batch pos d_model"]
PerHead = Float[Tensor, "batch pos *head_index d_model"]
PerKeyHead = Float[Tensor, "batch pos *kv_head_index d_model"]
Mask = Shaped[Tensor, "batch pos"]


def _lacking(plain: Any) -> Any:
    """A field for a feature that this model lacks: only its default is accepted."""
    return dataclasses.field(default=plain, metadata={"lacking": True})


def _refused(what: str, got: str) -> ValueError:
    return ValueError(
        f"{what} in the HookedTransformer that anchorlens has for TransformerLens 4, got {got}; "
        'install "transformer-lens<4", whose own class has more'
    )


@dataclass
class HookedTransformerConfig(TransformerLensConfig):
    """Shape and kind of a HookedTransformer, with the fields of TransformerLens 3.9's class of this name.

    Features of 3.9 that this model lacks have fields too, which accept only their default: a configuration of
    3.9 is either understood or refused.

    Raises:
        ValueError: it asks for a feature that the model lacks, or fields contradict each other.

    Source: `HookedTransformerConfig` of TransformerLens 3.9.
    """

    model_name: str = "custom"
    attn_scale: float = -1.0
    use_attn_scale: bool = True
    use_hook_mlp_in: bool = False
    use_hook_tokens: bool = False
    use_attn_in: bool = False
    use_qk_norm: bool = False
    ungroup_grouped_query_attention: bool = False
    attention_dir: str = "causal"
    scale_attn_by_inverse_layer_idx: bool = False
    parallel_attn_mlp: bool = False
    use_normalization_before_and_after: bool = False
    post_embedding_ln: bool = False
    d_vocab_out: int = -1
    rotary_dim: int | None = None
    rotary_base: float = 10000
    rotary_scaling_factor: float = 1.0
    rotary_adjacent_pairs: bool = False
    seed: int | None = None
    init_weights: bool = True
    initializer_range: float = -1.0
    n_params: int | None = None
    num_experts: int | None = None
    experts_per_token: int | None = None
    norm_topk_prob: bool = False
    # features that it lacks
    init_mode: str = _lacking("gpt2")
    tokenizer_name: str | None = _lacking(None)
    n_devices: int = _lacking(1)
    use_local_attn: bool = _lacking(False)
    use_attention_sinks: bool = _lacking(False)
    use_logn_attn: bool = _lacking(False)
    use_dynamic_ntk_rope: bool = _lacking(False)
    use_NTK_by_parts_rope: bool = _lacking(False)
    use_yarn_rope: bool = _lacking(False)
    load_in_4bit: bool = _lacking(False)
    clip_qkv: float | None = _lacking(None)
    attn_scores_soft_cap: float = _lacking(-1.0)
    output_logits_soft_cap: float = _lacking(-1.0)
    original_architecture: str | None = None

    def __post_init__(self) -> None:
        """Check every field, and set those that follow from others."""
        super().__post_init__()
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.metadata.get("lacking") and value and value != field.default:
                raise _refused(f"{field.name} must be {field.default!r}", safe_repr(value))
        if self.original_architecture in OTHER_BLOCKS:
            raise _refused(
                "original_architecture must name one with plain blocks", self.original_architecture
            )
        if self.normalization_type is not None:
            check_choice("normalization_type", self.normalization_type, NORMALIZATIONS)
        check_choice("positional_embedding_type", self.positional_embedding_type, POSITIONS)
        check_choice("attention_dir", self.attention_dir, ("causal", "bidirectional"))
        if not self.attn_only:
            check_choice("act_fn", self.act_fn, ACTIVATIONS)
        if self.n_heads % (self.n_key_value_heads or self.n_heads):
            raise ValueError(
                f"n_key_value_heads must divide n_heads, got {self.n_key_value_heads} and {self.n_heads}"
            )
        if (self.num_experts is None) != (self.experts_per_token is None):
            raise ValueError(
                "num_experts and experts_per_token must be given together, got "
                f"{self.num_experts} and {self.experts_per_token}"
            )
        if not 0 < (self.experts_per_token or 1) <= (self.num_experts or 1):
            raise ValueError(
                f"experts_per_token must be 1..{self.num_experts}, num_experts, got {self.experts_per_token}"
            )
        if self.use_normalization_before_and_after and self.normalization_type in ("LN", "LNPre"):
            raise ValueError(
                "normalization_type must be RMS, RMSPre or None with use_normalization_before_and_after, "
                f"got {self.normalization_type}"
            )
        if self.initializer_range < 0:
            self.initializer_range = 0.8 / math.sqrt(self.d_model)
        if self.d_vocab_out == -1:
            self.d_vocab_out = self.d_vocab
        if self.positional_embedding_type == "rotary" and self.rotary_dim is None:
            self.rotary_dim = self.d_head
        if self.use_attn_scale and self.attn_scale == -1.0:
            self.attn_scale = math.sqrt(self.d_head)
        a_layer = self.d_model * self.d_head * self.n_heads * 4
        if not self.attn_only:
            mlp = self.d_model * (self.d_mlp or 0) * (2 + self.gated_mlp)
            a_layer += (mlp + self.d_model) * self.num_experts if self.num_experts else mlp
        self.n_params = self.n_layers * a_layer

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any]) -> HookedTransformerConfig:
        """The configuration of these fields of 3.9; an unknown one is a TypeError."""
        return cls(**{name: value for name, value in config_dict.items() if name not in NOT_READ})


def _weight(cfg: HookedTransformerConfig, *shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(*shape, dtype=cfg.dtype, device=torch.get_default_device()))


def _bias(cfg: HookedTransformerConfig, *shape: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(*shape, dtype=cfg.dtype, device=torch.get_default_device()))


class Norm(nn.Module):
    """LayerNorm or RMSNorm over the last axis; without weights where they are folded into others (`Pre`)."""

    def __init__(
        self, cfg: HookedTransformerConfig, kind: str | None = None, length: int | None = None
    ) -> None:
        super().__init__()
        self.cfg, kind = cfg, kind or cfg.normalization_type or ""
        self.centred, self.folded = kind.startswith("LN"), kind.endswith("Pre")
        if not self.folded:
            self.w = nn.Parameter(torch.ones_like(_weight(cfg, length or cfg.d_model)))
            if self.centred:
                self.b = _bias(cfg, length or cfg.d_model)
        self.hook_scale = HookPoint()  # [batch, pos, 1]
        self.hook_normalized = HookPoint()  # [batch, pos, length]

    def forward(self, x: Float[Tensor, "*batch length"]) -> Float[Tensor, "*batch length"]:
        """(x - mean) / std * w + b, in float32 at least; an RMSNorm has neither mean nor b."""
        if self.cfg.dtype not in (torch.float32, torch.float64):
            x = x.to(torch.float32)
        if self.centred:
            x = x - x.mean(-1, keepdim=True)
        scale = self.hook_scale((x.pow(2).mean(-1, keepdim=True) + self.cfg.eps).sqrt())
        x = self.hook_normalized(x / scale).to(self.cfg.dtype)
        if self.folded:
            return x
        return x * self.w + self.b if self.centred else x * self.w


def _norm(cfg: HookedTransformerConfig) -> nn.Module:
    return nn.Identity() if cfg.normalization_type is None else Norm(cfg)


class Embed(nn.Module):
    """Tokens to vectors."""

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        self.W_E = _weight(cfg, cfg.d_vocab, cfg.d_model)
        if cfg.post_embedding_ln:
            self.ln = Norm(cfg, "LN")

    def forward(self, tokens: Int[Tensor, "batch pos"]) -> Residual:
        """W_E at the tokens."""
        embedded = self.W_E[tokens, :]
        return self.ln(embedded) if hasattr(self, "ln") else embedded


class PosEmbed(nn.Module):
    """Positions to vectors."""

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        self.W_pos = _weight(cfg, cfg.n_ctx, cfg.d_model)

    def forward(self, tokens: Int[Tensor, "batch pos"], attention_mask: Mask | None = None) -> Residual:
        """W_pos at the positions; in padded sequences they count from the first token that is not padding."""
        if attention_mask is None:
            return repeat(self.W_pos[: tokens.size(1)], "pos d -> batch pos d", batch=tokens.size(0)).clone()
        embedded = self.W_pos[get_offset_position_ids(0, attention_mask)]
        return torch.where(attention_mask.bool()[..., None], embedded, 0)


class Unembed(nn.Module):
    """The residual stream to logits."""

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        self.W_U = _weight(cfg, cfg.d_model, cfg.d_vocab_out)
        self.b_U = _bias(cfg, cfg.d_vocab_out)
        self.hook_in, self.hook_out = HookPoint(), HookPoint()

    def forward(self, residual: Residual) -> Float[Tensor, "batch pos d_vocab_out"]:
        """Residual @ W_U + b_U."""
        return self.hook_out(functional.linear(self.hook_in(residual), self.W_U.T.contiguous(), self.b_U))


def _affine(bias: Tensor, weight: Tensor, x: Tensor) -> Tensor:
    """The sum x @ weight + bias in one step, as GPT-2's Conv1D takes it."""
    return torch.addmm(bias, x.view(-1, x.size(-1)), weight).view(*x.shape[:-1], weight.shape[-1])


class MLP(nn.Module):
    """act(x @ W_in + b_in) @ W_out + b_out."""

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        assert cfg.d_mlp is not None
        self.act_fn: Callable[..., Tensor] = SUPPORTED_ACTIVATIONS[cfg.act_fn]
        self.W_in = _weight(cfg, cfg.d_model, cfg.d_mlp)
        self.b_in = _bias(cfg, cfg.d_mlp)
        self.W_out = _weight(cfg, cfg.d_mlp, cfg.d_model)
        self.b_out = _bias(cfg, cfg.d_model)
        self.hook_pre = HookPoint()  # [batch, pos, d_mlp]
        self.hook_post = HookPoint()  # [batch, pos, d_mlp]

    def forward(self, x: Residual) -> Residual:
        """What the MLP adds."""
        pre = self.hook_pre(_affine(self.b_in, self.W_in, x))
        return _affine(self.b_out, self.W_out, self.hook_post(self.act_fn(pre)))


class GatedMLP(nn.Module):
    """(act(x @ W_gate) * (x @ W_in) + b_in) @ W_out + b_out."""

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        assert cfg.d_mlp is not None
        self.act_fn: Callable[..., Tensor] = SUPPORTED_ACTIVATIONS[cfg.act_fn]
        self.W_in = _weight(cfg, cfg.d_model, cfg.d_mlp)
        self.W_out = _weight(cfg, cfg.d_mlp, cfg.d_model)
        self.W_gate = _weight(cfg, cfg.d_model, cfg.d_mlp)
        self.b_in = _bias(cfg, cfg.d_mlp)
        self.b_out = _bias(cfg, cfg.d_model)
        self.hook_pre = HookPoint()  # [batch, pos, d_mlp]
        self.hook_pre_linear = HookPoint()  # [batch, pos, d_mlp]
        self.hook_post = HookPoint()  # [batch, pos, d_mlp]

    def forward(self, x: Residual) -> Residual:
        """What the MLP adds."""
        pre = self.hook_pre(functional.linear(x, self.W_gate.T.contiguous()))
        linear = self.hook_pre_linear(functional.linear(x, self.W_in.T.contiguous()))
        post = self.hook_post(self.act_fn(pre) * linear + self.b_in)
        return functional.linear(post, self.W_out.T.contiguous(), self.b_out)


def _linear(cfg: HookedTransformerConfig, d_in: int, d_out: int) -> nn.Linear:
    return nn.Linear(d_in, d_out, bias=False, dtype=cfg.dtype, device=torch.get_default_device())


class Expert(nn.Module):
    """(act(x @ W_gate) * (x @ W_in)) @ W_out, for the rows that a router sends here."""

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
        """What the expert adds."""
        gate = self.hook_gate(self.W_gate(x))
        return self.W_out(self.hook_post(self.act_fn(gate) * self.hook_pre(self.W_in(x))))


class MixtureOfExperts(nn.Module):
    """The sum of the experts of the largest softmax weights of a router, times these weights."""

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        assert cfg.num_experts is not None and cfg.experts_per_token is not None
        self.cfg, self.n_active = cfg, cfg.experts_per_token
        self.experts = nn.ModuleList([Expert(cfg) for _ in range(cfg.num_experts)])
        self.W_gate = _linear(cfg, cfg.d_model, cfg.num_experts)
        self.hook_expert_weights = HookPoint()  # [batch * pos, expert] before the largest are chosen
        self.hook_expert_indices = HookPoint()  # [batch * pos, experts_per_token]

    def forward(self, x: Residual) -> Residual:
        """What the experts add."""
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


def _heads(x: PerHead, weight: Tensor, bias: Tensor) -> Float[Tensor, "batch pos head_index d_head"]:
    """Project x, one per head or one for all heads, with the weight [head_index, d_model, d_head]."""
    if x.dim() == 4:
        return torch.einsum("bphm,hmd->bphd", x, weight) + bias
    flat = functional.linear(x, rearrange(weight, "head m d -> (head d) m"), bias.flatten())
    return flat.reshape(*x.shape[:2], *bias.shape)


class Attention(nn.Module):
    """Attention, each head with keys and values of its own."""

    groups = 1

    def __init__(self, cfg: HookedTransformerConfig, layer: int) -> None:
        super().__init__()
        self.cfg, self.layer_id = cfg, layer
        self.W_Q = _weight(cfg, cfg.n_heads, cfg.d_model, cfg.d_head)
        self.W_O = _weight(cfg, cfg.n_heads, cfg.d_head, cfg.d_model)
        self.b_Q = _bias(cfg, cfg.n_heads, cfg.d_head)
        self.b_O = _bias(cfg, cfg.d_model)
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
        self.W_K = _weight(cfg, cfg.n_heads, cfg.d_model, cfg.d_head)
        self.W_V = _weight(cfg, cfg.n_heads, cfg.d_model, cfg.d_head)
        self.b_K = _bias(cfg, cfg.n_heads, cfg.d_head)
        self.b_V = _bias(cfg, cfg.n_heads, cfg.d_head)

    def _keys_and_values(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.W_K, self.b_K, self.W_V, self.b_V

    @property
    def OV(self) -> FactoredMatrix:
        """W_V @ W_O, factored, [head_index, d_model, d_model]."""
        return FactoredMatrix(self.W_V, self.W_O)

    @property
    def QK(self) -> FactoredMatrix:
        """W_Q @ W_K.T, factored, [head_index, d_model, d_model]."""
        return FactoredMatrix(self.W_Q, self.W_K.transpose(-2, -1))

    def forward(
        self,
        query_input: PerHead,
        key_input: PerKeyHead,
        value_input: PerKeyHead,
        past_kv_cache_entry: Any = None,
        attention_mask: Mask | None = None,
    ) -> Residual:
        """What attention adds; `past_kv_cache_entry` is always None."""
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
        """The scores with minus infinity where a query would see later positions or padding."""
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
        """Keep our buffers: they follow from the configuration, and older versions stored other shapes."""
        own = {prefix + name: buffer for name, buffer in self.named_buffers(recurse=False)}
        super()._load_from_state_dict({**state_dict, **own}, prefix, *args, **kwargs)


class GroupedQueryAttention(Attention):
    """Attention whose heads share keys and values in groups, [n_key_value_heads, d_model, d_head]."""

    def _add_keys_and_values(self) -> None:
        cfg, n_shared = self.cfg, self.cfg.n_key_value_heads
        assert n_shared is not None
        self.groups = cfg.n_heads // n_shared
        self._W_K = _weight(cfg, n_shared, cfg.d_model, cfg.d_head)
        self._W_V = _weight(cfg, n_shared, cfg.d_model, cfg.d_head)
        self._b_K = _bias(cfg, n_shared, cfg.d_head)
        self._b_V = _bias(cfg, n_shared, cfg.d_head)

    def _keys_and_values(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        if self.cfg.ungroup_grouped_query_attention:
            return self.W_K, self.b_K, self.W_V, self.b_V
        return self._W_K, self._b_K, self._W_V, self._b_V

    W_K: Any = property(lambda self: self._W_K.repeat_interleave(self.groups, dim=0))
    W_V: Any = property(lambda self: self._W_V.repeat_interleave(self.groups, dim=0))
    b_K: Any = property(lambda self: self._b_K.repeat_interleave(self.groups, dim=0))
    b_V: Any = property(lambda self: self._b_V.repeat_interleave(self.groups, dim=0))


def _rotary_angles(cfg: HookedTransformerConfig) -> tuple[Tensor, Tensor]:
    """Sine and cosine of every position's angles, [n_ctx, rotary_dim] each."""
    assert cfg.rotary_dim is not None
    dtype, device = torch.promote_types(cfg.dtype, torch.float32), torch.get_default_device()
    pair = torch.arange(cfg.rotary_dim // 2, dtype=dtype, device=device)
    wavelength = cfg.rotary_base ** (pair / (cfg.rotary_dim / 2)) * cfg.rotary_scaling_factor
    wavelength = repeat(wavelength, "d -> (d 2)" if cfg.rotary_adjacent_pairs else "d -> (2 d)")
    angles = torch.arange(cfg.n_ctx, dtype=dtype, device=device)[:, None] / wavelength[None, :]
    return angles.sin().to(cfg.dtype), angles.cos().to(cfg.dtype)


def _alibi(n_heads: int, n_pos: int, device: torch.device) -> Float[Tensor, "head_index query_pos key_pos"]:
    """The ALiBi bias of each head: minus its slope times the distance between query and key."""
    positions = torch.arange(n_pos, device=device)
    distance = (positions[None, :] - positions[:, None]).clamp(max=0).to(torch.float32)
    start = 2 ** (-8 / n_heads)
    slopes = start * start ** torch.arange(n_heads, device=device)
    return slopes[:, None, None] * distance


class TransformerBlock(nn.Module):
    """x + attn(ln1(x)), and then + mlp(ln2(.)) of that sum, or of x with `parallel_attn_mlp`."""

    def __init__(self, cfg: HookedTransformerConfig, block_index: int) -> None:
        super().__init__()
        self.cfg = cfg
        around = cfg.use_normalization_before_and_after
        self.ln1 = _norm(cfg)
        if around:
            self.ln1_post = nn.Identity() if cfg.normalization_type is None else Norm(cfg, "RMS")
        if not cfg.attn_only:
            self.ln2 = _norm(cfg)
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
        """The residual stream after the block; `past_kv_cache_entry` is always None."""
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
        """Query, key and value input, after the hooks that flags of `cfg` switch on."""
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
        """What the MLP adds, [batch, pos, d_model]."""
        mlp_out = self.mlp(normalized_resid)
        if self.cfg.use_normalization_before_and_after:
            mlp_out = self.ln2_post(mlp_out)
        return self.hook_mlp_out(mlp_out)


class LogitsAndLoss(NamedTuple):
    """What `return_type="both"` gives."""

    logits: Float[Tensor, "batch pos d_vocab_out"]
    """[batch, pos, d_vocab_out]."""
    loss: Tensor
    """Cross-entropy of the next token, a number or [batch, pos - 1]."""


def _without(what: str, instead: str) -> Any:
    def refuse(self: Any, *args: object, **kwargs: object) -> NoReturn:
        raise _refused(f"{what} is not there, use {instead},", "a call of it")

    return refuse


def _of_each_layer(part: str, name: str) -> Any:
    """A weight of every layer, stacked along a new first axis."""
    return property(lambda model: torch.stack([getattr(getattr(b, part), name) for b in model.blocks]))


class HookedTransformer(HookedRootModule):
    """A transformer with a hook point at every activation, like that of TransformerLens 3.9.

    `run_with_cache`, `run_with_hooks`, `hooks()`, `transformer_lens.patching`, `ActivationCache` and
    `transformer_lens.tools.analysis` work on it as they do on TransformerLens' own.

    Args:
        cfg: a HookedTransformerConfig, or a dict of its fields.
        tokenizer: must be None; the model reads tokens, not text.
        move_to_device: whether it is moved to `cfg.device`.
        default_padding_side: ignored.

    Raises:
        ValueError: `cfg` asks for a feature that it lacks, or a tokenizer is given.

    Source: `HookedTransformer` of TransformerLens 3.9.
    """

    blocks: TypedModuleList[TransformerBlock]
    ln_final: nn.Module

    def __init__(
        self,
        cfg: HookedTransformerConfig | dict[str, Any],
        tokenizer: None = None,
        move_to_device: bool = True,
        default_padding_side: None = None,
    ) -> None:
        super().__init__()
        if tokenizer is not None:
            raise _refused("tokenizer must be None", type(tokenizer).__name__)
        self.cfg = cfg = HookedTransformerConfig.from_dict(cfg) if isinstance(cfg, dict) else cfg
        if cfg.d_vocab < 0:
            raise ValueError(f"d_vocab must be the number of tokens, got {cfg.d_vocab}; set it")
        self.tokenizer = None
        self.embed, self.hook_embed = Embed(cfg), HookPoint()  # [batch, pos, d_model]
        if cfg.positional_embedding_type != "rotary":
            self.pos_embed, self.hook_pos_embed = PosEmbed(cfg), HookPoint()  # [batch, pos, d_model]
        if cfg.use_hook_tokens:
            self.hook_tokens = HookPoint()  # [batch, pos]
        self.blocks = TypedModuleList([TransformerBlock(cfg, i) for i in range(cfg.n_layers)])
        if cfg.normalization_type is not None:
            self.ln_final = Norm(cfg, cfg.normalization_type.replace("LN", "RMS" if cfg.final_rms else "LN"))
        self.unembed = Unembed(cfg)
        if cfg.init_weights:
            self.init_weights()
        if move_to_device:
            nn.Module.to(self, cfg.device)
        self.setup()

    def init_weights(self) -> None:
        """Draw the matrices from N(0, `initializer_range`^2), with `cfg.seed` if it is set."""
        seed = self.cfg.seed
        generator = None if seed is None else torch.Generator(self.W_E.device).manual_seed(seed)
        for name, parameter in self.named_parameters():
            if "W_" in name:
                nn.init.normal_(parameter, std=self.cfg.initializer_range, generator=generator)

    def forward(
        self,
        input: Int[Tensor, "batch pos"] | Int[Tensor, " pos"] | Residual,
        return_type: str | None = "logits",
        loss_per_token: bool = False,
        prepend_bos: bool | None = None,
        padding_side: str | None = None,
        start_at_layer: int | None = None,
        tokens: Int[Tensor, "batch pos"] | None = None,
        shortformer_pos_embed: Residual | None = None,
        attention_mask: Mask | None = None,
        stop_at_layer: int | None = None,
        past_kv_cache: None = None,
    ) -> Any:
        """Run the model, or some of its layers.

        Args:
            input: tokens; with `start_at_layer` the residual stream before that layer.
            return_type: logits, loss (of the next token), both, or None for nothing.
            loss_per_token: one loss for each token, not their mean.
            prepend_bos: ignored, because the input is not text.
            padding_side: ignored, because the input is not text.
            start_at_layer: the first layer that is run, negative from the end.
            tokens: the tokens for the loss, where `start_at_layer` is given.
            shortformer_pos_embed: position embeddings of a shortformer where `start_at_layer` is given.
            attention_mask: 1 at tokens, 0 at padding.
            stop_at_layer: the first layer that is not run, negative from the end.
            past_kv_cache: must be None.

        Returns:
            Logits [batch, pos, d_vocab_out], a loss (a number or [batch, pos - 1]), both, or None; with
            `stop_at_layer` the residual stream [batch, pos, d_model].

        Raises:
            ValueError: text, a cache of keys and values, another return type, or no tokens for a loss.
        """
        if past_kv_cache is not None:
            raise _refused("past_kv_cache must be None", type(past_kv_cache).__name__)
        if not isinstance(input, Tensor):
            self.to_tokens(input)
        residual = input
        if start_at_layer is None:
            tokens = input if input.dim() == 2 else input[None]
            residual, shortformer_pos_embed = self._embedded(tokens.to(self.W_E.device), attention_mask)
        for block in list(self.blocks)[start_at_layer:stop_at_layer]:
            residual = block(residual, shortformer_pos_embed, attention_mask=attention_mask)
        if stop_at_layer is not None:
            return residual
        if self.cfg.normalization_type is not None:
            residual = self.ln_final(residual)
        if return_type is None:
            return None
        check_choice("return_type", return_type, ("logits", "loss", "both"))
        logits = self.unembed(residual)
        if return_type == "logits":
            return logits
        if tokens is None:
            raise ValueError("a loss needs tokens where start_at_layer is given, got none; pass tokens=")
        loss = self.loss_fn(logits, tokens, attention_mask, per_token=loss_per_token)
        return loss if return_type == "loss" else LogitsAndLoss(logits, loss)

    def _embedded(
        self, tokens: Int[Tensor, "batch pos"], mask: Mask | None
    ) -> tuple[Residual, Residual | None]:
        """The first residual stream, and what a shortformer adds to queries and keys."""
        if mask is not None and mask.shape != tokens.shape:
            raise ValueError(
                f"attention_mask must have the tokens' shape, {list(tokens.shape)}, got {list(mask.shape)}"
            )
        if self.cfg.use_hook_tokens:
            tokens = self.hook_tokens(tokens)
        embedded = self.hook_embed(self.embed(tokens))
        if self.cfg.positional_embedding_type not in ("standard", "shortformer"):
            return embedded, None
        positions = self.hook_pos_embed(self.pos_embed(tokens, mask))
        if self.cfg.positional_embedding_type == "shortformer":
            return embedded, positions
        return embedded + positions, None

    def loss_fn(
        self,
        logits: Float[Tensor, "batch pos d_vocab_out"],
        tokens: Int[Tensor, "batch pos"],
        attention_mask: Mask | None = None,
        per_token: bool = False,
    ) -> Tensor:
        """Cross-entropy of the next token, a number or [batch, pos - 1]."""
        return lm_cross_entropy_loss(logits, tokens.to(logits.device), attention_mask, per_token)

    def run_with_cache(
        self,
        *model_args: Any,
        return_cache_object: bool = True,
        remove_batch_dim: bool = False,
        **kwargs: Any,
    ) -> tuple[Any, Any]:
        """What `forward` gives, and every activation by its hook's name: an ActivationCache, or a dict."""
        out, cache = super().run_with_cache(*model_args, remove_batch_dim=remove_batch_dim, **kwargs)
        if not return_cache_object:
            return out, cache
        return out, ActivationCache(cache, self, has_batch_dim=not remove_batch_dim)

    def check_hooks_to_add(
        self, hook_point: HookPoint, hook_point_name: str, *args: object, **kwargs: object
    ) -> None:
        """Refuse a hook at a hook point that a flag of `cfg` switches off.

        Raises:
            AssertionError: as TransformerLens does.
        """
        switches = {
            "use_attn_result": ("attn.hook_result",),
            "use_split_qkv_input": ("hook_q_input", "hook_k_input", "hook_v_input"),
            "use_hook_mlp_in": ("mlp_in",),
            "use_attn_in": ("attn_in",),
        }
        for switch, endings in switches.items():
            if hook_point_name.endswith(endings):
                assert getattr(self.cfg, switch), f"Cannot add hook {hook_point_name} if {switch} is False"

    def set_use_attn_result(self, use_attn_result: bool) -> None:
        """Compute what each head adds separately, at `hook_result`."""
        self.cfg.use_attn_result = use_attn_result

    def set_use_split_qkv_input(self, use_split_qkv_input: bool) -> None:
        """Give each head its own query, key and value inputs, at `hook_q_input` and so on."""
        self.cfg.use_split_qkv_input = use_split_qkv_input

    def set_use_hook_mlp_in(self, use_hook_mlp_in: bool) -> None:
        """Switch on `hook_mlp_in`."""
        assert not self.cfg.attn_only, "Can't use hook_mlp_in with attn_only model"
        self.cfg.use_hook_mlp_in = use_hook_mlp_in

    def set_use_attn_in(self, use_attn_in: bool) -> None:
        """Give each head its own input, at `hook_attn_in`."""
        assert self.cfg.n_key_value_heads is None, "Can't use attn_in with GroupedQueryAttention"
        self.cfg.use_attn_in = use_attn_in

    def set_ungroup_grouped_query_attention(self, ungroup_grouped_query_attention: bool) -> None:
        """Compute keys and values for each head, even where groups share them."""
        self.cfg.ungroup_grouped_query_attention = ungroup_grouped_query_attention

    def to(self, device_or_dtype: Any, print_details: bool = True) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Move or convert the model, and record it in `cfg`."""
        return move_to_and_update_config(self, device_or_dtype, print_details)

    def cuda(self, device: Any = None) -> Any:
        """The model on that GPU."""
        return self.to("cuda" if device is None else f"cuda:{device}" if isinstance(device, int) else device)

    def cpu(self) -> Any:
        """The model on the CPU."""
        return self.to(torch.device("cpu"))

    to_tokens = to_string = to_str_tokens = to_single_token = _without("a tokenizer", "tokens [batch, pos]")
    generate = generate_stream = _without("generation", "the logits at the last position")
    process_weights_ = load_and_process_state_dict = _without("folding", "weights as they are")
    from_pretrained = classmethod(_without("from_pretrained", "TransformerBridge.boot_transformers"))

    W_E = property(lambda self: self.embed.W_E)
    W_pos = property(lambda self: self.pos_embed.W_pos)
    W_E_pos = property(lambda self: torch.cat([self.W_E, self.W_pos]))
    W_U = property(lambda self: self.unembed.W_U)
    b_U = property(lambda self: self.unembed.b_U)
    W_Q, b_Q = _of_each_layer("attn", "W_Q"), _of_each_layer("attn", "b_Q")
    W_K, b_K = _of_each_layer("attn", "W_K"), _of_each_layer("attn", "b_K")
    W_V, b_V = _of_each_layer("attn", "W_V"), _of_each_layer("attn", "b_V")
    W_O, b_O = _of_each_layer("attn", "W_O"), _of_each_layer("attn", "b_O")
    W_in, b_in = _of_each_layer("mlp", "W_in"), _of_each_layer("mlp", "b_in")
    W_out, b_out = _of_each_layer("mlp", "W_out"), _of_each_layer("mlp", "b_out")
    _gates = _of_each_layer("mlp", "W_gate")
    W_gate = property(lambda self: self._gates if self.cfg.gated_mlp else None)
    QK = property(lambda self: FactoredMatrix(self.W_Q, self.W_K.transpose(-2, -1)))
    OV = property(lambda self: FactoredMatrix(self.W_V, self.W_O))
    n_params_total = property(lambda self: sum(parameter.numel() for parameter in self.parameters()))

    def accumulated_bias(
        self, layer: int, mlp_input: bool = False, include_mlp_biases: bool = True
    ) -> Float[Tensor, " d_model"]:
        """The sum of b_O and b_out that the residual stream before `layer` holds, or before its MLP."""
        total = torch.zeros(self.cfg.d_model, device=self.W_E.device)
        for block in list(self.blocks)[:layer]:
            total += block.attn.b_O
            if include_mlp_biases:
                total += block.mlp.b_out
        return total + self.blocks[layer].attn.b_O if mlp_input else total

    def tokens_to_residual_directions(
        self, tokens: int | Int[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch d_model"]:
        """Columns of W_U, [*batch, d_model]."""
        return self.W_U.T[tokens]

    def all_composition_scores(self, mode: str) -> Float[Tensor, "layer head later_layer later_head"]:
        """How much each head's output is read by later heads' queries (Q), keys (K) or values (V)."""
        check_choice("mode", mode, ("Q", "K", "V"))
        right = {"Q": lambda: self.QK, "K": lambda: self.QK.T, "V": lambda: self.OV}[mode]()
        layers = torch.arange(self.cfg.n_layers, device=self.W_E.device)
        later = layers[:, None, None, None] < layers[None, None, :, None]
        return composition_scores(self.OV, right, broadcast_dims=True).where(later, 0)

    def all_head_labels(self) -> list[str]:
        """L0H0, L0H1, ..., layer by layer."""
        return [f"L{i}H{h}" for i in range(self.cfg.n_layers) for h in range(self.cfg.n_heads)]
