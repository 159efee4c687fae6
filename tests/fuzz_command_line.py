"""A seeded fuzzer: hostile values for every option must be refused in a few harmless lines, and at once.

By hand: `python tests/fuzz_command_line.py --n 5000 --seed 0`; with --deep, options of probes reach a probe
and `train --dry-run` its plan. Otherwise nothing is ever computed: each command line holds something that is
refused after all options were read.
"""

import argparse
import collections
import contextlib
import inspect
import random
import signal
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from typer.testing import CliRunner

from anchorlens.cli import app
from anchorlens.configuration import field_types
from anchorlens.recipes.run_config import part_classes
from anchorlens.training import checkpoints

COMMANDS = {str(one.name): one.callback for one in app.registered_commands if one.callback is not None}

LONGEST = 10.0
"""Seconds of computing that one command line may take; a busy machine does not count."""
LONGEST_WAIT = 60.0
"""Seconds altogether, so that one that waits for something is found too."""
MOST_LINES, MOST_CHARACTERS = 12, 3000
"""Of what is said on stderr; a usage error has a box around it."""
CODES = (0, 1, 2, 3, 4)
MISSING = "cuda:99"
"""A device that is refused after the configuration was read."""

NUMBERS = [
    "0",
    "-1",
    "1",
    "7",
    "00",
    "1_000",
    "0x10",
    "1e5",
    "1.5",
    ".5",
    "-0.0",
    "nan",
    "NaN",
    "inf",
    "-Infinity",
    "1e999999999",
    "-1e999999999",
    "1e-999999999",
    "1e30000000",
    "1e400",
    "1e-400",
    "5e-324",
    "1e308",
    "99999999999999999999",
    "170141183460469231731687303715884105728",
    "٣",
    "²",
    "+5",
    "-",
    "1e",
    "1,2",
    "true",
    "null",
    "None",
    "unset",
    "2147483648",
    "9223372036854775808",
    "18446744073709551616",
    "4294967296",
    "1000001",
]
RANGES = [
    "0:1e30",
    "0.1:0.9:1e-999999",
    "0:1:0",
    "1:0",
    "0:3",
    "0:1:0.1:5",
    ":",
    "::",
    "a:b",
    "0:1e999999999",
    "1e-999999:1",
    "nan:1",
    "0:inf:1",
    "0:99999999",
    "-1e400:1e400:1",
    "0:1:1e-30",
    ",,,",
    "1,2,3",
    "0:3,0:3",
    "0.3:0.8:0.05",
    "5:5",
    "-5:-1",
    "0:1e400",
    "1e400:2e400:1e400",
]
JSON = [
    "{}",
    "[]",
    "null",
    "true",
    "1",
    "1.5",
    '"x"',
    "[1,2]",
    "[[1,2],[3,4]]",
    '{"1":5}',
    '{"1":1e999}',
    '{"1":NaN}',
    '{"1,2":{"20":1.5}}',
    '{"a":1}',
    '{"1":{"20":21}}',
    '{"3,4":-6}',
    '{"1":null,"2":[]}',
    '{"1":99999999999999999999999999999}',
    "[[1]]",
    "[null]",
    "{",
    "]",
]
TEXTS = [
    "",
    " ",
    "\x00",
    "\x1b[31mred\x07",
    "a\nb",
    "\udcff",
    "‮x",
    "😀",
    "../..",
    "--",
    "-",
    "/",
    "/proc/self/mem",
    "/dev/zero",
    "/dev/full",
    ".",
    "a" * 300,
    "{" * 3,
    "%s%n",
    "[red]x[/red]",
    ":smile:",
    "quick",
    "cpu",
    "cuda",
    "cuda:99999999999999999999",
    "mps",
    "meta",
    "tcp://",
    "serial",
    "local",
    "slurm",
    "gamma",
    "seed",
    "x.csv",
    "x.parquet",
    "x.html",
    "x.toml",
    "/proc/1/root/x",
    "file/under/file",
]
LONG = [
    "9" * 30,
    "9" * 5000,
    "-" + "9" * 31,
    "0." + "9" * 5000,
    "x" * 100_000,
    "[" * 100_000,
    "0," * 50_000,
    '{"a":' * 20_000,
    "1" * 4301,
    "1:" * 5000,
    "é" * 5000,
]


class TooSlow(BaseException):
    """A command line took too long; it goes through every `except Exception`."""


