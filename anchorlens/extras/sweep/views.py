"""The views of a sweep, imported when the first sweep is shown."""

from anchorlens.extras.sweep import notebook
from anchorlens.extras.sweep.diagram import page

__all__ = ["notebook", "page"]
