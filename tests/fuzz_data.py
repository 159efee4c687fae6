"""A seeded fuzzer of data: training data of every format, size and claim, and texts in the cache.

By hand: `python tests/fuzz_data.py --n 10000 --seed 0`. Training data have up to three million numbers of
some type; headers claim other shapes and types, and bytes are damaged. They must be integers that can be
asked, or one printable line. A damaged text in the cache must be made anew. No case may take more than 10 s
of computing, and over all cases no more memory than 300 MB beyond what the libraries take.
"""

import argparse
import collections
import io
import json
import os
import random
import shutil
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from fuzz_checkpoints import LONGEST, LONGEST_WAIT, mutated
from malicious_files import _peak

from anchorlens import AdditionTask, AnchorTask, PrOntoQATask, TextTask
from anchorlens.files.training_data import read_training_data

MOST_MEGABYTES = 300
MOST_NUMBERS = 3_000_000
LENGTHS = [True, False, None, -1, 0, 1, 2, 9, 1000, 2**22, 2**25, 2**31, 2**40, 2**63, 10**30, 1.0, "9", ()]
TYPES = ["<i8", "|i1", "|u1", "<i2", ">i4", "<u8", "<f4", "|b1", "|O", "<M8[s]", "<U9", "|V4", "no type"]
TASKS = [AnchorTask(), AdditionTask(), AdditionTask(mode="digits"), PrOntoQATask()]


def some_numbers(rng: random.Random, n: int, n_pos: int) -> np.ndarray:
    """Integers of a range and a type; now and then all the same, which compresses a thousand times."""
    kind = np.dtype(rng.choice(["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i8"]))
    highest = min(
        rng.choice([1, 9, 9, 9, 9, 30, 110, 127, 128, 255, 2**15, 2**31, 2**62]), int(np.iinfo(kind).max)
    )
    if rng.random() < 0.5:
        return np.full((n, n_pos), rng.choice([0, highest]), kind)
    few = np.random.default_rng(rng.randrange(10**9)).integers(0, highest, 1000, dtype=kind.newbyteorder("="))
    return np.resize(few, (n, n_pos)).astype(kind)


def npy(array: np.ndarray, rng: random.Random) -> bytes:
    """An array as numpy.save writes it; now and then with another header."""
    shape, kind, by_columns = array.shape, array.dtype.str, False
    if rng.random() < 0.2:
        lengths = list(shape)
        lengths[rng.randrange(len(lengths))] = rng.choice(LENGTHS)
        shape = rng.choice([tuple(lengths), (*shape, rng.choice(LENGTHS)), rng.choice(LENGTHS), shape])
        kind = rng.choice([kind, kind, *TYPES])
        by_columns = rng.choice([False, True, None])
    header = repr({"descr": kind, "fortran_order": by_columns, "shape": shape}).encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + array.tobytes()


def training_file(rng: random.Random, task: Any) -> bytes:
    """A file of training data of a task, right or not."""
    n_pos = task.seq_len if rng.random() < 0.8 else rng.choice([1, 2, 300])
    n = int(10 ** rng.uniform(0, np.log10(MOST_NUMBERS / n_pos / 2)))
    tokens, targets = some_numbers(rng, n, n_pos), some_numbers(rng, n, n_pos)
    every_position = task.kind == "prontoqa" or getattr(task, "mode", "") == "digits"
    targets = targets if every_position != (rng.random() < 0.1) else targets[:, 0]
    kind = rng.choice(["npz", "npz", "packed npz", "packed npz", "packed npz", "pt", "safetensors", "csv"])
    file = io.BytesIO()
    if "npz" in kind:
        how = zipfile.ZIP_DEFLATED if "packed" in kind else zipfile.ZIP_STORED
        with zipfile.ZipFile(file, "w", how, compresslevel=rng.choice([1, 9])) as archive:
            archive.writestr("tokens.npy", npy(tokens, rng))
            archive.writestr("targets.npy", npy(targets, rng))
            if rng.random() < 0.5:  # with which the others may be the larger
                archive.writestr(
                    "more", rng.randbytes(rng.choice([10, 10**5, 2 * 10**6])), zipfile.ZIP_STORED
                )
    elif kind == "csv":
        few = np.column_stack([tokens, targets])[:20_000]
        file.write(b"\n".join(b",".join(str(one).encode() for one in row) for row in few.tolist()))
    else:
        native = (one.astype(one.dtype.newbyteorder("=")) for one in (tokens, targets))
        named = {name: torch.tensor(one) for name, one in zip(("tokens", "targets"), native, strict=True)}
        file.write(safetensors.torch.save(named)) if kind == "safetensors" else torch.save(named, file)
    return mutated(file.getvalue(), rng) if rng.random() < 0.2 else file.getvalue()