@contextlib.contextmanager
def in_time() -> Iterator[None]:
    """Raise where what is inside computes or waits for too long."""

    def late(*_: object) -> None:
        raise TooSlow

    timers = (
        (signal.SIGPROF, signal.ITIMER_PROF, LONGEST),
        (signal.SIGALRM, signal.ITIMER_REAL, LONGEST_WAIT),
    )
    before = [signal.signal(number, late) for number, _, _ in timers]
    for _, timer, seconds in timers:
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for _, timer, _ in timers:
            signal.setitimer(timer, 0)
        for (number, _, _), handler in zip(timers, before, strict=True):
            signal.signal(number, handler)


def value(rng: random.Random) -> str:
    """Something hostile, or harmless, or a splice of two."""
    kind = rng.choice([NUMBERS, NUMBERS, RANGES, JSON, TEXTS, LONG])
    text = rng.choice(kind)
    if rng.random() < 0.15:
        text += rng.choice(rng.choice([NUMBERS, RANGES, TEXTS]))
    if rng.random() < 0.1:
        text = str(rng.choice([-1, 1]) * rng.getrandbits(rng.choice([8, 31, 64, 200, 3000])))
    return text


def options_of(command: str) -> list[str]:
    """The flags of a command that take a value."""
    parameters = inspect.signature(COMMANDS[command], eval_str=True).parameters.values()
    names = [p.name for p in parameters if "bool" not in str(p.annotation).split(",")[0]]
    if getattr(COMMANDS[command], "field_options", None):
        types = {name: kinds for _, cls in part_classes() for name, kinds in field_types(cls).items()}
        names += ["task", *(name for name, kinds in types.items() if command == "sweep" or bool not in kinds)]
    arguments = {"ctx", "checkpoint", "checkpoints", "dataset", "name", "run", "sweep"} | (
        {"out"} if command == "status" else set()
    )
    renamed = {"own": "probes", "as_json": "json"}
    return [f"--{renamed.get(n, n).replace('_', '-')}" for n in names if n not in arguments]


