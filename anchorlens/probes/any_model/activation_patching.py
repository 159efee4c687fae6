"""Activation patching: which locations carry the key and the single-anchor result?"""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from anchorlens.models import hooks
from anchorlens.models.annotations import HookedTransformer
from anchorlens.plots import COSINE
from anchorlens.plots.of_probes import place_map
from anchorlens.probes.shared.anchor_sequences import checked_position
from anchorlens.probes.shared.checks import check_count, check_inputs, check_model
from anchorlens.probes.shared.contract import ProbeResult, number, probe_result, takes_any
from anchorlens.probes.shared.interventions import (
    clearly_above_zero,
    given_pairs,
    patch_effects,
    sequences_that_differ,
)
from anchorlens.tasks.two_anchor.task import AnchorTask

SITES = (hooks.RESID_PRE, hooks.ATTN_OUT, hooks.MLP_OUT)


@probe_result
class ActivationPatching(ProbeResult):
    """The proportion of the logit difference that each patch recovers."""

    probe = "activation_patching"
    readings = ("carried_by_first_anchor", "carried_by_second_anchor", "carried_by_last")
    changes: tuple[str, ...]
    """The name of the token in which the clean and the corrupted sequence differ, such as `key` or `anchor
    1`. The name is `tokens` for the caller's sequences."""
    sites: tuple[str, ...]
    """The hook names of the patched activations, in the order of a block."""
    recovered: np.ndarray
    """[change, site, layer, pos] The proportion of the difference between the clean and the corrupted run
    that the patch recovers. The proportion is 0 if the patch recovers nothing, and 1 if the patch recovers
    the whole difference. The compared value is logit(clean target) - logit(corrupted target), averaged over
    sequences. The proportion is NaN unless the model prefers the correct target in both runs by at least two
    standard errors."""
    clean: np.ndarray
    """[change] The logit difference in the clean run. The difference is above 0 if the model is correct."""
    corrupted: np.ndarray
    """[change] The logit difference in the corrupted run. The difference is below 0 if the model is
    correct."""
    carried_by_first_anchor: float | None
    """The recovered proportion for a change of the first anchor and a patch at the first anchor's position.
    The patch is at the input of the last layer. The proportion is near 1 if g(x; a1) is at this position
    alone, and `None` for the caller's sequences."""
    carried_by_second_anchor: float | None
    """The recovered proportion for a patch at the second anchor's position. The proportion is near 1 if this
    position gathers key and anchors."""
    carried_by_last: float | None
    """The recovered proportion for a patch at the last position. The proportion is near 1 if the model first
    fuses the anchors at the last position, as in the symmetric solution. For the caller's sequences, the
    proportion is near 1 if the last position contains the change before the last layer."""
    key_position: int | None
    """The position of the key token, which the anchors follow. The position is `None` for the caller's
    sequences."""
    n_sequences: int
    """The number of pairs of sequences for each change."""
    seed: int
    """The seed of the drawn sequences. The seed has no effect on the caller's sequences."""

    def headline(self) -> str:
        """Return the recovered proportions before the last layer as text.

        For your own sequences, the text contains the largest recovered proportion and its location.
        """
        if self.key_position is None and not np.isnan(self.recovered).all():
            _, site, layer, pos = np.unravel_index(int(self.recovered.argmax()), self.recovered.shape)
            place = f"{self.sites[site]} of layer {layer} at position {pos}"
            return f"{place} brings back most of the difference, {self.recovered.max():.2f}"
        if self.carried_by_first_anchor is None:
            return "no recovery: the change makes no difference to the logits of the targets"
        return (
            "before the last layer, patching undoes a change of the first anchor by "
            f"{self.carried_by_first_anchor:.2f} at the first anchor, {self.carried_by_second_anchor:.2f} at "
            f"the second, {self.carried_by_last:.2f} at the last position"
        )

    def plot(self) -> go.Figure:
        """Plot the recovered proportion by layer and position, with a panel for each changed token."""
        titles = [f"{change} changed" for change in self.changes]
        panels = dict(zip(titles, self.recovered, strict=True))
        return place_map(
            "Activation patching, clean into corrupted",
            panels,
            self.sites,
            key_position=self.key_position,
            chain_length=len(self.changes) - 1,
            colorbar="recovered",
            scale=COSINE,
            nothing="nothing to<br>bring back",
        )


