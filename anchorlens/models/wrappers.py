"""Find the model within wrappers of other libraries, and the hooks that a user has left on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from anchorlens.texts import few

_BY_NAME = ("_FabricModule", "DeepSpeedEngine")
"""The wrappers of Lightning and DeepSpeed, whose `module` is the model."""
_KINDS_OF_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_OF_LIBRARIES = ("torch.", "transformer_lens.", "accelerate.")


def unwrapped(model: object) -> Any:
    """Return the model within wrappers that do not change the model's result.

    Any other object is returned unchanged. The function knows the wrappers of `torch.compile`, DataParallel,
    DistributedDataParallel, averaged models, Lightning Fabric and DeepSpeed.
    """
    wrappers = nn.DataParallel | nn.parallel.DistributedDataParallel | torch.optim.swa_utils.AveragedModel
    while isinstance(model, nn.Module):
        named = any(cls.__name__ in _BY_NAME for cls in type(model).__mro__)
        inner = model.module if named or isinstance(model, wrappers) else getattr(model, "_orig_mod", None)
        if not isinstance(inner, nn.Module):
            break
        model = inner
    return model


def is_hooked(model: object) -> bool:
    """Check whether a module has the `cfg` and hook points of a HookedTransformer or TransformerBridge."""
    return isinstance(model, nn.Module) and hasattr(model, "cfg") and hasattr(model, "hook_dict")


def hooked_within(module: nn.Module) -> dict[str, nn.Module]:
    """Return a map from paths to the outermost HookedTransformers or TransformerBridges in a module."""
    found: dict[str, nn.Module] = {}
    for path, inner in module.named_modules():
        within_another = any(path.startswith(f"{other}.") for other in found)
        if path and not within_another and is_hooked(inner):
            found[path] = unwrapped(inner)
    return found


def hooks_in_words(model: nn.Module) -> str | None:
    """Return a note on the hooks that a user has left on a model, or None if there are no hooks."""
    names = list(_hooked_by_users(model))
    if not names:
        return None
    return (
        f"the model has hooks of yours at {few(names, 4)}, and is measured with them; "
        "model.reset_hooks(including_permanent=True) removes those of TransformerLens"
    )


def _hooked_by_users(model: nn.Module) -> Iterator[str]:
    for path, module in model.named_modules():
        hooks = [hook for kind in _KINDS_OF_HOOKS for hook in vars(module).get(kind, {}).values()]
        theirs = [hook for hook in hooks if not _module_of(hook).startswith(_OF_LIBRARIES)]
        if theirs or getattr(module, "fwd_hooks", None) or getattr(module, "bwd_hooks", None):
            yield path or "the model itself"
        kinds = {cls.__name__ for cls in type(module).__mro__}
        if path.rpartition(".")[2].startswith("hook_") and "HookPoint" not in kinds and is_hooked(model):
            yield f"{path} (a {type(module).__name__} in the place of the hook point)"
    if any(getattr(nn.modules.module, f"_global{kind}") for kind in _KINDS_OF_HOOKS):
        yield "every module"


def _module_of(hook: object) -> str:
    return getattr(hook, "__module__", None) or type(hook).__module__
