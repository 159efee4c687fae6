"""The configuration of a HookedTransformer, with the fields of TransformerLens 3.9."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from transformer_lens.config import TransformerLensConfig

from anchorlens.configuration import check_choice
from anchorlens.texts import safe_repr

ACTIVATIONS = ("relu", "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "silu", "solu", "relu2")
NORMALIZATIONS = ("LN", "LNPre", "RMS", "RMSPre")
POSITIONS = ("standard", "rotary", "shortformer", "alibi")
OTHER_BLOCKS = ("OlmoeForCausalLM", "Olmo2ForCausalLM", "Olmo3ForCausalLM", "GptOssForCausalLM")
"""The values of `original_architecture` that make TransformerLens 3.9 build other blocks."""

NOT_READ: dict[str, Any] = {
    **dict.fromkeys(("checkpoint_index", "checkpoint_label_type", "checkpoint_value", "attn_types")),
    **dict.fromkeys(("tokenizer_prepends_bos", "quantization_method", "window_size", "rotary_base_local")),
    **dict.fromkeys(("relative_attention_max_distance", "relative_attention_num_buckets")),
    **dict.fromkeys(("decoder_start_token_id", "train_seq_length")),
    **dict.fromkeys(("from_checkpoint", "trust_remote_code", "tie_word_embeddings"), False),
    **{"NTK_by_parts_low_freq_factor": 1.0, "NTK_by_parts_high_freq_factor": 4.0},
    **{"NTK_by_parts_factor": 8.0, "NTK_original_ctx_len": 8192, "yarn_factor": 1.0},
    **{"yarn_attention_factor": 1.0, "yarn_beta_fast": 32.0, "yarn_beta_slow": 1.0},
    **{"yarn_original_max_position_embeddings": 4096, "yarn_truncate": True, "yarn_global_attn_only": False},
}
"""The fields of TransformerLens 3.9's configuration that do not affect any model that this class supports,
with their defaults."""


def _lacking(plain: Any) -> Any:
    """Make a field for a feature that this model lacks: only its default is accepted."""
    return dataclasses.field(default=plain, metadata={"lacking": True})


def refusal(what: str, got: str) -> ValueError:
    """Make the error for a feature that our HookedTransformer lacks.

    Args:
        what: the rule, such as `tokenizer must be None`.
        got: the value, in words.
    """
    return ValueError(
        f"{what} in anchorlens' HookedTransformer for TransformerLens 4, got {got}. "
        'Install "transformer-lens<4", whose class has more features'
    )


@dataclass
class _Fields(TransformerLensConfig):
    """The fields that affect a HookedTransformer, and their checks."""

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
                raise refusal(f"{field.name} must be {field.default!r}", safe_repr(value))
        if self.original_architecture in OTHER_BLOCKS:
            raise refusal(
                "original_architecture must name an architecture with plain blocks",
                self.original_architecture,
            )
        if self.normalization_type is not None:
            check_choice("normalization_type", self.normalization_type, NORMALIZATIONS)
        check_choice("positional_embedding_type", self.positional_embedding_type, POSITIONS)
        check_choice("attention_dir", self.attention_dir, ("causal", "bidirectional"))
        if self.act_fn is not None and self.act_fn.endswith("_ln"):  # not a near miss of its first part
            raise refusal(f"act_fn must be one of {', '.join(ACTIVATIONS)}", safe_repr(self.act_fn))
        if not self.attn_only:
            check_choice("act_fn", self.act_fn, ACTIVATIONS)
        if self.n_heads % (self.n_key_value_heads or self.n_heads):
            raise ValueError(
                f"n_key_value_heads must divide n_heads, got {self.n_key_value_heads} key-value heads and "
                f"{self.n_heads} heads. Change either number"
            )
        n_experts, n_active = self.num_experts, self.experts_per_token
        given_together = (n_experts is None) == (n_active is None)
        if not given_together or not 0 < (n_active or 1) <= (n_experts or 1):
            raise ValueError(
                f"experts_per_token must be 1 to num_experts, {n_experts}, got {n_active}. Correct both"
            )
        if self.use_normalization_before_and_after and self.normalization_type in ("LN", "LNPre"):
            raise ValueError(
                "normalization_type must be RMS, RMSPre or None with use_normalization_before_and_after, "
                f"got {self.normalization_type}. Use RMS, RMSPre or None"
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


class HookedTransformerConfig(_Fields):
    """The configuration of a HookedTransformer, with the fields of TransformerLens 3.9's class.

    A field for a feature that this model lacks accepts only its default. The class therefore refuses every
    configuration of TransformerLens 3.9 that needs a missing feature.

    Raises:
        ValueError: If a field sets a feature that the model lacks, or fields contradict each other.

    Source: `HookedTransformerConfig` of TransformerLens 3.9.
    """

    def __init__(self, *args: Any, **fields: Any) -> None:
        """Check the fields, of which those in `NOT_READ` must have their default."""
        for name in NOT_READ.keys() & fields.keys():
            if (value := fields.pop(name)) != NOT_READ[name]:
                raise refusal(f"{name} must be {NOT_READ[name]!r}", safe_repr(value))
        super().__init__(*args, **fields)

    def is_layer_norm_activation(self) -> bool:
        """Return False, because no activation function of this model contains a norm."""
        return False

    @classmethod
    def unwrap(cls, config: dict[str, Any] | TransformerLensConfig) -> HookedTransformerConfig:
        """Return a configuration unchanged, or make one from a dict or another class of TransformerLens."""
        if isinstance(config, cls):
            return config
        return cls.from_dict(config if isinstance(config, dict) else config.to_dict())

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any]) -> HookedTransformerConfig:
        """Make a configuration from fields of TransformerLens 3.9.

        Raises:
            TypeError: If a field is unknown.
        """
        return cls(**{name: value for name, value in config_dict.items() if name not in NOT_READ})
