"""HookedTransformer and its parts, from TransformerLens 3.9, or ours for TransformerLens 4.

All modules that make or check for a HookedTransformer import the class from this module.
"""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "IProgress not found")  # bars are plain without ipywidgets
    try:
        from transformer_lens import HookedTransformer, HookedTransformerConfig
        from transformer_lens.components.transformer_block import TransformerBlock
    except ImportError:
        from anchorlens.models.transformer import HookedTransformer, HookedTransformerConfig
        from anchorlens.models.transformer.block import TransformerBlock

__all__ = ["HookedTransformer", "HookedTransformerConfig", "TransformerBlock"]
