"""Reading and writing files: our checkpoints and those in other formats, training data, and tables."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
