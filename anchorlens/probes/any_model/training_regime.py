"""Training regime: how far have the weights and the tangent kernel moved since the start?"""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from anchorlens.models.annotations import HookedTransformer
from anchorlens.plots import BLUE, COSINE, ORANGE, styled
from anchorlens.probes.shared.anchor_sequences import trained_sequences
from anchorlens.probes.shared.checks import check_count, check_inputs, check_model, two_anchor_task
from anchorlens.probes.shared.contract import ProbeResult, finite_number, probe_result, takes_any
from anchorlens.probes.shared.linalg import short_name, weight_matrices
from anchorlens.probes.shared.parameters import tangent_kernel
from anchorlens.tasks.two_anchor.task import AnchorTask


@probe_result
class TrainingRegime(ProbeResult):
    """The change of every weight matrix and of the empirical tangent kernel since the start of a run."""

    probe = "training_regime"
    readings = ("relative_change", "kernel_distance")
    names: tuple[str, ...]
    """The names of the parameters. The probe merges heads."""
    relative_changes: np.ndarray
    """[matrix] The relative change ||W - W_0||_F / ||W_0||_F of each matrix. The change is NaN if W_0 is
    zero."""
    relative_change: float | None
    """The relative change of all weight matrices together. The change is 0 if no weight has moved, and `None`
    if all matrices are zero at the start. The change is larger for a smaller initialisation
    (docs/probes/training_regime.md)."""
    initial_kernel: np.ndarray | None
    """[sequence, sequence] The kernel K_ij = <grad f(x_i), grad f(x_j)> over the weight matrices, at the
    start. The function f is the logit of the target. All kernel fields are `None` without a two-anchor
    task."""
    kernel: np.ndarray | None
    """[sequence, sequence] The kernel at the later step."""
    kernel_distance: float | None
    """The distance 1 - <K_0, K> / (||K_0|| ||K||), from 0 to 1. The distance is 0 if the kernels are equal up
    to scale (NTK-like), and 1 if the kernels are orthogonal. The distance is `None` if a kernel is zero (no
    weight changes a logit) or overflows."""
    kernel_change: float | None
    """The relative change ||K - K_0||_F / ||K_0||_F, which also depends on the scale of the kernels. The
    change is `None` in the same cases as `kernel_distance`."""
    n_sequences: int
    """The number of sequences for the tangent kernel, or 0 without a kernel."""
    seed: int
    """The seed of the sequences."""

    def headline(self) -> str:
        """Return the distances that the weights and the tangent kernel have moved, as text."""
        moved = "all weight matrices were zero at the start"
        if self.relative_change is not None:
            moved = f"weights moved {self.relative_change:.2f} times their initial norm"
        if self.kernel is None:
            return f"{moved}; no tangent kernel without an AnchorTask"
        if self.kernel_distance is None:
            return f"{moved}; no distance of tangent kernels, because one is zero or overflows"
        return f"{moved}, the tangent kernel by {self.kernel_distance:.2f} (0..1)"

    def plot(self) -> go.Figure:
        """Plot the relative change of each matrix as a bar, and both kernels if the result has kernels."""
        kernels = [one for one in (self.initial_kernel, self.kernel) if one is not None]
        figure = make_subplots(rows=1, cols=1)
        if kernels:
            figure = make_subplots(
                rows=2,
                cols=2,
                specs=[[{"colspan": 2}, None], [{}, {}]],
                row_heights=[0.62, 0.38],
                vertical_spacing=0.14,
                horizontal_spacing=0.16,
                subplot_titles=("", "tangent kernel at the start", "tangent kernel now"),
            )
        names = [short_name(name) for name in self.names]
        first: dict[str, Any] = {"row": 1, "col": 1}
        figure.add_bar(
            y=names, x=self.relative_changes, orientation="h", marker_color=BLUE, showlegend=False, **first
        )
        if (change := self.relative_change) is not None:
            ends: dict[str, Any] = {"x0": change, "x1": change, "y0": -0.5, "y1": len(names) - 0.5}
            figure.add_shape(type="line", **ends, line={"color": ORANGE, "width": 3}, **first)
        title = "||W - W<sub>0</sub>|| / ||W<sub>0</sub>|| (line: all)"
        figure.update_xaxes(title=title, rangemode="tozero", **first)
        figure.update_yaxes(autorange="reversed", **first)
        bar = {"title": "share of<br>its largest", "len": 0.36, "y": 0.17, "thickness": 14}
        for column, kernel in enumerate(kernels, start=1):
            values = kernel / max(np.abs(kernel).max(), np.finfo(float).tiny)
            at: dict[str, Any] = {"row": 2, "col": column}
            figure.add_trace(go.Heatmap(z=values, colorbar=bar, showscale=column == 2, **COSINE), **at)
            figure.update_xaxes(title="sequence", constrain="domain", **at)
            figure.update_yaxes(autorange="reversed", scaleanchor=f"x{column + 1}", constrain="domain", **at)
        if kernels:
            figure.update_yaxes(title="sequence", row=2, col=1)
        figure.update_annotations(font_size=12)  # the subplots' titles
        height = (420 if kernels else 190) + 22 * len(names)
        return styled(figure, "Movement since the start of training", height=height)


