"""A benchmark of probes: how well a reading distinguishes small models whose solution is known."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
