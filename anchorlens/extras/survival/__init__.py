"""Survival: whether excluded training pairs survive further training."""
