"""What is read from a disk and written to it: checkpoints, ours and others'."""
