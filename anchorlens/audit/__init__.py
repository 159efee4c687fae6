"""Noise finder: which mappings of a dataset models with a small initialisation fit late."""

import lazy_loader

from anchorlens.views import with_drawn

_find, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__getattr__ = with_drawn(__name__, _find, "audit_html")
