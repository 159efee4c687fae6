"""anchorlens: did a transformer learn the rules, or memorise the answers?

Train HookedTransformers with a gamma-scaled initialisation on two-anchor composite functions, and
measure what they learnt. Names are imported when they are first used, so that `import anchorlens`
costs nothing. The science is that of Zhang et al., arXiv 2405.05409 and 2501.08537.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__version__ = "0.1.0"