class Files:
    """Paths that a command may be given: hostile ones, and one good checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.checkpoint = next(str(path) for path in checkpoints.shipped() if path.stem == "phase3")
        contents = {
            "deep.json": "[" * 200_000,
            "deep.toml": "a = " + "[" * 200_000,
            "wide.toml": "[a" + ".a" * 20_000 + "]",
            "big.toml": "[train]\nseed = " + "9" * 5000,
            "nan.toml": "[model]\ngamma = nan",
            "empty.toml": "",
            "part.toml": "[nothing]\nx = 1",
            "list.toml": "task = [1]",
            "sweep.toml": "sweep = 3",
            "huge.toml": "[train]\nsteps = 123456789012345678901234567890",
            "preset.toml": "preset = ['x']",
            "task.toml": "[task]\nkey_max = 10000000\nseq_len = 100000",
            "long.toml": f"{'k' * 100_000} = 1",
            "axes.toml": "[sweep]\ngamma = '0:1e30'\nseed = [1e300]",
            "binary.csv": "\x00\x01",
            "rows.csv": "key,a1,a2,target\n",
            "wide.csv": "a," * 40_000,
            "quotes.csv": '"' * 999,
            "probe.py": "raise RuntimeError('\x1b[31m' * 10_000)",
            "syntax.py": "(" * 1000,
        }
        for name, content in contents.items():
            (folder / name).write_text(content)
        (folder / "loop").symlink_to(folder / "loop")
        (folder / "folder.pt").mkdir()
        self.hostile = [
            *(str(folder / name) for name in contents),
            str(folder / "loop"),
            str(folder / "folder.pt"),
            str(folder / "deep.json" / "x"),
            str(folder / ("n" * 300)),
            str(folder / "b\udcffd"),
            str(folder),
            "/dev/zero",
            "/dev/null",
            "/proc/self/mem",
            "\x00",
            "",
        ]

    def path(self, rng: random.Random) -> str:
        return rng.choice(self.hostile) if rng.random() < 0.7 else value(rng)


PATHS = ("--config", "--out", "--plot", "--report", "--table", "--probes", "--initial")


def command_line(rng: random.Random, files: Files, deep: bool) -> list[str]:
    """One command with one to three hostile options, and something that keeps it from computing."""
    command = rng.choice([name for name in COMMANDS if name != "demo"])
    given: dict[str, str] = {}
    for flag in rng.sample(options_of(command), k=min(len(options_of(command)), rng.choice([1, 1, 1, 2, 3]))):
        given[flag] = files.path(rng) if flag in PATHS and rng.random() < 0.8 else value(rng)
    arguments: list[str] = []
    if command in ("train", "sweep"):
        if not (deep and command == "train"):
            given["--device"] = given.get("--device", MISSING)
            if given["--device"] in ("auto", "cpu", "cuda", "cuda:0"):
                given["--device"] = MISSING
        arguments = ["--dry-run"]
    elif command in ("evaluate", "classify", "probe"):
        good = files.checkpoint if rng.random() < 0.7 else files.path(rng)
        if command == "probe":
            from anchorlens.probes import SHIPPED

            probe = rng.choice(SHIPPED)
            arguments = [probe.__name__ if rng.random() < 0.9 else value(rng)]
            if rng.random() < 0.6:
                option = rng.choice(list(inspect.signature(probe).parameters)[2:] or ["x"])
                text = value(rng) if rng.random() < 0.5 else f'"{rng.choice(TEXTS)}"'
                given["--options"] = f'{{"{option}": {text}}}'
        arguments.append(good)
        if command == "classify" and rng.random() < 0.3:
            arguments.append(files.path(rng))
        if not deep or command != "probe":
            given["--device"] = MISSING if rng.random() < 0.9 else f"{MISSING}{rng.choice(TEXTS)}"
    elif command == "audit":
        arguments = [files.path(rng)] if rng.random() < 0.4 else []
        stop = "--seeds" if "--workers" in given else "--workers"
        given[stop] = "0"
        given.pop("--out", None)
    else:
        arguments = [files.path(rng)]
    return [command, *(f"{flag}={text}" for flag, text in given.items()), "--", *arguments][
        : None if "--dry-run" not in arguments else -2
    ] + (["--dry-run"] if "--dry-run" in arguments else [])


def fuzz(n: int, seed: int, *, deep: bool = False, keep_on: bool = False) -> Iterator[tuple[str, int]]:
    """Run one command line after the other; give each command and its exit code.

    Raises:
        AssertionError: a traceback, another exit code, or an error that is long or not printable.
    """
    runner = CliRunner()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        files = Files(Path(folder))
        for i in range(n):
            arguments = command_line(random.Random(f"{seed} {i}"), files, deep)
            where = f"case {i} of seed {seed}: {str([a[:80] for a in arguments])}"
            try:
                with in_time():
                    done = runner.invoke(app, arguments)
                check(done, where)
            except (TooSlow, AssertionError) as error:
                if not keep_on:
                    raise AssertionError(f"{where}: {error!r}") from error
                print(f"{where}\n    {type(error).__name__} {str(error)[:1500]}\n", flush=True)
                continue
            yield arguments[0], done.exit_code


def check(done: object, where: str) -> None:
    exception = done.exception  # pyright: ignore[reportAttributeAccessIssue]
    if exception is not None and not isinstance(exception, SystemExit):
        trace = "".join(traceback.format_exception(exception)[-3:])
        raise AssertionError(f"{type(exception).__name__}: {str(exception)[:200]}\n{trace[-1200:]}")
    code, said = done.exit_code, done.stderr  # pyright: ignore[reportAttributeAccessIssue]
    assert code in CODES, f"exit code {code}"
    if code == 0:
        return
    assert said.strip(), "nothing is said"
    assert "Traceback" not in said, said[:500]
    lines = said.rstrip("\n").split("\n")
    assert len(lines) <= MOST_LINES and len(said) <= MOST_CHARACTERS, (
        f"{len(lines)} lines, {len(said)} characters: {said[:300]!r}"
    )
    assert all(line.isprintable() for line in lines), f"not printable: {said[:300]!r}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--deep", action="store_true", help="let probes and plans compute")
    parser.add_argument("--keep-on", action="store_true", help="print what falls through, and go on")
    options = parser.parse_args()
    start = time.monotonic()
    outcomes = collections.Counter(fuzz(options.n, options.seed, deep=options.deep, keep_on=options.keep_on))
    for (name, code), count in sorted(outcomes.items()):
        print(f"{name:10s} exit code {code}  {count}")
    fallen = options.n - sum(outcomes.values())
    print(f"{options.n} command lines in {time.monotonic() - start:.0f} s, {fallen or 'none'} fell through")


if __name__ == "__main__":
    main()
