"""HookedTransformer and its parts: TransformerLens 3.9's own, and ours where TransformerLens 4 has none.

Every module that makes or checks for a HookedTransformer imports the class from here.
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
