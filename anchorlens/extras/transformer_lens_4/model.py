"""The HookedTransformer for TransformerLens 4."""

from __future__ import annotations

from functools import partialmethod
from typing import Any, Literal, NamedTuple, NoReturn

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformer_lens import ActivationCache, FactoredMatrix, HookedRootModule
from transformer_lens.hook_points import HookPoint
from transformer_lens.utilities.devices import move_to_and_update_config
from transformer_lens.utilities.lm_utils import lm_cross_entropy_loss
from transformer_lens.utilities.matrix import composition_scores
from transformer_lens.utilities.typed_module_list import TypedModuleList
from transformer_lens.weight_processing import ProcessWeights

from anchorlens.configuration import check_choice
from anchorlens.extras.transformer_lens_4.configuration import HookedTransformerConfig, refusal
from anchorlens.extras.transformer_lens_4.layers import (
    Embed,
    Mask,
    Norm,
    PosEmbed,
    Residual,
    TransformerBlock,
    Unembed,
    norm_of,
)


class LogitsAndLoss(NamedTuple):
    """The result of `return_type="both"`."""

    logits: Float[Tensor, "batch pos d_vocab_out"]
    """The logits, [batch, pos, d_vocab_out]."""
    loss: Tensor
    """The cross-entropy of the next token, a number or [batch, pos - 1]."""


def _without(what: str, instead: str) -> Any:
    def refuse(self: object, *args: object, **kwargs: object) -> NoReturn:
        raise refusal(f"{instead} must be used instead of {what}", "a call")

    return refuse


def _of_each_layer(part: str, name: str) -> Any:
    """Stack a weight of every layer along a new first axis."""
    return property(lambda model: torch.stack([getattr(getattr(b, part), name) for b in model.blocks]))


