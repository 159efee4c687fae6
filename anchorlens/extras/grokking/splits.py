"""The trained pairs of published runs and their labels: by the names and forms in files, or by seeds."""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int

from anchorlens.tasks import FEWEST_TRAINED
from anchorlens.texts import safe_repr

_SPLIT = re.compile(
    r"(?:is_|in_)?train(?:ing|ed)?(?:_(?:set|data))?(_(?:indices|index|idxs?|inds?|ids|mask|pairs))?(?:_?(?:x|inputs|data|set))?"
)
_LABELS = re.compile(r"(?:train(?:ing|ed)?_|noisy_)?(?:labels|targets|answers)|train_y|y_train")
_SEEDS = (0, 1, 42)
_FRACTIONS = tuple(n / 20 for n in range(4, 19))
_FITS, _FAILS = 0.99, 0.9
"""The least accuracy on the pairs of a split by a seed, and the accuracy of the others that is too much."""
_BY_LUCK = 1e-4
"""The largest probability that other pairs of the same number are answered by luck."""


def _integers(value: object) -> np.ndarray | None:
    """Return the integers or booleans in a tensor or list of a file, or None."""
    with contextlib.suppress(TypeError, ValueError):
        array = np.asarray(value)
        return array if array.size and array.ndim and array.dtype.kind in "biu" else None


def split_name(said: Mapping[str, Any]) -> str | None:
    """Return the name of the trained pairs in a file, or None."""
    names = {name: match[1] for name in said if (match := _SPLIT.fullmatch(name))}
    likely = [name for name in names if names[name] or _integers(said[name]) is not None]
    return max(likely, key=lambda name: names[name] is not None, default=None)


def splits_in(said: Mapping[str, Any], p: int) -> dict[str, Int[np.ndarray, " pair"]]:
    """Return the trained pairs of a file by each form that its value may have, the likeliest first.

    Returns:
        A map from the form in words to the indices a * p + b; empty for a file without trained pairs.

    Raises:
        ValueError: If the value has none of these forms.
    """
    if (name := split_name(said)) is None:
        return {}
    array = _integers(said[name])
    found = {} if array is None else dict(_forms(array, p))
    if not found:
        raise ValueError(
            f"{name} must be indices a * p + b of pairs in 0..{p * p - 1:,} for p = {p}, a mask of them or "
            f"pairs (a, b), got {safe_repr(said[name])}. Save a list of indices, or give their run"
        )
    return found


def _forms(array: np.ndarray, p: int) -> Iterator[tuple[str, Int[np.ndarray, " pair"]]]:
    """Yield the pairs that an array may mean, with the form in words."""
    if array.size == p * p and array.min() >= 0 and array.max() <= 1:
        yield "a mask of all pairs", np.flatnonzero(array)
    elif array.dtype.kind == "b":
        return
    elif array.ndim == 2:
        rows = array.T if len(array) == 2 != array.shape[1] else array
        columns = [column for column in rows.T.astype(np.int64) if column.min() >= 0 and column.max() < p]
        if len(columns) == 2:
            yield "pairs (a, b)", columns[0] * p + columns[1]
            yield "pairs (b, a)", columns[1] * p + columns[0]
    elif array.ndim == 1 and array.min() >= 0 and array.max() < p * p:
        pairs = array.astype(np.int64)
        yield "a * p + b", pairs
        yield "b * p + a", pairs % p * p + pairs // p
        for which, (a, b) in (("a <= b", np.triu_indices(p)), ("b <= a", np.tril_indices(p))):
            if pairs.max() < len(a):
                yield f"the pairs {which} in rows", (a * p + b)[pairs]


def labels_in(
    said: Mapping[str, Any], pairs: Int[np.ndarray, " pair"], p: int
) -> tuple[str, Int[np.ndarray, " pair"]] | None:
    """Return the name and the values of the trained labels in a file, one for each pair, or None."""
    for name in filter(_LABELS.fullmatch, said):
        array = _integers(said[name])
        if array is not None and array.size in (len(pairs), p * p):
            labels = array.ravel().astype(np.int64)
            return name, labels if len(labels) == len(pairs) else labels[pairs]
    return None


def split_by_seed(
    pairs: Int[np.ndarray, " some"], right: Bool[np.ndarray, " pair"], said: Mapping[str, Any]
) -> dict[str, Int[np.ndarray, " trained"]]:
    """Find the usual random split whose pairs are answered correctly, while the others are not.

    Args:
        pairs: the indices of the pairs in the order in which a loop over a and b lists them.
        right: whether the pair with each index is answered correctly.
        said: the values of the file, where its seeds and its fractions count too.

    Returns:
        A map from the split in words to the indices of its pairs; empty if no split fits.
    """
    n, share = len(pairs), right[pairs].mean()
    seeds = {v for name, v in said.items() if "seed" in name and type(v) is int and 0 <= v < 2**32}
    fractions = {v for v in said.values() if type(v) is float and 0 < v < 1}.union(_FRACTIONS)
    sizes = sorted({int(one * n + 1e-9) for one in fractions}, reverse=True)
    sizes = [k for k in sizes if FEWEST_TRAINED <= k <= share * n / _FITS and share**k < _BY_LUCK]
    for seed in sorted(seeds.union(_SEEDS)) if sizes else ():
        for how, order in _orders(n, seed).items():
            correct = right[pairs[order]].cumsum()
            for k in sizes:
                if correct[k - 1] >= _FITS * k and correct[-1] - correct[k - 1] < _FAILS * (n - k):
                    return {f"the first {k:,} pairs of {how} with seed {seed}": pairs[order[:k]]}
    return {}


def _orders(n: int, seed: int) -> dict[str, Int[np.ndarray, " pair"]]:
    """Return the order of n pairs by each usual way to draw a split."""
    shuffled = list(range(n))
    random.Random(seed).shuffle(shuffled)
    return {
        "torch.randperm": torch.randperm(
            n, generator=torch.Generator().manual_seed(seed), device="cpu"
        ).numpy(),
        "random.shuffle": np.array(shuffled),
        "numpy.random.permutation": np.random.RandomState(seed).permutation(n),
        "numpy.random.default_rng": np.random.default_rng(seed).permutation(n),
    }
