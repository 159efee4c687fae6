"""Interventions: attention that is zeroed, and single activations that are patched from another run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from einops import rearrange, repeat
from jaxtyping import Float, Int
from torch import Tensor

from anchorlens.configuration import check_choice
from anchorlens.models import hooks
from anchorlens.models.annotations import HookedTransformer, HookPoint
from anchorlens.models.running import attached
from anchorlens.probes.shared.checks import token_rows
from anchorlens.randomness import generator
from anchorlens.tasks.two_anchor.sequences import Pair, Trials
from anchorlens.tasks.two_anchor.task import AnchorTask

Queries = Literal["all", "last"]


def masked_logits(
    model: HookedTransformer, tokens: Int[Tensor, "batch pos"], positions: Sequence[int], queries: Queries
) -> Float[np.ndarray, "batch d_vocab"]:
    """Return the logits of the last position while attention to some positions is zero.

    Args:
        model: the model, which the function does not change.
        tokens: token ids, [batch, pos].
        positions: the key positions that the queries no longer attend to.
        queries: `all` for the attention of every query, `last` for the attention of the last position only.

    Raises:
        ValueError: If the model does not use the hook, or a logit is not finite.
    """
    check_choice("queries", queries, ("all", "last"))
    n_pos = tokens.shape[1]
    query = n_pos - 1 if queries == "last" else None
    of_each = [hooks.attention_masks(model, n_pos, key=key, query=query) for key in positions]
    masks = {layer: torch.stack([mask[layer] for mask in of_each]).any(dim=0) for layer in of_each[0]}
    hooks.assert_live(model, tokens=tokens[:: max(1, len(tokens) // 4)])
    with hooks.masked_attention(model, masks):
        return hooks.last_logits(model, tokens).double().cpu().numpy()


def masked_in_words(what: str, queries: Queries) -> str:
    """Describe in words what was masked.

    >>> masked_in_words("key token", "last")
    'key token masked for the last query'
    """
    return f"{what} masked" + (" for the last query" if queries == "last" else "")


class PatchPairs(NamedTuple):
    """The clean and the corrupted sequences, with the targets of both."""

    clean: Int[Tensor, "batch pos"]
    """The tokens of the clean run, [sequence, pos]."""
    right: Int[Tensor, " batch"]
    """The targets of the clean run, [sequence]."""
    corrupted: Int[Tensor, "batch pos"]
    """The tokens of the corrupted run, [sequence, pos]."""
    wrong: Int[Tensor, " batch"]
    """The targets of the corrupted run, [sequence]."""

    def differences(self, logits: Float[Tensor, "*place batch d_vocab"]) -> Float[np.ndarray, "*place batch"]:
        """Compute logit(clean target) - logit(corrupted target) of each sequence."""
        of_sequence = torch.arange(len(self.right), device="cpu")
        logits = logits.double().cpu()
        return (logits[..., of_sequence, self.right] - logits[..., of_sequence, self.wrong]).numpy()


def patch_effects(
    model: HookedTransformer, pairs: PatchPairs, sites: Sequence[str], ends: tuple[float, float]
) -> Float[np.ndarray, "site layer pos"]:
    """Compute the proportion of the logit difference that each patch recovers.

    Args:
        model: a model whose hooks at `sites` can be edited, and whose logits distinguish the two targets.
        pairs: the clean and corrupted sequences.
        sites: the hook names of activations [batch, pos, d_model].
        ends: the mean logit difference of the clean and of the corrupted run, without a patch.

    Returns:
        The recovered proportion of the mean logit difference over sequences, [site, layer, pos]. The
        proportion is 0 if the patch changes nothing, and 1 if the patch recovers the clean logit difference.
    """
    clean, corrupted = ends
    shares = np.zeros((len(sites), model.cfg.n_layers, pairs.clean.shape[1]))
    for row, layer, places, logits in patched_logits(model, pairs.corrupted, pairs.clean, sites):
        patched = pairs.differences(logits).mean(axis=-1)
        shares[row, layer, places] = (patched - corrupted) / (clean - corrupted)
    return shares


def patched_logits(
    model: HookedTransformer,
    base: Int[Tensor, "batch pos"],
    source: Int[Tensor, "batch pos"],
    sites: Sequence[str],
) -> Iterator[tuple[int, int, range, Float[Tensor, "place batch d_vocab"]]]:
    """Yield the logits for `base` after each patch of one activation from the run on `source`.

    A batch holds as many positions of a site and layer as fit into memory. Memory holds the activations of
    one layer at a time.

    Args:
        model: a model whose hooks at `sites` can be edited.
        base: the sequences whose run is changed.
        source: the sequences whose activations are copied, as many as `base` has.
        sites: the hook names of activations [batch, pos, d_model].

    Yields:
        (index of the site, layer, positions, logits at the last position). A position that is not yielded
        does not reach the last position, so a patch at this position does not change the logits.
    """
    n_pos = base.shape[1]
    size = hooks.sequences_per_batch(model, n_pos)
    together = max(1, size // len(base))
    for layer, (row, site) in product(range(model.cfg.n_layers), enumerate(sites)):
        reaches_all = layer < model.cfg.n_layers - 1 or site == hooks.RESID_PRE
        reached = range(0 if reaches_all else n_pos - 1, n_pos)
        held = hooks.read(model, source, [(layer, site)])[layer, site]
        for start in range(0, len(reached), together):
            places = reached[start : start + together]
            rows = rearrange(held[:, places.start : places.stop], "batch place m -> (place batch) m")
            at = repeat(torch.tensor(places, device="cpu"), "place -> (place batch)", batch=len(base))
            batches = iter(zip(at.split(size), rows.split(size), strict=True))  # the batches of `last_logits`

            def put(value: Tensor, hook: HookPoint, batches: Any = batches) -> Tensor:
                value, (positions, rows) = value.clone(), next(batches)
                value[torch.arange(len(rows), device="cpu"), positions] = rows
                return value

            tokens = repeat(base, "batch pos -> (place batch) pos", place=len(places))
            with attached(model, [(hooks.hook_name(layer, site), put)]):
                logits = hooks.last_logits(model, tokens)
            yield row, layer, places, rearrange(logits, "(place batch) v -> place batch v", place=len(places))


def clearly_above_zero(values: Float[np.ndarray, " value"]) -> bool:
    """Return whether the mean of the values lies more than two standard errors above 0.

    For a single value, the function returns whether the value is above 0.

    >>> clearly_above_zero(np.array([1.0, 2.0, 1.5])), clearly_above_zero(np.array([9.0, -4.0]))
    (True, False)
    """
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return bool(values.mean() > 2 * error)


def sequences_that_differ(
    task: AnchorTask, change: int, position: int, n_sequences: int, seed: int
) -> PatchPairs:
    """Draw clean sequences, and corrupted sequences with one different token and a different target.

    Args:
        task: the task, which defines the sequences.
        change: the index of the changed token, which is 0 for the key and i for the i-th anchor.
        position: the position of the key.
        n_sequences: the number of pairs of sequences.
        seed: the random seed.

    Raises:
        ValueError: If the change rarely or never leads to another target.
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
        what = "key" if change == 0 else f"anchor {change}"
        raise ValueError(
            f"the task must have {n_sequences} inputs whose target changes if the {what} changes, got "
            f"{len(rows)}. Use another probe"
        )
    pairs, others, keys, seconds = (np.array(column) for column in zip(*rows, strict=True))
    places = np.full(n_sequences, position)
    noise = task.noise(n_sequences, rng)
    clean = task.place(Trials(pairs, keys, places), noise)
    corrupted = task.place(Trials(others, seconds, places), noise)
    return PatchPairs(clean.tokens, clean.targets, corrupted.tokens, corrupted.targets)


