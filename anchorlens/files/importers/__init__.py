"""Readers of checkpoints, written by anchorlens or by other software; formats are recognised by content.

>>> from anchorlens.files.importers import open_checkpoint
>>> open_checkpoint("no/such/file.pt")
Traceback (most recent call last):
anchorlens.safe.refusals.CheckpointError: no/such/file.pt: cannot be read: No such file or directory
"""

from anchorlens.files.importers.opened import Opened, open_checkpoint

__all__ = ["Opened", "open_checkpoint"]
