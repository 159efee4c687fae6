"""Activation patching: which (layer, position) carries the key, and which the single-anchor result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from anchorlens import hooks
from anchorlens.anchor_functions import Pair
from anchorlens.behaviour import check_capacity
from anchorlens.configuration import check_number, documented
from anchorlens.figures import RECOVERED, styled
from anchorlens.probes.anchor_sequences import checked_position
from anchorlens.probes.result import ProbeResult
from anchorlens.randomness import generator
from anchorlens.sequences import Cells
from anchorlens.task import AnchorTask

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from transformer_lens import HookedTransformer

SITES = (hooks.RESID_PRE, hooks.ATTN_OUT, hooks.MLP_OUT)


@documented
@dataclass(frozen=True, eq=False, repr=False)
class ActivationPatching(ProbeResult):
    """How much of the clean answer comes back when one activation of the clean run is put into the other."""

    probe: ClassVar[str] = "activation_patching"
    readings: ClassVar[tuple[str, ...]] = (
        "carried_by_first_anchor",
        "carried_by_second_anchor",
        "carried_by_last",
    )
    changes: tuple[str, ...]
    """What the clean and the corrupted sequence differ in: `key`, `anchor 1`, `anchor 2`, ..."""
    sites: tuple[str, ...]
    """Hook names of the activations that are patched, in the order of a block."""
    recovered: np.ndarray
    """[change, site, layer, pos] Share of the difference between the runs that the patch brings back: 0 =
    none, 1 = all. The difference is that of logit(clean target) - logit(corrupted target), mean over
    sequences. NaN where the model does not prefer the right target in both runs, by two standard errors:
    there is nothing to bring back."""
    clean: np.ndarray
    """[change] That logit difference of the clean run; above 0 where the model is right."""
    corrupted: np.ndarray
    """[change] Of the corrupted run; below 0 where the model is right."""
    carried_by_first_anchor: float | None
    """Recovered share at the first anchor's position at the input of the last layer, where the first anchor
    is changed: near 1 where g(x; a1) is there alone."""
    carried_by_second_anchor: float | None
    """The same at the second anchor's position: near 1 where key and anchors are gathered there."""
    carried_by_last: float | None
    """The same at the last position: near 1 where the anchors are fused there first (symmetric solution)."""
    key_position: int
    """Position of the key token; the anchors follow it."""
    n_sequences: int
    """Pairs of sequences for each change."""
    seed: int
    """Of those sequences."""

    def headline(self) -> str:
        """Where the first anchor is, before the last layer."""
        if self.carried_by_first_anchor is None:
            return "nothing to bring back: the model does not tell the two targets apart"
        return (
            f"before the last layer, a change of the first anchor is undone at the first anchor "
            f"{self.carried_by_first_anchor:.2f}, the second {self.carried_by_second_anchor:.2f}, the last "
            f"position {self.carried_by_last:.2f}"
        )

    def plot(self) -> go.Figure:
        """Recovered share by layer and position, a panel for each change."""
        import plotly.graph_objects as go
        from plotly.subplots import make_subplots

        n_changes, n_sites, n_layers, n_pos = self.recovered.shape
        figure = make_subplots(
            rows=1,
            cols=n_changes,
            subplot_titles=[f"{change} changed" for change in self.changes],
            shared_yaxes=True,
            horizontal_spacing=0.12 / n_changes,
        )
        short = [site.removeprefix("hook_") for site in self.sites]
        rows = [f"{layer} {site}" for layer in range(n_layers) for site in short]
        names = {self.key_position: "x"}
        chain = len(self.changes) - 1
        names |= {self.key_position + i: f"a<sub>{i}</sub>" for i in range(1, chain + 1)}
        names[n_pos - 1] = "last"
        columns = [names.get(position, str(position)) for position in range(n_pos)]
        for i in range(n_changes):
            values = self.recovered[i].swapaxes(0, 1).reshape(n_layers * n_sites, n_pos)
            bar = {"title": "recovered", "len": 0.9, "thickness": 14}
            heatmap = go.Heatmap(z=values, colorbar=bar, showscale=i == n_changes - 1, **RECOVERED)
            figure.add_trace(heatmap, row=1, col=i + 1)
            figure.update_xaxes(
                tickvals=list(range(n_pos)),
                ticktext=columns,
                tickangle=0,
                tickfont={"size": 10},
                range=[-0.5, n_pos - 0.5],
                title="position",
                row=1,
                col=i + 1,
            )
            step = max(1, len(rows) // 40)
            figure.update_yaxes(
                tickvals=list(range(0, len(rows), step)),
                ticktext=rows[::step],
                range=[-0.5, len(rows) - 0.5],
                row=1,
                col=i + 1,
            )
        figure.update_yaxes(title="layer and site", row=1, col=1)
        figure.update_annotations(font_size=12)  # the subplots' titles
        height = min(1200, 180 + 28 * len(rows))
        for i in np.flatnonzero(np.isnan(self.recovered).all(axis=(1, 2, 3))).tolist():
            middle = {"x": (n_pos - 1) / 2, "y": (len(rows) - 1) / 2, "row": 1, "col": i + 1}
            figure.add_annotation(text="nothing to<br>bring back", showarrow=False, **middle)
        return styled(figure, "Activation patching, clean into corrupted", height=height)


def activation_patching(
    model: HookedTransformer,
    task: AnchorTask,
    *,
    n_sequences: int = 8,
    key_position: int | None = None,
    seed: int = 0,
) -> ActivationPatching:
    """Find which (layer, position) carries the key and each anchor to the answer.

    Clean and corrupted sequences differ in one token, the key or one anchor, and so in their target;
    noise is the same. One activation of the clean run at a time, [layer, position] of `hook_resid_pre`,
    `hook_attn_out` or `hook_mlp_out`, is put into the corrupted run. Patches are those of
    `transformer_lens.patching`; its loop is not used, as it draws a progress bar that cannot be silenced.

    Args:
        model: any HookedTransformer whose residual hooks are alive.
        task: gives the sequences, of trained pairs where they can be changed so, else of all.
        n_sequences: pairs of sequences for each change, >= 1.
        key_position: of the key token; 2 as in the papers.
        seed: of the sequences.

    Returns:
        Recovered share, 0 = none, 1 = the clean answer is back, for every change, site, layer and
        position; where the first anchor is changed, it tells where g(x; a1) is.

    Raises:
        ValueError: a dead hook, a number out of range, a task in which no token can be changed for
            another target, or a model too small for the task.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> activation_patching(build_model(ModelConfig(gamma=0.5)), AnchorTask()).recovered.shape
        (3, 3, 2, 9)

    Source: activation patching as in `transformer_lens.patching`; the carriers are those of the two
    solutions of arXiv 2405.05409.
    """
    check_capacity(model, task)
    check_number("n_sequences", n_sequences, minimum=1, integer=True)
    position = checked_position(task, key_position)
    sites = SITES[:2] if model.cfg.attn_only else SITES
    changes = ("key", *(f"anchor {i + 1}" for i in range(task.chain_length)))
    recovered, clean, corrupted = [], [], []
    for change in range(len(changes)):
        pairs = sequences_that_differ(task, change, position, n_sequences, seed)
        for site in sites if change == 0 else ():
            hooks.assert_live(model, site, pairs.clean[:4])
        both = pairs.differences(model, pairs.clean), pairs.differences(model, pairs.corrupted)
        told_apart = clearly_above_zero(both[0]) and clearly_above_zero(-both[1])
        nothing = np.full((len(sites), model.cfg.n_layers, task.seq_len), np.nan)
        recovered.append(patch_effects(model, pairs, sites) if told_apart else nothing)
        clean.append(both[0].mean())
        corrupted.append(both[1].mean())
    places = (position + 1, position + 2, task.seq_len - 1)
    before_last = recovered[1][0, -1]  # [pos] of resid_pre where the first anchor is changed
    carried = [None if np.isnan(before_last[place]) else float(before_last[place]) for place in places]
    return ActivationPatching(
        changes=changes,
        sites=sites,
        recovered=np.stack(recovered),
        clean=np.array(clean),
        corrupted=np.array(corrupted),
        carried_by_first_anchor=carried[0],
        carried_by_second_anchor=carried[1],
        carried_by_last=carried[2],
        key_position=position,
        n_sequences=n_sequences,
        seed=seed,
    )


class PatchPairs(NamedTuple):
    """Clean sequences and corrupted ones that differ in one token, and so in their target."""

    clean: Int[Tensor, "batch pos"]
    """Clean tokens."""
    right: Int[Tensor, " batch"]
    """Their targets."""
    corrupted: Int[Tensor, "batch pos"]
    """Corrupted tokens."""
    wrong: Int[Tensor, " batch"]
    """Targets of the corrupted tokens."""

    def differences(self, model: HookedTransformer, tokens: Tensor) -> Float[np.ndarray, " batch"]:
        """logit(clean target) - logit(corrupted target) of the model's answers to `tokens`."""
        logits = hooks.last_logits(model, tokens).double().cpu()
        return (logits.gather(1, self.right[:, None]) - logits.gather(1, self.wrong[:, None]))[:, 0].numpy()


def patch_effects(
    model: HookedTransformer, pairs: PatchPairs, sites: Sequence[str]
) -> Float[np.ndarray, "site layer pos"]:
    """Recovered share for every patch; one layer's clean activations are held at a time."""
    from transformer_lens.patching import layer_pos_patch_setter

    n_layers, n_pos = model.cfg.n_layers, pairs.clean.shape[1]
    shares = np.empty((len(sites), n_layers, n_pos))
    clean, corrupted = (pairs.differences(model, tokens).mean() for tokens in (pairs.clean, pairs.corrupted))
    for layer, (row, site) in product(range(n_layers), enumerate(sites)):
        held = hooks.read(model, pairs.clean, [(layer, site)])[layer, site]
        for pos in range(n_pos):
            batches = iter(held.split(hooks.sequences_per_batch(model, n_pos)))  # as `differences` takes them

            def patch(value: Tensor, hook: Any, index: Any = (layer, pos), batches: Any = batches) -> Tensor:
                return layer_pos_patch_setter(value.clone(), index, next(batches))

            with hooks.attached(model, [(hooks.hook_name(layer, site), patch)]):
                patched = pairs.differences(model, pairs.corrupted).mean()
            shares[row, layer, pos] = (patched - corrupted) / (clean - corrupted)
    return shares


def clearly_above_zero(values: Float[np.ndarray, " value"]) -> bool:
    """Whether the mean lies more than two standard errors above 0 (above 0, where there is one value).

    >>> clearly_above_zero(np.array([1.0, 2.0, 1.5])), clearly_above_zero(np.array([9.0, -4.0]))
    (True, False)
    """
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return bool(values.mean() > 2 * error)


def sequences_that_differ(
    task: AnchorTask, change: int, position: int, n_sequences: int, seed: int
) -> PatchPairs:
    """Clean sequences, and corrupted ones that differ in one token and in their target.

    Args:
        task: gives the sequences.
        change: 0 for the key, i for the i-th anchor.
        position: of the key.
        n_sequences: how many pairs of sequences.
        seed: of all that is random.

    Raises:
        ValueError: no pair can be changed so.
    """
    rng = generator(seed, "probe", change)
    from_to = _changed_pairs(task.seen_pairs, change) or _changed_pairs(task.pairs, change)
    rows: list[tuple[Any, Any, int, int]] = []
    for _ in range(100 * n_sequences):
        if len(rows) == n_sequences or not from_to:
            break
        pair, other = from_to[rng.integers(len(from_to))]
        key, second = (int(k) for k in rng.choice(task.keys, 2, replace=len(task.keys) < 2))
        second = second if change == 0 else key
        if task.target(key, pair) != task.target(second, other):
            rows.append((pair, other, key, second))
    if len(rows) < n_sequences:
        what = "the key" if change == 0 else f"anchor {change}"
        raise ValueError(
            f"the task must have pairs in which another {what} gives another target, and hardly any was "
            "found; this task cannot be asked so"
        )
    pairs, others, keys, seconds = (np.array(column) for column in zip(*rows, strict=True))
    places = np.full(n_sequences, position)
    noise = task.noise(n_sequences, rng)
    clean = task.place(Cells(pairs, keys, places), noise)
    corrupted = task.place(Cells(others, seconds, places), noise)
    return PatchPairs(clean.tokens, clean.targets, corrupted.tokens, corrupted.targets)


def _changed_pairs(pairs: Sequence[Pair], change: int) -> list[tuple[Pair, Pair]]:
    """Pairs with what they become: themselves where the key is changed, else another i-th anchor."""
    if change == 0:
        return [(pair, pair) for pair in pairs]

    def rest(pair: Pair) -> Pair:
        return (*pair[: change - 1], *pair[change:])

    return [(a, b) for a in pairs for b in pairs if a != b and rest(a) == rest(b)]
