"""Prompts and answers in words and as sequences: `<bos> prompt <sep> answer <eos>`, then padding."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from anchorlens.configuration import frozen_dataclass
from anchorlens.tasks import IGNORE, TokenBatch
from anchorlens.texts import safe_repr

if TYPE_CHECKING:
    from jaxtyping import Int

SPECIAL = ("<pad>", "<bos>", "<sep>", "<eos>")
"""The first tokens of every vocabulary: padding, the beginning, the end of the prompt, the end of the
answer."""
PAD, BOS, SEP, EOS = range(len(SPECIAL))
UNKNOWN = "<unk>"
"""The substitute for a word that is not in the training data; an answer with this word cannot be correct."""


@frozen_dataclass(eq=False)
class Examples:
    """Prompts with their expected answers, as strings of words with single spaces between the words."""

    prompts: Sequence[str]
    """The texts that a model reads; two examples may have the same prompt."""
    answers: Sequence[str]
    """The expected answers; an answer may be empty."""

    def __len__(self) -> int:
        return len(self.prompts)

    def __getitem__(self, rows: Int[np.ndarray, " row"]) -> Examples:
        """Return some of the examples, in the order of `rows`."""
        numbers: list[int] = rows.tolist()
        return Examples([self.prompts[row] for row in numbers], [self.answers[row] for row in numbers])

    def __repr__(self) -> str:
        first = f", the first {self.prompts[0]!r} -> {self.answers[0]!r}" if len(self) else ""
        return f"Examples({len(self):,}{first})"


@frozen_dataclass()
class Vocabulary:
    """A vocabulary of the tokens of `SPECIAL`, followed by a token for each word.

    Example:
        >>> words = Vocabulary(("walk", "twice", "I_WALK"))
        >>> words.tokens("walk twice"), words.text([6, 6])
        ([4, 5], 'I_WALK I_WALK')
    """

    words: tuple[str, ...]
    """The words, each once, in the order of their tokens."""
    bos: bool = True
    """Whether every sequence begins with `<bos>`."""

    def __len__(self) -> int:
        """Return the number of tokens, including the tokens of `SPECIAL`."""
        return len(SPECIAL) + len(self.words)

    @cached_property
    def _token_of(self) -> dict[str, int]:
        return {word: number for number, word in enumerate((*SPECIAL, *self.words))}

    def tokens(self, text: str) -> list[int]:
        """Return the tokens of the words in a text.

        Raises:
            ValueError: If a word is not in the vocabulary.
        """
        try:
            return [self._token_of[word] for word in text.split()]
        except KeyError as error:
            raise ValueError(
                f"every word must be one of the {len(self.words):,} words of the task, got "
                f"{safe_repr(error.args[0])} in {safe_repr(text)}. Use other words"
            ) from None

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text of a sequence of tokens, with special tokens spelt as in `SPECIAL`."""
        words = (*SPECIAL, *self.words)
        return " ".join(words[token] if token < len(words) else f"<{token}>" for token in tokens)

    def prompt(self, tokens: Sequence[int]) -> str:
        """Return the words of a sequence's prompt, or all words if the sequence has no `<sep>`."""
        end = tokens.index(SEP) if SEP in tokens else len(tokens)
        return self.text(tokens[int(self.bos) : end])

    def length(self, example: Examples) -> Int[np.ndarray, " example"]:
        """Return the length in tokens of each example, without the end mark, which a model does not read."""
        pairs = zip(example.prompts, example.answers, strict=True)
        words = [n_words(prompt) + n_words(answer) for prompt, answer in pairs]
        return np.array(words, dtype=np.int64) + 1 + self.bos

    def sequences(self, examples: Examples, width: int) -> TokenBatch:
        """Convert examples to sequences, in which the answer and its end mark are scored.

        Args:
            examples: the examples. Every word must be in the vocabulary.
            width: the number of tokens per sequence. Shorter sequences are padded at the end.

        Returns:
            Tokens and targets, [example, width].

        Raises:
            ValueError: If a word is not in the vocabulary, or an example has more than `width` tokens.
        """
        import torch

        tokens = np.full((len(examples), width), PAD, dtype=np.int64)
        targets = np.full((len(examples), width), IGNORE, dtype=np.int64)
        for row, (prompt, answer) in enumerate(zip(examples.prompts, examples.answers, strict=True)):
            asked, said = [*[BOS] * self.bos, *self.tokens(prompt), SEP], self.tokens(answer)
            read = [*asked, *said]
            if len(read) > width:
                raise ValueError(
                    f"an example must have at most {width} tokens, got {len(read)}: {safe_repr(prompt)} with "
                    f"an answer of {len(said)} words. Shorten the example"
                )
            tokens[row, : len(read)] = read
            targets[row, len(asked) - 1 : len(read)] = [*said, EOS]
        return TokenBatch(torch.from_numpy(tokens), torch.from_numpy(targets))


def n_words(text: str) -> int:
    """Return the number of words of a text with single spaces between the words."""
    return text.count(" ") + bool(text)
