"""`hooked_from` converts a GPT-2 of nanoGPT, minGPT or Hugging Face in memory to a HookedTransformer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from anchorlens.extras.importers.checkpoints import model_of
from anchorlens.extras.importers.gpt2 import HEADS, gpt2_config, gpt2_weights, is_of_linears
from anchorlens.models import SIZES, device_of, evaluation_mode, unwrapped

if TYPE_CHECKING:
    from anchorlens.models import HookedTransformer

_ACTIVATIONS = ("gelu", "gelu_new", "relu", "silu")
_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-4}
_TOLERANCE_OF_HALF = 0.05
_MOST_POSITIONS = 16


def hooked_from(gpt: nn.Module) -> HookedTransformer:
    """Convert a GPT-2 in plain torch to a HookedTransformer, for the probes and `classify`.

    Args:
        gpt: a nanoGPT, a minGPT, a `GPT2LMHeadModel` of Hugging Face, or a GPT of your own whose parameters
            have the same names. The model maps tokens [batch, pos] to logits. The logits may also be the
            first of several outputs, or the attribute `.logits`. The model is not changed.

    Returns:
        A HookedTransformer on the device of `gpt`, in evaluation mode, with a copy of the weights. The copy
        is in float64 if the weights are in float64, and otherwise in float32. Both models give the same
        logits at the last position of 4 random sequences. `hooked_from` chooses the activation function whose
        logits are closest to the logits of `gpt`.

    Raises:
        ValueError: If `gpt` has unknown parameters, or its logits differ from the logits of every supported
            model. Possible causes are another order of layers in the blocks, other position embeddings or
            another norm.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> sizes = {"n_layer": 2, "n_head": 2, "n_embd": 32, "vocab_size": 110, "n_positions": 9}
        >>> gpt = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=None, eos_token_id=None))
        >>> hooked_from(gpt).cfg.act_fn
        'gelu_new'

    Source: the architecture of GPT-2 in nanoGPT, minGPT and Hugging Face's transformers.
    """
    gpt = unwrapped(gpt)
    if not isinstance(gpt, nn.Module):
        raise ValueError(f"gpt must be a torch module, got {type(gpt).__name__}. Give the model")
    tensors = {name: tensor.detach().cpu() for name, tensor in gpt.state_dict().items()}
    what = f"gpt must be a GPT-2 of nanoGPT, minGPT or Hugging Face, got a {type(gpt).__name__}"
    if is_of_linears(tensors) is None:
        raise ValueError(f"{what} without transformer.h.0.attn.c_attn.weight. {_ELSE}")
    try:
        config = gpt2_config(tensors, _n_heads(gpt), None)
        weights = gpt2_weights(tensors, config)
    except ValueError as error:
        raise ValueError(f"{what}: {error}. {_ELSE}") from None
    theirs = getattr(gpt, "config", None)
    norms = (module for name, module in gpt.named_modules() if name.endswith("ln_f"))
    fields: dict[str, Any] = {
        **{name: getattr(config, name) for name in SIZES},
        "normalization_type": "LN",
        "eps": next((m.eps for m in norms if hasattr(m, "eps")), 1e-5),
        "use_attn_scale": bool(getattr(theirs, "scale_attn_weights", True)),
        "scale_attn_by_inverse_layer_idx": bool(getattr(theirs, "scale_attn_by_inverse_layer_idx", False)),
    }
    generator = torch.Generator("cpu").manual_seed(0)
    n_pos = min(config.n_ctx, _MOST_POSITIONS)
    tokens = torch.randint(config.d_vocab, (4, n_pos), generator=generator, device="cpu")
    expected = _logits(gpt, tokens, what)
    tolerance = _TOLERANCE.get(expected.dtype, _TOLERANCE_OF_HALF) * max(1.0, float(expected.abs().max()))
    own = getattr(theirs, "activation_function", None)
    differences: dict[str, float] = {}
    for act_fn in sorted(_ACTIVATIONS, key=lambda name: name != own):  # its own first, if it names one
        with torch.no_grad():
            logits = model_of({**fields, "act_fn": act_fn}, weights)(tokens)[:, -1]
        differences[act_fn] = float((logits - expected).abs().max())
    nearest = min(differences, key=differences.__getitem__)
    if differences[nearest] <= tolerance:
        return model_of({**fields, "act_fn": nearest}, weights).to(str(device_of(gpt)), print_details=False)
    raise ValueError(
        f"{what} whose logits differ by at least {differences[nearest]:.2g} from the logits of a GPT-2 with "
        f"the same weights, for every activation function ({', '.join(_ACTIVATIONS)}). {_ELSE}"
    )


_ELSE = "Use evaluate(gpt, task), which takes any model"


def _n_heads(gpt: nn.Module) -> Any:
    """Find the number of heads in the model's configuration or in one of its modules.

    Raises:
        ValueError: If the number is not found.
    """
    for place in (getattr(gpt, "config", None), *gpt.modules()):
        for name in HEADS:
            if isinstance(n_heads := getattr(place, name, None), int):
                return n_heads
    raise ValueError(
        "n_head, the number of heads, must be in gpt.config or in a module of gpt, got no n_head. Set "
        "gpt.config.n_head"
    )


def _logits(gpt: nn.Module, tokens: Tensor, what: str) -> Tensor:
    """Compute the model's logits at the last position, on the CPU.

    Raises:
        ValueError: If the model does not take tokens, or returns another type.
    """
    try:
        with evaluation_mode(gpt), torch.no_grad():
            given: Any = gpt(tokens.to(device_of(gpt)))
    except Exception as error:
        raise ValueError(
            f"{what} that does not take tokens [batch, pos]: {type(error).__name__}: {error}. {_ELSE}"
        ) from None
    logits = getattr(given, "logits", given[0] if isinstance(given, tuple) else given)
    if not isinstance(logits, Tensor) or logits.dim() != 3:
        raise ValueError(
            f"{what} with a {type(logits).__name__} instead of logits [batch, pos, d_vocab]. {_ELSE}"
        )
    return logits[:, -1].cpu()
