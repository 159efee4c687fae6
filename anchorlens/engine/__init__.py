"""The training engine: K models of equal shape in one set of tensors, updated in lockstep.

`engine_of` says which engine trains a run, `architecture` how the parameters of a model start, lie in memory
and what they compute, and `numeric_settings` what products are computed with.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
