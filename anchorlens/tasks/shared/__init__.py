"""The parts that tasks share: base classes, batches, evaluators, accuracies, evaluations and the phases."""
