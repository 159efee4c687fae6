"""The verdicts on a model's phase: by the probes (trained pairs, weights), by behaviour, and by decoding."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
