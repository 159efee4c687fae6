"""A seeded fuzzer: valid checkpoints of every kind, cut, flipped and spliced, must be refused or whole.

By hand: `python tests/fuzz_checkpoints.py --n 1000 --seed 0`, and with --classify a trained checkpoint is
damaged, and classified where it can still be opened. What is asked of such a file is the caller's:
`judge(case, opened)` raises AssertionError, or `CheckpointError` and other ValueErrors where it refuses.
"""

import argparse
import collections
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from foreign_checkpoints import (
    OURS,
    Written,
    rewritten_zip,
    write_bare,
    write_hugging_face,
    write_nano,
    write_own,
    write_records,
    write_released,
)

from anchorlens import classify
from anchorlens.files.checkpoint import Checkpoint, check_whole, load_checkpoint
from anchorlens.files.importers import open_checkpoint
from anchorlens.files.loaded_model import LoadedModel
from anchorlens.training import checkpoints

LONGEST = 10.0
"""Seconds of computing that opening one file may take; a busy machine does not count."""
LONGEST_WAIT = 60.0
"""Seconds altogether, so that a file that makes the reader wait for something is found too."""

MAKERS: dict[str, Callable[[Path], Written]] = {
    "own .pt": write_own,
    "own .safetensors": lambda folder: write_own(folder, ".safetensors"),
    "bare .pt": write_bare,
    "bare .safetensors": lambda folder: write_bare(folder, ".safetensors"),
    "released": write_released,
    "Hugging Face": write_hugging_face,
    "nanoGPT": write_nano,
    "records": write_records,
    "records of protocol 5": lambda folder: write_records(folder, 5),
    "Hugging Face .bin": lambda folder: write_hugging_face(folder, "pytorch_model.bin"),
}


@dataclass(frozen=True)
class Case:
    """A valid checkpoint to damage."""

    name: str
    written: Written
    original: Checkpoint
    """What it holds undamaged."""

    @property
    def checksummed(self) -> bool:
        """Whether a damaged file must be noticed."""
        return self.name.startswith("own")


def make_cases(folder: Path) -> list[Case]:
    cases = []
    for name, make in MAKERS.items():
        (folder / name).mkdir()
        written = make(folder / name)
        opened = open_checkpoint(written.path, config=written.config)
        cases.append(Case(name, written, opened.checkpoint))
    return cases


def make_trained_cases(folder: Path) -> list[Case]:
    """The shipped Phase 3 as four kinds of file."""
    original = load_checkpoint(next(path for path in checkpoints.shipped() if path.stem == "phase3"))
    weights = dict(original.weights)
    written = {
        "own .pt": write_own(folder, ".pt", original),
        "own .safetensors": write_own(folder, ".safetensors", original),
        "bare .pt": write_bare(folder, ".pt", OURS, weights),
        "bare .safetensors": write_bare(folder, ".safetensors", OURS, weights),
    }
    return [Case(name, each, original) for name, each in written.items()]


_SAME: set[str] = set()
"""Kinds of file of which one was damaged where it changes nothing, and classified."""


def classified(case: Case, opened: LoadedModel) -> None:
    """Phase 3 as before, unless the weights or the configuration really are others now."""
    ours, original = opened.checkpoint, case.original
    same = (ours.model_config, ours.task) == (original.model_config, original.task) and all(
        torch.equal(ours.weights[name], original.weights[name]) for name in original.weights
    )
    if same and case.name in _SAME:  # the same numbers have the same verdict
        return
    verdict = classify(ours)
    json.dumps(verdict.to_dict(), allow_nan=False)
    if same:
        assert verdict.phase.number == verdict.by_probes.phase.number == 3
        _SAME.add(case.name)
    else:
        assert not case.checksummed, "a damaged file of ours was opened"


