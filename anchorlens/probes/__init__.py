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

import difflib
from typing import Any

import lazy_loader

_of_core, _, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __dir__() -> list[str]:
    """Return the names of the probes."""
    from anchorlens.probes.registry import SHIPPED

    return sorted(probe.__name__ for probe in SHIPPED)


def __getattr__(name: str) -> Any:
    """Return a name of the stub, or a probe of our own products by name."""
    if name in __all__ or name.startswith("_"):
        return _of_core(name)
    from anchorlens.probes.registry import SHIPPED

    by_name = {probe.__name__: probe for probe in SHIPPED}
    if name in by_name:
        return by_name[name]
    close = difflib.get_close_matches(name, [*by_name, *__all__], n=1)
    advice = f". Did you mean {close[0]!r}?" if close else ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{advice}")
