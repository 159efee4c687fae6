"""What looks alike inside a model: at each place, inputs of the same intermediate result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorlens import AnchorTask
from anchorlens.probes.shared.anchor_sequences import anchor_sequences, checked_position
from anchorlens.verdict.readings import many_keys

if TYPE_CHECKING:
    from transformer_lens import HookedTransformer

RESULTS = {
    "first anchor": ("g1",),
    "second anchor": ("g1", "g2", "target"),
    "the end": ("g1", "g2", "target"),
}
"""Position -> what it may hold: g(x; a1), g(x; a2), f(x; a1, a2)."""


class Inputs:
    """Sequences of some pairs with the middle forty keys, and their intermediate results."""

    def __init__(self, task: AnchorTask, pairs: Sequence[tuple[int, ...]]) -> None:
        """Write them down."""
        keys = many_keys(task)
        chains = [pair for pair in pairs for _ in keys]
        self.x = np.array(keys * len(pairs))
        self.pairs = np.array(chains)
        self.unordered = np.sort(self.pairs, axis=1)
        self.tokens = anchor_sequences(task, self.x.tolist(), chains)
        both = list(zip(self.x.tolist(), chains, strict=True))
        self.results = {
            "g1": np.array([task.apply(pair[0], key) for key, pair in both]),
            "g2": np.array([task.apply(pair[1], key) for key, pair in both]),
            "target": np.array([task.inferential_target(key, pair) for key, pair in both]),
        }


def likeness(model: HookedTransformer, task: AnchorTask) -> dict[str, float]:
    """Nearest inputs with the same intermediate result, at every place that may hold one.

    For each place (position and depth) and each result, inputs of trained pairs, and of unseen ones, are
    compared by centred cosine with those of trained pairs with another first anchor for g(x; a1), another
    second one for g(x; a2), neither the same pair nor its mirror for the target.

    Returns:
        `likeness of RESULT at PLACE.nearest_same`: share whose most alike input has the same result.
        `....nearest_margin`: largest cosine with the same result minus largest with another, in the mean.
        `....gap`: mean cosine with the same result minus mean with another.
        `likeness of mirrored pairs at PLACE.excess`: mean cosine of an input with that of the mirrored pair
        minus that with others of equal target. Names of unseen pairs' numbers begin `unseen likeness`.
    """
    trained, unseen = Inputs(task, task.composed_pairs), Inputs(task, task.ood_pairs)
    everything = torch.cat([trained.tokens, unseen.tokens])
    found: dict[str, float] = {}
    for (position, depth), vectors in places(model, task, everything).items():
        place, n = f"{position} {depth}", len(trained.x)
        cosines = centred_cosines(vectors)
        found |= compared("likeness", place, RESULTS[position], cosines[:n, :n], trained, trained)
        found |= compared("unseen likeness", place, RESULTS[position], cosines[n:, :n], unseen, trained)
        mirrored = mirror_of(unseen, unseen)
        alike = cosines[n:, n:][mirrored] if mirrored.any() else cosines[n:, :n][mirror_of(unseen, trained)]
        others = cosines[n:, :n][other_pairs(unseen, trained) & equal(unseen, trained, "target")]
        if len(alike) and len(others):
            found[f"unseen likeness of mirrored pairs at {place}.excess"] = float(
                alike.mean() - others.mean()
            )
    return found


def compared(
    kind: str,
    place: str,
    names: Sequence[str],
    cosines: Float[np.ndarray, "row column"],
    rows: Inputs,
    columns: Inputs,
) -> dict[str, float]:
    """The numbers of one place."""
    asked = {
        "g1": rows.pairs[:, None, 0] != columns.pairs[None, :, 0],
        "g2": rows.pairs[:, None, 1] != columns.pairs[None, :, 1],
        "target": other_pairs(rows, columns),
    }
    found = {}
    for name in names:
        same = equal(rows, columns, name)
        alike = np.where(asked[name] & same, cosines, -np.inf).max(axis=1)
        other = np.where(asked[name] & ~same, cosines, -np.inf).max(axis=1)
        there = np.isfinite(alike) & np.isfinite(other)
        if not there.any():
            continue
        title = f"{kind} of {name} at {place}"
        found[f"{title}.nearest_same"] = float((alike > other)[there].mean())
        found[f"{title}.nearest_margin"] = float((alike - other)[there].mean())
        found[f"{title}.gap"] = float(
            cosines[asked[name] & same].mean() - cosines[asked[name] & ~same].mean()
        )
    mirrored, others = mirror_of(rows, columns), other_pairs(rows, columns) & equal(rows, columns, "target")
    if kind == "likeness" and mirrored.any() and others.any():
        found[f"{kind} of mirrored pairs at {place}.excess"] = float(
            cosines[mirrored].mean() - cosines[others].mean()
        )
    return found


def equal(rows: Inputs, columns: Inputs, name: str) -> Bool[np.ndarray, "row column"]:
    """Whether two inputs have the same result."""
    return rows.results[name][:, None] == columns.results[name][None]


def other_pairs(rows: Inputs, columns: Inputs) -> Bool[np.ndarray, "row column"]:
    """Whether two inputs have neither the same pair nor one the other's mirror."""
    return (rows.unordered[:, None] != columns.unordered[None]).any(axis=2)


def mirror_of(rows: Inputs, columns: Inputs) -> Bool[np.ndarray, "row column"]:
    """Whether two inputs have one key, and one the mirrored pair of the other."""
    different = rows.pairs[:, 0] != rows.pairs[:, -1]
    mirrored = (rows.pairs[:, None] == columns.pairs[None, :, ::-1]).all(axis=2)
    return mirrored & different[:, None] & (rows.x[:, None] == columns.x[None])


def places(
    model: HookedTransformer, task: AnchorTask, tokens: Int[Tensor, "row pos"]
) -> dict[tuple[str, str], Float[Tensor, "row d_model"]]:
    """Residual streams at both anchors and the last position, at three depths."""
    last = model.cfg.n_layers - 1
    hooks = {
        "after the first layer": "blocks.0.hook_resid_post",
        "before the last layer": f"blocks.{last}.hook_resid_pre",
        "before the last MLP": f"blocks.{last}.hook_resid_mid",
    }
    key = checked_position(task, None)
    positions = {"first anchor": key + 1, "second anchor": key + 2, "the end": task.seq_len - 1}
    with torch.inference_mode():
        _, cache = model.run_with_cache(tokens, names_filter=lambda name: name in hooks.values())
    return {
        (where, depth): cache[hook][:, at] for depth, hook in hooks.items() for where, at in positions.items()
    }


def centred_cosines(vectors: Float[Tensor, "row feature"]) -> Float[np.ndarray, "row row"]:
    """Cosines with the mean taken away."""
    if not vectors.isfinite().all():
        raise ValueError("activations must be finite")
    centred = vectors - vectors.mean(dim=0)
    unit = centred / centred.norm(dim=1, keepdim=True).clamp(min=1e-12)
    return (unit @ unit.T).double().numpy()
