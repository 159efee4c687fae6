"""The sequences on which probes measure a model, with noise tokens, a key and anchors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from anchorlens.configuration import check_number
from anchorlens.probes.shared.checks import check_count, token_rows
from anchorlens.randomness import generator
from anchorlens.tasks.two_anchor.anchor_functions import anchor_pair
from anchorlens.tasks.two_anchor.sequences import AnchorBatch, Pair, Trials
from anchorlens.tasks.two_anchor.task import AnchorTask

PAPER_NOISE = (35, 63, 38, 42, 36, 62)
"""The noise of the papers' sequence [35, 63, x, a1, a2, 38, 42, 36, 62], with the key at position 2."""

MOST_KEYS = 11
"""The default number of keys in a plot. The papers use the keys 30 to 40."""
MANY_KEYS = 40
"""The number of keys for measurements that need more keys."""
MOST_CHAINS = 32
"""The largest number of anchor pairs (chains) in one plot."""


def anchor_sequences(
    task: AnchorTask,
    keys: Sequence[int],
    pairs: Sequence[Sequence[int]],
    *,
    key_position: int | None = None,
) -> Int[Tensor, "sequence pos"]:
    """Build sequences that differ only in the key and the anchors.

    The tokens at all other positions are the noise tokens of the papers if these tokens fit the task, and
    evenly spread number tokens otherwise.

    Args:
        task: the task, which defines the length, the anchors and the number tokens.
        keys: the key of each sequence.
        pairs: the anchors of each sequence.
        key_position: the position of the key, which the anchors follow. Default: 2 (see `checked_position`).

    Returns:
        The token ids, [sequence, pos].

    Raises:
        ValueError: If a key, an anchor or the position is invalid for the task.
    """
    position = checked_position(task, key_position)
    numbers = task.keys.tolist()
    for key in keys:
        check_number("a key", key, minimum=numbers[0], maximum=numbers[-1], integer=True)
    for pair in pairs:
        anchor_pair(pair, task.anchors, task.chain_length, "a pair")
    frame = np.zeros((len(keys), task.seq_len), dtype=np.int64)
    is_noise = np.ones(task.seq_len, dtype=bool)
    is_noise[position : position + task.chain_length + 1] = False
    n_noise = int(is_noise.sum())
    fits = n_noise <= len(PAPER_NOISE) and set(PAPER_NOISE) <= set(numbers)
    spread = [numbers[i * len(numbers) // n_noise] for i in range(n_noise)]
    frame[:, is_noise] = PAPER_NOISE[:n_noise] if fits else spread
    frame[:, position] = keys
    frame[:, position + 1 : position + 1 + task.chain_length] = pairs
    return torch.from_numpy(frame)


def middle_keys(task: AnchorTask) -> list[int]:
    """Return keys 30 to 40 as in the papers, or the middle eleven number tokens if 30 or 40 is not a key."""
    papers = [key for key in task.keys.tolist() if 30 <= key <= 40]
    return papers if {30, 40} <= set(papers) else _middle(task, MOST_KEYS)


def many_keys(task: AnchorTask) -> list[int]:
    """Return the middle forty number tokens, or all number tokens of a task with fewer than forty."""
    return _middle(task, MANY_KEYS)


def _middle(task: AnchorTask, n: int) -> list[int]:
    start = max(0, (len(task.keys) - n) // 2)
    return task.keys[start : start + n].tolist()


def default_sequence(task: AnchorTask) -> Int[Tensor, "sequence pos"]:
    """Return one sequence of a trained pair.

    In the papers' task, the sequence has the key 40 and the pair (1, 2).
    """
    keys, pairs = task.keys, task.seen_pairs
    return anchor_sequences(task, [int(keys[len(keys) // 4])], [pairs[min(1, len(pairs) - 1)]])


def mirrored_pairs(task: AnchorTask, *, seen: bool = False) -> list[Pair]:
    """Return at most `MOST_CHAINS` pairs of different anchors, each followed by its reversed pair.

    Args:
        task: the task, which defines the pairs.
        seen: whether to keep only pairs whose two orders are both trained.

    >>> mirrored_pairs(AnchorTask())[:4]
    [(1, 2), (2, 1), (1, 3), (3, 1)]
    >>> len(mirrored_pairs(AnchorTask())), len(mirrored_pairs(AnchorTask(), seen=True))
    (12, 10)
    """
    groups = [pair for pair in task.pairs if pair < pair[::-1]]
    if seen:
        trained = set(task.seen_pairs)
        groups = [pair for pair in groups if {pair, pair[::-1]} <= trained]
    step = -(-len(groups) // (MOST_CHAINS // 2))
    return [order for pair in groups[:: max(step, 1)] for order in (pair, pair[::-1])]


def trained_sequences(
    task: AnchorTask, n_sequences: int, *, key_position: int | None = None, seed: int = 0
) -> AnchorBatch:
    """Draw random sequences of the trained pairs, with the key at one position.

    The sequences are spread evenly over the pairs.

    Args:
        task: the task, which defines the pairs, keys, noise and trained targets.
        n_sequences: the number of sequences, at least 1. Each sequence has a random key and random noise.
        key_position: the position of the key. Default: 2 (see `checked_position`).
        seed: the seed of the keys and noise.

    Raises:
        ValueError: If the position or the number of sequences is invalid for the task.
    """
    check_count("n_sequences", n_sequences)
    position = checked_position(task, key_position)
    rng = generator(seed, "probe")
    n_pairs = len(task.seen_pairs)
    chosen = np.arange(n_sequences) * max(n_pairs, n_sequences) // n_sequences
    pairs = np.array(task.seen_pairs)[chosen % n_pairs]
    trials = Trials(pairs, rng.choice(task.keys, n_sequences), np.full(n_sequences, position))
    return task.place(trials, task.noise(len(trials), rng))


def at_trained_places(
    task: AnchorTask, pairs: Int[np.ndarray, "sequence k"], rng: np.random.Generator
) -> AnchorBatch:
    """Draw sequences of given pairs, with each key at a position where the key is trained.

    Args:
        task: the task, which defines the allowed pairs (key, position), the noise and the targets.
        pairs: the anchors of each sequence.
        rng: the generator of positions, keys and noise. The position is drawn uniformly. The key is drawn
            uniformly from the keys that are trained at the position.
    """
    allowed = task.splits.allowed("train")
    there = task.positions[allowed.any(axis=0)]
    positions = there[rng.integers(0, len(there), len(pairs))]
    keys = task.splits.some_keys(rng, allowed, positions)
    return task.place(Trials(pairs, keys, positions), task.noise(len(pairs), rng))


def checked_position(task: AnchorTask, key_position: int | None) -> int:
    """Return the given position of the key, or the default position for `None`.

    The default position is 2. In a short sequence, the default position is the largest position at which a
    token follows the anchors.

    Raises:
        ValueError: If the anchors do not fit after the position.
    """
    last = task.seq_len - task.chain_length - 1
    position = min(2, max(0, last - 1)) if key_position is None else key_position
    check_number("key_position", position, minimum=0, maximum=last, integer=True)
    return int(position)


def checked_sequences(task: AnchorTask, tokens: object) -> tuple[Int[Tensor, "sequence pos"], int]:
    """Check sequences given by a caller, and find the position of their key.

    Args:
        task: the task that defines the format of a sequence.
        tokens: one sequence [pos], or several sequences [sequence, pos] with the key at the same position.

    Returns:
        The token ids, [sequence, pos], and the position of the key, which the anchors follow.

    Raises:
        ValueError: If the tokens have another shape.
        ValueError: If a token is invalid for the task, or a sequence has no key directly before its anchors.
    """
    rows = token_rows(tokens, task.seq_len)
    anchor = torch.isin(rows, torch.tensor(list(task.anchors), device="cpu"))
    known = anchor | ((rows >= task.key_min) & (rows <= task.key_max))
    key = int(anchor[0].int().argmax()) - 1  # before the first anchor
    expected = torch.zeros(task.seq_len, dtype=torch.bool, device="cpu")
    expected[key + 1 : key + 1 + task.chain_length] = key >= 0
    is_right = known.all(dim=1) & (anchor == expected).all(dim=1) & (expected.sum() == task.chain_length)
    if not is_right.all():
        raise ValueError(
            f"every sequence must have number tokens in {task.key_min}..{task.key_max} with a key directly "
            f"before {task.chain_length} of the anchors {list(task.anchors)}, and no other anchors, got "
            f"{rows[int(is_right.int().argmin())].tolist()}. Put the key at the same position in each"
        )
    return rows, key
