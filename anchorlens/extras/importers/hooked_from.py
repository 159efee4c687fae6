"""`hooked_from` converts a GPT-2 or, with a map of names, another transformer to a HookedTransformer."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from anchorlens.configuration import check_number
from anchorlens.extras.importers import name_map
from anchorlens.extras.importers.checkpoints import model_of
from anchorlens.extras.importers.gpt2 import HEADS, gpt2_map, gpt2_names, is_of_linears
from anchorlens.extras.shared.weights import StoredWeight, mapped, with_biases
from anchorlens.models import device_of, evaluation_mode, unwrapped
from anchorlens.tasks import logits_in
from anchorlens.texts import safe_repr

if TYPE_CHECKING:
    from anchorlens.models import HookedTransformer

_ACTIVATIONS = ("gelu", "gelu_new", "relu", "silu")
_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-4}
_TOLERANCE_OF_HALF = 0.05
_MOST_POSITIONS = 16
_OPTIONS: dict[str, tuple[Any, ...]] = {
    "act_fn": _ACTIVATIONS,
    "attention_dir": ("causal", "bidirectional"),
    "use_attn_scale": (True, False),
    "normalization_type": ("LN", "RMS"),
}
"""The values that are tried for each field that is not given."""
_ELSE = (
    "Give hooked_from(module, names={...}, config={...}) the right names and fields, or use evaluate(module, "
    "task) or classify(module, training_set=(x, y)), which take any model"
)


def hooked_from(
    module: nn.Module, names: Mapping[str, Any] | None = None, *, config: Mapping[str, Any] | None = None
) -> HookedTransformer:
    """Convert a transformer in plain torch to a HookedTransformer, for the probes and `classify`.

    Args:
        module: a nanoGPT, a minGPT, a `GPT2LMHeadModel` of Hugging Face, or a GPT of your own with the same
            names of parameters. With `names`, `module` is any transformer that a HookedTransformer can
            compute. The model maps tokens [batch, pos] to logits. The logits may also be the first of several
            outputs, or the attribute `.logits`. The model is not changed.
        names: a map from a HookedTransformer's names to those of the module, such as
            `{"blocks.{l}.attn.W_Q": "layers.{l}.q.weight"}`. `{l}` is the number of a layer. `{h}` is the
            number of a head, if each head is a module. A fused matrix of queries, keys and values has three
            entries, for W_Q, W_K and W_V. A value may also be a dict with `name` and `transpose` (whether the
            matrix is stored as [out, in]), `part` (the third of a fused matrix, 0, 1 or 2) or `per_head`
            (whether queries, keys and values of each head are next to each other). Biases that the map lacks
            are zero, and a warning lists them.
        config: fields of the HookedTransformerConfig. `hooked_from` finds the sizes, and looks for the number
            of heads in the attributes of the module. If they are not given, it tries values of `act_fn`,
            `attention_dir`, `use_attn_scale` and `normalization_type`.

    Returns:
        A HookedTransformer on the device of `module`, in evaluation mode, with a copy of the weights. The
        copy is in float64 if the weights are in float64, and otherwise in float32. Both models give the same
        logits for 4 random sequences, at every position for which `module` returns logits. They differ by at
        most 1e-4, or by 1e-4 of the largest logit if that logit is above 1. `hooked_from` chooses the fields
        whose logits are closest to the logits of `module`.

    Raises:
        ValueError: If `module` lacks a weight, or its logits differ from the logits of every supported model.
            Possible causes are another order of layers in the blocks, other position embeddings or another
            norm.
        ValueError: If `names` or `config` is invalid.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> sizes = {"n_layer": 2, "n_head": 2, "n_embd": 32, "vocab_size": 110, "n_positions": 9}
        >>> gpt = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=None, eos_token_id=None))
        >>> hooked_from(gpt).cfg.act_fn
        'gelu_new'

    Source: the architecture of GPT-2 in nanoGPT, minGPT and Hugging Face's transformers.
    """
    module = unwrapped(module)
    kind = type(module).__name__
    if not isinstance(module, nn.Module):
        raise ValueError(f"module must be a torch module, got {kind}. Give the model")
    stored = {**dict(module.named_buffers()), **module.state_dict()}
    tensors = {name: tensor.detach().cpu() for name, tensor in stored.items()}
    what, is_gpt2 = f"module must compute what the map of names says, got a {kind}", names is None
    fields: dict[str, object] = {}
    if names is None:
        what = f"module must be a GPT-2 of nanoGPT, minGPT or Hugging Face, got a {kind}"
        tensors, theirs = gpt2_names(tensors), getattr(module, "config", None)
        if is_of_linears(tensors) is None:
            raise ValueError(f"{what} without transformer.h.0.attn.c_attn.weight. {_ELSE}")
        names, fields = gpt2_map(tensors), {"attention_dir": "causal", "normalization_type": "LN"}
        fields["use_attn_scale"] = bool(getattr(theirs, "scale_attn_weights", True))
        by_layer = bool(getattr(theirs, "scale_attn_by_inverse_layer_idx", False))
        fields["scale_attn_by_inverse_layer_idx"] = by_layer
    try:
        model, notes = _nearest(module, tensors, name_map.entries(names), {**fields, **(config or {})})
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{what}: {error}. {_ELSE}") from None
    for note in () if is_gpt2 else notes:
        warnings.warn(note, stacklevel=2)
    return model.to(str(device_of(module)), print_details=False)


def _nearest(
    module: nn.Module,
    tensors: Mapping[str, Tensor],
    names: Mapping[str, StoredWeight],
    given: dict[str, Any],
) -> tuple[HookedTransformer, list[str]]:
    """Return the model with the weights and the logits of a module, and notes on them.

    Raises:
        ValueError: If the names or fields are invalid, or the logits of every model differ.
    """
    norms = (one for one in module.modules() if "norm" in type(one).__name__.lower())
    eps = next((one.eps for one in norms if getattr(one, "eps", None)), 1e-5)
    n_heads, nearest = given.get("n_heads", _n_heads(module)), (torch.inf, None, [""])
    is_fused = any(entry.part is not None for entry in names.values())
    for per_head, is_stored in itertools.product((False, True)[: 1 + is_fused], (False, True)):
        layout = {key: replace(one, per_head=one.per_head or per_head) for key, one in names.items()}
        weights = mapped(tensors, layout, n_heads, square_is_stored=is_stored)
        fixed = {"eps": eps, **name_map.architecture(weights, names), **given}
        check_number("n_ctx (config or pos_embed.W_pos)", fixed.get("n_ctx"), minimum=1, integer=True)
        generator, size = torch.Generator("cpu").manual_seed(0), (4, min(fixed["n_ctx"], _MOST_POSITIONS))
        tokens = torch.randint(fixed["d_vocab"], size, generator=generator, device="cpu")
        expected = _logits(module, tokens, len(weights["unembed.W_U"].T))
        allowed = _TOLERANCE.get(expected.dtype, _TOLERANCE_OF_HALF) * max(1.0, float(expected.abs().max()))
        free = {name: values for name, values in _OPTIONS.items() if name not in fixed}
        for values in itertools.product(*free.values()):
            fields = {**fixed, **dict(zip(free, values, strict=True))}
            whole, notes = with_biases(weights, fields["normalization_type"])
            model = model_of(fields, whole)
            with torch.no_grad():
                logits = model(tokens)[:, -expected.shape[1] :]
            if logits.shape != expected.shape:
                shapes = f"{list(logits.shape)}, got {list(expected.shape)}"
                raise ValueError(f"its logits must have shape {shapes}. Correct the map")
            found = float((logits - expected).abs().max()), model, notes
            nearest = min(nearest, found, key=lambda one: one[0])
        if nearest[1] is not None and nearest[0] <= allowed:
            return nearest[1], nearest[2]
    left = [name for name, _ in module.named_parameters() if name in name_map.unused(tensors, names)]
    others = f", and the map does not use {safe_repr(left[0])}" if left else ""
    raise ValueError(
        f"its logits differ by at least {nearest[0]:.2g} from the logits of a HookedTransformer with these "
        f"weights, for every activation function ({', '.join(_ACTIVATIONS)}){others}"
    )


def _n_heads(module: nn.Module) -> int | None:
    """Find the number of heads in the model's configuration or in one of its modules."""
    places = (getattr(module, "config", None), *module.modules())
    found = (getattr(place, name, None) for place in places for name in HEADS)
    return next((n_heads for n_heads in found if isinstance(n_heads, int)), None)


def _logits(module: nn.Module, tokens: Tensor, d_vocab_out: int) -> Tensor:
    """Compute the model's logits [batch, pos, class] at its last positions, on the CPU.

    Raises:
        ValueError: If the model does not take tokens, or returns no logits.
    """
    try:
        with evaluation_mode(module), torch.no_grad():
            return logits_in(module(tokens.to(device_of(module))), tokens, d_vocab_out).cpu()
    except Exception as error:
        raise ValueError(
            f"it must take tokens [batch, pos] and return logits, got {type(error).__name__}: {error}"
        ) from None
