"""Every probe, by name and in order, and how one is called without knowing which."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from anchorlens.configuration import check_choice
from anchorlens.probes.activation_patching import activation_patching
from anchorlens.probes.attention_patterns import attention_patterns
from anchorlens.probes.embedding_pca import embedding_pca
from anchorlens.probes.expert_use import expert_use
from anchorlens.probes.first_layer_tsne import first_layer_tsne
from anchorlens.probes.fusion_similarity import fusion_similarity
from anchorlens.probes.gradient_sharing import gradient_sharing
from anchorlens.probes.information_flow import information_flow
from anchorlens.probes.interchange import interchange
from anchorlens.probes.mask_key_token import mask_key_token
from anchorlens.probes.mask_second_anchor import mask_second_anchor
from anchorlens.probes.nearest_neighbours import nearest_neighbours
from anchorlens.probes.q_condensation import q_condensation
from anchorlens.probes.result import ProbeResult
from anchorlens.probes.shared.calling import call
from anchorlens.probes.stable_rank import stable_rank
from anchorlens.probes.survival import survival
from anchorlens.probes.training_regime import training_regime
from anchorlens.probes.v_similarity import v_similarity
from anchorlens.safe import safe_repr

if TYPE_CHECKING:
    from anchorlens.files.importers.inputs import ModelInput
    from anchorlens.tasks.shared.base import Task

PROBES: tuple[Callable[..., ProbeResult], ...] = (
    mask_key_token,
    mask_second_anchor,
    information_flow,
    attention_patterns,
    activation_patching,
    interchange,
    v_similarity,
    fusion_similarity,
    nearest_neighbours,
    first_layer_tsne,
    gradient_sharing,
    survival,
    q_condensation,
    embedding_pca,
    stable_rank,
    training_regime,
)
"""The probes of every model, in order: `for probe in PROBES: probe("ckpt.pt")`."""

OF_MIXTURES: tuple[Callable[..., ProbeResult], ...] = (expert_use,)
"""Those of a mixture of experts; a report shows them where a model is one."""

SHIPPED: tuple[Callable[..., ProbeResult], ...] = (*PROBES, *OF_MIXTURES)
"""All of them."""

COSTLY: tuple[Callable[..., ProbeResult], ...] = (survival,)
"""Those that train models: half a minute where the others take seconds."""

REPORT_PROBES: tuple[Callable[..., ProbeResult], ...] = tuple(p for p in SHIPPED if p not in COSTLY)
"""Those that a report shows where nothing else is said: all that are not costly."""


def probe_named(
    name: str, probes: Sequence[Callable[..., ProbeResult]] = SHIPPED
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


OF_ANY_NETWORK: tuple[Callable[..., ProbeResult], ...] = (stable_rank,)
"""Those that open more than HookedTransformers: the U-Net of Concept Graphs too."""


def checked_probes(probes: object) -> tuple[Callable[..., ProbeResult], ...]:
    """Probes as a caller gives them: functions, or names of shipped ones; each name once.

    Raises:
        ValueError: anything else.
    """
    if isinstance(probes, str) or not isinstance(probes, Sequence):
        raise ValueError(
            "probes must be a list of probes, (*REPORT_PROBES, my_probe) for example, got "
            f"{type(probes).__name__}"
        )
    chosen = tuple(probe_named(probe) if isinstance(probe, str) else probe for probe in probes)
    names = set()
    for probe in chosen:
        name = getattr(probe, "__name__", None)
        if not callable(probe) or name is None:
            raise ValueError(
                f"a probe must be a function, or the name of a shipped one, got {safe_repr(probe)}"
            )
        if name in names:
            raise ValueError(f"probes must have a name each, got {name} twice; rename your own function")
        names.add(name)
    return chosen


def apply(
    probe: Callable[..., ProbeResult],
    model: ModelInput,
    task: Task | None = None,
    /,
    *,
    initial: ModelInput | None = None,
    **options: Any,
) -> ProbeResult:
    """Call a probe with a model, or what holds one, and what it asks for beside.

    A probe of `PROBES` can be called so by itself; a function of your own is.

    Args:
        probe: one of `PROBES`, or your own of the same form.
        model: what it measures: a HookedTransformer, a Checkpoint, what `train` gives, or a path.
        task: what the model was trained on, where a checkpoint does not know it. Probes that read weights
            alone take any HookedTransformer without one.
        initial: the model at the start of its run, for a probe that asks for it; where None a checkpoint
            draws it again from its seed.
        options: the probe's own.

    Raises:
        ValueError: it has no such option, needs a task that is not there, refuses what it is given, or gives
            no ProbeResult.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> apply(stable_rank, build_model(ModelConfig(gamma=0.5)))
        StableRank(W_Q of layer 0: 22.27, 1.01 of a Gaussian's)
    """
    result = call(probe, model, task, initial=initial, **options)
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
