"""Where a transformer is read and changed: the only hook names, masking after the softmax, liveness.

Everything here is a context manager or a call that leaves the model as it was: hooks of this module go
when it is left, by an exception or an interrupt too, and hooks of the caller stay. Threads that measure one
model take turns.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from anchorlens.configuration import check_choice, check_number

if TYPE_CHECKING:
    from transformer_lens import HookedTransformer

RESID_PRE = "hook_resid_pre"
"""What a block reads, [batch, pos, d_model]."""
ATTN_OUT = "hook_attn_out"
"""What attention adds, [batch, pos, d_model]."""
RESID_MID = "hook_resid_mid"
"""The residual stream after attention (after its LayerNorm in `postnorm`), [batch, pos, d_model]."""
RESID_POST = "hook_resid_post"
"""What a block gives, [batch, pos, d_model]."""
MLP_OUT = "hook_mlp_out"
"""What the MLP adds, [batch, pos, d_model]."""
PATTERN = "attn.hook_pattern"
"""Attention after the softmax, [batch, head_index, query_pos, key_pos]."""
VALUE = "attn.hook_v"
"""The values, [batch, pos, head_index, d_head]."""
Z = "attn.hook_z"
"""Values weighted by attention, [batch, pos, head_index, d_head]."""

_BATCH_BYTES = 256 * 2**20
_BYTES_PER_NUMBER = 8
_COPIES = 4


def hook_name(layer: int, hook: str) -> str:
    """TransformerLens' name of a hook point: `blocks.{layer}.{hook}`."""
    return f"blocks.{layer}.{hook}"


# -- reading ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def evaluation_mode(model: Any) -> Iterator[None]:
    """Every submodule in evaluation mode, and afterwards each in the mode it was in.

    Meanwhile no other thread measures the same model: it waits.
    """
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    with _lock_of(model):
        modes = [module.training for module in modules]

        def restore() -> None:
            for module, mode in zip(modules, modes, strict=True):
                module.training = mode

        try:
            for module in modules:
                module.training = False
            yield
        finally:
            _surely(restore)


_LOCKS: weakref.WeakKeyDictionary[nn.Module, Any] = weakref.WeakKeyDictionary()
_LOCKS_LOCK = threading.Lock()


def _lock_of(model: Any) -> contextlib.AbstractContextManager[Any]:
    """What a thread holds while it measures a model, so that its hooks touch no other thread's numbers."""
    if not isinstance(model, nn.Module):
        return contextlib.nullcontext()
    with _LOCKS_LOCK:
        return _LOCKS.setdefault(model, threading.RLock())


def _surely(clean_up: Callable[[], None]) -> None:
    """Clean up to the end, also where Ctrl-C comes in between; then let it through."""
    interrupt = None
    while True:
        try:
            clean_up()
            break
        except KeyboardInterrupt as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt


@contextlib.contextmanager
def measuring(model: HookedTransformer) -> Iterator[None]:
    """Evaluation mode and no gradients, both put back."""
    with evaluation_mode(model), torch.no_grad():
        yield


def device_of(model: nn.Module) -> torch.device:
    """Where a model's parameters are."""
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def check_tokens(model: HookedTransformer, tokens: Any) -> None:
    """Check that tokens are [batch, pos], whole numbers in the model's vocabulary, and not too many.

    Raises:
        ValueError: they are not.
    """
    cfg = model.cfg
    if not isinstance(tokens, Tensor) or tokens.dim() != 2 or tokens.dtype not in (torch.int64, torch.int32):
        got = f"{tokens.dtype} {list(tokens.shape)}" if isinstance(tokens, Tensor) else type(tokens).__name__
        raise ValueError(f"tokens must be a tensor of whole numbers [batch, pos], got {got}")
    if not 1 <= tokens.shape[1] <= cfg.n_ctx:
        raise ValueError(f"tokens must be 1..{cfg.n_ctx} (n_ctx) in a sequence, got {tokens.shape[1]}")
    if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < cfg.d_vocab:
        raise ValueError(
            f"tokens must be in 0..{cfg.d_vocab - 1} (d_vocab), got {int(tokens.min())}..{int(tokens.max())}"
        )


