"""The lists of all probes in order, the function that finds a probe by name, and `apply`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anchorlens.configuration import check_choice
from anchorlens.files.model_input import ModelInput
from anchorlens.files.settings import ModelConfiguration
from anchorlens.plugins import installed, what_to_install
from anchorlens.probes.any_model.activation_patching import activation_patching
from anchorlens.probes.any_model.attention_patterns import attention_patterns
from anchorlens.probes.any_model.embedding_pca import embedding_pca
from anchorlens.probes.any_model.holdout import holdout
from anchorlens.probes.any_model.q_condensation import q_condensation
from anchorlens.probes.any_model.stable_rank import stable_rank
from anchorlens.probes.any_model.training_regime import training_regime
from anchorlens.probes.shared.contract import (
    ProbeResult,
    call,
    is_for,
    needs_training_set,
    result_of,
    spec_of,
)
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
from anchorlens.tasks.shared.base import Task
from anchorlens.texts import safe_repr

SHIPPED: tuple[Callable[..., ProbeResult], ...] = (
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
    holdout,
    *(probe for probe, _ in installed("anchorlens.probes", "probe", package="anchorlens")),
)
"""All shipped probes. Core probes precede the probes of our own products."""
OF_MIXTURES = tuple(probe for probe in SHIPPED if spec_of(probe).of_mixtures)
"""The probes for mixtures of experts only. A report shows these probes if a model is a mixture."""
COSTLY = tuple(probe for probe in SHIPPED if spec_of(probe).costly)
"""The probes that train models. Each of these probes takes about half a minute, and every other probe takes
seconds."""
REPORT_PROBES = tuple(probe for probe in SHIPPED if probe not in COSTLY)
"""The probes that a report shows by default, which are all probes that do not train models."""
PROBES = tuple(
    probe
    for probe in SHIPPED
    if probe not in OF_MIXTURES and is_for(probe, ()) and not needs_training_set(probe)
)
"""The probes for every model of a two-anchor task, in order. For example, `for probe in PROBES:
probe("ckpt.pt")` measures a checkpoint with every probe."""


def probe_named(
    name: str, probes: Sequence[Callable[..., ProbeResult]] | None = None
) -> Callable[..., ProbeResult]:
    """Return the probe with the given name.

    Args:
        name: the name of the probe's function.
        probes: the probes to choose from. Default: the shipped probes.

    Raises:
        ValueError: If the probe is unknown. The message lists the names of all probes.
    """
    by_name = {probe.__name__: probe for probe in (SHIPPED if probes is None else probes)}
    if name not in by_name and (advice := what_to_install("anchorlens.probes", name)):
        raise ValueError(f"the probe {advice}")
    check_choice("probe", name, tuple(by_name))
    return by_name[name]


OF_ANY_NETWORK: tuple[Callable[..., ProbeResult], ...] = (stable_rank,)
"""The probes that also take the U-Net of Concept Graphs, not only HookedTransformers."""


def checked_probes(probes: object) -> tuple[Callable[..., ProbeResult], ...]:
    """Check a list of probes, and return the functions of the probes.

    A probe is a function, or the name of a shipped probe.

    Raises:
        ValueError: If a probe is not a function or the name of a shipped probe.
        ValueError: If two probes have the same name.
    """
    if isinstance(probes, str) or not isinstance(probes, Sequence):
        raise ValueError(
            f"probes must be a list of probes, got {type(probes).__name__}. Give a list, for example "
            "(*REPORT_PROBES, my_probe)"
        )
    chosen = tuple(probe_named(probe) if isinstance(probe, str) else probe for probe in probes)
    names = [getattr(probe, "__name__", None) for probe in chosen]
    for k, probe in enumerate(chosen):
        if not callable(probe) or names[k] is None or names[k] in names[:k]:
            raise ValueError(
                "a probe must be a function with a name of its own, or the name of a shipped probe, got "
                f"{safe_repr(probe)}. Give a function or a name"
            )
    return chosen


def apply(
    probe: Callable[..., ProbeResult],
    model: ModelInput,
    task: Task | None = None,
    /,
    *,
    initial: ModelInput | None = None,
    config: ModelConfiguration | None = None,
    **options: object,
) -> ProbeResult:
    """Call a probe with a model, a checkpoint or a path, and with the task if the probe needs a task.

    The shipped probes accept the same inputs as `apply` when you call them directly. Your own function
    accepts all of these inputs only through `apply`. It may return a ProbeResult, a number, or a mapping from
    names to numbers.

    Args:
        probe: a probe of `PROBES`, or your own function of the same form.
        model: the model to measure, as a HookedTransformer, a Checkpoint, a result of `train`, or a path.
        task: the task that the model was trained on, for a model without a checkpoint. A probe that uses only
            weights needs no task.
        initial: the model at the start of the run, for a probe that needs this model. Default: the model that
            `apply` draws again from the checkpoint's seed.
        config: the configuration of a model whose file is a bare state dict (see `open_checkpoint`).
        options: the options of the probe.

    Raises:
        ValueError: If an option is unknown.
        ValueError: If the task is missing.
        ValueError: If the probe refuses its input.
        ValueError: If the function returns something else.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> apply(stable_rank, build_model(ModelConfig(gamma=0.5)))
        StableRank(W_Q of layer 0: 22.27, 1.01 of a Gaussian's)
    """
    return result_of(probe.__name__, call(probe, model, task, initial=initial, config=config, **options))
