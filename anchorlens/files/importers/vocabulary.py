"""Renumber a model's tokens to match the vocabulary of a word task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from anchorlens.configuration import check_number
from anchorlens.safe import safe_repr
from anchorlens.tasks.shared.base import Task
from anchorlens.tasks.shared.words import BOS, PAD, SEP, SPECIAL, UNKNOWN

_NEVER_SAID = -1e9
"""Logit of a word without a token of its own, low enough that it is never predicted."""
_SHOWN = 5


def in_order_of(task: Task, weights: Mapping[str, Tensor], token_of: Mapping[str, Any]) -> dict[str, Tensor]:
    """Reorder the tokens of the weights: first the task's tokens in its order, then all others.

    Args:
        task: the task whose vocabulary sets the order.
        weights: parameters of a HookedTransformer by name; each row of `embed.W_E` is a token.
        token_of: word -> token of the model, for each word of the task, `<sep>` and `<eos>`. `<bos>` is
            required unless the task has `bos = false`; `<pad>`, `<unk>` and other words are optional.

    Returns:
        The weights with renumbered tokens. `<pad>`, `<bos>` and `<sep>` may share a token with another word.
        Each word without a token of its own gets a row and a column of its own and is never predicted.

    Raises:
        ValueError: the task is not in words; a word has no token, one out of range, or another word's.
    """
    d_vocab = len(weights["embed.W_E"])
    rows, own = _rows(task, token_of, d_vocab)
    others = sorted(set(range(d_vocab)) - set(rows))
    order = torch.tensor([*rows, *others], device="cpu")
    renumbered = dict(weights)
    renumbered["embed.W_E"] = weights["embed.W_E"][order]
    renumbered["unembed.W_U"] = weights["unembed.W_U"][:, order]
    renumbered["unembed.b_U"] = weights["unembed.b_U"][order]
    shared = [place for place, has_one in enumerate(own) if not has_one]
    renumbered["unembed.W_U"][:, shared] = 0
    renumbered["unembed.b_U"][shared] = _NEVER_SAID
    return renumbered


def _rows(task: Task, token_of: Mapping[str, Any], d_vocab: int) -> tuple[list[int], list[bool]]:
    """The model's token for each of the task's, and whether the word has that token for itself."""
    if task.vocabulary is None:
        raise ValueError(f"vocabulary must be left out: the task {task.kind} is in numbers, not in words")
    words = (*SPECIAL, *task.vocabulary.words)
    optional = {SPECIAL[PAD], UNKNOWN, *([] if task.vocabulary.bos else [SPECIAL[BOS]])}
    missing = [word for word in words if word not in token_of and word not in optional]
    if missing:
        few = ", ".join(map(safe_repr, missing[:_SHOWN]))
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        raise ValueError(f"vocabulary must have a token for {few}{more}; they are words of the task")
    tokens = {word: token_of[word] for word in words if word in token_of}
    for word, token in tokens.items():
        check_number(f"vocabulary: {safe_repr(word)}", token, minimum=0, maximum=d_vocab - 1, integer=True)
    rows, taken = [-1] * len(words), {}
    asked = [place for place in range(len(words)) if place not in (PAD, BOS, SEP)]
    for place in (*asked, SEP, BOS, PAD):
        if (token := tokens.get(words[place])) is None:
            continue
        if token in taken and place in asked:
            raise ValueError(
                f"vocabulary must give each word a token of its own, got {token} for "
                f"{safe_repr(taken[token])} "
                f"and {safe_repr(words[place])}"
            )
        rows[place] = token
        taken.setdefault(token, words[place])
    own = [row >= 0 and taken[row] == word for row, word in zip(rows, words, strict=True)]
    return [max(row, 0) for row in rows], own
