"""What cannot be read: one line each, the others go on, and the documented exit code."""

import functools
import json
import os
import shutil
import sys
from pathlib import Path

import forked
import pytest
from anchorlens_command import call
from fuzz_command_line import in_time

from anchorlens.training import checkpoints

GOOD = next(path for path in checkpoints.shipped() if path.stem == "phase3")


@pytest.fixture
def unreadable(tmp_path):
    """Paths that no system call reads, whoever asks: root too."""
    (tmp_path / "loop.pt").symlink_to(tmp_path / "loop.pt")
    (tmp_path / "file").write_text("x")
    return [
        tmp_path / "loop.pt",
        tmp_path / ("n" * 300),
        tmp_path / "file" / "inside.pt",
        tmp_path / "missing.pt",
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\x1b.pt")),
        Path("/dev/zero"),
    ]


run = functools.partial(call, code=None)


def is_one_line(said):
    return (
        said.count("\n") == 1
        and said.startswith("anchorlens: ")
        and said[:-1].isprintable()
        and len(said) < 600
    )


@pytest.mark.parametrize("command", [["evaluate"], ["probe", "stable_rank"], ["classify"]])
def test_a_checkpoint_that_cannot_be_read_is_exit_code_3(unreadable, command):
    for path in unreadable:
        done = run(*command, path)
        assert done.exit_code == 3 and is_one_line(done.stderr), (path, done.stderr)


@pytest.mark.parametrize("command", [["status"], ["diagram"]])
def test_a_sweep_that_cannot_be_read_is_one_line(unreadable, command):
    for path in unreadable:
        done = run(*command, path)
        assert done.exit_code in (2, 3) and is_one_line(done.stderr), (path, done.stderr)


def test_another_file_that_cannot_be_read_is_a_usage_error(unreadable, tmp_path):
    for path in unreadable:
        for arguments in (
            ["audit", path],
            ["audit", path.with_name(f"{path.stem[:9]}.csv")],
            ["train", "--dry-run", "--config", path],
            ["classify", GOOD, "--config", path],
            ["probe", "stable_rank", GOOD, "--probes", path],
        ):
            done = run(*arguments)
            assert done.exit_code == 2 and done.stderr.count("\n") <= 12, (arguments, done.stderr)
    for path in (tmp_path, tmp_path / ("n" * 300), tmp_path / "file" / "x.html", tmp_path / "no" / "x.html"):
        for arguments in (
            ["classify", GOOD, "--report", path],
            ["probe", "stable_rank", GOOD, "--plot", path],
        ):
            done = run(*arguments)
            assert done.exit_code == 2 and is_one_line(done.stderr), (arguments, done.stderr)


@pytest.mark.skipif(not os.access("/proc/kmsg", os.R_OK), reason="/proc/kmsg is there, and for root alone")
def test_a_file_of_proc_that_waits_for_more_is_as_an_empty_one(tmp_path):
    """It claims to be an ordinary file of 0 bytes; whoever reads it waits for the kernel's next message."""
    for suffix in (".pt", ".toml", ".csv", ".py", ".json", ".txt"):
        (tmp_path / f"log{suffix}").symlink_to("/proc/kmsg")
    train = ["train", "--preset", "text", "--dry-run", "--data", tmp_path / "log.txt"]
    for arguments in (
        ["classify", tmp_path / "log.pt"],
        ["evaluate", GOOD, "--config", tmp_path / "log.toml", "--n-noise", "x"],
        ["classify", GOOD, "--train-data", tmp_path / "log.pt"],
        ["audit", tmp_path / "log.csv"],
        ["probe", "stable_rank", GOOD, "--probes", tmp_path / "log.py"],
        ["sweep", "--engine", tmp_path / "log.json", "--out", tmp_path / "out"],
        train,
    ):
        with in_time():
            done = run(*arguments)
        assert done.exit_code in (2, 3) and "Traceback" not in done.stderr, (arguments, done.stderr)


SCRIPT = """
import os, sys
from typer.testing import CliRunner
from anchorlens.cli import app
assert CliRunner().invoke(app, ["classify", sys.argv[1]]).exit_code == 0  # the other user may not import
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
done = CliRunner().invoke(app, ["classify", "--json", *sys.argv[1:]])
sys.stdout.write(done.stdout)
sys.stderr.write(done.stderr)
sys.exit(done.exit_code)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, whom permissions bind")
def test_permissions_of_one_file_do_not_stop_the_others(tmp_path):
    folder = Path("/tmp") / f"anchorlens-{tmp_path.parent.name}-{os.getpid()}"  # tmp_path is root's alone
    folder.mkdir()
    try:
        folder.chmod(0o777)
        for name in ("a.pt", "secret.pt", "b.pt"):
            shutil.copy(GOOD, folder / name)
        (folder / "secret.pt").chmod(0)
        paths = [str(folder / name) for name in ("a.pt", "secret.pt", "b.pt")]
        done = forked.run(
            [sys.executable, "-c", SCRIPT, *paths],
            capture_output=True,
            text=True,
            cwd=folder,
        )
    finally:
        shutil.rmtree(folder)
    assert done.returncode == 3, done.stderr
    assert f"anchorlens: {paths[1]}: cannot be read: Permission denied\n" == done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == 3 and "Permission denied" in json.dumps(lines[1])
    assert lines[2]["phase"]["number"] == 3
