"""Every probe, by name and in order, and how one is called without knowing which."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from anchorlens.configuration import check_choice
from anchorlens.probes.activation_patching import activation_patching
from anchorlens.probes.attention_patterns import attention_patterns
from anchorlens.probes.embedding_pca import embedding_pca
from anchorlens.probes.first_layer_tsne import first_layer_tsne
from anchorlens.probes.fusion_similarity import fusion_similarity
from anchorlens.probes.information_flow import information_flow
from anchorlens.probes.mask_key_token import mask_key_token
from anchorlens.probes.mask_second_anchor import mask_second_anchor
from anchorlens.probes.q_condensation import q_condensation
from anchorlens.probes.result import ProbeResult
from anchorlens.probes.stable_rank import stable_rank
from anchorlens.probes.training_regime import training_regime
from anchorlens.probes.v_similarity import v_similarity

if TYPE_CHECKING:
    from transformer_lens import HookedTransformer

    from anchorlens.tasks.two_anchor.task import AnchorTask

PROBES: tuple[Callable[..., ProbeResult], ...] = (
    mask_key_token,
    mask_second_anchor,
    information_flow,
    attention_patterns,
    activation_patching,
    v_similarity,
    fusion_similarity,
    first_layer_tsne,
    q_condensation,
    embedding_pca,
    stable_rank,
    training_regime,
)
"""Every probe, in the order a report shows them."""


def probe_named(
    name: str, probes: Sequence[Callable[..., ProbeResult]] = PROBES
) -> Callable[..., ProbeResult]:
    """The probe of that name.

    Args:
        name: of its function.
        probes: those to choose from, the shipped ones or more.

    Raises:
        ValueError: there is none; the message names those there are.
    """
    by_name = {probe.__name__: probe for probe in probes}
    check_choice("probe", name, tuple(by_name))
    return by_name[name]


def checked_probes(probes: Any) -> tuple[Callable[..., ProbeResult], ...]:
    """Probes as a caller gives them: functions, or names of shipped ones; each name once.

    Raises:
        ValueError: anything else.
    """
    if isinstance(probes, str) or not isinstance(probes, Sequence):
        raise ValueError(
            f"probes must be a list of probes, (*PROBES, my_probe) for example, got {type(probes).__name__}"
        )
    chosen = tuple(probe_named(probe) if isinstance(probe, str) else probe for probe in probes)
    names = set()
    for probe in chosen:
        name = getattr(probe, "__name__", None)
        if not callable(probe) or name is None:
            raise ValueError(f"a probe must be a function, or the name of a shipped one, got {probe!r}")
        if name in names:
            raise ValueError(f"probes must have a name each, got {name} twice; rename your own function")
        names.add(name)
    return chosen


def apply(
    probe: Callable[..., ProbeResult],
    model: HookedTransformer,
    task: AnchorTask,
    initial: Callable[[], HookedTransformer] | None = None,
    /,
    **options: Any,
) -> ProbeResult:
    """Call a probe with the model and, where it asks for them, the task and the start of the run.

    Args:
        probe: one of `PROBES`, or your own of the same form.
        model: what it measures.
        task: what the model was trained on.
        initial: gives the model at the start of its run; called only where the probe asks for it.
        options: the probe's own.

    Raises:
        ValueError: it has no such option, refuses what it is given, or gives no ProbeResult.
    """
    parameters = inspect.signature(probe).parameters
    known = tuple(name for name in parameters if name not in ("model", "task", "initial"))
    for name in options:
        check_choice(f"an option of {probe.__name__}", name, known)
    if "initial" in parameters:
        if initial is None:
            raise ValueError(
                f"{probe.__name__} needs the model at the start of its run; give initial, or a checkpoint "
                "that knows its seed"
            )
        options["initial"] = initial()
    by_name = {"model": model, "task": task}
    given = {name: value for name, value in by_name.items() if name in parameters}
    result = probe(*([] if "model" in given else [model]), **given, **options)
    if not isinstance(result, ProbeResult):
        raise ValueError(
            f"a probe must give a ProbeResult, and {probe.__name__} gave {type(result).__name__}; make its "
            "result a subclass of anchorlens.probes.ProbeResult"
        )
    if not hasattr(result, "probe"):
        raise ValueError(
            f"the result {type(result).__name__} must have the name of its probe; write probe = "
            f'"{probe.__name__}" into the class'
        )
    return result
