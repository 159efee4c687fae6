"""A seeded fuzzer of what stands beside weights: headers, configurations, folders of runs and of sweeps.

By hand: `python tests/fuzz_folders.py --n 10000 --seed 0`. Each case puts something hostile somewhere into
one valid file (a value of its JSON or TOML, or its bytes), reads it as a user would, and must end in what was
asked or in one printable line: no other error, no more than 10 s of computing, and over all cases no more
memory than 300 MB beyond what the libraries take.
"""

import argparse
import collections
import copy
import io
import itertools
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from foreign_checkpoints import write_bare, write_hugging_face, write_own, write_released
from fuzz_checkpoints import LONGEST, LONGEST_WAIT, mutated
from hard_linked import hard_linked
from malicious_files import _peak
from rich.console import Console
from sweeping import tiny

from anchorlens import train
from anchorlens.extras.sweep import open_sweep, sweep, write_table
from anchorlens.extras.sweep import terminal as printing
from anchorlens.extras.sweep.diagram.page import diagram_html
from anchorlens.files import container
from anchorlens.files.importers import open_checkpoint
from anchorlens.training.run_folder import read_log, stored_run

MOST_MEGABYTES = 300
PAGES = 10
N_LINKED = 20
"""Cells of the sweep whose cell.json are one file."""
DEEP: Any = 1
for _ in range(40):
    DEEP = [DEEP]
HOSTILE: list[Any] = [
    None, True, False, "", "x", "x" * 5000, "\x1b]52;c;aGk=\x07", "a\nb", "‮", ":smile:", "3", "nan", "auto",
    0, -1, 1, 2, 7, 1000, 10**5, 10**6, 10**9, 2**63, -(2**63), 10**29, 10**31, 10**400,
    0.5, -0.0, 1e-300, 1e300, [], [1], [[1, 2]], list(range(1000)), {}, {"a": 1}, {"": None}, DEEP,
    {str(k): k for k in range(2000)}, {"3,4": -6}, [[3, 4], [4, 3]], ["x"] * 50,
    ["x"] * 40_000, {str(k): "y" * 100 for k in range(2500)}, "x" * 300_000,
]  # fmt: skip


