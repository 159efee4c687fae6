"""What shows a sweep, imported when the first one is shown."""

from anchorlens.extras.sweep import notebook
from anchorlens.extras.sweep.diagram import page

__all__ = ["notebook", "page"]
