"""Control: try a list of interventions on a run that memorised, within a time budget."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
