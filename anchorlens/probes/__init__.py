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

from typing import TYPE_CHECKING, Any

from anchorlens.probes import registry
from anchorlens.probes.along import Along, along
from anchorlens.probes.any_model.activation_patching import activation_patching
from anchorlens.probes.any_model.attention_patterns import attention_patterns
from anchorlens.probes.any_model.embedding_pca import embedding_pca
from anchorlens.probes.any_model.holdout import holdout
from anchorlens.probes.any_model.q_condensation import q_condensation
from anchorlens.probes.any_model.stable_rank import stable_rank
from anchorlens.probes.any_model.training_regime import training_regime
from anchorlens.probes.compare import Comparison, compare
from anchorlens.probes.from_file import own_probes, with_own
from anchorlens.probes.registry import LISTS, apply, probe_named
from anchorlens.probes.shared.calling import needs_initial, needs_task
from anchorlens.probes.shared.result import ProbeResult
from anchorlens.probes.two_anchor.first_layer_tsne import first_layer_tsne
from anchorlens.probes.two_anchor.fusion_similarity import fusion_similarity
from anchorlens.probes.two_anchor.gradient_sharing import gradient_sharing
from anchorlens.probes.two_anchor.information_flow import information_flow
from anchorlens.probes.two_anchor.interchange import interchange
from anchorlens.probes.two_anchor.mask_key_token import mask_key_token
from anchorlens.probes.two_anchor.mask_second_anchor import mask_second_anchor
from anchorlens.probes.two_anchor.nearest_neighbours import nearest_neighbours
from anchorlens.probes.two_anchor.survival import survival
from anchorlens.probes.two_anchor.v_similarity import v_similarity

if TYPE_CHECKING:
    from anchorlens.probes.registry import COSTLY, OF_MIXTURES, PROBES, REPORT_PROBES, SHIPPED

__all__ = [
    "COSTLY",
    "OF_MIXTURES",
    "PROBES",
    "REPORT_PROBES",
    "SHIPPED",
    "Along",
    "Comparison",
    "ProbeResult",
    "activation_patching",
    "along",
    "apply",
    "attention_patterns",
    "compare",
    "embedding_pca",
    "first_layer_tsne",
    "fusion_similarity",
    "gradient_sharing",
    "holdout",
    "information_flow",
    "interchange",
    "mask_key_token",
    "mask_second_anchor",
    "nearest_neighbours",
    "needs_initial",
    "needs_task",
    "own_probes",
    "probe_named",
    "q_condensation",
    "stable_rank",
    "survival",
    "training_regime",
    "v_similarity",
    "with_own",
]


def __getattr__(name: str) -> Any:
    """Return a list of shipped probes, or a probe of our own products by name, at its first use."""
    if name in LISTS:
        return getattr(registry, name)
    for probe in () if name.startswith("_") else registry.SHIPPED:
        if probe.__name__ == name:
            return probe
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
