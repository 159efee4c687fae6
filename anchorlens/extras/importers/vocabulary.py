"""Read a vocabulary, and renumber a model's tokens to match the vocabulary of a word task."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anchorlens.configuration import check_number
from anchorlens.extras.shared.words import BOS, EOS, PAD, SEP, SPECIAL, UNKNOWN
from anchorlens.files import Settings
from anchorlens.safe import decoded, read_bytes, read_json, reading
from anchorlens.tasks import Task
from anchorlens.texts import few, safe_repr

_NEVER_SAID = -1e9
"""The logit of a word without a separate token, low enough that the word is never predicted."""
_SHOWN = 5
_MARKS = ("Ġ*", "▁*", "##*", "*</w>")
"""The tokenizers' forms of a word (*) with a space before or after, or continuing another word."""
_BRACKETED = re.compile(r"[<\[|]+(/?\w+)[>\]|]+")
_NAMES = {
    **dict.fromkeys(("pad",), SPECIAL[PAD]),
    **dict.fromkeys(("bos", "s", "sos", "cls", "start", "startoftext"), SPECIAL[BOS]),
    **dict.fromkeys(("sep",), SPECIAL[SEP]),
    **dict.fromkeys(("eos", "/s", "end", "endoftext"), SPECIAL[EOS]),
    **dict.fromkeys(("unk",), UNKNOWN),
}
"""The other names of special words, without their brackets."""


def vocabulary_of(settings: Settings | None) -> Mapping[str, Any] | None:
    """Return a map from task words to the model's tokens, or None if the configuration has no vocabulary.

    The configuration contains the map, or names a file with the map. The file is JSON, or a `.txt` or
    `.vocab` with a word in each line.

    Raises:
        CheckpointError: If the vocabulary is neither a table nor the name of a file.
        CheckpointError: If the file is unreadable, or is outside the folder of the configuration.
    """
    named = None if settings is None else settings.values.get("vocabulary")
    if settings is None or named is None or isinstance(named, dict):
        return named
    path = file_named(settings, "vocabulary", named)
    with reading(path):
        text = decoded(read_bytes(path))
        if path.suffix in (".txt", ".vocab") and not text.lstrip().startswith("{"):
            return words_in([line.split("\t")[0] for line in text.splitlines()])
        return words_in(read_json(text))


def file_named(settings: Settings, field: str, named: object) -> Path:
    """Return the file that a field of a configuration names.

    Raises:
        CheckpointError: If the field is not the name of a file in the folder of the configuration.
    """
    folder = settings.path.parent.resolve()
    with reading(settings.path, f"its {field} makes no sense"):
        if not isinstance(named, str) or folder not in (file := (folder / named).resolve()).parents:
            raise ValueError(
                f"{field} must name a file in the folder of its configuration, got {safe_repr(named)}. Copy "
                "the file into the folder of the configuration"
            )
    return file


def words_in(content: Any) -> dict[str, Any]:
    """Return a map of words to tokens from the content of a vocabulary file.

    The content is a table of words, a list of words in order, or a `tokenizer.json`.

    Raises:
        ValueError: If the content is none of these.

    >>> words_in({"model": {"vocab": {"walk": 1}}, "added_tokens": [{"content": "<eos>", "id": 2}]})
    {'walk': 1, '<eos>': 2}
    """
    match content:
        case {"model": {"vocab": vocab}}:
            added = content.get("added_tokens")
            entries = [one for one in added if isinstance(one, dict)] if isinstance(added, list) else []
            return words_in(vocab) | {str(one.get("content")): one.get("id") for one in entries}
        case list():  # a piece with its score, or a piece
            pieces = (one[0] if isinstance(one, list) and one else one for one in content)
            return {str(piece): token for token, piece in enumerate(pieces)}
        case dict():
            return content
    raise ValueError(f"a vocabulary must be a table of words and their tokens, got {type(content).__name__}")


