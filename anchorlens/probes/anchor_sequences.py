"""The sequences that probes ask about: one frame of noise, key and anchors put into it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from anchorlens.task import AnchorTask

PAPER_NOISE = (35, 63, 38, 42, 36, 62)
"""Noise of the papers' picture sequence [35, 63, x, a1, a2, 38, 42, 36, 62], key at position 2."""


def anchor_sequences(
    task: AnchorTask,
    keys: Sequence[int],
    pairs: Sequence[Sequence[int]],
    *,
    key_position: int | None = None,
    noise: Sequence[int] | None = None,
) -> Int[Tensor, "sequence pos"]:
    """Sequences that differ in key and anchors alone.

    Args:
        task: gives length, anchors and number tokens.
        keys: the key of each sequence.
        pairs: its anchors; as many as keys.
        key_position: where the key stands, the anchors behind it; 2, or the last that leaves room.
        noise: the other tokens in order; the papers' where they fit, else spread over the numbers.

    Returns:
        Tokens [sequence, pos].

    Raises:
        ValueError: a key, an anchor, a position or noise that the task does not have.
    """
    last = task.seq_len - task.chain_length - 1
    position = min(2, last) if key_position is None else key_position
    if not 0 <= position <= last:
        raise ValueError(
            f"key_position must be in 0..{last}, so that {task.chain_length} anchors fit into "
            f"{task.seq_len} tokens, got {key_position}"
        )
    numbers = task.keys.tolist()
    for key in keys:
        if key not in numbers:
            raise ValueError(f"a key must be a number token {numbers[0]}..{numbers[-1]}, got {key}")
    for pair in pairs:
        if len(pair) != task.chain_length or any(anchor not in task.anchors for anchor in pair):
            raise ValueError(
                f"a pair must be {task.chain_length} of the anchors {list(task.anchors)}, got {tuple(pair)}"
            )
    frame = np.zeros((len(keys), task.seq_len), dtype=np.int64)
    is_noise = np.ones(task.seq_len, dtype=bool)
    is_noise[position : position + task.chain_length + 1] = False
    frame[:, is_noise] = _noise(task, int(is_noise.sum()), noise)
    frame[:, position] = keys
    frame[:, position + 1 : position + 1 + task.chain_length] = pairs
    return torch.from_numpy(frame)


def _noise(task: AnchorTask, n: int, noise: Sequence[int] | None) -> list[int]:
    numbers = task.keys.tolist()
    if noise is None:
        fits = n <= len(PAPER_NOISE) and all(token in numbers for token in PAPER_NOISE)
        return list(PAPER_NOISE[:n]) if fits else [numbers[i * len(numbers) // n] for i in range(n)]
    if len(noise) != n or any(token not in numbers for token in noise):
        raise ValueError(f"noise must be {n} number tokens {numbers[0]}..{numbers[-1]}, got {list(noise)}")
    return list(noise)
