"""The verdicts: what trained pairs and weights speak for, what a model answers, and what it decodes."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
