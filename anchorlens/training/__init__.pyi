from . import checkpoints as checkpoints
