"""Code that all figures share, such as colours, scales, and output that notebooks show offline."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