def sequences_per_batch(model: HookedTransformer, n_pos: int) -> int:
    """How many sequences of `n_pos` tokens pass through the model at once, >= 1.

    Without gradients a forward pass holds one block's activations, however many blocks there are:
    so many sequences are taken that they stay near 256 MiB.
    """
    cfg = model.cfg
    widest = max(
        4 * cfg.d_model + 4 * cfg.n_heads * cfg.d_head,
        cfg.d_mlp or 0,
        cfg.n_heads * n_pos,
        cfg.d_vocab_out if cfg.d_vocab_out > 0 else cfg.d_vocab,
    )
    return max(1, _BATCH_BYTES // (n_pos * widest * _COPIES * _BYTES_PER_NUMBER))


def read(
    model: HookedTransformer,
    tokens: Int[Tensor, "batch pos"],
    hooks: Sequence[tuple[int, str]],
    *,
    position: int | None = None,
    before_others: bool = False,
) -> dict[tuple[int, str], Tensor]:
    """Activations at hook points, batch by batch; nothing else is kept.

    Args:
        model: any HookedTransformer or TransformerBridge; it is only read.
        tokens: sequences, on any device.
        hooks: (layer, hook) for each, `hook` one of this module's names.
        position: the one position kept, for hooks of [batch, pos, ...]; all where None.
        before_others: whether they are read before the caller's own hooks change them, or behind.

    Returns:
        (layer, hook) -> activations [batch, ...] on the model's device.

    Raises:
        ValueError: the model has no such hook, or tokens that it cannot read.
    """
    parts: dict[tuple[int, str], list[Tensor]] = {place: [] for place in hooks}

    def keeper(place: tuple[int, str]) -> Any:
        def keep(value: Tensor, hook: Any) -> None:
            parts[place].append(value.detach().clone() if position is None else value[:, position].clone())

        return keep

    points = [(hook_name(*place), keeper(place)) for place in hooks]
    check_tokens(model, tokens)
    stop = max((layer for layer, _ in hooks), default=0) + 1
    with measuring(model), attached(model, points, before_others=before_others):
        for chunk in tokens.split(sequences_per_batch(model, tokens.shape[1])):
            model(chunk.to(device_of(model)), return_type=None, stop_at_layer=stop)
    for place, found in parts.items():
        if not found:
            raise ValueError(f"the hook {hook_name(*place)} must fire, and in this model it never did")
    return {place: torch.cat(found) for place, found in parts.items()}


def last_logits(model: HookedTransformer, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch d_vocab"]:
    """Logits at the last position, batch by batch, on the model's device.

    Raises:
        ValueError: tokens that the model cannot read.
    """
    check_tokens(model, tokens)
    size = sequences_per_batch(model, tokens.shape[1])
    with measuring(model):
        parts = [model(chunk.to(device_of(model)))[:, -1].clone() for chunk in tokens.split(size)]
    return torch.cat(parts)


def after_attention(
    model: HookedTransformer, tokens: Int[Tensor, "batch pos"], layer: int
) -> Float[Tensor, "batch d_model"]:
    """The residual stream of the last position behind a layer's attention, before its MLP.

    Raises:
        ValueError: attention and MLP stand side by side, so that there is no such place.
    """
    if getattr(model.cfg, "parallel_attn_mlp", False):
        raise ValueError(
            "the model's MLPs must follow its attention, so that there is a residual stream between them, "
            "got parallel_attn_mlp"
        )
    hook = RESID_POST if model.cfg.attn_only else RESID_MID
    return read(model, tokens, [(layer, hook)], position=-1)[layer, hook]


# -- changing ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def attached(
    model: HookedTransformer, fwd_hooks: Sequence[tuple[str, Any]], *, before_others: bool = False
) -> Iterator[None]:
    """Hooks that are gone afterwards, whatever happens; the caller's own stay.

    Meanwhile no other thread measures the same model: it waits.

    Args:
        model: any HookedTransformer or TransformerBridge.
        fwd_hooks: (name of the hook point, hook) each.
        before_others: whether they run before the caller's own hooks or behind them.

    Raises:
        ValueError: the model has no such hook point.
    """
    points = [(_hook_point(model, name), hook) for name, hook in fwd_hooks]

    def detach() -> None:
        for point, hook in points:
            for handle in [handle for handle in point.fwd_hooks if handle.user_hook is hook]:
                handle.hook.remove()
            point.fwd_hooks = [handle for handle in point.fwd_hooks if handle.user_hook is not hook]
            # one that an interrupt left registered and not yet listed: TransformerLens names it so
            for key, registered in list(point._forward_hooks.items()):
                if getattr(registered, "__name__", None) == repr(hook):
                    del point._forward_hooks[key]

    with _lock_of(model):
        try:
            for point, hook in points:
                point.add_hook(hook, prepend=before_others)
            yield
        finally:
            _surely(detach)


def _hook_point(model: HookedTransformer, name: str) -> Any:
    """The hook point of that name, also under a name that a TransformerBridge keeps for compatibility."""
    finder = getattr(model, "get_hook_point", model.hook_dict.get)
    point = finder(name)
    if point is None:
        raise ValueError(
            f"the model must have the hook {name}, and this {type(model).__name__} with "
            f"{model.cfg.n_layers} layer(s) has none"
        )
    return point


def zeroed(
    pattern: Float[Tensor, "batch head_index query_pos key_pos"],
    mask: Bool[Tensor, "#batch #head_index query_pos key_pos"],
) -> Float[Tensor, "batch head_index query_pos key_pos"]:
    """The pattern with 0 where the mask is true; rows are not normalised again.

    >>> zeroed(torch.tensor([[[[0.25, 0.75]]]]), torch.tensor([[[[True, False]]]])).tolist()
    [[[[0.0, 0.75]]]]
    """
    return pattern.masked_fill(mask, 0)


@contextlib.contextmanager
def masked_attention(
    model: HookedTransformer, masks: Mapping[int, Bool[Tensor, "#batch #head_index query_pos key_pos"]]
) -> Iterator[None]:
    """Attention set to zero after the softmax, without renormalising.

    Args:
        model: `assert_live` says whether this reaches its logits.
        masks: layer -> where attention is zeroed; `attention_masks` makes them.

    Example:
        >>> from anchorlens import AnchorTask, ModelConfig, build_model
        >>> model = build_model(ModelConfig(gamma=0.5)).eval()
        >>> with masked_attention(model, attention_masks(model, 9, key=2)):
        ...     _, cache = model.run_with_cache(AnchorTask().sample(4).tokens)
        >>> cache["blocks.0.attn.hook_pattern"][..., 2].max().item()
        0.0

    Source: the masking of arXiv 2501.08537.
    """

    def editor(mask: Tensor) -> Any:
        def edit(pattern: Tensor, hook: Any) -> Tensor:
            return zeroed(pattern, mask.to(pattern.device))

        return edit

    with attached(model, [(hook_name(layer, PATTERN), editor(mask)) for layer, mask in masks.items()]):
        yield


def attention_masks(
    model: HookedTransformer,
    n_pos: int,
    *,
    key: int,
    query: int | None = None,
    layer: int | None = None,
    head: int | None = None,
) -> dict[int, Bool[Tensor, "1 head_index query_pos key_pos"]]:
    """Masks of the attention to one position: by all queries of all layers and heads, or fewer.

    Args:
        model: gives the number of layers and heads.
        n_pos: length of the sequences.
        key: the position attended to, 0..n_pos - 1.
        query: the only position that attends, key..n_pos - 1; every one where None.
        layer: the only layer; every one where None.
        head: the only head; every one where None.

    Raises:
        ValueError: an index that the model or the sequence does not have, or a query before its key.
    """
    n_layers, n_heads = model.cfg.n_layers, model.cfg.n_heads
    check_number("key", key, minimum=0, maximum=n_pos - 1, integer=True)
    for name, index, least, most in (
        ("query", query, key, n_pos - 1),
        ("layer", layer, 0, n_layers - 1),
        ("head", head, 0, n_heads - 1),
    ):
        if index is not None:
            check_number(name, index, minimum=least, maximum=most, integer=True)
    mask = torch.zeros(1, n_heads, n_pos, n_pos, dtype=torch.bool)
    heads = slice(None) if head is None else head
    mask[:, heads, slice(None) if query is None else query, key] = True
    return {index: mask for index in (range(n_layers) if layer is None else [layer])}


# -- liveness ---------------------------------------------------------------------------------------


def assert_live(
    model: HookedTransformer, hook: str = PATTERN, tokens: Int[Tensor, "batch pos"] | None = None
) -> None:
    """Prove on a small batch that editing a hook point changes what the model answers.

    For the pattern: it is zeroed in every layer at once; then what attention reads out (`hook_z`) must be
    zero in each, and the logits must differ. Other activations are moved, layer by layer, and the logits
    must differ each time. TransformerBridge's native models, for example, compute on without the pattern
    that their hook shows.

    Args:
        model: any HookedTransformer or TransformerBridge.
        hook: one of this module's names.
        tokens: sequences that mean something to the model, a few are enough; the first tokens of its
            vocabulary where None.

    Raises:
        ValueError: editing changes nothing, or the model's answers are not finite, so that nothing can
            be proved; another name, or tokens that the model cannot read. The message says which.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> assert_live(build_model(ModelConfig(gamma=0.5)))
    """
    check_choice("hook", hook, (PATTERN, VALUE, Z, RESID_PRE, ATTN_OUT, RESID_MID, MLP_OUT, RESID_POST))
    n_layers, name = model.cfg.n_layers, type(model).__name__
    if tokens is None:
        n_pos = min(model.cfg.n_ctx, 8)
        tokens = torch.arange(2 * n_pos).reshape(2, n_pos) % model.cfg.d_vocab
    clean = last_logits(model, tokens)
    if not clean.isfinite().all():
        raise ValueError("the model's logits must be finite to measure them, got NaN or infinity; retrain it")
    edit = _to_zero if hook == PATTERN else _moved
    edits = [(hook_name(layer, hook), edit) for layer in range(n_layers)]
    if hook == PATTERN:
        with attached(model, edits):
            places = [(layer, Z) for layer in range(n_layers)]
            read_out = read(model, tokens, places, before_others=True)
        dead = [layer for (layer, _), z in read_out.items() if z.any()]
        if dead:
            raise ValueError(
                f"interventions on attention need a live {hook_name(dead[0], hook)}, and in this {name} "
                "zeroing it leaves what attention reads out unchanged; use a HookedTransformer of the same "
                "weights"
            )
    groups = {"every layer": edits} if hook == PATTERN else {f"layer {i}": [e] for i, e in enumerate(edits)}
    for where, group in groups.items():
        with attached(model, group):
            changed = not torch.equal(last_logits(model, tokens), clean)
        if not changed:
            raise ValueError(
                f"editing {hook} in {where} must change the logits, and in this {name} it changes nothing: "
                "the hook is dead or the model ignores it; use a HookedTransformer whose output depends on it"
            )


def _to_zero(value: Tensor, hook: Any) -> Tensor:
    return torch.zeros_like(value)


def _moved(value: Float[Tensor, "batch pos d_model"], hook: Any) -> Float[Tensor, "batch pos d_model"]:
    """Every component by another amount, which no LayerNorm takes away, of the size it has."""
    size = value.abs().amax() + 1
    return value + size * torch.linspace(-1, 1, value.shape[-1], dtype=value.dtype, device=value.device)
