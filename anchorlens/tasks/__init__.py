"""What a model is asked: the tasks, how well it answers, and the definition of the phases.

What a task of your own is made of can be imported from here.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
