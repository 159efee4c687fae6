"""Nearest neighbours: at which locations do the most similar inputs have the same intermediate result?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
import torch
from jaxtyping import Float
from torch import Tensor

from anchorlens.models import hooks
from anchorlens.models.annotations import HookedTransformer
from anchorlens.plots.of_probes import place_map
from anchorlens.probes.shared.anchor_sequences import anchor_sequences, checked_position, many_keys
from anchorlens.probes.shared.checks import check_inputs, whole_numbers
from anchorlens.probes.shared.contract import ProbeResult, number, probe_result, takes_any
from anchorlens.tasks.two_anchor.sequences import Trials
from anchorlens.tasks.two_anchor.task import AnchorTask

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
    inputs = [(key, pair) for pair in (*task.composed_pairs, *task.ood_pairs) for key in chosen]
    chains = [pair for _, pair in inputs]
    tokens = anchor_sequences(task, [key for key, _ in inputs], chains, key_position=position)
    sites = _SITES[1:] if model.cfg.attn_only or model.cfg.parallel_attn_mlp else _SITES
    for site in sites:
        hooks.assert_live(model, site, tokens[:4])
    n_layers, last = model.cfg.n_layers, task.seq_len - 1
    shares = np.full((2, len(RESULTS), len(sites), n_layers, task.seq_len), np.nan)
    asked = _Comparisons(task, inputs, len(task.composed_pairs) * len(chosen))
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

    def __init__(self, task: AnchorTask, inputs: Sequence[tuple[int, tuple[int, ...]]], n: int) -> None:
        """Compare every (key, pair) with each of the first `n`, whose pairs are trained.

        The dict `results` contains the value of each result for every input, and a mask [input, trained] that
        is true for comparable inputs (see `NearestNeighbours.trained`).
        """
        keys, pairs = (np.array(part, dtype=np.int64) for part in zip(*inputs, strict=True))
        trained = pairs[:n]
        first, second = (np.array([task.apply(pair[i], key) for key, pair in inputs]) for i in range(2))
        target = task.targets(Trials(pairs, keys, 0 * keys), kind="inferential")
        differs = pairs[:, None] != trained  # [input, trained, anchor]
        is_another = differs.any(axis=2) & (pairs[:, None] != trained[:, ::-1]).any(axis=2)
        found = (first, differs[..., 0]), (second, differs[..., 1]), (target, is_another)
        self.results = dict(zip(RESULTS, found, strict=True))
        self.n = n
        self.masks = []
        for rows in (slice(n), slice(n, None)):
            for result, may in self.results.values():
                is_equal = result[rows, None] == result[:n]
                equal, other = (torch.from_numpy(may[rows] & each) for each in (is_equal, ~is_equal))
                self.masks.append((equal.any(dim=1) & other.any(dim=1), equal, other))
        _, self.pair = np.unique(trained, axis=0, return_inverse=True)

    def of(
        self, vectors: Float[Tensor, "input feature"]
    ) -> tuple[Float[np.ndarray, "pairs result"], float | None]:
        """Return the proportions for trained and unseen pairs, and the similarity margin for unseen pairs."""
        cosines = self._cosines(vectors)
        shares, margin = np.full(2 * len(RESULTS), np.nan), None
        for k, (there, *compared) in enumerate(self.masks):
            if not there.any():
                continue
            rows = cosines[: self.n] if k < len(RESULTS) else cosines[self.n :]
            alike, different = (torch.where(mask, rows, -torch.inf).amax(dim=1)[there] for mask in compared)
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