def damaged(data: bytes, rng: random.Random) -> bytes:
    """A file with something changed; now and then the program inside a zip, whose checksum is then right."""
    if not data.startswith(b"PK") or rng.random() < 0.5:
        return mutated(data, rng)
    inside = rng.choice(["data.pkl", "data.pkl", "data.pkl", "data/1"])

    def change(name: str, content: bytes) -> tuple[str, bytes]:
        return name, mutated(content, rng) if name.endswith(inside) else content

    return rewritten_zip(data, change)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Flipped bits, a cut, a truncation or a splice; half of them near the ends, where the structure is."""
    result = bytearray(data)

    def place() -> int:
        edge = min(600, len(data))
        where = rng.choice(["any", "any", "start", "end"])
        if where == "any":
            return rng.randrange(len(data))
        return rng.randrange(edge) if where == "start" else len(data) - 1 - rng.randrange(edge)

    kind = rng.choice(["flip", "flip", "byte", "cut", "truncate", "splice", "repeat"])
    start, source, length = place(), place(), rng.randrange(1, 200)
    if kind == "flip":
        for _ in range(rng.choice([1, 1, 8])):
            result[place()] ^= 1 << rng.randrange(8)
    elif kind == "byte":
        result[start] = rng.randrange(256)
    elif kind == "cut":
        del result[start : start + length]
    elif kind == "truncate":
        del result[start:]
    elif kind == "splice":
        result[start : start + length] = data[source : source + length]
    else:
        result[start:start] = data[source : source + length]
    return bytes(result)


def must_be_whole(case: Case, opened: LoadedModel) -> None:
    """A file that is opened holds a whole checkpoint, and with a checksum exactly what was written."""
    check_whole(opened.checkpoint)
    if case.checksummed:
        ours, original = opened.checkpoint, case.original
        assert (ours.model_config, ours.task) == (original.model_config, original.task)
        assert ours.step == original.step
        assert all(torch.equal(ours.weights[name], original.weights[name]) for name in original.weights)


def fuzz(
    cases: list[Case], n: int, seed: int, judge: Callable[[Case, LoadedModel], None] = must_be_whole
) -> Iterator[tuple[str, str]]:
    """Damage one file after the other; give each case's name and `refused` or `opened`.

    Raises:
        AssertionError: an error of more than one line, a file that took too long, or the judge's verdict.
        Exception: any other than a ValueError goes through: it is what the fuzzer looks for.
    """
    for i in range(n):
        rng = random.Random(f"{seed} {i}")
        case = cases[i % len(cases)]
        weights, *others = case.written.files
        file = rng.choice(others) if others and rng.random() < 0.3 else weights
        data = file.read_bytes()
        try:
            file.write_bytes(damaged(data, rng))
            start, began = time.process_time(), time.monotonic()
            try:
                opened = open_checkpoint(case.written.path, config=case.written.config)
            finally:
                seconds, waited = time.process_time() - start, time.monotonic() - began
                slow = f"mutation {i} of seed {seed}, {case.name}: too slow"
                assert seconds < LONGEST, slow
                assert waited < LONGEST_WAIT, slow
            judge(case, opened)
            outcome = "opened"
        except ValueError as error:
            assert str(error).isprintable(), f"mutation {i} of seed {seed}: {error!r}"
            outcome = "refused"
        except BaseException as error:
            error.add_note(f"mutation {i} of seed {seed}, {case.name}, {file.name}")
            raise
        finally:
            file.write_bytes(data)
        yield case.name, outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--classify", action="store_true", help="classify what can be opened")
    options = parser.parse_args()
    make, judge = (make_trained_cases, classified) if options.classify else (make_cases, must_be_whole)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        outcomes = collections.Counter(fuzz(make(Path(folder)), options.n, options.seed, judge))
    for (name, outcome), count in sorted(outcomes.items()):
        print(f"{name:20s} {outcome:8s} {count}")
    print(f"{options.n} mutations in {time.monotonic() - start:.0f} s, none fell through")


if __name__ == "__main__":
    main()
