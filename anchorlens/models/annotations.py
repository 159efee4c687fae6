"""TransformerLens' classes for annotations alone: the classes themselves take seconds to import.

Code that makes or checks for a HookedTransformer imports the class from `anchorlens.models.library`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformer_lens.hook_points import HookPoint

    from anchorlens.models.library import HookedTransformer, HookedTransformerConfig
else:
    HookedTransformer = HookedTransformerConfig = HookPoint = Any

__all__ = ["HookPoint", "HookedTransformer", "HookedTransformerConfig"]
