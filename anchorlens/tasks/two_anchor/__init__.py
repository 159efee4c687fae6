"""Two-anchor composite functions: AnchorTask, its sequences, and the accuracies of a model on it."""
