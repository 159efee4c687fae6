"""A HookedTransformer for TransformerLens 4, which no longer has this class.

The class is built on `HookedRootModule` and `HookPoint`, which TransformerLens 4 keeps. Names, shapes, hook
points and the state dict's keys, in their order, match TransformerLens 3.9's class. Logits and gradients
match bit for bit. `library.py` chooses between the two.
"""

from anchorlens.models.transformer.configuration import HookedTransformerConfig
from anchorlens.models.transformer.model import HookedTransformer

__all__ = ["HookedTransformer", "HookedTransformerConfig"]
