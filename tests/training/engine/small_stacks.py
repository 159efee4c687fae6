"""Stacks of small models that the tests of interventions and optimizers share."""

import torch

from anchorlens.engine.engines import Stack
from anchorlens.files.checkpoint import training_set
from anchorlens.models.config import ModelConfig
from anchorlens.recipes.run_config import RunConfig
from anchorlens.recipes.train_config import TrainConfig
from anchorlens.tasks.two_anchor.task import AnchorTask

CPU = torch.device("cpu")
TASK = AnchorTask()
SMALL = ModelConfig(n_layers=2, n_heads=2, d_model=16, d_head=8, d_mlp=24)
RECIPE = TrainConfig(n_samples=256, batch_size=64, steps=8, warmup_steps=2, n_checkpoints=0)
"""Two epochs of four updates."""


def stack(*recipes, model=SMALL):
    """A stack of one member for each recipe."""
    runs = [RunConfig(TASK, model, recipe) for recipe in recipes]
    return Stack(runs, [training_set(TASK, RECIPE)] * len(runs), CPU)


def check_goes_on_from_its_state(make):
    """Three updates, the state of one stack taken into another, five more: the bits of eight at once."""
    whole, first, second = (make() for _ in range(3))
    whole.advance(8)
    first.advance(3)
    second.restore(3, [first.state(0)])
    second.advance(8)
    assert torch.equal(whole.snapshot(), second.snapshot())
