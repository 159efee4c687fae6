"""Code that several probes share, such as masking, clusters, routes, patches and linear algebra."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
