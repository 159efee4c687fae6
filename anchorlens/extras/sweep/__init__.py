"""Sweeps: runs over a grid, trained by any number of processes and stored in one folder."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
