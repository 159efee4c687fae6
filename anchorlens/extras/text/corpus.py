"""Corpus: documents, split by file into two long files of bytes, memory-mapped from the user's cache."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from anchorlens.extras.shared.cache import user_cache
from anchorlens.extras.shared.scratch import scratch_folder
from anchorlens.extras.text.documents import Document, content_digest, documents, sizes
from anchorlens.files import write_through
from anchorlens.randomness import generator
from anchorlens.safe import read_bytes, read_json
from anchorlens.tasks import TokenBatch

if TYPE_CHECKING:
    from jaxtyping import Int

TRAIN, VALIDATION = "train", "validation"
_LONGEST_LINE = 4096
"""The number of bytes after a cut that are searched for the end of the line."""
_FILES, _SUMS = (f"{TRAIN}.bin", f"{VALIDATION}.bin", "manifest.json"), "sha256.json"
END = b"\0"
"""The byte that follows every document; it does not occur in text."""


@dataclass(frozen=True, eq=False)
class Corpus:
    """The two splits of one text, with a manifest of the files in each split."""

    folder: Path
    """The folder with train.bin, validation.bin, manifest.json, and sha256.json, which has their SHA-256."""

    @functools.cached_property
    def manifest(self) -> dict[str, dict[str, dict[str, int | str]]]:
        """A map from each split and source to the `documents`, `bytes` and `sha256` taken from the source."""
        return json.loads((self.folder / "manifest.json").read_text())

    @functools.cached_property
    def sha256(self) -> str:
        """The SHA-256 of the manifest, which lists the content that each split takes from each source."""
        return hashlib.sha256((self.folder / "manifest.json").read_bytes()).hexdigest()

    @property
    def is_whole(self) -> bool:
        """Whether the checksum of every file is correct. Each process reads the files only once."""
        try:
            sums = read_json(read_bytes(self.folder / _SUMS))
            return sums == {name: content_digest(self.folder / name) for name in _FILES}
        except (OSError, ValueError):
            return False

    def n_bytes(self, split: str) -> int:
        """Return the length of a split, in bytes."""
        return (self.folder / f"{split}.bin").stat().st_size

    def windows(self, split: str, length: int) -> Windows:
        """Return all sequences of a split, one after another without overlap."""
        n = max(0, (self.n_bytes(split) - 1) // length)
        return Windows(self.folder / f"{split}.bin", length, range(n))


@dataclass(frozen=True, eq=False)
class Windows:
    """A training set of any size. The sequences are read from the disk on demand."""

    path: Path
    """The text."""
    length: int
    """The number of bytes of a sequence."""
    places: range | Int[np.ndarray, " window"]
    """The index of each sequence in the text."""

    example_bytes = 8
    """The bytes of memory for each sequence, which hold its index."""

    def __len__(self) -> int:
        return len(self.places)

    def choose(self, rows: Int[np.ndarray, " row"]) -> Windows:
        """Choose some of the sequences, without reading them from the disk."""
        places = rows if isinstance(self.places, range) else self.places[rows]
        return Windows(self.path, self.length, places)

    def take(self, rows: Int[np.ndarray, " row"]) -> TokenBatch:
        """Read some of the sequences. The target of each byte is the next byte."""
        import torch

        text = np.memmap(self.path, dtype=np.uint8, mode="r")
        starts = np.asarray(self.choose(rows).places) * self.length
        read = np.stack([text[start : start + self.length + 1] for start in starts])
        both = torch.from_numpy(read.astype(np.int64))
        return TokenBatch(both[:, :-1], both[:, 1:])


def corpus_of(name: str, data: str, version: str, share: float, seed: int) -> Corpus:
    """Return a corpus from the user's cache, and build the corpus if the cache lacks it.

    Args:
        name: the name of the corpus: `code`, `text`, `code+text` or `files`.
        data: the paths of `files`.
        version: the text that identifies the content.
        share: the held-out fraction of the bytes, in whole files if possible.
        seed: the seed of the choice of held-out files.

    Raises:
        ValueError: If a file does not exist or is not text.
    """
    key = hashlib.sha256(json.dumps([2, name, version, share, seed]).encode()).hexdigest()[:16]
    folder = user_cache("text") / f"{name}-{key}"
    corpus = Corpus(folder)
    if corpus.is_whole:
        return corpus
    with scratch_folder(f"{name}-", folder.parent) as scratch:
        made = scratch / "made"
        made.mkdir(mode=0o700)
        try:
            n_bytes = sizes(name, data)
            out = held_out(n_bytes, share, seed)
            largest = max(n_bytes, key=n_bytes.__getitem__)
            n_held_out = max(1, round(share * sum(n_bytes.values())))
            cut = {} if out else {largest: max(0, n_bytes[largest] - n_held_out)}
            _write(made, documents(name, data), out, cut)
            if not corpus.is_whole:  # another process may have made it meanwhile, and may use it
                shutil.rmtree(folder, ignore_errors=True)
            os.replace(made, folder)
            write_through(folder.parent)
        except OSError:
            if not corpus.is_whole:  # no other process was faster
                raise
    return corpus


def held_out(sizes: Mapping[str, int], share: float, seed: int) -> frozenset[str]:
    """Choose held-out sources in random order until the sources make up `share` of the bytes.

    Sources that would bring the total above twice the share are skipped. The result is empty if the chosen
    sources make up less than half of the share. The end of the largest source is then held out.

    >>> sorted(held_out({"a": 10, "b": 10, "c": 980}, 0.01, seed=1))
    ['b']
    >>> sorted(held_out({"a": 1, "b": 500, "c": 500}, 0.05, seed=1))
    []
    """
    names, wanted = sorted(sizes), share * sum(sizes.values())
    chosen, n_bytes = [], 0
    for place in generator(seed, "data", 5).permutation(len(names)).tolist():
        name = names[place]
        if n_bytes < wanted and n_bytes + sizes[name] <= 2 * wanted:
            chosen.append(name)
            n_bytes += sizes[name]
    return frozenset(chosen if 2 * n_bytes >= wanted else [])


def _write(folder: Path, read: Iterable[Document], out: Collection[str], cut: Mapping[str, int]) -> None:
    """Write both splits, the manifest and their SHA-256, and sync them to the disk.

    At most one piece of a document is in memory at a time.

    Args:
        folder: the folder for the files.
        read: the documents.
        out: the sources that are held out.
        cut: a map from a source whose end is held out to its number of trained bytes. The cut moves to
            the end of a line.
    """
    manifest: dict[str, dict[str, dict[str, Any]]] = {TRAIN: {}, VALIDATION: {}}
    with contextlib.ExitStack() as stack:
        files = {split: stack.enter_context((folder / f"{split}.bin").open("wb")) for split in manifest}
        for source, pieces in read:
            split = VALIDATION if source in out else TRAIN
            halves = _at_the_end_of_a_line(pieces, cut[source]) if source in cut else [(split, pieces)]
            for split, half in halves:
                entry = manifest[split].setdefault(source, {"documents": 0, "bytes": 0, "sha256": ""})
                digest = hashlib.sha256(entry["sha256"].encode())
                for piece in half:
                    files[split].write(piece)
                    digest.update(piece)
                    entry["bytes"] += len(piece)
                files[split].write(END)
                entry |= {"documents": entry["documents"] + 1, "sha256": digest.hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1))
    (folder / _SUMS).write_text(json.dumps({name: content_digest(folder / name) for name in _FILES}))
    for path in (*map(folder.joinpath, (*_FILES, _SUMS)), folder):
        write_through(path)


def _at_the_end_of_a_line(pieces: Iterable[bytes], cut: int) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Split a file into a training part and a held-out part; both must be read to their end, in this order.

    If no line ends soon after the cut, the line itself is cut.
    """
    rest = iter(pieces)
    held: list[bytes] = []

    def before() -> Iterator[bytes]:
        n_bytes = 0
        for piece in rest:
            if n_bytes + len(piece) > cut:
                at = max(0, cut - n_bytes)
                end = piece.find(b"\n", at, at + _LONGEST_LINE) + 1 or _between_characters(piece, at)
                held.append(piece[end:])
                yield piece[:end]
                return
            n_bytes += len(piece)
            yield piece

    yield TRAIN, before()
    yield VALIDATION, itertools.chain(held, rest)


def _between_characters(piece: bytes, at: int) -> int:
    """Return the first position from `at` on that is not inside a UTF-8 character."""
    while at < len(piece) and piece[at] & 0xC0 == 0x80:
        at += 1
    return at
