"""Probes: what a transformer does inside, measured and drawn.

Each probe is a function of a HookedTransformer (and, where it needs one, a task) that returns a frozen
result with numbers, raw values, `.to_dict()` and `.plot()`. `PROBES` holds them all.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from anchorlens.configuration import check_choice
from anchorlens.probes.embedding_pca import embedding_pca
from anchorlens.probes.q_condensation import q_condensation
from anchorlens.probes.result import ProbeResult
from anchorlens.probes.stable_rank import stable_rank
from anchorlens.probes.v_similarity import v_similarity

if TYPE_CHECKING:
    from transformer_lens import HookedTransformer

    from anchorlens.task import AnchorTask

PROBES: tuple[Callable[..., ProbeResult], ...] = (v_similarity, q_condensation, embedding_pca, stable_rank)
"""Every probe, in the order a report shows them."""


def probe_named(name: str) -> Callable[..., ProbeResult]:
    """The probe of that name.

    Raises:
        ValueError: there is none; the message names those there are.
    """
    by_name = {probe.__name__: probe for probe in PROBES}
    check_choice("probe", name, tuple(by_name))
    return by_name[name]


def apply(
    probe: Callable[..., ProbeResult], model: HookedTransformer, task: AnchorTask, **options: Any
) -> ProbeResult:
    """Call a probe with the model and, where it asks for one, the task.

    Raises:
        ValueError: it has no such option, or refuses what it is given.
    """
    parameters = inspect.signature(probe).parameters
    known = tuple(name for name in parameters if name not in ("model", "task"))
    for name in options:
        check_choice(f"an option of {probe.__name__}", name, known)
    return probe(model, *([task] if "task" in parameters else []), **options)


__all__ = [
    "PROBES",
    "ProbeResult",
    "apply",
    "embedding_pca",
    "probe_named",
    "q_condensation",
    "stable_rank",
    "v_similarity",
]
