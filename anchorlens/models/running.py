"""Run a model to measure it, and restore its state: training mode, threads, hooks, batches.

Hooks are removed when their context ends, also after an exception or Ctrl-C; the caller's hooks stay.
Threads that measure the same model take turns.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from anchorlens.models.annotations import HookedTransformer
from anchorlens.models.config import ModelConfig

BATCH_BYTES = 256 * 2**20
"""The largest number of bytes of activations in one batch, unless a single sequence takes more."""
_BYTES_PER_NUMBER = 8
_COPIES = 4


@contextlib.contextmanager
def evaluation_mode(model: object) -> Iterator[None]:
    """Put every submodule in evaluation mode, and restore the modes when the block ends.

    Compiled modules run uncompiled, because hooks do not work in compiled code. Other threads that measure
    the model wait until the block ends.
    """
    modules = [*model.modules()] if isinstance(model, nn.Module) else []
    with lock_of(model), _uncompiled(modules):
        training = [module for module in modules if module.training]

        def set_mode(mode: bool) -> None:
            for module in training:
                module.training = mode

        with _undone_by(lambda: set_mode(True)):
            set_mode(False)
            yield


def _uncompiled(modules: Sequence[nn.Module]) -> contextlib.AbstractContextManager[Any]:
    """Let modules run without `torch.compile` if a module may be compiled."""
    for module in modules:
        own = vars(module)
        if own.get("_compiled_call_impl") is not None or "forward" in own or "_orig_mod" in own["_modules"]:
            return torch.compiler.set_stance("force_eager")
    return contextlib.nullcontext()


@contextlib.contextmanager
def _undone_by(undo: Callable[[], object]) -> Iterator[None]:
    """Call `undo` at the end, also after errors, and again if Ctrl-C interrupts the call."""
    try:
        yield
    finally:
        try:
            undo()
        except KeyboardInterrupt:
            undo()
            raise


_LOCKS: weakref.WeakKeyDictionary[nn.Module, Any] = weakref.WeakKeyDictionary()
_LOCKS_LOCK = threading.Lock()


def lock_of(model: object) -> contextlib.AbstractContextManager[Any]:
    """Return the lock with which only one thread at a time can measure a model.

    Without the lock, torch can hang (observed in torch 2.13). A thread that begins a graph at a parameter
    holds the parameter's mutex and waits for the GIL. At the same time, a thread that indexes the parameter
    holds the GIL and waits for the mutex.
    """
    if not isinstance(model, nn.Module):
        return contextlib.nullcontext()
    with _LOCKS_LOCK:
        return _LOCKS.setdefault(model, threading.RLock())


@contextlib.contextmanager
def measuring(model: object) -> Iterator[None]:
    """Switch to evaluation mode without gradients, and restore both settings when the block ends."""
    gradients = torch.is_grad_enabled()
    with evaluation_mode(model), _undone_by(lambda: torch.set_grad_enabled(gradients)):
        torch.set_grad_enabled(False)
        yield


def device_of(model: nn.Module) -> torch.device:
    """Return the device of a model's parameters."""
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def check_tokens(model: HookedTransformer, tokens: object) -> None:
    """Check that tokens are whole numbers [batch, pos] that fit the model's vocabulary and context.

    Raises:
        ValueError: If the tokens are not whole numbers [batch, pos], or do not fit the vocabulary or context.
    """
    cfg = model.cfg
    if not isinstance(tokens, Tensor) or tokens.dim() != 2 or tokens.dtype not in (torch.int64, torch.int32):
        got = f"{tokens.dtype} {list(tokens.shape)}" if isinstance(tokens, Tensor) else type(tokens).__name__
        raise ValueError(f"tokens must be a tensor of whole numbers [batch, pos], got {got}. Convert them")
    if not 1 <= tokens.shape[1] <= cfg.n_ctx:
        raise ValueError(
            f"a sequence must have 1 to {cfg.n_ctx} tokens (n_ctx), got {tokens.shape[1]}. Change the length "
            "of the sequences"
        )
    if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < cfg.d_vocab:
        raise ValueError(
            f"tokens must be in 0..{cfg.d_vocab - 1} for d_vocab {cfg.d_vocab}, got "
            f"{int(tokens.min())}..{int(tokens.max())}. Give the tokens of the model's task"
        )


def sequences_per_batch(model: HookedTransformer, n_pos: int) -> int:
    """Return the number of sequences of `n_pos` tokens in a batch, at least 1.

    A forward pass without gradients holds the activations of one block at a time. The batch is as large as
    possible with at most 256 MiB of activations.
    """
    cfg = model.cfg
    widest = max(
        4 * cfg.d_model + 4 * cfg.n_heads * cfg.d_head,
        (cfg.d_mlp or 0) * (getattr(cfg, "experts_per_token", None) or 1),
        cfg.n_heads * n_pos,
        cfg.d_vocab_out if cfg.d_vocab_out > 0 else cfg.d_vocab,
    )
    return max(1, BATCH_BYTES // (n_pos * widest * _COPIES * _BYTES_PER_NUMBER))


@contextlib.contextmanager
def attached(
    model: HookedTransformer, fwd_hooks: Sequence[tuple[str, Any]], *, before_others: bool = False
) -> Iterator[None]:
    """Attach hooks, and remove them when the block ends, also after an error.

    The caller's own hooks stay. Other threads that measure the model wait until the block ends.

    Args:
        model: any HookedTransformer or TransformerBridge.
        fwd_hooks: the pairs of a hook point's name and a hook.
        before_others: whether the hooks run before the caller's hooks. Default: after the caller's hooks.

    Raises:
        ValueError: If the model does not have a hook point.
    """
    points = [(_hook_point(model, name), hook) for name, hook in fwd_hooks]

    def detach() -> None:
        for point, hook in points:
            for handle in [handle for handle in point.fwd_hooks if handle.user_hook is hook]:
                handle.hook.remove()
            point.fwd_hooks = [handle for handle in point.fwd_hooks if handle.user_hook is not hook]
            # a hook that an interrupt left registered but not yet listed; TransformerLens gives it this name
            for key, registered in list(point._forward_hooks.items()):
                if getattr(registered, "__name__", None) == repr(hook):
                    del point._forward_hooks[key]

    with lock_of(model), _undone_by(detach):
        for point, hook in points:
            point.add_hook(hook, prepend=before_others)
        yield


def _hook_point(model: HookedTransformer, name: str) -> Any:
    """Find the hook point of a name, also under a compatibility name of a TransformerBridge."""
    point = getattr(model, "get_hook_point", model.hook_dict.get)(name)
    if point is None:
        raise ValueError(
            f"the model must have the hook {name}, got a {type(model).__name__} with {model.cfg.n_layers} "
            "layer(s) without this hook. Use a HookedTransformer with the same weights"
        )
    return point


def sequence_bytes(model: ModelConfig, n_pos: int) -> int:
    """Compute the peak memory of one sequence's activations in a forward pass, in bytes.

    The result holds for float32 without gradients.
    """
    widest = 4 * model.d_model + 4 * model.n_heads * model.d_head + 2 * model.hidden_width
    return 4 * (2 * n_pos * (widest + 2 * model.n_heads * n_pos) + 4 * model.n_answers)