@takes_any(on_tokens=True)
def activation_patching(
    model: HookedTransformer,
    task: AnchorTask | None = None,
    *,
    tokens: object = None,
    corrupted: object = None,
    targets: object = None,
    n_sequences: int = 8,
    key_position: int | None = None,
    seed: int = 0,
) -> ActivationPatching:
    """Find the locations (layer, position) that carry the key and each anchor to the answer.

    Clean and corrupted sequences have the same noise tokens. Clean and corrupted sequences differ in the key
    or in one anchor, and therefore in their target. The probe patches one activation of the clean run at a
    time into the corrupted run. Each activation is the value of `hook_resid_pre`, `hook_attn_out` or
    `hook_mlp_out` at one layer and position. The probe has its own loop, because the progress bar of
    `transformer_lens.patching` cannot be silenced.

    Limitations: The probe does not distinguish a location that contains the single-anchor result g(x; a) from
    a location that contains key and anchor separately. The probe does not detect information that is spread
    over several locations. The readings of the probe cover only the input of the last layer.

    Args:
        model: a HookedTransformer whose residual hooks can be edited.
        task: the task, which defines the sequences. For a changed anchor, the probe draws trained pairs that
            differ only in this anchor. If no trained pairs differ only in this anchor, the probe draws from
            all pairs. The probe ignores the task if you give sequences.
        tokens: your own clean sequences, [pos] or [sequence, pos], for any model and task. Your own sequences
            also need `corrupted` and `targets`.
        corrupted: the corrupted sequences, of the same shape as `tokens`.
        targets: the answers to the clean and to the corrupted sequence, [2] or [sequence, 2]. The probe
            compares the logits of the two answers at the last position.
        n_sequences: the number of pairs of sequences for each changed token, at least 1.
        key_position: the position of the key token. Default: 2, as in the papers.
        seed: the seed of the sequences.

    Returns:
        The recovered proportion of the logit difference for every changed token, site, layer and position.
        The proportion is 0 if the patch recovers nothing, and 1 if the patch recovers the clean logit
        difference. The patches for a changed first anchor show the location of the single-anchor result g(x;
        a1).

    Raises:
        ValueError: If a hook cannot be edited.
        ValueError: If an option is out of range.
        ValueError: If the model is too small for the task.
        ValueError: If a changed token rarely changes the target of the task.
        ValueError: If your sequences do not fit the model.
        ValueError: If the shapes of `tokens`, `corrupted` and `targets` do not match.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> activation_patching(build_model(ModelConfig(gamma=0.5)), AnchorTask()).recovered.shape
        (3, 3, 2, 9)
        >>> model = build_model(ModelConfig(gamma=0.5))
        >>> clean, corrupted = [5, 0, 200, 7], [5, 0, 100, 7]
        >>> activation_patching(model, tokens=clean, corrupted=corrupted, targets=[8, 9]).recovered.shape
        (1, 3, 2, 4)

    Source: The method is the activation patching of `transformer_lens.patching`. The readings follow the
    inferential and the symmetric solution of arXiv 2405.05409.
    """
    given = (tokens, corrupted, targets)
    if all(part is None for part in given):
        task = check_inputs(model, task)
        check_count("n_sequences", n_sequences)
        position = checked_position(task, key_position)
        changes = ("key", *(f"anchor {i + 1}" for i in range(task.chain_length)))
        every = [sequences_that_differ(task, i, position, n_sequences, seed) for i in range(len(changes))]
    else:
        check_model(model)
        changes = ("tokens",)
        position = None
        every = [given_pairs(model, *given)]
    sites = SITES[:2] if model.cfg.attn_only else SITES
    for site in sites:
        hooks.assert_live(model, site, every[0].clean[:4])
    n_pos = every[0].clean.shape[1]
    recovered, ends = [], []
    for pairs in every:
        logits = (hooks.last_logits(model, rows) for rows in (pairs.clean, pairs.corrupted))
        clean, other = map(pairs.differences, logits)
        told_apart = clearly_above_zero(clean) and clearly_above_zero(-other)
        nothing = np.full((len(sites), model.cfg.n_layers, n_pos), np.nan)
        ends.append((clean.mean(), other.mean()))
        recovered.append(patch_effects(model, pairs, sites, ends[-1]) if told_apart else nothing)
    # [pos] at resid_pre, with the first anchor changed (or the given tokens)
    before_last = recovered[min(1, len(changes) - 1)][0, -1]
    first = second = None
    if position is not None:
        first, second = map(number, before_last[position + 1 : position + 3])
    return ActivationPatching(
        changes=changes,
        sites=sites,
        recovered=np.stack(recovered),
        clean=np.array(ends)[:, 0],
        corrupted=np.array(ends)[:, 1],
        carried_by_first_anchor=first,
        carried_by_second_anchor=second,
        carried_by_last=number(before_last[-1]),
        key_position=position,
        n_sequences=len(every[0].clean),
        seed=seed,
    )
