"""What shows an audit, imported when the first one is shown."""

from anchorlens.extras.audit import notebook, picture

__all__ = ["notebook", "picture"]
