"""Read and change activations: hook names, masking after the softmax, and liveness of hooks.

All functions restore the model afterwards, and all context managers do so when they end (`running.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorlens.configuration import check_choice, check_number
from anchorlens.models.annotations import HookedTransformer, HookPoint
from anchorlens.models.running import attached, check_tokens, device_of, measuring, sequences_per_batch

EMBED = "hook_embed"
"""The token embeddings without position embeddings, [batch, pos, d_model], which are not in a layer."""
RESID_PRE = "hook_resid_pre"
"""The input of a block, [batch, pos, d_model]."""
ATTN_OUT = "hook_attn_out"
"""The output of attention, [batch, pos, d_model]."""
RESID_MID = "hook_resid_mid"
"""The residual stream after attention (after its LayerNorm in `postnorm`), [batch, pos, d_model]."""
RESID_POST = "hook_resid_post"
"""The output of a block, [batch, pos, d_model]."""
MLP_OUT = "hook_mlp_out"
"""The output of the MLP, [batch, pos, d_model]."""
PATTERN = "attn.hook_pattern"
"""The attention after the softmax, [batch, head_index, query_pos, key_pos]."""
VALUE = "attn.hook_v"
"""The values, [batch, pos, head_index, d_head]."""
Z = "attn.hook_z"
"""The values weighted by attention, [batch, pos, head_index, d_head]."""


def hook_name(layer: int, hook: str) -> str:
    """Return TransformerLens' name of a hook point, `blocks.{layer}.{hook}`."""
    return f"blocks.{layer}.{hook}"


# -- reading ----------------------------------------------------------------------------------------


def read(
    model: HookedTransformer,
    tokens: Int[Tensor, "batch pos"],
    hooks: Sequence[tuple[int, str]],
    *,
    position: int | Sequence[int] | None = None,
    before_others: bool = False,
) -> dict[tuple[int, str], Tensor]:
    """Read activations at hook points, batch by batch, without keeping other activations.

    Args:
        model: any HookedTransformer or TransformerBridge. The function does not change the model.
        tokens: the sequences, [batch, pos], on any device.
        hooks: the pairs (layer, hook), where `hook` is one of this module's names.
        position: the position or positions to keep, for hooks of [batch, pos, ...]. Default: all positions.
        before_others: whether activations are read before the caller's own hooks change the activations.
            Default: after the caller's hooks.

    Returns:
        A map from (layer, hook) to activations [batch, ...] on the model's device.

    Raises:
        ValueError: If a hook does not exist, the model cannot read the tokens, or activations overflow.
    """
    parts: dict[tuple[int, str], list[Tensor]] = {place: [] for place in hooks}

    def keeper(place: tuple[int, str]) -> Any:
        def keep(value: Tensor, hook: HookPoint) -> None:
            if isinstance(position, Sequence):
                kept = torch.stack([value[:, one] for one in position], dim=1)
            else:
                kept = value if position is None else value[:, position]
            parts[place].append(kept.detach().clone())

        return keep

    points = [(hook_name(*place), keeper(place)) for place in hooks]
    check_tokens(model, tokens)
    stop = max((layer for layer, _ in hooks), default=0) + 1
    with measuring(model), attached(model, points, before_others=before_others):
        for chunk in tokens.split(sequences_per_batch(model, tokens.shape[1])):
            model(chunk.to(device_of(model)), return_type=None, stop_at_layer=stop)
    for place, pieces in parts.items():
        if not pieces:
            raise ValueError(
                f"the hook {hook_name(*place)} must fire in the forward pass, got a forward pass without the "
                "hook. Use a HookedTransformer with the same weights"
            )
    return {place: _finite(torch.cat(pieces), hook_name(*place)) for place, pieces in parts.items()}


def _finite(values: Tensor, name: str) -> Tensor:
    if not values.isfinite().all():
        raise ValueError(
            f"{name} must be finite, got NaN or infinity, since the weights are too large for their dtype. "
            "Use an earlier checkpoint, or float64"
        )
    return values


