"""Every probe, by name and in order, and how one is called without knowing which."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
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
from anchorlens.probes.stable_rank import stable_rank
from anchorlens.probes.survival import survival
from anchorlens.probes.training_regime import training_regime
from anchorlens.probes.v_similarity import v_similarity
from anchorlens.safe import safe_repr

if TYPE_CHECKING:
    from anchorlens.models.library import HookedTransformer
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
    expert_use,
    q_condensation,
    embedding_pca,
    stable_rank,
    training_regime,
)
"""Every probe, in order."""


COSTLY: tuple[Callable[..., ProbeResult], ...] = (survival,)
"""Those that train models: half a minute where the others take seconds."""

REPORT_PROBES: tuple[Callable[..., ProbeResult], ...] = tuple(p for p in PROBES if p not in COSTLY)
"""Those that a report shows where nothing else is said: all that are not costly."""


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


OF_ANY_NETWORK: tuple[Callable[..., ProbeResult], ...] = (stable_rank,)
"""Those that open more than HookedTransformers: the U-Net of Concept Graphs too."""


OF_MIXTURES: tuple[Callable[..., ProbeResult], ...] = (expert_use,)
"""Those that ask for a mixture of experts; a report shows them where a model is one."""

OF_DENSE: tuple[Callable[..., ProbeResult], ...] = tuple(p for p in PROBES if p not in OF_MIXTURES)
"""All others, which take models with one MLP in each block, and mixtures of experts too."""


ON_TOKENS: tuple[Callable[..., ProbeResult], ...] = (attention_patterns, activation_patching)
"""Those that take tokens of any HookedTransformer; a two-anchor task only gives them where none are given."""


def needs_task(probe: Callable[..., ProbeResult], options: Iterable[str] = ()) -> bool:
    """Whether a probe asks for the two-anchor task of a model, given these of its options.

    One that reads weights alone never does, and one of `ON_TOKENS` does not where it gets `tokens`.

    Args:
        probe: one of `PROBES`, or your own of the same form.
        options: names of the options it is called with.

    >>> needs_task(stable_rank), needs_task(mask_key_token)
    (False, True)
    >>> needs_task(attention_patterns), needs_task(attention_patterns, ["tokens"])
    (True, False)
    """
    if probe in ON_TOKENS:
        return "tokens" not in options
    task = inspect.signature(probe).parameters.get("task")
    return task is not None and task.default is task.empty


def needs_initial(probe: Callable[..., ProbeResult]) -> bool:
    """Whether a probe asks for the model at the start of its run too.

    Args:
        probe: one of `PROBES`, or your own of the same form.

    >>> [probe.__name__ for probe in PROBES if needs_initial(probe)]
    ['training_regime']
    """
    return "initial" in inspect.signature(probe).parameters


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
    model: HookedTransformer,
    task: Task | None = None,
    initial: Callable[[], HookedTransformer] | None = None,
    /,
    **options: Any,
) -> ProbeResult:
    """Call a probe with the model and, where it asks for them, the task and the start of the run.

    Args:
        probe: one of `PROBES`, or your own of the same form.
        model: what it measures.
        task: what the model was trained on; None where that is not known or no two-anchor task. Probes that
            read weights alone take any HookedTransformer without one.
        initial: gives the model at the start of its run; called only where the probe asks for it.
        options: the probe's own.

    Raises:
        ValueError: it has no such option, needs a task that is not there, refuses what it is given, or gives
            no ProbeResult.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> apply(stable_rank, build_model(ModelConfig(gamma=0.5)))
        StableRank(W_Q of layer 0: 22.27, 1.01 of a Gaussian's)
    """
    result = call(probe, model, task, initial, **options)
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


def call(
    probe: Callable[..., Any],
    model: HookedTransformer,
    task: Task | None = None,
    initial: Callable[[], HookedTransformer] | None = None,
    /,
    **options: Any,
) -> Any:
    """What a function of a model gives, of whatever type, called as `apply` calls a probe.

    Args:
        probe: a function of that form; the other arguments are those of `apply`.
        model: what it measures.
        task: what the model was trained on.
        initial: gives the model at the start of its run.
        options: its own.

    Raises:
        ValueError: it has no such option, or needs a task or the start of the run and there is none; and
            whatever it raises itself.
    """
    parameters = inspect.signature(probe).parameters
    option_names = tuple(name for name in parameters if name not in ("model", "task", "initial"))
    for name in options:
        if not option_names:
            raise ValueError(f"{probe.__name__} has no options, got {safe_repr(name)}; leave it out")
        check_choice(f"an option of {probe.__name__}", name, option_names)
    if task is None and needs_task(probe, options):
        without = ", ".join(other.__name__ for other in PROBES if not needs_task(other))
        instead = "give an AnchorTask, or tokens" if probe in ON_TOKENS else "give an AnchorTask"
        raise ValueError(
            f"{probe.__name__} needs the two-anchor task of the model, got none; {instead}, or take a probe "
            f"that reads weights alone ({without})"
        )
    if needs_initial(probe):
        if initial is None:
            raise ValueError(
                f"{probe.__name__} needs the model at the start of its run; give initial, or a checkpoint "
                "that knows its seed"
            )
        options["initial"] = initial()
    by_name = {"model": model, "task": task}
    arguments = {name: value for name, value in by_name.items() if name in parameters}
    return probe(*([] if "model" in arguments else [model]), **arguments, **options)
