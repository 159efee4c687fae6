"""What every task is made of: the protocol, batches, asking, accuracies, evaluations, and the phases."""