@takes_any()
def training_regime(
    model: HookedTransformer,
    task: AnchorTask | None = None,
    *,
    initial: Any = None,
    n_sequences: int = 8,
    seed: int = 0,
) -> TrainingRegime:
    """Measure how far the weight matrices and the tangent kernel have moved since the start of a run.

    Limitations: The probe does not show what the model learnt. The readings of the probe are meaningful only
    if `initial` is the start of the same run.

    Args:
        model: the model at a later step of the run. The probe does not change the model.
        task: the task, which defines the sequences for the kernel. The sequences are spread evenly over the
            trained pairs. Without a two-anchor task, the probe accepts any HookedTransformer and compares
            only the weights.
        initial: the model at the start of the run, as a model, a checkpoint, a result of `train` or a path.
            Default: the initial model that `Checkpoint.initial_model()` draws again from the checkpoint's
            seed.
        n_sequences: the number of sequences for the kernel, at least 2.
        seed: the seed of the sequences.

    Returns:
        The relative change of each matrix (at least 0), and the distance between the two kernels (from 0 to
        1). Weights move little in a run with a large initialisation (linear, NTK-like regime). Weights move
        far in a run with a small initialisation (condensed regime).

    Raises:
        ValueError: If the matrices of the two models have different shapes.
        ValueError: If a weight is not finite.
        ValueError: If the model is too small for the task.
        ValueError: If the initial model is unknown.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> start = build_model(ModelConfig(gamma=0.5))
        >>> training_regime(start, AnchorTask(), initial=start)
        TrainingRegime(weights moved 0.00 times their initial norm, the tangent kernel by 0.00 (0..1))
        >>> training_regime(start, initial=start)
        TrainingRegime(weights moved 0.00 times their initial norm; no tangent kernel without an AnchorTask)

    Source: The papers arXiv 2405.05409 and 2501.08537 distinguish the linear and the condensed regime.
    `torch.func` computes the kernel.
    """
    task = two_anchor_task(task)
    for moment, name in ((model, "model"), (initial, "initial model")):
        if task is None:
            check_model(moment, name)
        else:
            check_inputs(moment, task, name)
    check_count("n_sequences", n_sequences, minimum=2)
    before, after = weight_matrices(initial), weight_matrices(model)
    shapes = [{name: tuple(matrix.shape) for name, matrix in part.items()} for part in (before, after)]
    if shapes[0] != shapes[1]:
        differ = next(name for name in shapes[0] | shapes[1] if shapes[0].get(name) != shapes[1].get(name))
        raise ValueError(
            f"initial must be the model at the start of the same run, with {differ} of shape "
            f"{shapes[1].get(differ)}, got the shape {shapes[0].get(differ)}. Give the run's initial model"
        )
    moved = ((after[name] - start.to(after[name].device), start) for name, start in before.items())
    norms = np.array([[part.double().norm().item() for part in both] for both in moved]).T
    first = last = distance = change = None
    with np.errstate(divide="ignore", invalid="ignore"):
        if task is not None:
            batch = trained_sequences(task, n_sequences, seed=seed)
            first, last = (tangent_kernel(m, batch.tokens, batch.targets) for m in (initial, model))
            scale = np.linalg.norm(first) * np.linalg.norm(last)
            distance = finite_number("distance", np.clip(1 - (first * last).sum() / scale, 0, 1))
            change = finite_number("change", np.linalg.norm(last - first) / np.linalg.norm(first))
        return TrainingRegime(
            names=tuple(before),
            relative_changes=norms[0] / np.where(norms[1] > 0, norms[1], np.nan),
            relative_change=finite_number("change", np.linalg.norm(norms[0]) / np.linalg.norm(norms[1])),
            initial_kernel=first,
            kernel=last,
            kernel_distance=distance,
            kernel_change=change,
            n_sequences=0 if task is None else n_sequences,
            seed=seed,
        )
