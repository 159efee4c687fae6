"""Sweeps: runs over a grid, trained by any number of processes, kept in one folder; not drawn here."""

import lazy_loader

from anchorlens.views import with_drawn

_find, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = with_drawn(__name__, _find, "write_diagram", "sweep_html", "cell_html")
