"""TextTask: predict the next byte of a text, measured in bits per byte on held-out text."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from anchorlens import models, tasks
from anchorlens.configuration import check_number, frozen_dataclass, number
from anchorlens.extras.text.corpus import TRAIN, VALIDATION, Corpus, Windows, corpus_of
from anchorlens.extras.text.documents import CODE, FILES, absolute, fingerprint, python_version
from anchorlens.extras.text.presets import PRESETS
from anchorlens.randomness import generator
from anchorlens.tasks import Accuracy, Evaluation, LogitsModel, Metric, TaskConfig, TokenBatch

if TYPE_CHECKING:
    from torch import Tensor

MOST_ASKED, QUICKLY = 1_000, 128
"""The numbers of sequences of each split that `evaluate` uses by default, and that `measure` uses."""
AT_ONCE = 32
"""The largest number of sequences in a forward pass."""
_MOST_BITS = 64
_HELD_OUT = "bits per byte on held-out files"
_of_bytes = functools.partial(Metric, highest=8.0, unit="bits per byte", higher_is_better=False)
_derived = functools.partial(Metric, in_tables=False, higher_is_better=False)


def _bits(part: str, heading: str, meaning: str) -> Metric:
    return _of_bytes(f"{part}_bits", f"{part} bits", heading, meaning, logged_as=f"{part}_bits")


METRICS = (
    _bits("train", "Bits per byte on training text", "bits per byte on what it was trained on"),
    _bits("validation", "Bits per byte on held-out text", _HELD_OUT),
    _derived(
        "perplexity",
        "perplexity",
        "Perplexity per byte on held-out text",
        f"2 to the {_HELD_OUT}",
        lowest=1.0,
        highest=256.0,
    ),
    _derived(
        "gap",
        "gap",
        "Gap between held-out and training text",
        f"{_HELD_OUT} minus bits per byte on training text",
        lowest=None,
        highest=None,
    ),
)


@frozen_dataclass()
class TextTask(TaskConfig):
    """The text task, in which a model predicts the next byte after each byte of a text.

    Sequences follow one another without gaps or padding, also across file boundaries. A NUL byte separates
    files. Whole files are held out if possible. If the chosen files have less than half of the wanted bytes,
    the end of the largest file is held out instead. Files with equal content count once. anchorlens builds
    the text once in the user's cache and reads the text from the cache on demand.

    Raises:
        ValueError: If a value is invalid, or files are missing or contain no text.

    Source: arXiv 2501.08537, figure 7D, which trains GPT-2 Medium on 40 billion tokens of SlimPajama. This
    task is a far smaller substitute, and its results do not apply to SlimPajama.
    """

    kind: ClassVar[str] = "text"
    presets = PRESETS
    metrics: ClassVar[tuple[Metric, ...]] = METRICS
    stored_fields: ClassVar[tuple[str, ...]] = ("version",)
    d_vocab = 256

    corpus: Literal["", "code", "text", "code+text", "files"] = ""
    """The source of the text. The corpus `code` is the standard library of the running Python. The corpus
    `text` is English prose from the docstrings and help topics of the standard library. The corpus `files`
    holds the files that `data` names. Default: `files` if `data` names files, else `code`."""
    data: str = dataclasses.field(default="", compare=False)
    """The paths of text files in UTF-8, with a colon between paths (on Windows a semicolon). A folder stands
    for all files in the folder. The task stores absolute paths."""
    version: str = ""
    """The identity of the content, such as `Python 3.11.7`. For files, the identity is the number of files,
    the number of bytes, and a SHA-256 of names and contents. Default: computed from the content."""
    seq_len: int = number(256, minimum=2, maximum=65_536)
    """The number of bytes in a sequence."""
    held_out_share: float = number(0.05, minimum=0.001, maximum=0.5)
    """The fraction of all bytes that is held out, in whole files."""
    split_seed: int = number(0, minimum=0)
    """The seed that determines the held-out files."""

    def __post_init__(self) -> None:
        """Check every field, and set the corpus and its version."""
        super().__post_init__()
        if not self.corpus:
            object.__setattr__(self, "corpus", FILES if self.data else CODE)
        if self.data and self.corpus != FILES:
            raise ValueError(
                f"corpus must be 'files' if data is given, got {self.corpus!r}. Omit corpus or data"
            )
        object.__setattr__(self, "data", absolute(self.data))
        if self.corpus == FILES and not (self.data or self.version):
            raise ValueError(
                "data must name the files of the corpus 'files', got none. Give the files with --data PATH"
            )
        if not self.version:
            version = fingerprint(self.data) if self.corpus == FILES else python_version()
            object.__setattr__(self, "version", version)

    @cached_property
    def text(self) -> Corpus:
        """The corpus in the user's cache.

        Raises:
            ValueError: If the corpus cannot be built, or differs from the text of the task.
        """
        if self.corpus == FILES and not self.data:
            raise ValueError(
                f"data must name the files of {self.version}, got none. Give the files with --data PATH"
            )
        if self.corpus == FILES:
            fingerprint(self.data, self.version)
        elif (here := python_version()) != self.version:
            raise ValueError(
                f"the text must be {self.version}, got {here}. Use the Python version that made this text"
            )
        return corpus_of(self.corpus, self.data, self.version, self.held_out_share, self.split_seed)

    def _windows(self, split: str) -> Windows:
        windows = self.text.windows(split, self.seq_len)
        if not len(windows):
            raise ValueError(
                f"both splits of the text must have at least {self.seq_len} bytes, got "
                f"{self.text.n_bytes(split):,} bytes in {split}. Give more text, or use a smaller seq_len"
            )
        return windows

    def training_set(self, n: int, seed: int) -> Windows:
        """Draw `n` distinct sequences of the training text, in random order.

        Raises:
            ValueError: If the text has fewer than `n` sequences, or no held-out sequence.
        """
        windows, _ = self._windows(TRAIN), self._windows(VALIDATION)  # both, before anything is trained
        if n > len(windows):
            raise ValueError(
                f"n_samples must be at most {len(windows):,}, the number of sequences of {self.seq_len} "
                f"bytes in this text, got {n:,}. Train for several epochs, or give more text"
            )
        return windows.choose(generator(seed, "data").permutation(len(windows))[:n])

    def loss(self, model: LogitsModel, batch: TokenBatch, generator: np.random.Generator) -> Tensor:
        """Compute the mean cross-entropy over every byte, in nats.

        Args:
            model: the model that computes the logits.
            batch: the sequences with their targets. The target of each byte is the next byte.
            generator: a generator that is not used.
        """
        import torch

        logits = model(batch.tokens)[..., : TextTask.d_vocab]
        targets = batch.targets.to(logits.device)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def evaluate(
        self,
        model: LogitsModel,
        *,
        training_set: object = None,
        seed: int = 0,
        max_asked: int = MOST_ASKED,
        quick: bool = False,
    ) -> Evaluation:
        """Measure bits per byte on held-out and on training text.

        Args:
            model: the model to evaluate.
            training_set: the training data of the model. Default: the whole training text.
            seed: the seed of the choice of sequences.
            max_asked: the largest number of evaluated sequences of each split.
            quick: whether to use only 128 sequences of each split.

        Returns:
            The bits per byte on held-out and on training text, each with a standard error over the sequences.
            The result also has the perplexity on held-out text, and the held-out bits per byte minus the
            training bits per byte.

        Raises:
            ValueError: If an option is invalid, or the text is not found. The model must be large enough for
                the task. The training data must fit the task.
        """
        tasks.check_capacity(model, self)
        check_number("max_asked", max_asked, minimum=1, integer=True)
        rng, most = generator(seed, "evaluation"), QUICKLY if quick else max_asked
        trained = self._windows(TRAIN) if training_set is None else self.checked_training_set(training_set)
        found: dict[str, Accuracy] = {}
        finite = True
        for name, sequences in (("train_bits", trained), ("validation_bits", self._windows(VALIDATION))):
            rows = rng.permutation(len(sequences))[:most]
            bits = np.concatenate(list(bits_per_byte(model, sequences, rows)))
            finite = finite and bool(np.isfinite(bits).all())
            found[name] = _mean(bits, of=len(sequences))
        train, validation = found.values()
        error = math.hypot(train.standard_error, validation.standard_error)
        gap = Accuracy(validation.value - train.value, error, validation.n_sequences)
        measures = {**found, "perplexity": _perplexity(validation), "gap": gap}
        return self.evaluation(
            {name: one for name, one in measures.items() if one is not None and math.isfinite(one.value)},
            finite=finite,
            seed=seed,
            options={
                "task": self.describe().split("\n")[0],
                "text": self.version,
                "text_sha256": self.text.sha256,
            },
            train_source="training text" if training_set is None else tasks.TRAINING_SET,
        )

    def checked_training_set(self, training_set: object) -> Any:
        """Check that training data are the result of `training_set`, or (tokens, targets) of every byte.

        Raises:
            ValueError: If the data are empty, come from another text, or have another sequence length.
        """
        if not isinstance(training_set, Windows):
            return super().checked_training_set(training_set)
        whole = self._windows(TRAIN)
        if not len(training_set) or (training_set.path, training_set.length) != (whole.path, whole.length):
            raise ValueError(
                f"the training data must be sequences of {self.seq_len} bytes of this task's text, got "
                f"{len(training_set):,} sequences of {training_set.length} bytes. Give the result of "
                "training_set of this task"
            )
        return training_set

    def sequences_asked(self, n_train: int, *, quickly: bool) -> int:
        """Return the largest number of sequences in `evaluate`, or in `measure` if `quickly` is true."""
        most = QUICKLY if quickly else MOST_ASKED
        return most + min(most, n_train)

    def bytes_to_ask(self, n_train: int) -> int:
        """Estimate the memory of one batch and of the indices of the training sequences, in bytes."""
        return 8 * n_train + 32 * AT_ONCE * self.seq_len

    @property
    def held_out(self) -> str:
        """A description of the bytes that training never shows."""
        share = f"about {self.held_out_share:.1%} of the bytes"
        return f"{share}, in whole files chosen by seed, or the end of the largest file"

    def describe(self) -> str:
        """Describe the text and its held-out part in words."""
        what = {
            "code": "the standard library of Python without its folders test and tests",
            "text": "docstrings and help topics of the standard library of Python",
            "code+text": "the standard library of Python, and its docstrings and help topics",
            FILES: "files",
        }[self.corpus]
        return (
            f"Text, byte by byte: {what} ({self.version}); sequences of {self.seq_len} bytes.\n"
            f"Held out: {self.held_out}."
        )


def bits_per_byte(model: LogitsModel, some: Any, rows: np.ndarray) -> Iterator[np.ndarray]:
    """Compute the bits per byte of each sequence, [sequence], for a limited number of sequences at a time.

    Args:
        model: the model to evaluate.
        some: the set of sequences.
        rows: the indices in `some` of the sequences to use.
    """
    import torch

    device = models.device_of(model) if isinstance(model, torch.nn.Module) else torch.device("cpu")
    with models.evaluation_mode(model), torch.inference_mode():
        for first in range(0, len(rows), AT_ONCE):
            batch = some.take(rows[first : first + AT_ONCE])
            logits = tasks.at_end(model, None)(batch.tokens.to(device))[..., : TextTask.d_vocab]
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            logits, targets = logits.transpose(1, 2), batch.targets.to(logits.device)
            losses = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
            yield (losses.mean(dim=1) / math.log(2)).double().cpu().numpy()


def _perplexity(bits: Accuracy) -> Accuracy | None:
    """Return 2 to the power of the bits per byte; `None` above `_MOST_BITS`, where a model has diverged."""
    if bits.value > _MOST_BITS:
        return None
    value = 2**bits.value
    return Accuracy(value, value * math.log(2) * bits.standard_error, bits.n_sequences)


def _mean(values: np.ndarray, *, of: int) -> Accuracy:
    """Compute the mean over sequences drawn without replacement from `of` sequences."""
    n = len(values)
    spread = float(values.std(ddof=1)) if n > 1 else 0.0
    return Accuracy(float(values.mean()), spread / math.sqrt(n) * math.sqrt(max(0.0, 1 - n / of)), n)
