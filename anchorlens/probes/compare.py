"""One probe of several checkpoints, side by side on the same scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from anchorlens.configuration import documented
from anchorlens.figures import complete, in_words
from anchorlens.figures.side_by_side import distinct, side_by_side
from anchorlens.files.checkpoint import Checkpoint, origin
from anchorlens.models.devices import choose_device
from anchorlens.probes.registry import apply, probe_named
from anchorlens.probes.result import ProbeResult
from anchorlens.safe import safe_repr
from anchorlens.views import html

if TYPE_CHECKING:
    import plotly.graph_objects as go


@documented
@dataclass(frozen=True, eq=False)
class Comparison:
    """The same probe of several checkpoints."""

    labels: tuple[str, ...]
    """The label of each checkpoint, in order."""
    results: tuple[ProbeResult, ...]
    """What the probe gave for each."""

    def plot(self) -> go.Figure:
        """The pictures side by side; colour scales are the same, and so are axes that can be compared."""
        share = self.results[0].comparable_axes
        title = in_words(self.results[0].probe)
        figures = [complete(result.plot(), title) for result in self.results]
        return side_by_side(figures, self.labels, share_axes=share)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: each result's content by its label."""
        return dict(zip(self.labels, (result.to_dict() for result in self.results), strict=True))

    _repr_html_ = html

    def __repr__(self) -> str:
        lines = [f"  {label}: {result!r}" for label, result in zip(self.labels, self.results, strict=True)]
        return "\n".join(["Comparison(", *lines, ")"])


def compare(
    checkpoints: Sequence[Checkpoint],
    probe: Callable[..., ProbeResult] | str,
    *,
    labels: Sequence[str] | None = None,
    device: str | torch.device = "cpu",
    **options: Any,
) -> Comparison:
    """Apply one probe to several checkpoints.

    Args:
        checkpoints: at least one, as `load_checkpoint` gives them; one model is built at a time.
        probe: a probe or its name.
        labels: one for each; its gamma, seed and step where None.
        device: where the models run.
        options: of the probe.

    Returns:
        The results, their pictures side by side, and their content as JSON data.

    Raises:
        ValueError: no checkpoint, as many labels as there are not, or what the probe refuses (the
            message starts with the label).

    Example:
        >>> from anchorlens import AnchorTask, ModelConfig, build_model
        >>> start = [
        ...     Checkpoint.from_model(build_model(config), config, AnchorTask())
        ...     for config in (ModelConfig(gamma=0.3), ModelConfig(gamma=0.7))
        ... ]
        >>> compare(start, "stable_rank").labels
        ('gamma 0.3', 'gamma 0.7')
    """
    if isinstance(checkpoints, str | Checkpoint) or not isinstance(checkpoints, Sequence) or not checkpoints:
        raise ValueError(f"checkpoints must be a list of one or more, got {safe_repr(checkpoints)}")
    for checkpoint in checkpoints:
        if not isinstance(checkpoint, Checkpoint):
            raise ValueError(
                f"a checkpoint must be what load_checkpoint gives, got {type(checkpoint).__name__}"
            )
    if not isinstance(probe, str) and not callable(probe):
        raise ValueError(f"probe must be a probe or its name, got {safe_repr(probe)}")
    names = tuple(_label(checkpoint) for checkpoint in checkpoints) if labels is None else tuple(labels)
    if len(names) != len(checkpoints):
        raise ValueError(f"labels must be {len(checkpoints)}, one for each checkpoint, got {len(names)}")
    names = distinct(names)
    chosen = probe_named(probe) if isinstance(probe, str) else probe
    results = []
    for name, checkpoint in zip(names, checkpoints, strict=True):
        try:
            results.append(apply_to_checkpoint(chosen, checkpoint, device=device, **options))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    return Comparison(names, tuple(results))


def apply_to_checkpoint(
    probe: Callable[..., ProbeResult],
    checkpoint: Checkpoint,
    *,
    device: str | torch.device = "cpu",
    **options: Any,
) -> ProbeResult:
    """Call a probe with a checkpoint's model and task, and with the start of its run where it asks for it.

    Raises:
        ValueError: the probe has no such option, refuses what it is given, or asks for the start of a run
            that the checkpoint does not know.
    """
    where = choose_device(str(device))
    model = checkpoint.build_model(where)
    return apply(probe, model, checkpoint.task, lambda: checkpoint.initial_model(where), **options)


def _label(checkpoint: Checkpoint) -> str:
    words = ", ".join(origin(checkpoint.model_config.gamma, checkpoint.train_config, checkpoint.step))
    return words or checkpoint.model_config.overview
