"""The configuration of a run: task, model, recipe (RunConfig, TrainConfig), presets, schedule, identity."""
