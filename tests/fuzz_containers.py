"""A seeded fuzzer of containers: small files whose lists, dicts and texts are deep, wide, long or shared.

Each file is a valid checkpoint or valid training data with one field replaced, and is opened in a process of
its own, which may take a second of processor and 200 MB for each 10 kB of the file. By hand:
`python tests/fuzz_containers.py --n 1000 --seed 0` prints the files that take more.
"""

import argparse
import collections
import os
import random
import resource
import struct
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import torch
from foreign_checkpoints import rewritten_zip, write_nano
from published_runs import network, transposed

from anchorlens.files.importers import open_checkpoint
from anchorlens.files.training_data import read_training_data

SECONDS, MEGABYTES, KILOBYTES = 1.0, 200, 10
"""The bounds of a file of so many kilobytes or less; those of a larger file grow with its size."""
LONGEST = 5000
"""The largest number of characters of a line that is shown."""
HERE = "the value that is replaced"
FIRST_MEMO = 10**6
P = 5


def text(content: str) -> bytes:
    data = content.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def put(number: int) -> bytes:
    return b"r" + struct.pack("<I", FIRST_MEMO + number)


def get(number: int) -> bytes:
    return b"j" + struct.pack("<I", FIRST_MEMO + number)


def shared(rng: random.Random) -> bytes:
    """Lists, tuples or dicts, each with several times the one before it."""
    width, levels = rng.choice([(2, 60), (10, 12), (20, 6), (1000, 3), (1000, 2), (30_000, 2)])
    opened, closed = rng.choice([(b"](", b"e"), (b"(", b"t"), (b"}(", b"u")])
    program = text("lol" * rng.choice([1, 300])) + put(0)
    for level in range(levels):
        items = [program, *[get(level)] * (width - 1)]
        keys = [text(f"{k}") if closed == b"u" else b"" for k in range(width)]
        together = b"".join(key + item for key, item in zip(keys, items, strict=True))
        program = opened + together + closed + put(level + 1)
    return program


def deep(rng: random.Random) -> bytes:
    n = rng.choice([70, 2000, 40_000])
    return rng.choice([b"]" * n + b"a" * (n - 1), b")" + b"\x85" * n, nested_dicts(n)])


def nested_dicts(n: int) -> bytes:
    return (b"}" + text("a")) * n + b"N" + b"s" * n


