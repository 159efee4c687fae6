"""What decides a run: task, model and recipe (RunConfig, TrainConfig); presets, identity, what it costs."""
