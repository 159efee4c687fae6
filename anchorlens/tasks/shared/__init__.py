"""Parts that every task uses: base classes, batches, asking, accuracies, evaluations, and the phases."""
