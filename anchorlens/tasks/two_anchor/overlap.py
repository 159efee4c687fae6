"""How many training sequences ask what an AnchorTask holds out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Int

from anchorlens.tasks.shared.batch import TokenBatch
from anchorlens.tasks.shared.overlap import Overlap
from anchorlens.tasks.two_anchor.composite_function import CompositeFunction
from anchorlens.tasks.two_anchor.lazy_dataset import LazyDataset
from anchorlens.tasks.two_anchor.sequences import Pair, Trials

if TYPE_CHECKING:
    from torch import Tensor


def overlap_with_training(training_set: TokenBatch | LazyDataset, task: CompositeFunction) -> Overlap:
    """Count the training sequences that are inputs of the ID test or the OOD test.

    Args:
        training_set: the sequences, of the task's length and vocabulary. The key of a sequence is the token
            before its first anchor token.
        task: the task that defines the splits.
    """
    if isinstance(training_set, LazyDataset):
        if training_set.task == task and training_set.split == "train":
            return Overlap(len(training_set), {"id": 0, "ood": 0})
        training_set = training_set.all()
    tokens = training_set.tokens.numpy()
    row, position, chain = pairs_asked(tokens, task)
    key = tokens[row, position]
    unseen = _among(chain, task.ood_pairs)
    held_out_key = (key % task.modulus == position % task.modulus) & _among(chain, task.seen_pairs)
    return Overlap(len(tokens), {"id": int(held_out_key.sum()), "ood": int(unseen.sum())})


def targets_of(tokens: Int[Tensor, "batch pos"], task: CompositeFunction) -> Int[Tensor, " batch"]:
    """Return the trained target of each sequence, or -1 if the sequence is not an input of the task."""
    import torch

    row, position, chain = pairs_asked(tokens.numpy(), task)
    key = tokens.numpy()[row, position]
    asks = (key >= task.key_min) & (key <= task.key_max) & np.isin(chain, list(task.anchors)).all(axis=1)
    row, chain, key = row[asks], chain[asks].astype(np.int64), key[asks].astype(np.int64)
    targets = np.full(len(tokens), -1, dtype=np.int64)
    targets[row] = task.targets(Trials(chain, key, position[asks]))
    return torch.from_numpy(targets)


def pairs_asked(
    tokens: Int[np.ndarray, "sequence pos"], task: CompositeFunction
) -> tuple[Int[np.ndarray, " row"], Int[np.ndarray, " row"], Int[np.ndarray, "row k"]]:
    """Return the row, key position and chain of each sequence that is an input of the task."""
    k = task.chain_length
    first = np.isin(tokens, list(task.anchors)).argmax(axis=1)  # 0 where there is none: no key before it
    asks = (first > 0) & (first + k <= tokens.shape[1])
    row, position = np.flatnonzero(asks), first[asks] - 1
    return row, position, np.stack([tokens[row, position + 1 + place] for place in range(k)], axis=1)


def _among(chains: Int[np.ndarray, "row k"], pairs: Sequence[Pair]) -> Bool[np.ndarray, " row"]:
    """Return whether each chain is in `pairs`."""
    if not pairs:
        return np.zeros(len(chains), dtype=bool)
    base = max(int(chains.max(initial=0)), max(map(max, pairs))) + 1
    powers = base ** np.arange(chains.shape[1], dtype=object if base ** chains.shape[1] > 2**62 else np.int64)
    return np.isin(chains @ powers, np.array(pairs) @ powers)
