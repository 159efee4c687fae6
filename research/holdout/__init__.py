"""A study of the probe holdout: runs of many kinds of task, and what it reads of them."""
