"""Fit a model to a task: the recipe, its schedule, the loop, and the folder a run leaves behind."""
