"""The training engine: K models of equal shape in one set of tensors, updated in lockstep.

`engine_of` chooses the engine for a run. `architecture` gives the initialization, memory layout and forward
pass of a model. `numeric_settings` sets the numerical precision and determinism.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
