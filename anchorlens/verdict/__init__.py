"""Both verdicts: what a model's answers are by definition, and what its inside speaks for."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
