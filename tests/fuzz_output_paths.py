"""A seeded fuzzer of the paths that are written: devices, pipes, links, inputs, folders, odd names.

By hand: `python tests/fuzz_output_paths.py --n 2000 --seed 0`. Each case puts something where a page, a
picture, a table or a checkpoint is to be written. Where that was nothing, an ordinary file that is not read,
or a link to either, a new file is there afterwards. All else is refused in one printable line. Nothing else
changes.
"""

import argparse
import collections
import contextlib
import os
import random
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from known_cells import cell
from typer.testing import CliRunner

from anchorlens import (
    AnchorTask,
    Checkpoint,
    ModelConfig,
    TrainConfig,
    build_model,
    plots,
    save_checkpoint,
)
from anchorlens.cli import app
from anchorlens.extras.audit import audit
from anchorlens.extras.sweep import write_table
from anchorlens.extras.sweep.cells import SweepResult
from anchorlens.extras.sweep.diagram.page import write_diagram
from anchorlens.files.container import SUFFIXES
from anchorlens.files.writing import PAGES, PICTURES, SUMMARIES
from anchorlens.probes import stable_rank
from anchorlens.show import write_report
from anchorlens.verdict import classify

TINY = ModelConfig(n_layers=1, d_model=16, d_head=8, d_mlp=16)
INPUTS = ("read.pt", "read.html", "read.csv", "read.toml")
"""Files that the commands are given to read."""
NAMES = ["out", "a b", "-x", "--", "é", "\x1b[31mred", "a\nb", "b\udcffd", "a.tar", ".hidden", "[red]x"]
OTHERS = ["", ".HTML", ".html.", ".pt.html.txt", ".htm", ".html ", ".json", ".html~"]


class Writer(NamedTuple):
    """Something that writes one file."""

    write: Callable[[Path], Any]
    suffixes: tuple[str, ...]
    """What its name may end in."""
    reads: tuple[str, ...] = ()
    """Of the inputs those that it is told to read."""


def command(*arguments: str) -> Callable[[Path], None]:
    """A command that writes, PATH its output; where it is refused the same error as in Python."""

    def write(path: Path) -> None:
        given = [argument.replace("PATH", str(path)) for argument in arguments]
        done = CliRunner().invoke(app, given)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        if done.exit_code:
            assert done.exit_code in (1, 2, 3) and "Traceback" not in done.stderr, done.stderr
            raise ValueError(done.stderr.removesuffix("\n"))

    return write


def make_writers() -> dict[str, Writer]:
    """Everything that writes a file, working on `INPUTS` in the current folder.

    A command is refused before it measures, or ends in the wrong device or in one step where it is not.
    """
    checkpoint = Checkpoint.from_model(
        build_model(TINY), TINY, AnchorTask(), train_config=TrainConfig(steps=1)
    )
    save_checkpoint("read.pt", checkpoint)
    shutil.copy("read.pt", "read.html")  # what a file is, is told by its content
    Path("read.csv").write_text("key,a1,a2,target\n" + "".join(f"{k},1,2,{k + 1}\n" for k in range(20, 60)))
    Path("read.toml").write_text("[task]\nkey_max = 30\n")
    verdict = classify("read.html")
    figure = stable_rank(build_model(TINY)).plot()
    cells = SweepResult(Path("s"), (cell("3"), cell("1", gamma=0.9)))
    found = audit(
        AnchorTask(key_max=30),
        model_config=TINY,
        train_config=TrainConfig(steps=1, n_samples=600),
        seeds=[0],
        n_evaluations=1,
        workers=1,
        progress=False,
    )
    small = ["--steps=1", "--n-samples=600", "--seeds=1", "--workers=1"]
    return {
        "write_report": Writer(
            lambda path: write_report([verdict], path, probes=[stable_rank]), PAGES, ("read.html",)
        ),
        "Verdict.report": Writer(lambda path: verdict.report(path, probes=[]), PAGES, ("read.html",)),
        "Verdict.summary": Writer(verdict.summary, SUMMARIES, ("read.html",)),
        "write_diagram": Writer(lambda path: write_diagram(cells, path, progress=False), PAGES),
        "SweepResult.diagram": Writer(lambda path: cells.diagram(path, progress=False), PAGES),
        "write_table": Writer(lambda path: write_table(cells, path), (".csv", ".parquet")),
        "SweepResult.table": Writer(cells.table, (".csv", ".parquet")),
        "Audit.table": Writer(found.table, (".csv",)),
        "plots.save": Writer(lambda path: plots.save(figure, path), PICTURES[:1]),
        "save_checkpoint": Writer(lambda path: save_checkpoint(path, checkpoint), SUFFIXES),
        "probe --plot": Writer(
            command("probe", "stable_rank", "read.html", "--plot=PATH"), PICTURES[:1], ("read.html",)
        ),
        "probe --initial --plot": Writer(
            command("probe", "training_regime", "read.pt", "--initial=read.html", "--plot=PATH"),
            PICTURES[:1],
            ("read.pt", "read.html"),
        ),
        "classify --report": Writer(
            command("classify", "read.pt", "read.html", "--report=PATH"), PAGES, ("read.pt", "read.html")
        ),
        "audit --plot": Writer(
            command("audit", "read.csv", "--plot=PATH", *small), PICTURES[:1], ("read.csv",)
        ),
    }