class HookedTransformer(HookedRootModule):
    """A transformer with a hook point at every activation, like the class of TransformerLens 3.9.

    The methods `run_with_cache`, `run_with_hooks` and `hooks()` work as in TransformerLens.
    `ActivationCache` and the functions that docs/transformerlens.md lists also work with this class.

    Args:
        cfg: a HookedTransformerConfig, or a dict of its fields.
        tokenizer: an argument that must be None, because the model reads tokens instead of text.
        move_to_device: whether to move the model to `cfg.device`.
        default_padding_side: an argument that the class ignores.

    Raises:
        ValueError: If `cfg` sets a feature that this class lacks, or a tokenizer is given.

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
            raise refusal("tokenizer must be None", type(tokenizer).__name__)
        self.cfg = cfg = HookedTransformerConfig.from_dict(cfg) if isinstance(cfg, dict) else cfg
        if cfg.d_vocab < 0:
            raise ValueError(
                f"d_vocab must be the number of tokens, got {cfg.d_vocab}. Set d_vocab in the configuration"
            )
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
            input: the tokens, or the residual stream before `start_at_layer` if that argument is given.
            return_type: the result, which is `logits`, `loss` (of the next token), `both`, or None for no
                result.
            loss_per_token: whether to return one loss for each token instead of the mean.
            prepend_bos: an argument that is ignored, because the input is not text.
            padding_side: an argument that is ignored, because the input is not text.
            start_at_layer: the first layer that is run, negative from the end.
            tokens: the tokens for the loss, if `start_at_layer` is given.
            shortformer_pos_embed: the position embeddings of a shortformer, if `start_at_layer` is given.
            attention_mask: the mask, 1 at tokens and 0 at padding.
            stop_at_layer: the first layer that is not run, negative from the end.
            past_kv_cache: an argument that must be None.

        Returns:
            The logits [batch, pos, d_vocab_out], the loss (a number or [batch, pos - 1]), both, or None. With
            `stop_at_layer`, the method returns the residual stream [batch, pos, d_model].

        Raises:
            ValueError: If text, a key-value cache or an unknown return type is given.
            ValueError: If the tokens for a loss are missing.
        """
        if past_kv_cache is not None:
            raise refusal("past_kv_cache must be None", type(past_kv_cache).__name__)
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
            raise ValueError("tokens must be given for a loss with start_at_layer, got none. Pass tokens=")
        loss = self.loss_fn(logits, tokens, attention_mask, per_token=loss_per_token)
        return loss if return_type == "loss" else LogitsAndLoss(logits, loss)

    def _embedded(
        self, tokens: Int[Tensor, "batch pos"], mask: Mask | None
    ) -> tuple[Residual, Residual | None]:
        """Compute the first residual stream, and a shortformer's addition to queries and keys."""
        if mask is not None and mask.shape != tokens.shape:
            raise ValueError(
                f"attention_mask must have the shape of the tokens, {list(tokens.shape)}, got "
                f"{list(mask.shape)}. Correct attention_mask"
            )
        if self.cfg.use_hook_tokens:
            tokens = self.hook_tokens(tokens)
        embedded = self.hook_embed(self.embed(tokens))
        if self.cfg.positional_embedding_type not in ("standard", "shortformer"):
            return embedded, None
        positions = self.hook_pos_embed(self.pos_embed(tokens, 0, mask))
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
        """Compute the cross-entropy of the next token, a number or [batch, pos - 1]."""
        return lm_cross_entropy_loss(logits, tokens.to(logits.device), attention_mask, per_token)

    def run_with_cache(
        self,
        *model_args: Any,
        return_cache_object: bool = True,
        remove_batch_dim: bool = False,
        **kwargs: Any,
    ) -> tuple[Any, Any]:
        """Return the result of `forward`, and an ActivationCache or dict of all activations by hook name."""
        out, cache = super().run_with_cache(*model_args, remove_batch_dim=remove_batch_dim, **kwargs)
        if return_cache_object:
            cache = ActivationCache(cache, self, has_batch_dim=not remove_batch_dim)
        return out, cache

    def check_hooks_to_add(
        self, hook_point: HookPoint, hook_point_name: str, *args: object, **kwargs: object
    ) -> None:
        """Raise an error for a hook at a hook point that a flag of `cfg` switches off.

        Raises:
            AssertionError: If the flag is off. TransformerLens raises the same error.
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
        """Compute the output of each head separately, at `hook_result`."""
        self.cfg.use_attn_result = use_attn_result

    def set_use_split_qkv_input(self, use_split_qkv_input: bool) -> None:
        """Give each head separate query, key and value inputs, at `hook_q_input` and similar hooks."""
        self.cfg.use_split_qkv_input = use_split_qkv_input

    def set_use_hook_mlp_in(self, use_hook_mlp_in: bool) -> None:
        """Switch on `hook_mlp_in`."""
        assert not self.cfg.attn_only, "Can't use hook_mlp_in with attn_only model"
        self.cfg.use_hook_mlp_in = use_hook_mlp_in

    def set_use_attn_in(self, use_attn_in: bool) -> None:
        """Give each head a separate input, at `hook_attn_in`."""
        assert self.cfg.n_key_value_heads is None, "Can't use attn_in with GroupedQueryAttention"
        self.cfg.use_attn_in = use_attn_in

    def set_ungroup_grouped_query_attention(self, ungroup_grouped_query_attention: bool) -> None:
        """Compute keys and values for each head, even if the heads of a group share keys and values."""
        self.cfg.ungroup_grouped_query_attention = ungroup_grouped_query_attention

    def to(self, device_or_dtype: Any, print_details: bool = True) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Move the model to a device or convert its precision, and record the change in `cfg`."""
        return move_to_and_update_config(self, device_or_dtype, print_details)

    def cuda(self, device: int | str | torch.device | None = None) -> Any:
        """Move the model to a GPU."""
        return self.to("cuda" if device is None else f"cuda:{device}" if isinstance(device, int) else device)

    cpu = partialmethod(to, torch.device("cpu"))  # pyright: ignore[reportAssignmentType]
    mps = partialmethod(to, torch.device("mps"))

    def process_weights_(self, **options: bool) -> None:
        """Fold and centre the weights of the model, with the options of `load_and_process_state_dict`."""
        self.load_and_process_state_dict(self.state_dict(), **options)

    def load_and_process_state_dict(
        self, state_dict: dict[str, Tensor], fold_ln: bool = True, **options: bool
    ) -> None:
        """Load weights, with the weights of norms folded into the next maps, and the other weights centred.

        Args:
            state_dict: the weights, by the names of this class.
            fold_ln: whether to fold norms. The norms then have no weights.
            **options: `center_writing_weights`, `center_unembed`, `fold_value_biases` (default: true) and
                `refactor_factored_attn_matrices` (default: false) of TransformerLens' `ProcessWeights`.

        Raises:
            ValueError: If TransformerLens' folding would change what the model computes.
        """
        cfg = self.cfg
        kind, unfit = cfg.normalization_type or "", {"shortformer", "solu"}
        if cfg.num_experts or cfg.final_rms or unfit & {cfg.positional_embedding_type, cfg.act_fn}:
            raise ValueError(
                "folding must not change what the model computes, got a model with experts, a final RMS "
                "norm, shortformer positions or solu. Use its weights as they are"
            )
        fold_ln = fold_ln and any(name.endswith((".ln1.w", ".ln2.w", "ln_final.w")) for name in state_dict)
        if fold_ln and kind in ("LN", "RMS"):
            cfg.normalization_type = f"{kind}Pre"
            self.ln_final = Norm(cfg)
            for block in self.blocks:
                block.ln1 = norm_of(cfg)
                if not cfg.attn_only:
                    block.ln2 = norm_of(cfg)
        weights = ProcessWeights.process_weights(dict(state_dict), cfg, fold_ln=fold_ln, **options)
        self.load_state_dict(weights, strict=False)
        self.setup()

    to_tokens = to_string = to_str_tokens = to_single_token = _without("a tokenizer", "tokens [batch, pos]")
    to_single_str_token = set_tokenizer = sample_datapoint = load_sample_training_dataset = to_tokens
    generate = generate_stream = _without("generation", "the logits at the last position")
    fold_layer_norm = center_writing_weights = center_unembed = _without(
        "single steps of folding", "process_weights_"
    )
    fold_value_biases = refactor_factored_attn_matrices = fill_missing_keys = fold_layer_norm
    input_to_embed = get_residual = _without("the embedding alone", "stop_at_layer=0")
    get_pos_offset = _without("a key-value cache", "whole sequences")
    move_model_modules_to_device = _without("several devices", "model.to(device)")
    from_pretrained = classmethod(_without("from_pretrained", "TransformerBridge.boot_transformers"))
    from_pretrained_no_processing = from_pretrained

    n_params_total = property(lambda self: sum(parameter.numel() for parameter in self.parameters()))

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

    def accumulated_bias(
        self, layer: int, mlp_input: bool = False, include_mlp_biases: bool = True
    ) -> Float[Tensor, " d_model"]:
        """Sum b_O and b_out in the residual stream before `layer`, or before the MLP of `layer`."""
        total = torch.zeros(self.cfg.d_model, device=self.W_E.device)
        for block in list(self.blocks)[:layer]:
            total += block.attn.b_O
            if include_mlp_biases:
                total += block.mlp.b_out
        return total + self.blocks[layer].attn.b_O if mlp_input else total

    def tokens_to_residual_directions(
        self, tokens: int | Int[Tensor, "*batch"]
    ) -> Float[Tensor, "*batch d_model"]:
        """Return the columns of W_U that belong to the tokens, [*batch, d_model]."""
        return self.W_U.T[tokens]

    def all_head_labels(self) -> list[str]:
        """Return the labels of all heads, L0H0, L0H1 and so on."""
        return [f"L{layer}H{head}" for layer in range(self.cfg.n_layers) for head in range(self.cfg.n_heads)]

    def all_composition_scores(
        self, mode: Literal["Q", "K", "V"]
    ) -> Float[Tensor, "n_layers n_heads n_layers n_heads"]:
        """Return the composition score of each head with each head of a later layer, and 0 elsewhere.

        Args:
            mode: the input of the later head, which is Q, K or V.

        Source: the composition scores of "A Mathematical Framework for Transformer Circuits".
        """
        check_choice("mode", mode, ("Q", "K", "V"))
        later = {"Q": self.QK, "K": self.QK.T, "V": self.OV}[mode]
        scores = composition_scores(self.OV, later, broadcast_dims=True)
        layers = torch.arange(self.cfg.n_layers, device=scores.device)
        is_later = layers[:, None, None, None] < layers[:, None]
        return torch.where(is_later, scores, torch.zeros_like(scores))

    def get_token_position(
        self, single_token: int | Tensor, input: Int[Tensor, "*one pos"], mode: str = "first"
    ) -> int:
        """Return the first or last position of a token in a sequence, [pos] or [1, pos].

        Raises:
            ValueError: If the input is text or several sequences, or the token is not in it.
        """
        check_choice("mode", mode, ("first", "last"))
        if isinstance(single_token, str) or not isinstance(input, Tensor):
            self.to_tokens(input)
        positions = (input == single_token).nonzero()[:, -1].tolist()
        if not positions or input.numel() != input.shape[-1]:
            raise ValueError(
                f"input must be one sequence with the token {int(single_token)}, got {list(input.shape)} "
                f"tokens with {len(positions)} of it. Give another token or sequence"
            )
        return positions[0 if mode == "first" else -1]