def long(rng: random.Random) -> bytes:
    """A long text, number, name of a class, path, or list."""
    n = rng.choice([1000, 100_000])
    dotted = ".".join("a" * (n // 2)).encode()
    path = b"cpathlib\nPosixPath\n(" + text("a/" * 10) * (n // 50) + b"tR"
    number = b"\x8a\xff" + b"\x7f" * 255
    many = b"](" + b"K\x01" * n + b"e"
    return rng.choice([text("x" * n), number, b"c" + dotted + b"\nA\n", path, many, text("\x1b" * n)])


def in_itself(rng: random.Random) -> bytes:
    return rng.choice([b"]" + put(0) + get(0) + b"a", b"}" + put(0) + text("a") + get(0) + b"s"])


SHAPES = (shared, deep, long, in_itself)


def run_with(**fields: object) -> dict[str, object]:
    """A run of modular arithmetic in one file, with these fields."""
    config = {"p": P, "fn_name": "add", "act_fn": "relu"} | fields.pop("config", {})
    pairs = list(range(0, P * P, 2))
    return {"model": transposed(network()), "config": config, "train_indices": pairs} | fields


def with_fields(content: dict[str, object]) -> Iterator[dict[str, object]]:
    """The content with each of its values replaced, and with a field more."""
    for name in (*content, "more"):
        yield content | {name: HERE}


HOOKED = {"d_model": 8, "n_layers": 1, "n_ctx": 3, "normalization_type": None, "act_fn": "relu", "n_heads": 1}


def contents() -> Iterator[dict[str, object]]:
    """Files, in each of which one field is to be replaced."""
    yield from with_fields(run_with())
    names = ("p", "fn_name", "act_fn", "attn_coeff", "operation", "diff_vocab", *HOOKED, "vocabulary", "task")
    for name in names:
        yield run_with(config={name: HERE})
        yield run_with(config=HOOKED | {name: HERE})
    for name in ("checkpoints", "checkpoint_epochs", "train_losses", "test_losses", "epoch", "cfg"):
        more = {"checkpoints": [transposed(network())] * 2, "checkpoint_epochs": [0, 10]}
        yield run_with(**(more | {name: HERE}))
    with tempfile.TemporaryDirectory() as folder:
        nano = torch.load(write_nano(Path(folder)).path)
    yield from with_fields(nano)
    for args in with_fields(nano["model_args"]):
        yield nano | {"model_args": args}
    yield from with_fields({"tokens": torch.zeros(4, 3, dtype=torch.int64), "targets": torch.zeros(4)})


def hostile_file(rng: random.Random, content: dict[str, object], path: Path) -> str:
    """Write a file whose field is a hostile container, and return the kind of the container."""
    torch.save(content, path)
    shape = rng.choice(SHAPES)
    value = shape(rng)
    placeholder = text(HERE)

    def change(name: str, data: bytes) -> tuple[str, bytes]:
        return name, data.replace(placeholder, value) if name.endswith("data.pkl") else data

    path.write_bytes(rewritten_zip(path.read_bytes(), change, zipfile.ZIP_STORED))
    return shape.__name__


def cost_of(path: Path) -> tuple[str, float, float, int]:
    """Open a file in a process of its own: what came of it, the seconds, the megabytes, the longest text."""
    size = max(1.0, path.stat().st_size / (1000 * KILOBYTES))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        limit = psutil.Process().memory_info().vms + int(2 * MEGABYTES * size * 1e6)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        seconds = int(2 * SECONDS * size) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        try:
            before = psutil.Process().memory_info().rss
            said = opened(path)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            os.write(writer, f"{said[0]} {max(0, peak - before)} {said[1]}".encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as words:
        outcome, n_bytes, longest = (words.read() or "killed 0 0").split()
    _, _, usage = os.wait4(child, 0)
    seconds = usage.ru_utime + usage.ru_stime
    return outcome, seconds / size, int(n_bytes) / 1e6 / size, int(longest)


def opened(path: Path) -> tuple[str, int]:
    """Open a file as a checkpoint and as training data, and show all that it says."""
    texts = []
    outcome = "refused"
    for read in (open_checkpoint, read_training_data):
        try:
            found = read(path)
            outcome = "opened"
            texts += [repr(found), *getattr(found, "notes", ())]
        except ValueError as error:
            texts.append(str(error))
        except MemoryError:
            return "memory", 0
        except Exception as error:
            return type(error).__name__, 0
    return outcome, max(map(len, texts))


def fuzz(folder: Path, *, n: int, seed: int) -> Iterator[tuple[str, str, tuple[str, float, float, int]]]:
    """Yield the kind of container, the field, and the cost of each of `n` files."""
    rng, files = random.Random(seed), list(contents())
    cost_of(Path(write_nano(folder).path))
    opened(folder / "ckpt.pt")  # so that the processes import nothing any more
    for _ in range(n):
        content, path = rng.choice(files), folder / "hostile.pt"
        kind = hostile_file(rng, content, path)
        yield kind, str([name for name in content if content[name] is HERE]), cost_of(path)


def too_much(cost: tuple[str, float, float, int]) -> bool:
    outcome, seconds, megabytes, longest = cost
    return (
        outcome not in ("opened", "refused") or seconds > SECONDS or megabytes > MEGABYTES or longest > 5000
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    outcomes: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        for kind, field, cost in fuzz(Path(folder), n=given.n, seed=given.seed):
            outcomes[cost[0]] += 1
            if too_much(cost):
                print(kind, field, *cost, file=sys.stderr)
    print(dict(outcomes))


if __name__ == "__main__":
    main()
