"""anchorlens: did a transformer learn the rules, or memorise the answers?

Train HookedTransformers with a gamma-scaled initialisation on two-anchor composite functions, and
measure what they learnt. Names are imported when they are first used, so that `import anchorlens`
costs nothing. The science is that of Zhang et al., arXiv 2405.05409 and 2501.08537.
"""

import lazy_loader

from anchorlens.views import rooms

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__version__ = "0.1.0"


def _training_views() -> None:
    """Import what shows a training while it goes on, and its result."""
    from anchorlens.show.notebook import training  # noqa: F401


def _all_views() -> None:
    """Import everything of the core that shows a result."""
    from anchorlens.show import frame  # noqa: F401
    from anchorlens.show.notebook import probe  # noqa: F401
    from anchorlens.show.report import page  # noqa: F401


def _installed_views() -> None:
    """Import the modules that installed packages name to show their results."""
    from anchorlens.plugins import installed

    list(installed("anchorlens.views", "view"))


rooms += [_training_views, _all_views, _installed_views]