def tree_changed(content: Any, rng: random.Random) -> Any:
    """A JSON value with one to three places changed: replaced, removed, added or scaled."""
    content = copy.deepcopy(content)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        places = list(_places(content))
        if not places:
            return rng.choice(HOSTILE)
        owner, key = rng.choice(places)
        kind = rng.random()
        if kind < 0.15:
            del owner[key]
        elif kind < 0.25 and isinstance(owner, dict):
            owner[rng.choice(["x", "", "a" * 300, "\x1b", key])] = rng.choice(HOSTILE)
        elif kind < 0.45 and isinstance(owner[key], int | float):
            owner[key] = owner[key] * rng.choice([-1, 10, 100, 1000, 10**6])
        else:
            owner[key] = copy.deepcopy(rng.choice(HOSTILE))
    return content


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) of a JSON value."""
    entries = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in list(entries):
        yield content, key
        if isinstance(value, dict | list):
            yield from _places(value)


def text_changed(text: str, rng: random.Random) -> bytes:
    """A JSON text with a place changed, or its bytes; now and then with numbers that JSON does not have."""
    kind = rng.random()
    if kind < 0.2:
        return mutated(text.encode(), rng)
    if kind < 0.25:
        return text.encode().replace(b"1", rng.choice([b"NaN", b"1e999", b"-Infinity", b"9" * 5000]), 1)
    return json.dumps(tree_changed(json.loads(text), rng)).encode()


class Target:
    """One valid file, and what reads it."""

    def __init__(self, name: str, file: Path, read: Callable[[], object]) -> None:
        self.name, self.file, self.read = name, file, read
        self.data = file.read_bytes()

    def damaged(self, rng: random.Random) -> bytes:
        if self.file.suffix == ".toml":
            return mutated(self.data, rng)
        if self.file.suffix in (".pt", ".safetensors"):  # a header of ours, its checksum right
            header, tensors = container.read(self.file)
            container.write(self.file, tree_changed(header, rng), tensors)
            return self.file.read_bytes()
        if self.file.suffix == ".jsonl":
            lines = self.data.decode().splitlines()
            k = rng.randrange(len(lines))
            return b"\n".join(
                text_changed(line, rng) if i == k else line.encode() for i, line in enumerate(lines)
            )
        return text_changed(self.data.decode(), rng)


def make_targets(folder: Path) -> list[Target]:
    """Files of every kind, in a folder."""

    def inside(name: str) -> Path:
        (folder / name).mkdir()
        return folder / name

    def opening(written: Any) -> Callable[[], object]:
        return lambda: open_checkpoint(written.path, config=written.config)

    found = []
    for suffix in (".pt", ".safetensors"):
        own = write_own(inside(f"own{suffix}"), suffix)
        found.append(Target(f"header of {suffix}", own.path, opening(own)))
    for name, make in (
        ("bare", write_bare),
        ("released", write_released),
        ("Hugging Face", write_hugging_face),
    ):
        written = make(inside(name))
        found.append(Target(f"configuration of {name}", written.files[1], opening(written)))
    run = folder / "run"
    train(*tiny({"seed": [0]})[0], out=run)
    found.append(
        Target("run: config.json", run / "config.json", lambda: (stored_run(run), open_checkpoint(run)))
    )
    found.append(Target("run: log.jsonl", run / "log.jsonl", lambda: read_log(run / "log.jsonl")))
    out = folder / "sweep"
    cells = sweep(tiny({"seed": [0, 1], "gamma": [0.4, 0.8]}), out, engine="serial", progress=False).cells
    failed = out / "failed" / f"{cells[3].id}.json"
    failed.parent.mkdir(exist_ok=True)
    failure = {"format": "anchorlens failed cell", "format_version": 1, "id": cells[3].id}
    failed.write_text(json.dumps({**failure, "error": "an error", "details": "line\nline"}))
    (out / "cells" / cells[3].id).rename(folder / "kept")
    files = {"sweep.json": out / "sweep.json", "failed": failed, "log": cells[0].path / "log.jsonl"}
    files["cell.json"] = cells[0].path / "cell.json"
    counter = itertools.count()
    found += [
        Target(f"sweep: {name}", file, lambda: safe_repr(out, page=next(counter) % PAGES == 0))
        for name, file in files.items()
    ]
    linked = folder / "linked"
    hard_linked(linked, files["cell.json"].read_bytes(), N_LINKED)
    one = next((linked / "cells").iterdir()) / "cell.json"
    return [*found, Target("hard links: cell.json", one, lambda: safe_repr(linked, page=False))]


def safe_repr(out: Path, *, page: bool) -> None:
    """What `status` and `diagram --table` show of a sweep; nothing of it may steer a terminal.

    Args:
        out: the sweep's folder.
        page: whether to make the page too, which takes most of the time.
    """
    result = open_sweep(out)
    written = io.StringIO()
    terminal = printing.Terminal
    printing.Terminal = lambda: terminal(file=written, width=200)
    try:
        printing.print_sweep(result)
        printing.print_sweep(result, cells=True)
    finally:
        printing.Terminal = terminal
    assert isinstance(terminal(), Console)
    text = written.getvalue()
    assert all(line.isprintable() for line in text.split("\n")), repr(text)
    if result.cells:
        json.dumps([cell.row() for cell in result], allow_nan=False)
        write_table(result, out / "cells.csv")
        if page:
            html = diagram_html(result)
            assert "\x1b" not in html and "\x07" not in html


def fuzz(targets: list[Target], n: int, seed: int) -> Iterator[tuple[str, str]]:
    """Change one file after the other; give each case's name and `refused` or `read`.

    Raises:
        AssertionError: an error of more than one line, or a case that took too long.
        Exception: any other than a ValueError goes through: it is what the fuzzer looks for.
    """
    for i in range(n):
        rng = random.Random(f"{seed} {i}")
        target = targets[i % len(targets)]
        start, began = time.process_time(), time.monotonic()
        try:
            target.file.write_bytes(target.damaged(rng))
            target.read()
            outcome = "read"
        except ValueError as error:
            assert str(error).isprintable() and len(str(error)) < 3000, f"case {i} of seed {seed}: {error!r}"
            outcome = "refused"
        except BaseException as error:
            error.add_note(f"case {i} of seed {seed}: {target.name}")
            raise
        finally:
            target.file.write_bytes(target.data)
        slow = f"case {i} of seed {seed}, {target.name}: too slow"
        assert time.process_time() - start < LONGEST, slow
        assert time.monotonic() - began < LONGEST_WAIT, slow
        yield target.name, outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        targets = make_targets(Path(folder))
        for target in targets:
            target.read()
        before = _peak()
        outcomes = collections.Counter(fuzz(targets, options.n, options.seed))
        grown = _peak() - before
    for (name, outcome), count in sorted(outcomes.items()):
        print(f"{name:32s} {outcome:8s} {count}")
    seconds = time.monotonic() - start
    print(f"{options.n} cases in {seconds:.0f} s, none fell through; {grown:.0f} MB more at most")
    assert grown < MOST_MEGABYTES


if __name__ == "__main__":
    main()
