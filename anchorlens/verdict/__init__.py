"""The verdicts on a model's phase: the probe, behavioural and decoding verdicts."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
