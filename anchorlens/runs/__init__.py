"""What decides a run: task, model and training (RunConfig, TrainConfig), the presets, what asking costs."""
