"""The tasks on which models are trained and evaluated, and the definition of the phases.

You can import every name that your own task needs from here.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
