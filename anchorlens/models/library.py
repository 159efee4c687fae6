"""HookedTransformer and its parts, from TransformerLens 3.9, or from a plugin for TransformerLens 4.

All modules that make or check for a HookedTransformer import the class from this module. The plugin is a
module with the three classes, an entry point of the group `anchorlens.models`.
"""

from __future__ import annotations

import warnings

from anchorlens.plugins import installed

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "IProgress not found")  # bars are plain without ipywidgets
    try:
        from transformer_lens import HookedTransformer, HookedTransformerConfig
        from transformer_lens.components.transformer_block import TransformerBlock
    except ImportError:
        found = next(installed("anchorlens.models", "model class"), None)
        if found is None:
            raise
        HookedTransformer = found[0].HookedTransformer
        HookedTransformerConfig = found[0].HookedTransformerConfig
        TransformerBlock = found[0].TransformerBlock

__all__ = ["HookedTransformer", "HookedTransformerConfig", "TransformerBlock"]