def given_pairs(model: HookedTransformer, tokens: object, corrupted: object, targets: object) -> PatchPairs:
    """Check a caller's clean and corrupted sequences, and the answers to both.

    Args:
        model: the model, whose output vocabulary must contain `targets`.
        tokens: the clean sequences, [pos] or [sequence, pos].
        corrupted: the corrupted sequences, of the same shape.
        targets: the answers to the clean and to the corrupted sequence, [2] or [sequence, 2].

    Raises:
        ValueError: If `tokens`, `corrupted` or `targets` is missing.
        ValueError: If `tokens`, `corrupted` or `targets` is empty.
        ValueError: If the shapes of `tokens`, `corrupted` and `targets` do not match.
    """
    clean, other = token_rows(tokens), token_rows(corrupted, name="corrupted")
    answers = token_rows(targets, 2, "targets")
    if clean.shape != other.shape or len(answers) != len(clean):
        raise ValueError(
            f"corrupted must have the shape {list(clean.shape)} of tokens, and targets must have "
            f"the shape [{len(clean)}, 2], got {list(other.shape)} and {list(answers.shape)}. Correct them"
        )
    d_vocab = model.cfg.d_vocab_out if model.cfg.d_vocab_out > 0 else model.cfg.d_vocab
    if answers.min() < 0 or answers.max() >= d_vocab:
        raise ValueError(
            f"targets must be in 0..{d_vocab - 1}, got {answers.min()}..{answers.max()}. Correct targets"
        )
    return PatchPairs(clean, answers[:, 0], other, answers[:, 1])


def _changed_pairs(pairs: Sequence[Pair], change: int) -> list[tuple[Pair, Pair]]:
    """Return (pair, corrupted pair) for a change of the key or of the i-th anchor.

    The two pairs are equal if the key changes, and differ in the i-th anchor otherwise.
    """
    if change == 0:
        return [(pair, pair) for pair in pairs]

    def rest(pair: Pair) -> Pair:
        return (*pair[: change - 1], *pair[change:])

    by_rest: dict[Pair, list[Pair]] = {}
    for pair in pairs:
        by_rest.setdefault(rest(pair), []).append(pair)
    return [(a, b) for alike in by_rest.values() for a in alike for b in alike if a != b]
