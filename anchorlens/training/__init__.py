"""Training: jobs, the loop, run folders, and the four checkpoints that come with the package."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
