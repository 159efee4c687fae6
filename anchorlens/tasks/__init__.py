"""Tasks: what models are trained on, how they are evaluated, and the definition of the phases.

The names that a task of your own needs can be imported from here.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