SLOW = ("Verdict.summary", "classify --report", "audit --plot")
"""What takes seconds where it is not refused."""


def put(kind: str, path: Path, rng: random.Random) -> None:
    """Put something under a name."""
    there = path.with_name("there")
    if kind.startswith("link to "):
        put(kind.removeprefix("link to "), there, rng)
        path.symlink_to(rng.choice([there, there.name]))
    elif kind == "file":
        path.write_text("before")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    elif kind == "device":
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))  # as /dev/null
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind in INPUTS:
        rng.choice([os.link, os.symlink])(Path(kind).resolve(), path)
    else:
        assert kind in ("nothing", "no folder", "below a file"), kind


KINDS = [
    "nothing",
    "file",
    "pipe",
    "socket",
    "device",
    "folder",
    "loop",
    "no folder",
    "below a file",
    *INPUTS,
]
KINDS += [f"link to {kind}" for kind in ("nothing", "file", "pipe", "socket", "device", "folder", "loop")]
WRITTEN = ("nothing", "file", "link to nothing", "link to file", *INPUTS)
"""What may be replaced, where it is not read; of a link and of another name of an input that alone."""


def looks(folder: Path) -> dict[str, Any]:
    """Path -> what is there, links not followed."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = None
        if path.is_symlink():
            content = os.readlink(path)
        elif stat.S_ISREG(status.st_mode):
            content = path.read_bytes()
        found[str(path)] = (stat.S_IFMT(status.st_mode), status.st_rdev, content)
    return found


def fuzz(n: int, seed: int, *, quick: bool = False) -> Iterator[tuple[str, str]]:
    """Write to one path after the other; give each writer's name and `written` or `refused`.

    Args:
        n: cases.
        seed: of what they are.
        quick: of the commands that take seconds, only cases that are refused.

    Raises:
        AssertionError: another file than the one named changed, or something that is no file was replaced.
        Exception: any but a ValueError or an error of the disk goes through: it is what is looked for.
    """
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        writers = make_writers()
        kinds = KINDS if os.geteuid() == 0 else [kind for kind in KINDS if "device" not in kind]
        for i in range(n):
            rng = random.Random(f"{seed} {i}")
            name, writer = list(writers.items())[i % len(writers)]
            kind, fits = rng.choice(kinds), rng.random() < 0.85
            suffix = rng.choice(writer.suffixes if fits else OTHERS)
            may = fits and kind in WRITTEN and kind not in writer.reads
            if quick and may and name in SLOW:
                continue
            folder = Path("case").resolve()
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            path = folder / (rng.choice(NAMES) + suffix)
            if kind == "no folder":
                path = folder / "none" / path.name
            elif kind == "below a file":
                (folder / "file").write_text("before")
                path = folder / "file" / path.name
            put(kind, path, rng)
            before, where = looks(Path.cwd()), f"case {i} of seed {seed}: {name}, {kind}, {path.name!r}"
            try:
                writer.write(path)
                outcome = "written"
            except (ValueError, OSError) as error:
                said = str(error)
                assert name in ("save_checkpoint",) or isinstance(error, ValueError), f"{where}: {error!r}"
                assert said.isprintable() and len(said) < 1200, f"{where}: {error!r}"
                outcome = "refused"
            after = looks(Path.cwd())
            assert outcome == ("written" if may else "refused"), where
            changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
            assert changed <= ({str(path)} if may else set()), f"{where}: {changed}"
            if may:
                assert stat.S_ISREG(path.lstat().st_mode) and path.stat().st_size > 100, where
            yield name, outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="leave out what takes seconds")
    options = parser.parse_args()
    start = time.monotonic()
    outcomes = collections.Counter(fuzz(options.n, options.seed, quick=options.quick))
    for (name, outcome), count in sorted(outcomes.items()):
        print(f"{name:24s} {outcome:8s} {count}")
    print(f"{sum(outcomes.values())} cases in {time.monotonic() - start:.0f} s, none fell through")


if __name__ == "__main__":
    main()