def last_logits(model: HookedTransformer, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch d_vocab"]:
    """Compute the logits at the last position, batch by batch, on the model's device.

    Raises:
        ValueError: If the model cannot read the tokens, or logits overflow.
    """
    check_tokens(model, tokens)
    size = sequences_per_batch(model, tokens.shape[1])
    with measuring(model):
        parts = [model(chunk.to(device_of(model)))[:, -1].clone() for chunk in tokens.split(size)]
    return _finite(torch.cat(parts), "the logits")


def after_attention(
    model: HookedTransformer, tokens: Int[Tensor, "batch pos"], layer: int
) -> Float[Tensor, "batch d_model"]:
    """Return the residual stream between the attention and the MLP of a layer, at the last position.

    Raises:
        ValueError: If attention and MLP run in parallel. A parallel block has no location between attention
            and MLP.
    """
    if getattr(model.cfg, "parallel_attn_mlp", False):
        raise ValueError(
            "the MLP of each block must follow the attention, got a model with parallel_attn_mlp. Use a "
            "model without parallel_attn_mlp"
        )
    hook = RESID_POST if model.cfg.attn_only else RESID_MID
    return read(model, tokens, [(layer, hook)], position=-1)[layer, hook]


# -- changing ---------------------------------------------------------------------------------------


def zeroed(
    pattern: Float[Tensor, "*batch head_index query_pos key_pos"],
    mask: Bool[Tensor, "*#batch #head_index query_pos key_pos"],
) -> Float[Tensor, "*batch head_index query_pos key_pos"]:
    """Set the pattern to 0 where the mask is true, without renormalising the rows.

    >>> zeroed(torch.tensor([[[[0.25, 0.75]]]]), torch.tensor([[[[True, False]]]])).tolist()
    [[[[0.0, 0.75]]]]
    """
    return pattern.masked_fill(mask, 0)


def masked_attention(
    model: HookedTransformer, masks: Mapping[int, Bool[Tensor, "#batch #head_index query_pos key_pos"]]
) -> contextlib.AbstractContextManager[None]:
    """Set masked attention to zero after the softmax, without renormalising.

    Args:
        model: the model. Check with `assert_live` whether masks affect the model's logits.
        masks: the mask of each layer, true where attention is set to zero. Make masks with `attention_masks`.

    Example:
        >>> from anchorlens import ModelConfig, build_model, preset
        >>> model = build_model(ModelConfig(gamma=0.5)).eval()
        >>> with masked_attention(model, attention_masks(model, 9, key=2)):
        ...     _, cache = model.run_with_cache(preset().task.sample(4).tokens)
        >>> cache["blocks.0.attn.hook_pattern"][..., 2].max().item()
        0.0

    Source: the masking of attention in arXiv 2501.08537.
    """
    return _patterns_edited(model, masks, zeroed)


def cut_copies(
    model: HookedTransformer,
    masks: Mapping[int, Bool[Tensor, "copy _ query_pos key_pos"]],
    *,
    patterns: Literal["frozen", "recomputed"],
) -> contextlib.AbstractContextManager[None]:
    """Cut attention edges in n of the 1 + n copies of the sequences in a batch.

    Copy 0 has no mask, and each other copy has one mask.

    The function sets the masked attention to zero after the softmax, without renormalising. Later layers read
    the changed residual stream. With `frozen`, later layers keep the attention pattern of copy 0. A masked
    copy then shows the direct effect of its edge (path patching). With `recomputed`, later layers compute
    their pattern from the changed residual stream. A masked copy then shows the total effect of its edge.

    Args:
        model: the model. Check with `assert_live` whether masks affect the model's logits.
        masks: the masks of each layer for copies 1 .. n, true where attention is set to zero.
        patterns: `frozen` or `recomputed`, for the layers of `masks`. To freeze a layer without a cut, give
            masks that are all false.
    """

    def cut(pattern: Tensor, mask: Tensor) -> Tensor:
        copies = rearrange(pattern, "(copy batch) ... -> copy batch ...", copy=len(mask) + 1)
        changed = copies[:1].expand_as(copies[1:]) if patterns == "frozen" else copies[1:]
        own = zeroed(changed, mask[:, None])
        return rearrange(torch.cat([copies[:1], own]), "copy batch ... -> (copy batch) ...")

    return _patterns_edited(model, masks, cut)


def _patterns_edited(
    model: HookedTransformer, masks: Mapping[int, Tensor], edit: Callable[[Tensor, Tensor], Tensor]
) -> contextlib.AbstractContextManager[None]:
    """Replace the attention pattern of each layer of `masks` by `edit` of the pattern and the mask."""

    def editor(mask: Tensor) -> Any:
        return lambda pattern, hook: edit(pattern, mask.to(pattern.device))

    return attached(model, [(hook_name(layer, PATTERN), editor(mask)) for layer, mask in masks.items()])


def attention_masks(
    model: HookedTransformer,
    n_pos: int,
    *,
    key: int,
    query: int | None = None,
    layer: int | None = None,
    head: int | None = None,
) -> dict[int, Bool[Tensor, "1 head_index query_pos key_pos"]]:
    """Make masks of the attention to one key position, from all or some queries, layers and heads.

    Args:
        model: the model whose number of layers and heads the masks fit.
        n_pos: the length of the sequences.
        key: the key position, 0..n_pos - 1.
        query: the only query position, key..n_pos - 1. Default: all queries.
        layer: the only layer. Default: all layers.
        head: the only head. Default: all heads.

    Raises:
        ValueError: If an index is out of range, or a query is before its key.
    """
    n_layers, n_heads = model.cfg.n_layers, model.cfg.n_heads
    check_number("key", key, minimum=0, maximum=n_pos - 1, integer=True)
    for name, index, least, most in (
        ("query", query, key, n_pos - 1),
        ("layer", layer, 0, n_layers - 1),
        ("head", head, 0, n_heads - 1),
    ):
        check_number(name, index, minimum=least, maximum=most, integer=True, optional=True)
    mask = torch.zeros(1, n_heads, n_pos, n_pos, dtype=torch.bool, device="cpu")
    heads = slice(None) if head is None else head
    mask[:, heads, slice(None) if query is None else query, key] = True
    return {index: mask for index in (range(n_layers) if layer is None else [layer])}


# -- liveness ---------------------------------------------------------------------------------------


def assert_live(
    model: HookedTransformer, hook: str = PATTERN, tokens: Int[Tensor, "batch pos"] | None = None
) -> None:
    """Check on a small batch that editing a hook point changes the model's logits.

    For the attention pattern, the function first sets the pattern of all layers to zero. With a zero pattern,
    `hook_z` must be zero in every layer, and the logits must differ. The function also moves all attention to
    the first position. With this pattern, `hook_z` must be equal at all positions. For other hook points, the
    function shifts the activations of one layer at a time, and the logits must differ each time.
    TransformerBridge's native models, for example, do not compute with the pattern that their hook shows.

    Args:
        model: any HookedTransformer or TransformerBridge.
        hook: the hook point, one of this module's names.
        tokens: a few sequences of the model's task. Default: the first tokens of the vocabulary.

    Raises:
        ValueError: If editing does not change the logits, or the logits are not finite.
        ValueError: If the hook name is unknown, or the model cannot read the tokens. The message gives the
            reason.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> assert_live(build_model(ModelConfig(gamma=0.5)))
    """
    check_choice("hook", hook, (PATTERN, VALUE, Z, RESID_PRE, ATTN_OUT, RESID_MID, MLP_OUT, RESID_POST))
    n_layers, name = model.cfg.n_layers, type(model).__name__
    if tokens is None:
        n_pos = min(model.cfg.n_ctx, 8)
        tokens = torch.arange(2 * n_pos, device="cpu").reshape(2, n_pos) % model.cfg.d_vocab
    clean = last_logits(model, tokens)
    edit = _to_zero if hook == PATTERN else _moved
    edits = [(hook_name(layer, hook), edit) for layer in range(n_layers)]
    if hook == PATTERN:
        places = [(layer, Z) for layer in range(n_layers)]
        proofs = (
            ("zeroing", _to_zero, lambda z: not z.any()),
            ("replacing", _to_first, lambda z: torch.equal(z, z[:, :1].expand_as(z))),
        )
        for doing, change, used in proofs:
            with attached(model, [(point, change) for point, _ in edits]):
                read_out = read(model, tokens, places, before_others=True)
            dead = [layer for (layer, _), z in read_out.items() if not used(z)]
            if dead:
                raise ValueError(
                    f"{hook_name(dead[0], hook)} must be used by attention, got a {name} in which {doing} "
                    "the hook does not change the output of attention. Use a HookedTransformer with the same "
                    "weights"
                )
    groups = {"every layer": edits} if hook == PATTERN else {f"layer {i}": [e] for i, e in enumerate(edits)}
    for where, group in groups.items():
        with attached(model, group):
            changed = not torch.equal(last_logits(model, tokens), clean)
        if not changed:
            raise ValueError(
                f"an edit of {hook} in {where} must change the logits, got a {name} with equal logits after "
                f"the edit. Use a HookedTransformer whose output depends on {hook}"
            )


def _to_zero(value: Tensor, hook: HookPoint) -> Tensor:
    return torch.zeros_like(value)


def _to_first(pattern: Tensor, hook: HookPoint) -> Tensor:
    """Move all attention to the first position."""
    first = torch.zeros_like(pattern)
    first[..., 0] = 1
    return first


def _moved(value: Float[Tensor, "batch pos d_model"], hook: HookPoint) -> Float[Tensor, "batch pos d_model"]:
    """Shift each component by a different amount of the activations' size; LayerNorm does not undo this."""
    size = value.abs().amax() + 1
    return value + size * torch.linspace(-1, 1, value.shape[-1], dtype=value.dtype, device=value.device)
