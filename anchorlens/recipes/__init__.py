"""The configuration of a run: task, model, recipe (RunConfig, TrainConfig), presets, schedule, identity."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
