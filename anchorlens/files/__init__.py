"""Reading and writing files: our checkpoints and those in other formats, training data, and tables."""
