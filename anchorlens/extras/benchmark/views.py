"""The modules that show a benchmark, imported when the first benchmark is shown."""

from anchorlens.extras.benchmark import notebook, picture

__all__ = ["notebook", "picture"]
