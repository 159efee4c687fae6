"""ModelConfig -> HookedTransformer; the only place that builds one."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Literal

import torch
from torch import nn
from tqdm import TqdmWarning

from anchorlens.configuration import check_choice
from anchorlens.models.config import ModelConfig
from anchorlens.models.gamma import initial_weights, is_frozen

if TYPE_CHECKING:
    from transformer_lens import HookedTransformer


def build_model(
    config: ModelConfig,
    *,
    seed: int = 0,
    device: str | torch.device = "cpu",
    dtype: Literal["float32", "float64"] = "float32",
) -> HookedTransformer:
    """Build a HookedTransformer of one of the three variants with a gamma-scaled initialisation.

    Every hook point of an ordinary HookedTransformer block is there and alive. The weights depend on
    `config` and `seed` alone, on every device; with the same seed, two values of gamma draw the same
    numbers at a different scale. Global random state is neither read nor changed. In `postnorm` the
    biases that the equations lack are zero and frozen.

    Args:
        config: shape, variant and gamma.
        seed: of the initial weights, an integer >= 0.
        device: where the model ends up.
        dtype: of the weights.

    Returns:
        A `transformer_lens.HookedTransformer` without tokenizer, in training mode.

    Raises:
        ValueError: an unusable seed or dtype.

    Example:
        >>> model = build_model(ModelConfig(gamma=0.5), seed=0)
        >>> model.W_Q.shape  # [n_layers, n_heads, d_model, d_head]
        torch.Size([2, 1, 128, 64])
        >>> round(model.W_Q.std().item() * 128**0.5, 1)
        1.0

    Source: weight std = d_in^-gamma, the initialization rate of arXiv 2405.05409 and 2501.08537.
    """
    check_choice("dtype", dtype, ("float32", "float64"))
    weights = initial_weights(config, seed, getattr(torch, dtype))
    model = _assemble(config, getattr(torch, dtype))
    model.load_state_dict(weights, strict=False)  # all but the attention masks, which are no parameters
    model.cfg.device = str(device)
    return model.to(device, print_details=False)


def _assemble(config: ModelConfig, dtype: torch.dtype) -> HookedTransformer:
    """The modules of a variant, on the CPU, their weights not yet drawn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TqdmWarning)  # in a notebook without ipywidgets bars are plain
        from transformer_lens import HookedTransformer, HookedTransformerConfig

    from anchorlens.models.blocks import BLOCKS

    cfg = HookedTransformerConfig(
        n_layers=config.n_layers,
        d_model=config.d_model,
        n_ctx=config.n_ctx,
        d_head=config.d_head,
        n_heads=config.n_heads,
        d_mlp=config.d_mlp,
        d_vocab=config.d_vocab,
        act_fn=config.activation,
        normalization_type="LN",
        attention_dir="causal",
        init_weights=False,
        device="cpu",
        dtype=dtype,
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "HookedTransformer is deprecated", DeprecationWarning)
        model = HookedTransformer(cfg)
    block_class = BLOCKS.get(config.variant)
    if block_class is not None:
        for layer in range(config.n_layers):
            model.blocks[layer] = block_class(cfg, layer)
    if config.variant == "postnorm":
        model.ln_final = nn.Identity()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not is_frozen(config, name))
    model.setup()  # names the hook points anew, now that the blocks are the variant's own
    return model
