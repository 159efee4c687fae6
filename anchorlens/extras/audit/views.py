"""The modules that show an audit, imported when the first audit is shown."""

from anchorlens.extras.audit import notebook, picture

__all__ = ["notebook", "picture"]
