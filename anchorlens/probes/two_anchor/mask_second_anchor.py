"""Masking the second anchor: does the answer then depend on g(x; a) alone?"""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
import torch
from einops import reduce

from anchorlens.models.annotations import HookedTransformer
from anchorlens.plots import box_cells, cosine_heatmap, styled
from anchorlens.probes.shared.anchor_sequences import anchor_sequences, checked_position
from anchorlens.probes.shared.checks import check_inputs
from anchorlens.probes.shared.contract import ProbeResult, probe_result, takes_any
from anchorlens.probes.shared.interventions import Queries, masked_in_words, masked_logits
from anchorlens.probes.shared.linalg import cosine_matrix, gap_between, nearest_share
from anchorlens.tasks.two_anchor.task import AnchorTask

MOST_RESULTS = 40
"""The default number of values of g. The papers use the values 40 to 79."""


@probe_result
class MaskSecondAnchor(ProbeResult):
    """The cosines between the logits of inputs with a masked second anchor, ordered by g(x; a)."""

    probe = "mask_second_anchor"
    readings = ("centred_gap", "gap", "nearest_same")
    results: np.ndarray
    """[input] The values g(x; a), in ascending order. Each value has one input for each anchor."""
    keys: np.ndarray
    """[input] The key x of each input."""
    first_anchors: np.ndarray
    """[input] The first anchor a of each input."""
    cosines: np.ndarray
    """[input, input] The cosine of the logits at the last position, from -1 to 1."""
    centred_cosines: np.ndarray
    """[input, input] The cosines after subtracting the mean vector."""
    gap: float
    """The mean cosine of two inputs with equal g minus the mean cosine of two inputs with different g, from
    -2 to 2."""
    centred_gap: float
    """The gap of the centred cosines. The gap is about 1 if the logits depend on g alone, and about 0 at
    chance level."""
    nearest_same: float
    """The proportion of inputs whose most similar other input has the same g, from 0 to 1."""
    second_anchor: int
    """The second anchor, which the probe masks at all positions after the first anchor."""
    queries: Queries
    """The query positions whose attention to the second anchor is masked."""
    key_position: int
    """The position of the key token, which the first anchor follows."""

    def headline(self) -> str:
        """Return both gaps and the proportion `nearest_same` as text."""
        return (
            f"same g(x; a) minus different: {self.centred_gap:+.2f} centred, {self.gap:+.2f} raw; the "
            f"nearest has the same g for {self.nearest_same:.0%}"
        )

    @property
    def averaged_cosines(self) -> np.ndarray:
        """[g, g] The mean of `centred_cosines` over the inputs of two values of g, from -1 to 1.

        On the diagonal, the mean includes the cosine of each input with itself, which is 1. `centred_gap`
        excludes these cosines.
        """
        n_results = len(np.unique(self.results))
        return reduce(self.centred_cosines, "(g i) (h j) -> g h", "mean", g=n_results, h=n_results)

    def plot(self, *, averaged: bool = True) -> go.Figure:
        """Plot the centred cosines in the order of g.

        Args:
            averaged: whether to draw `averaged_cosines`, with a cell for every two values of g. With False,
                the plot has a cell for every two inputs, and a box around each block of equal g.
        """
        values = np.unique(self.results)
        n_inputs = len(self.results) // len(values)
        cosines = self.averaged_cosines if averaged else self.centred_cosines
        figure = go.Figure(cosine_heatmap(cosines, colorbar="cosine, centred"))
        size = len(cosines) // len(values)  # number of rows of each g
        if size > 1:
            box_cells(figure, [(start, start) for start in range(0, len(cosines), size)], size=size, width=1)
        shown = range(0, len(values), max(1, len(values) // 8))
        middles = [size * i + (size - 1) / 2 for i in shown]
        ticks: dict[str, Any] = {"constrain": "domain", "tickvals": middles}
        ticks["ticktext"] = [str(values[i]) for i in shown]
        inputs = f"{'mean of ' if averaged else ''}{n_inputs} inputs (x, a) for each"
        figure.update_xaxes(title=f"g(x; a), {inputs}", **ticks)
        figure.update_yaxes(title="g(x; a)", autorange="reversed", scaleanchor="x", **ticks)
        masked = masked_in_words("second anchor", self.queries)
        return styled(figure, f"Logits, {masked}{'' if averaged else ' (boxed: equal g)'}", height=540)


def inputs_of_equal_result(task: AnchorTask) -> list[tuple[int, int, int]]:
    """Return (g, x, a) for each anchor a and each value g that all anchors reach, in ascending order of g.

    The values are 40 to 79, as in the papers, or the middle values if an anchor does not reach these.

    >>> inputs_of_equal_result(AnchorTask())[:4]
    [(40, 35, 1), (40, 39, 2), (40, 42, 3), (40, 48, 4)]

    Raises:
        ValueError: If the anchors reach fewer than two common values.
    """
    reached = {
        anchor: {task.apply(anchor, key): key for key in reversed(task.keys.tolist())}
        for anchor in task.anchors
    }
    common = sorted(set.intersection(*map(set, reached.values())))
    if len(common) < 2:
        raise ValueError(
            f"the functions of all anchors must have at least 2 common values for the keys "
            f"{task.key_min}..{task.key_max}, got {len(common)}. Use another probe"
        )
    start = max(0, (len(common) - MOST_RESULTS) // 2)
    if set(range(40, 80)) <= set(common):
        start = common.index(40)
    chosen = common[start : start + MOST_RESULTS]
    return [(g, reached[anchor][g], anchor) for g in chosen for anchor in task.anchors]


@takes_any()
def mask_second_anchor(
    model: HookedTransformer,
    task: AnchorTask,
    *,
    queries: Queries = "all",
    key_position: int | None = None,
) -> MaskSecondAnchor:
    """Measure whether answers without the second anchor depend on g(x; a) alone.

    The probe sets the attention to every anchor after the first anchor to zero after the softmax, without
    renormalising. Keys and first anchors vary so that each first anchor reaches each value g(x; a) once. All
    inputs have the same noise.

    Limitations: The probe does not work for a circuit that gives no answer without a second anchor. The probe
    does not show the location of g(x; a), since the probe compares only logits.

    Args:
        model: a HookedTransformer whose attention hooks can be edited.
        task: the task, which defines the anchors, their functions and the sequence.
        queries: the query positions whose attention is masked, `all` or only the `last`.
        key_position: the position of the key token. Default: 2, as in the papers.

    Returns:
        The cosines of the logits, the gaps between equal and different g, and the proportion of inputs whose
        nearest neighbour has the same g. The raw gap and the centred gap go from -2 to 2. For a model in
        Phase 3, the centred gap is above 0, and the plot has a bright diagonal. The plot has a cell for every
        two values of g, and `plot(averaged=False)` has a cell for every two inputs.

    Raises:
        ValueError: If the last anchor is at the last position. The probe cannot mask this anchor, because the
            last position attends to itself.
        ValueError: If a hook cannot be edited.
        ValueError: If an option is out of range.
        ValueError: If the model is too small for the task.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> mask_second_anchor(build_model(ModelConfig(gamma=0.5)), AnchorTask()).cosines.shape
        (160, 160)

    Source: The probe follows the attention masking of arXiv 2501.08537.
    """
    check_inputs(model, task)
    second = list(task.anchors)[1]
    position = checked_position(task, key_position)
    masked = list(range(position + 2, position + 1 + task.chain_length))
    if masked[-1] == task.seq_len - 1:
        raise ValueError(
            f"key_position must leave a token after the second anchor, got {position} of {task.seq_len} "
            "tokens. Use a smaller key_position, or longer sequences"
        )
    inputs = inputs_of_equal_result(task)
    values, keys, first = (list(column) for column in zip(*inputs, strict=True))
    chains = [(anchor, *[second] * (task.chain_length - 1)) for anchor in first]
    tokens = anchor_sequences(task, keys, chains, key_position=position)
    logits = torch.from_numpy(masked_logits(model, tokens, masked, queries))
    cosines = cosine_matrix(logits).numpy()
    centred = cosine_matrix(logits - logits.mean(dim=0)).numpy()
    g, others = np.array(values), ~np.eye(len(values), dtype=bool)
    same = (g[:, None] == g[None])[others]
    return MaskSecondAnchor(
        results=g,
        keys=np.array(keys),
        first_anchors=np.array(first),
        cosines=cosines,
        centred_cosines=centred,
        gap=gap_between(cosines[others], same),
        centred_gap=gap_between(centred[others], same),
        nearest_same=nearest_share(cosines, g),
        second_anchor=second,
        queries=queries,
        key_position=position,
    )
