"""A full disk is told as such, names the file, loses nothing and records nothing; afterwards all goes on."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import on_a_full_disk
import pytest

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What came of it, on a file system of its own, which only a user with namespaces may make."""
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare")
    disk = tmp_path_factory.mktemp("disk")
    script = f"mount -t tmpfs -o size=4m tmpfs {disk} || exit 77\n"
    script += f"{sys.executable} {on_a_full_disk.__file__} {disk}"
    command = ["unshare", "-rm", "bash", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1], timeout=300)
    if done.returncode == 77:
        pytest.skip(f"this user may not mount a file system: {done.stderr.strip()[:80]}")
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout) | {"disk": str(disk)}


def full(disk, name):
    return ["No space left on device", f"{disk}/{name}"]


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
def test_a_checkpoint(found, suffix):
    """Wherever in the file the disk ends; torch itself raises a RuntimeError there."""
    tried = [got for name, got in found.items() if name.startswith(f"{suffix} ")]
    assert len(tried) > 2 and all(got == full(found["disk"], f"a{suffix}") for got in tried[:-1])


def test_a_picture_and_no_stumps(found):
    assert found["picture"] == full(found["disk"], "picture.html")
    assert found["files"] == ["a.pt", "a.safetensors", "filler", "picture.html"]


def test_a_sweep_records_no_failure_and_goes_on(found):
    refused = [got for got in found["sweeps"] if got is not None]
    assert len(refused) > 3 and all(got[0] == "No space left on device" for got in refused)
    assert all(got[1].startswith(found["disk"]) for got in refused)
    assert found["failed"] == [] and found["sweep"] == found["cells"] == {"finished": 2}


def test_a_run_is_one_line_and_goes_on(found):
    for code, error, exception in found["trains"]:
        if code:
            assert code == 1 and "SystemExit" in exception
            lines = [line for line in error.splitlines() if line.startswith("anchorlens:")]
            assert len(lines) == 1 and "Traceback" not in error
            assert lines[0].startswith(f"anchorlens: {found['disk']}/run")
            assert lines[0].endswith("No space left on device")
    assert found["trains"][0][0] == 1 and found["train"] == 0
    assert found["parts of sweep"] == found["parts of run"] == []


def test_control_says_that_the_disk_is_full_and_not_that_the_checkpoint_cannot_be_read(found):
    code, error, output = found["control"]
    assert code == 1 and not output
    assert error.splitlines()[-1].startswith(f"anchorlens: {found['disk']}/control")
    assert error.endswith("No space left on device\n")
