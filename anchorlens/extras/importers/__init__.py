"""Readers of the checkpoints of other software; formats are recognised by content."""
