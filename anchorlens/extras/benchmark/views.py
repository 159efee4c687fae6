"""What shows a benchmark, imported when the first one is shown."""

from anchorlens.extras.benchmark import notebook, picture

__all__ = ["notebook", "picture"]
