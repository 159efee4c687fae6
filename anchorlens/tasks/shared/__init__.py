"""Parts that tasks share: base classes, batches, running models, accuracies, evaluations, and the phases."""
