"""Train models on a task: the training loop, the folder of a run, parallel jobs, and cost estimates."""
