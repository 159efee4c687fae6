"""Pairs of inputs for interchange interventions, and the model's answers with exchanged activations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorlens.models import hooks
from anchorlens.probes.shared.patches import patched_logits
from anchorlens.randomness import generator
from anchorlens.tasks.two_anchor.sequences import Pair, Trials
from anchorlens.tasks.two_anchor.task import AnchorTask

if TYPE_CHECKING:
    from anchorlens.models.library import HookedTransformer

Kind = Literal["unequal", "equal", "unseen"]
KINDS: tuple[Kind, ...] = ("unequal", "equal", "unseen")
_TRIES = 200


class Interchanges(NamedTuple):
    """The base and source inputs, and the expected answers after the exchange of g(x; a1)."""

    base: Int[Tensor, "batch pos"]
    """The tokens of the run into which an activation is copied, [input, pos]."""
    source: Int[Tensor, "batch pos"]
    """The tokens of the run from which an activation is copied, [input, pos]."""
    base_targets: Int[Tensor, " batch"]
    """The correct answers to the base inputs, [input]."""
    source_targets: Int[Tensor, " batch"]
    """The correct answers to the source inputs, [input]."""
    expected: Int[Tensor, " batch"]
    """The results of the base's other anchors applied to the source's g(x; a1), [input]."""


def interchanges(
    task: AnchorTask, kind: Kind, n_sequences: int, *, key_position: int, seed: int
) -> Interchanges | None:
    """Draw base and source inputs with trained pairs, and with keys that are trained at `key_position`.

    Base and source differ in the first anchor and in the later anchors. The expected answer differs from the
    correct answer to the source and, except for `equal`, from the correct answer to the base. The expected
    answer also differs from the answers after an exchange of the key alone or the first anchor alone.

    Args:
        task: the task, which defines pairs, keys and noise. Base and source have pairs trained on the
            composition.
        kind: the kind of the inputs. In `unequal` and `unseen`, base and source have different single-anchor
            results g. In `equal`, both inputs have the same single-anchor result g, so the answer should not
            change. The exchanged pair consists of the source's first anchor and the base's later anchors.
            This pair is untrained in `unseen`, and trained in `unequal` and `equal`.
        n_sequences: the number of inputs.
        key_position: the position of the key in base and source.
        seed: the random seed.

    Returns:
        The inputs, or `None` if the task has too few inputs of the kind.
    """
    rng = generator(seed, "probe", KINDS.index(kind))
    combined = _combinations(task, kind)
    keys = task.keys[(task.keys - key_position) % task.modulus != 0]
    if not combined or not len(keys):
        return None
    reached = {anchor: _by_result(task, anchor, keys.tolist()) for anchor in task.anchors}
    rows: list[tuple[Pair, Pair, int, int, int]] = []
    for _ in range(_TRIES * n_sequences):
        if len(rows) == n_sequences:
            break
        base, source, mixed = combined[rng.integers(len(combined))]
        key, other = (int(k) for k in rng.choice(keys, 2))
        if kind == "equal":
            same = reached[source[0]].get(task.apply(base[0], key), [])
            if not same:
                continue
            other = same[rng.integers(len(same))]
        expected = task.inferential_target(other, mixed)
        others = {task.target(other, source), task.inferential_target(other, base)}
        others.add(task.inferential_target(key, mixed))
        if kind != "equal":
            others.add(task.target(key, base))
        if expected not in others:
            rows.append((base, source, key, other, expected))
    if len(rows) < n_sequences:
        return None
    bases, sources, keys_of_base, keys_of_source, answers = (
        list(column) for column in zip(*rows, strict=True)
    )
    places = np.full(n_sequences, key_position)
    first, second = (
        task.place(Trials(np.array(pairs), np.array(of), places), task.noise(n_sequences, rng))
        for pairs, of in ((bases, keys_of_base), (sources, keys_of_source))
    )
    return Interchanges(
        first.tokens, second.tokens, first.targets, second.targets, torch.tensor(answers, device="cpu")
    )


def _combinations(task: AnchorTask, kind: Kind) -> list[tuple[Pair, Pair, Pair]]:
    """Return the triples (base pair, source pair, source's first anchor with the base's others) of a kind."""
    composed = task.composed_pairs
    wanted = set(task.ood_pairs) - set(task.seen_pairs) if kind == "unseen" else set(composed)
    return [
        (base, source, mixed)
        for base, source in product(composed, composed)
        if base[0] != source[0] and base[1:] != source[1:] and (mixed := (source[0], *base[1:])) in wanted
    ]


def _by_result(task: AnchorTask, anchor: int, keys: Sequence[int]) -> dict[int, list[int]]:
    """Return a dict from each value of g to the keys for which the anchor gives this value."""
    keys_by_result: dict[int, list[int]] = {}
    for key in keys:
        keys_by_result.setdefault(task.apply(anchor, key), []).append(key)
    return keys_by_result


class Answers(NamedTuple):
    """The comparison of the patched model's answers with two other answers, for each location and input."""

    expected: Bool[np.ndarray, "site layer pos batch"]
    """Whether the answer is the composition's answer."""
    of_source: Bool[np.ndarray, "site layer pos batch"]
    """Whether the answer is the source's answer, as for a location that contains key and anchors."""


def patched_answers(model: HookedTransformer, inputs: Interchanges, sites: Sequence[str]) -> Answers:
    """Copy every activation of the source run into the base run, one at a time, and return the answers.

    Args:
        model: a model whose hooks at `sites` can be edited.
        inputs: the base and source inputs.
        sites: the hook names of activations [batch, pos, d_model].
    """
    n, n_pos = inputs.base.shape
    unchanged = hooks.last_logits(model, inputs.base).argmax(dim=-1).cpu()
    answers = unchanged.expand(len(sites), model.cfg.n_layers, n_pos, n).clone()
    for row, layer, places, logits in patched_logits(model, inputs.base, inputs.source, sites):
        answers[row, layer, places] = logits.argmax(dim=-1).cpu()
    expected, of_source = (
        (answers == targets).numpy() for targets in (inputs.expected, inputs.source_targets)
    )
    return Answers(expected, of_source)


def best_place(accuracy: Float[np.ndarray, "site layer pos"]) -> tuple[int, int, int]:
    """Return (site, layer, position) of the largest value, or of the first of several equal values."""
    site, layer, pos = np.unravel_index(int(accuracy.argmax()), accuracy.shape)
    return int(site), int(layer), int(pos)
