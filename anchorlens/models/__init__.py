"""Models: configurations, gamma initialisation, building, hooks, and running a model to measure it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
