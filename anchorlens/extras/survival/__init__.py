"""Whether left-out training pairs survive further training."""
