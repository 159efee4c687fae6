"""Probes, which measure and draw what a transformer computes.

Each probe is a function of a model and, if needed, a task. A probe returns a frozen result with readings, raw
values, `.to_dict()` and `.plot()`. The model is a HookedTransformer, a Checkpoint, the result of `train`, or
the path of a checkpoint or run. A checkpoint contains its task.

- `PROBES` lists the probes for every model of a two-anchor task.
- `OF_MIXTURES` lists the probes for mixtures of experts.
- `REPORT_PROBES` lists the probes that take seconds.

`compare` shows the results of one probe for several models next to each other. `own_probes` loads the probes
of your own Python file.
"""

from __future__ import annotations

from typing import Any

import lazy_loader

_of_core, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    """Return a name of the stub, or a probe of our own products by name."""
    if name in __all__ or name.startswith("_"):
        return _of_core(name)
    from anchorlens.probes.registry import SHIPPED

    for probe in SHIPPED:
        if probe.__name__ == name:
            return probe
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
