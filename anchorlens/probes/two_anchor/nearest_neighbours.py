"""Nearest neighbours: at which locations do the most similar inputs have the same intermediate result?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from anchorlens.models import hooks
from anchorlens.plots.heatmaps import place_map
from anchorlens.probes.shared.anchor_sequences import anchor_sequences, checked_position, many_keys
from anchorlens.probes.shared.calling import takes_any
from anchorlens.probes.shared.checks import check_inputs, whole_numbers
from anchorlens.probes.shared.result import ProbeResult, number, probe_result
from anchorlens.tasks.two_anchor.sequences import Trials
from anchorlens.tasks.two_anchor.task import AnchorTask

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from anchorlens.models.library import HookedTransformer

RESULTS = ("g1", "g2", "target")
"""The intermediate results g(x; a1) and g(x; a2), and the target f(x; a1, a2)."""
_TITLES = ("g(x; a<sub>1</sub>)", "g(x; a<sub>2</sub>)", "target")
_SITES = (hooks.RESID_MID, hooks.RESID_POST)
_LEAST_NORM = 1e-12


@probe_result
class NearestNeighbours(ProbeResult):
    """The proportion, at each location, of inputs whose most similar input has the same result."""

    probe = "nearest_neighbours"
    readings = ("g1_at_first_anchor", "target_at_second_anchor", "target_at_last", "unseen_target_at_last")
    sites: tuple[str, ...]
    """The hook names of the activations, in the order of a block."""
    trained: np.ndarray
    """[result, site, layer, pos] The proportion of inputs whose most similar input has the same result, from
    0 to 1. All inputs have pairs trained on the composition. The results are `g1` = g(x; a1), `g2` = g(x; a2)
    and `target`. For `g1`, the candidates for the most similar input have another first anchor. For `g2`, the
    candidates have another second anchor. For `target`, the candidates have another pair that is not the
    reversed pair. Only inputs with a candidate of the same result and a candidate of another result count.
    The proportion is NaN if no input counts, and at the positions of noise tokens before the last
    position."""
    unseen: np.ndarray
    """[result, site, layer, pos] The proportion for inputs of unseen pairs. The candidates have trained
    pairs."""
    g1_at_first_anchor: float | None
    """The value of `trained` for g1 at the first anchor, after the first layer."""
    g2_at_second_anchor: float | None
    """The value of `trained` for g2 at the second anchor, after the first layer."""
    target_at_second_anchor: float | None
    """The value of `trained` for the target at the second anchor, before the last MLP."""
    g1_at_last: float | None
    """The value of `trained` for g1 at the last position, before the last MLP."""
    target_at_last: float | None
    """The value of `trained` for the target at the last position, before the last MLP."""
    unseen_g1_at_last: float | None
    """The value of `unseen` for g1 at the last position, before the last MLP."""
    unseen_target_at_last: float | None
    """The value of `unseen` for the target at the last position, before the last MLP. This value is high if
    unseen pairs have the representations of trained pairs with the same target."""
    unseen_margin: float | None
    """The largest cosine with a trained input of the same target minus the largest cosine with a trained
    input of another target. The margin goes from -2 to 2. It is the mean over inputs of unseen pairs at the
    last position, before the last MLP."""
    pair_share: float | None
    """The proportion of the last position's variance after the first layer that lies between pairs, from 0 to
    1. The proportion is high if the first layer brings the anchors to the last position."""
    keys: np.ndarray
    """[key] The keys of the inputs."""
    key_position: int
    """The position of the key token, which the anchors follow."""
    chain_length: int
    """The number of anchors in a sequence."""

    def headline(self) -> str:
        """Return the proportion for the target at the last position as text."""
        if self.target_at_last is None:
            return "no two trained pairs of this task reach one target"
        unseen = "" if self.unseen_target_at_last is None else f", {self.unseen_target_at_last:.2f} of unseen"
        return (
            f"the most similar input has the same target: {self.target_at_last:.2f} of trained "
            f"pairs{unseen}, before the last MLP"
        )

    def plot(self) -> go.Figure:
        """Plot the proportion at each location, for each result and for the target of unseen pairs."""
        panels = dict(zip(_TITLES, self.trained, strict=True)) | {"target, unseen pair": self.unseen[2]}
        return place_map(
            "Most similar input has the same result",
            panels,
            self.sites,
            key_position=self.key_position,
            chain_length=self.chain_length,
        )


class _Inputs:
    """The inputs of every key with every given pair, and their intermediate results."""

    def __init__(self, task: AnchorTask, pairs: Sequence[tuple[int, ...]], keys: Sequence[int]) -> None:
        both = [(key, pair) for pair in pairs for key in keys]
        self.keys = [key for key, _ in both]
        self.chains = [pair for _, pair in both]
        self.pairs = np.array(self.chains, dtype=np.int64).reshape(len(both), task.chain_length)
        trials = Trials(self.pairs, np.array(self.keys, dtype=np.int64), np.zeros(len(both), dtype=np.int64))
        self.results = {
            "g1": np.array([task.apply(pair[0], key) for key, pair in both]),
            "g2": np.array([task.apply(pair[1], key) for key, pair in both]),
            "target": task.targets(trials, kind="inferential"),
        }

    def comparable(self, other: _Inputs, result: str) -> Bool[np.ndarray, "row column"]:
        """Return a boolean mask that is true for two comparable inputs (see `NearestNeighbours.trained`)."""
        if result != "target":
            anchor = RESULTS.index(result)
            return self.pairs[:, None, anchor] != other.pairs[None, :, anchor]
        same = (self.pairs[:, None] == other.pairs[None]).all(axis=2)
        mirrored = (self.pairs[:, None] == other.pairs[None, :, ::-1]).all(axis=2)
        return ~(same | mirrored)

    def equal(self, other: _Inputs, result: str) -> Bool[np.ndarray, "row column"]:
        """Return a boolean mask that is true for two inputs with the same result."""
        return self.results[result][:, None] == other.results[result][None]


@takes_any()
def nearest_neighbours(
    model: HookedTransformer,
    task: AnchorTask,
    *,
    keys: Sequence[int] | None = None,
    key_position: int | None = None,
) -> NearestNeighbours:
    """Measure at every location whether the most similar inputs have the same intermediate result.

    Similarity is the cosine of residual streams after subtracting the mean over inputs of trained pairs. If a
    location represents a result in the same way for all keys and anchors, the most similar input has the same
    result. The proportion for the target at the last position shows whether trained pairs with the same
    target have a common representation. The proportion for unseen pairs shows whether the common
    representation extends to unseen pairs. The probe does not use the answers of the model.

    Limitations: The probe does not show whether the model uses the similarity, since the probe ablates
    nothing. The probe does not work for codes in which different values are equally far apart, such as
    one-hot codes. In a one-hot code, chance determines the nearest input.

    Args:
        model: a HookedTransformer whose residual hooks can be edited. The probe does not change the model.
        task: the task, which defines keys, anchors and results.
        keys: the keys of the inputs. Default: the middle forty number tokens of the task.
        key_position: the position of the key token. Default: 2, as in the papers.

    Returns:
        The proportions for each result, site, layer and position, from 0 to 1, for trained and for unseen
        pairs. The readings are the proportions at the locations that the papers discuss.

    Raises:
        ValueError: If a key or position is invalid for the task.
        ValueError: If the model is too small for the task.
        ValueError: If an activation is not finite.
        ValueError: If a hook cannot be edited.

    Example:
        >>> from anchorlens import ModelConfig, build_model
        >>> nearest_neighbours(build_model(ModelConfig(gamma=0.5)), AnchorTask()).trained.shape
        (3, 2, 2, 9)

    Source: Figure 4 of arXiv 2405.05409 shows the similarity of inputs with equal results. The proportion at
    every location is our own measure.
    """
    check_inputs(model, task)
    position = checked_position(task, key_position)
    chosen = many_keys(task) if keys is None else whole_numbers("keys", keys)
    trained, unseen = (_Inputs(task, pairs, chosen) for pairs in (task.composed_pairs, task.ood_pairs))
    chains = trained.chains + unseen.chains
    tokens = anchor_sequences(task, trained.keys + unseen.keys, chains, key_position=position)
    sites = _SITES[1:] if model.cfg.attn_only or model.cfg.parallel_attn_mlp else _SITES
    for site in sites:
        hooks.assert_live(model, site, tokens[:4])
    n_layers, last = model.cfg.n_layers, task.seq_len - 1
    shares = np.full((2, len(RESULTS), len(sites), n_layers, task.seq_len), np.nan)
    asked = _Comparisons(trained, unseen)
    margin = pair_share = None
    read_at = list(dict.fromkeys((*range(position, position + task.chain_length + 1), last)))
    places = [(layer, site) for layer in range(n_layers) for site in sites]
    for (layer, site), activations in hooks.read(model, tokens, places, position=read_at).items():
        for where, vectors in zip(read_at, activations.unbind(dim=1), strict=True):
            shares[:, :, sites.index(site), layer, where], margins = asked.of(vectors)
            if (layer, site, where) == (n_layers - 1, sites[0], last):
                margin = margins
            if (layer, site, where) == (0, sites[-1], last):
                pair_share = asked.pair_share(vectors)
    middle, end = 0, len(sites) - 1  # before and after the MLP

    def at(pairs: int, result: str, site: int, layer: int, where: int) -> float | None:
        return number(shares[pairs, RESULTS.index(result), site, layer, where])

    first = position + 1
    second = position + 2
    top = n_layers - 1
    return NearestNeighbours(
        sites=sites,
        trained=shares[0],
        unseen=shares[1],
        g1_at_first_anchor=at(0, "g1", end, 0, first),
        g2_at_second_anchor=at(0, "g2", end, 0, second),
        target_at_second_anchor=at(0, "target", middle, top, second),
        g1_at_last=at(0, "g1", middle, top, last),
        target_at_last=at(0, "target", middle, top, last),
        unseen_g1_at_last=at(1, "g1", middle, top, last),
        unseen_target_at_last=at(1, "target", middle, top, last),
        unseen_margin=margin,
        pair_share=pair_share,
        keys=np.array(chosen),
        key_position=position,
        chain_length=task.chain_length,
    )


class _Comparisons:
    """The compared inputs of every result, which are the same at every location."""

    def __init__(self, trained: _Inputs, unseen: _Inputs) -> None:
        self.n = len(trained.keys)
        self.masks = []
        for rows in (trained, unseen):
            for result in RESULTS:
                may, same = (torch.from_numpy(f(trained, result)) for f in (rows.comparable, rows.equal))
                equal, other = may & same, may & ~same
                there = equal.any(dim=1) & other.any(dim=1)
                self.masks.append((there, ~equal[there], ~other[there]))
        _, self.pair = np.unique(trained.pairs, axis=0, return_inverse=True)

    def of(
        self, vectors: Float[Tensor, "input feature"]
    ) -> tuple[Float[np.ndarray, "pairs result"], float | None]:
        """Return the proportions for trained and unseen pairs, and the similarity margin for unseen pairs."""
        cosines = self._cosines(vectors)
        shares, margin = np.full(2 * len(RESULTS), np.nan), None
        for k, (there, not_equal, not_other) in enumerate(self.masks):
            if not there.any():
                continue
            rows = (cosines[: self.n] if k < len(RESULTS) else cosines[self.n :])[there]
            alike = rows.masked_fill(not_equal, -torch.inf).amax(dim=1)
            different = rows.masked_fill(not_other, -torch.inf).amax(dim=1)
            shares[k] = float((alike > different).double().mean())
            if k == len(self.masks) - 1:
                margin = float((alike - different).mean())
        return shares.reshape(2, -1), margin

    def _cosines(self, vectors: Float[Tensor, "input feature"]) -> Float[Tensor, "input trained"]:
        """Return the cosines of every input with trained-pair inputs, after subtracting the trained mean."""
        centred = (vectors - vectors[: self.n].mean(dim=0)).cpu()
        unit = centred / centred.norm(dim=1, keepdim=True).clamp(min=_LEAST_NORM)
        return unit @ unit[: self.n].T

    def pair_share(self, vectors: Float[Tensor, "input feature"]) -> float | None:
        """Return the proportion of the variance over inputs of trained pairs that lies between pairs."""
        trained = (vectors[: self.n] - vectors[: self.n].mean(dim=0)).double().cpu().numpy()
        total = float((trained**2).sum())
        if total == 0:
            return None
        means = [trained[self.pair == pair] for pair in np.unique(self.pair)]
        return float(sum(len(rows) * (rows.mean(axis=0) ** 2).sum() for rows in means)) / total