def read_and_asked(path: Path, rng: random.Random) -> str:
    """What a command does with training data."""
    task = rng.choice(TASKS)
    path.write_bytes(training_file(rng, task))
    known = task.checked_training_set(read_training_data(path))
    rows = np.array([rng.randrange(len(known)) for _ in range(100)])
    some = (known.distinct() if rng.random() < 0.5 else known).take(rows * 0)
    assert some.tokens.dtype == some.targets.dtype == torch.int64 and int(some.tokens.min()) >= 0
    return "asked"


class CachedText:
    """A text of some files in a cache of its own."""

    def __init__(self, folder: Path) -> None:
        (folder / "texts").mkdir()
        for k in range(30):
            (folder / "texts" / f"{k}.txt").write_text(
                "".join(f"line {j * k} of a text\n" for j in range(30))
            )
        os.environ["ANCHORLENS_CACHE"] = str(folder / "cache")
        self.data = str(folder / "texts")
        self.folder = self._text().folder
        self.whole = self._contents()

    def _contents(self) -> dict[str, bytes]:
        """Of every file; of the sums what they say, which may be written in several ways."""
        found = {path.name: path.read_bytes() for path in self.folder.iterdir()}
        found["sha256.json"] = json.dumps(json.loads(found["sha256.json"]), sort_keys=True).encode()
        return found

    def _text(self):
        return TextTask(data=self.data, seq_len=32).text

    def damaged_and_read(self, rng: random.Random) -> str:
        path = self.folder / rng.choice(sorted(self.whole))
        kind = rng.choice(["bytes", "bytes", "bytes", "none", "pipe", "folder", "device", "loop"])
        damage: dict[str, Callable[[], object]] = {
            "none": lambda: None,
            "pipe": lambda: os.mkfifo(path),
            "folder": lambda: path.mkdir(),
            "device": lambda: path.symlink_to("/dev/zero"),
            "loop": lambda: path.symlink_to(path),
            "bytes": lambda: path.write_bytes(mutated(self.whole[path.name], rng)),
        }
        path.unlink()
        damage[kind]()
        self._text()
        assert self._contents() == self.whole, f"{path.name}: {kind}"
        assert [path.name for path in self.folder.parent.iterdir()] == [self.folder.name]
        return "made anew"


def fuzz(folder: Path, n: int, seed: int) -> Iterator[tuple[str, str]]:
    """One case after the other; give each case's name and what came of it.

    Raises:
        AssertionError: an error of more than one line, or a case that took too long.
        Exception: any other than a ValueError goes through: it is what the fuzzer looks for.
    """
    cache = os.environ.get("ANCHORLENS_CACHE")
    text = CachedText(folder)
    try:
        for i in range(n):
            rng = random.Random(f"{seed} {i}")
            name = "cached text" if i % 4 == 3 else "training data"
            start, began = time.process_time(), time.monotonic()
            try:
                asked = text.damaged_and_read(rng) if i % 4 == 3 else read_and_asked(folder / "data", rng)
            except ValueError as error:
                assert str(error).isprintable() and len(str(error)) < 3000, (
                    f"case {i} of seed {seed}: {error!r}"
                )
                assert name == "training data", f"case {i} of seed {seed}: {error!r}"
                asked = "refused"
            except BaseException as error:
                error.add_note(f"case {i} of seed {seed}: {name}")
                raise
            slow = f"case {i} of seed {seed}, {name}: too slow"
            assert time.process_time() - start < LONGEST, slow
            assert time.monotonic() - began < LONGEST_WAIT, slow
            yield name, asked
    finally:
        shutil.rmtree(folder / "cache", ignore_errors=True)
        if cache is None:
            del os.environ["ANCHORLENS_CACHE"]
        else:
            os.environ["ANCHORLENS_CACHE"] = cache


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        before = _peak()
        outcomes = collections.Counter(fuzz(Path(folder), options.n, options.seed))
        grown = _peak() - before
    for (name, outcome), count in sorted(outcomes.items()):
        print(f"{name:20s} {outcome:10s} {count}")
    seconds = time.monotonic() - start
    print(f"{options.n} cases in {seconds:.0f} s, none fell through; {grown:.0f} MB more at most")
    assert grown < MOST_MEGABYTES


if __name__ == "__main__":
    main()