def spelled(words: Sequence[str], token_of: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Find the token of each word, also if the vocabulary spells the word differently (`Ġwalk`, `[SEP]`).

    Args:
        words: the words of the task, including the words of `SPECIAL`.
        token_of: the vocabulary, which maps words to tokens.

    Returns:
        The token of each word that was found, and notes on words with a different spelling.

    Raises:
        ValueError: If two spellings of a word have different tokens.

    >>> spelled(["<sep>", "walk"], {"[SEP]": 0, "Ġwalk": 1})[0]
    {'<sep>': 0, 'walk': 1}
    """
    called: dict[str, list[str]] = {}
    for name in token_of:
        if core := _BRACKETED.fullmatch(name):
            called.setdefault(_NAMES.get(core[1].lower(), ""), []).append(name)
    tokens, others = {}, []
    for word in words:
        is_special = word in (*SPECIAL, UNKNOWN)
        spellings = [word] if word in token_of else []
        if not is_special:
            spellings += [one for mark in _MARKS if (one := mark.replace("*", word)) in token_of]
        elif not spellings:
            spellings = called.get(word, [])
        if len({str(token_of[one]) for one in spellings}) > 1:
            raise ValueError(
                f"vocabulary must have one token for {safe_repr(word)}, got different tokens for "
                f"{', '.join(map(safe_repr, spellings[:_SHOWN]))}. Write a table with only one spelling of "
                "each word"
            )
        if spellings:
            tokens[word] = token_of[spellings[0]]
        if spellings and spellings[0] != word:
            others.append(f"{safe_repr(spellings[0])} for {safe_repr(word)}")
    return tokens, [f"its vocabulary is read with {few(others)}"] if others else []


def _alike(word: str, token_of: Mapping[str, Any]) -> list[str]:
    """Find words of a vocabulary that are similar to a missing word."""
    if word in SPECIAL:
        return [name for name in token_of if _BRACKETED.fullmatch(name)]
    core = "".join(filter(str.isalnum, word.lower()))
    return [name for name in token_of if core and "".join(filter(str.isalnum, name.lower())) == core]


def in_order_of(
    task: Task, weights: Mapping[str, Tensor], token_of: Mapping[str, Any]
) -> tuple[dict[str, Tensor], list[str]]:
    """Reorder the tokens of the weights: first the task's tokens in the task's order, then all other tokens.

    Args:
        task: the task whose vocabulary sets the order.
        weights: the parameters of a HookedTransformer by name. Each row of `embed.W_E` belongs to a token.
        token_of: the model's token for each word of the task, `<sep>` and `<eos>`. `<bos>` is required unless
            the task has `bos = false`. `<pad>`, `<unk>` and other words are optional. `spelled` explains the
            allowed spellings.

    Returns:
        The weights with renumbered tokens, and notes. `<pad>`, `<bos>` and `<sep>` may share a token with
        another word. Each word without a separate token gets a new row of W_E and a new column of W_U. The
        model never predicts this word.

    Raises:
        ValueError: If the answers have a separate vocabulary, or the task is not in words.
        ValueError: If a word's token is missing, out of range or shared.
    """
    d_vocab = len(weights["embed.W_E"])
    if (d_vocab_out := weights["unembed.W_U"].shape[1]) != d_vocab:
        raise ValueError(
            "vocabulary must be None for a model with different vocabularies for inputs and answers, got "
            f"{d_vocab} input tokens and {d_vocab_out} answers. Omit vocabulary"
        )
    rows, shared, notes = _rows(task, token_of, d_vocab)
    others = sorted(set(range(d_vocab)) - set(rows))
    order = torch.tensor([*rows, *others], device="cpu")
    renumbered = dict(weights)
    renumbered["embed.W_E"] = weights["embed.W_E"][order]
    renumbered["unembed.W_U"] = weights["unembed.W_U"][:, order]
    renumbered["unembed.b_U"] = weights["unembed.b_U"][order]
    renumbered["unembed.W_U"][:, shared] = 0
    renumbered["unembed.b_U"][shared] = _NEVER_SAID
    return renumbered, notes


def _rows(task: Task, token_of: Mapping[str, Any], d_vocab: int) -> tuple[list[int], list[int], list[str]]:
    """Return the model's token for each task token, the task tokens that share or lack one, and notes."""
    if task.vocabulary is None:
        raise ValueError(
            "vocabulary must be None for a task whose tokens are numbers, got a vocabulary for the task "
            f"{task.kind}. Omit vocabulary"
        )
    words = (*SPECIAL, *task.vocabulary.words)
    optional = {SPECIAL[PAD], UNKNOWN, *([] if task.vocabulary.bos else [SPECIAL[BOS]])}
    tokens, notes = spelled(words, token_of)
    missing = [word for word in words if word not in tokens and word not in optional]
    if missing:
        alike = ", ".join(map(safe_repr, _alike(missing[0], token_of)[:_SHOWN]))
        asked = f"Did you mean {safe_repr(missing[0])} by {alike}? Rename" if alike else "Add"
        raise ValueError(
            "vocabulary must have a token for each word of the task, got none for "
            f"{few([*map(safe_repr, missing)], _SHOWN)}. {asked} the token"
        )
    for word, token in tokens.items():
        check_number(f"vocabulary: {safe_repr(word)}", token, minimum=0, maximum=d_vocab - 1, integer=True)
    rows, taken = [-1] * len(words), {}
    asked = [place for place in range(len(words)) if place not in (PAD, BOS, SEP)]
    for place in (*asked, SEP, BOS, PAD):
        if (token := tokens.get(words[place])) is None:
            continue
        if token in taken and place in asked:
            raise ValueError(
                f"vocabulary must give each word a different token, got {token} for "
                f"{safe_repr(taken[token])} and {safe_repr(words[place])}. Correct the table"
            )
        rows[place] = token
        taken.setdefault(token, words[place])
    shared = [place for place, row in enumerate(rows) if row < 0 or taken[row] != words[place]]
    return [max(row, 0) for row in rows], shared, notes
