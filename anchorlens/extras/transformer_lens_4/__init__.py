"""A HookedTransformer for TransformerLens 4, which no longer has this class.

The class is built on `HookedRootModule` and `HookPoint`, which TransformerLens 4 keeps. Names, shapes, hook
points and the state dict's keys, in their order, match TransformerLens 3.9's class. Logits and gradients
match bit for bit. `models/library.py` finds the class by an entry point, where TransformerLens lacks it.
"""

from anchorlens.extras.transformer_lens_4.configuration import HookedTransformerConfig
from anchorlens.extras.transformer_lens_4.layers import TransformerBlock
from anchorlens.extras.transformer_lens_4.model import HookedTransformer

__all__ = ["HookedTransformer", "HookedTransformerConfig", "TransformerBlock"]
