"""Build a HookedTransformer from a ModelConfig or HookedTransformerConfig; only this module does so."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from anchorlens.configuration import check_choice, check_kind, checked_arguments
from anchorlens.models.annotations import HookedTransformer
from anchorlens.models.config import ModelConfig
from anchorlens.models.devices import choose_device
from anchorlens.models.gamma import initial_weights, is_frozen


@checked_arguments()
def build_model(
    config: ModelConfig,
    *,
    seed: int = 0,
    device: str | torch.device = "cpu",
    dtype: Literal["float32", "float64"] = "float32",
) -> HookedTransformer:
    """Build a HookedTransformer of one of the variants, with a gamma-scaled initialisation.

    Every hook point of an ordinary HookedTransformer block exists and affects the logits. The weights depend
    only on `config` and `seed`, not on the device. With the same seed, a change of gamma changes only the
    scale of each weight matrix. The function does not read or change the global random state. In `postnorm`,
    every bias that the equations of arXiv 2405.05409 lack is zero and frozen.

    Args:
        config: the shape, variant and gamma.
        seed: the seed of the initial weights, an integer >= 0.
        device: the device of the model.
        dtype: the dtype of the weights.

    Returns:
        A HookedTransformer without a tokenizer, in training mode. The class of the model is
        `anchorlens.HookedTransformer`. With TransformerLens 3.9, this class is
        `transformer_lens.HookedTransformer`.

    Raises:
        ValueError: If the seed, dtype or device is invalid, or `config` is not a ModelConfig.

    Example:
        >>> model = build_model(ModelConfig(gamma=0.5), seed=0)
        >>> model.W_Q.shape  # [n_layers, n_heads, d_model, d_head]
        torch.Size([2, 1, 128, 64])
        >>> round(model.W_Q.std().item() * 128**0.5, 1)
        1.0

    Source: the initialisation rate of arXiv 2405.05409 and 2501.08537, with a weight std of d_in^-gamma.
    """
    check_kind("config", config, ModelConfig, "ModelConfig()", _INSTEAD)
    check_choice("dtype", dtype, ("float32", "float64"))
    device = choose_device(device)
    return model_with(config, initial_weights(config, seed, getattr(torch, dtype)), device)


_INSTEAD = (
    ". Give the model_config of a run. For other models, use HookedTransformer.from_pretrained(name), or "
    "HookedTransformer(config) and gamma_init_"
)


def model_with(
    config: ModelConfig, weights: Mapping[str, Tensor], device: str | torch.device = "cpu"
) -> HookedTransformer:
    """Build the HookedTransformer of a config, with the given weights and in training mode.

    Args:
        config: the shape and variant. The function does not use gamma.
        weights: all parameters by HookedTransformer's name, either in float32 or in float64.
        device: the device of the model.
    """
    model = _assemble(config, next(iter(weights.values())).dtype)
    model.load_state_dict(weights, strict=False)  # all but the attention masks, which are no parameters
    return model.to(str(device), print_details=False)  # cfg.device would drop the index of a torch.device


SIZES = ("n_layers", "n_heads", "d_model", "d_head", "d_mlp", "d_vocab", "n_ctx")
"""The sizes that a ModelConfig and a HookedTransformerConfig share."""


def _assemble(config: ModelConfig, dtype: torch.dtype) -> HookedTransformer:
    """Assemble the modules of a variant on the CPU, with empty weights."""
    model = empty_transformer(
        **{name: getattr(config, name) for name in SIZES},
        d_vocab_out=config.n_answers,
        act_fn=config.activation,
        num_experts=config.num_experts,
        experts_per_token=None if config.num_experts is None else config.n_active,
        gated_mlp=config.num_experts is not None,
        normalization_type=None if config.variant == "plain" else "LN",
        attention_dir="causal",
        dtype=dtype,
    )
    from anchorlens.models.variants import BLOCKS

    if config.variant in BLOCKS:
        for layer in range(config.n_layers):
            model.blocks[layer] = BLOCKS[config.variant](model.cfg, layer)
        _in_its_precision(model)
    if config.variant == "postnorm":
        model.ln_final = nn.Identity()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not is_frozen(config, name))
    model.setup()  # names the hook points again, now that the blocks are the variant's
    return model


def empty_transformer(**fields: Any) -> HookedTransformer:
    """Make the modules that a HookedTransformerConfig describes on the CPU, with empty weights."""
    from anchorlens.models.library import HookedTransformer, HookedTransformerConfig

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "HookedTransformer is deprecated", DeprecationWarning)
        cfg = HookedTransformerConfig(init_weights=False, device="cpu", **fields)
        return _in_its_precision(HookedTransformer(cfg, move_to_device=False))


def _in_its_precision(model: HookedTransformer) -> HookedTransformer:
    """Convert a model's mixtures of experts to its dtype; TransformerLens makes them float32."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.to(model.cfg.dtype)
    return model
