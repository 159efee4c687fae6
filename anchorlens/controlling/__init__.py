"""Control: a short list of interventions, tried from a run that memorised, under a budget of time."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
