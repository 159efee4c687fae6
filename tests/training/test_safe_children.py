"""Whatever runs in a folder of data, nothing that lies there is run."""

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from hostile_folder import make_hostile
from sweeping import ROOT, flags, tiny

from anchorlens.extras.sweep import sweep
from anchorlens.training.child_processes import SAFE_PATH, safe_children

TINY = flags({})
SWEEP = ["sweep", "--workers", "2", *flags({"seed": "0:2"}, steps=2)]


@pytest.fixture
def hostile(tmp_path):
    """A folder, and the file that appears when any of it is run."""
    return make_hostile(tmp_path / "data", tmp_path / "marker"), tmp_path / "marker"


@pytest.fixture
def anchorlens(tmp_path, hostile):
    """Runs the installed command, in that folder."""
    script = tmp_path / "bin/anchorlens"
    script.parent.mkdir()
    script.write_text("from anchorlens.cli import main\nif __name__ == '__main__':\n    main()\n")

    def run(*arguments):
        return python(script, *arguments, cwd=hostile[0])

    return run


def python(*arguments, cwd, code=0):
    environment = {name: value for name, value in os.environ.items() if name != SAFE_PATH}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        env={**environment, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        timeout=300,
    )
    assert done.returncode == code, done.stderr
    return done


def test_the_folder_is_hostile(hostile):
    folder, marker = hostile
    subprocess.run([sys.executable, "-c", "import multiprocessing.util"], cwd=folder, capture_output=True)
    assert "multiprocessing" in marker.read_text()


@pytest.mark.slow
def test_audit_in_two_processes(hostile, anchorlens):
    folder, marker = hostile
    rows = [f"{key},{a},{b},{key + a + b}" for key in range(10, 16) for a in (1, 2) for b in (1, 2)]
    (folder / "few.csv").write_text("\n".join(["key,a1,a2,target", *rows]))
    given = ("few.csv", "--seeds", 2, "--workers", 2, "--steps", 2, "--n-samples", 600)
    assert '"seeds"' in anchorlens("audit", *given, "--json").stdout
    assert not marker.exists(), marker.read_text()


def test_a_local_sweep(hostile, monkeypatch):
    """From this process, which looks for modules where the installed command does: not in the folder."""
    pytest.importorskip("distributed", reason="needs the extra [cluster]")
    folder, marker = hostile
    monkeypatch.chdir(folder)
    monkeypatch.delenv(SAFE_PATH, raising=False)
    monkeypatch.setattr(sys, "path", [str(Path(path).resolve()) for path in sys.path if path])
    result = sweep(tiny({"seed": [0]}, steps=2), "a", engine="local", workers=1, progress=False)
    assert result.counts == {"finished": 1}
    assert not marker.exists(), marker.read_text()


@pytest.mark.slow
def test_every_other_command(hostile, anchorlens):
    for command in (
        ["train", "--out", "run", *TINY],
        ["train", "--out", "run", "--resume", *TINY],
        ["evaluate", "run/ckpt.pt"],
        ["probe", "stable_rank", "run/ckpt.pt", "--plot", "rank.html"],
        ["classify", "run", "--report", "report.html"],
        ["sweep", "--engine", "serial", "--out", "a", *flags({"seed": "0:2"}, steps=2)],
        ["status", "a"],
        ["diagram", "a", "--table", "cells.csv"],
        ["demo"],
    ):
        anchorlens(*command)
        assert not hostile[1].exists(), f"{command}: {hostile[1].read_text()}"


@pytest.mark.slow
def test_as_a_module_python_itself_looks_into_the_folder_until_the_package_is_there(hostile):
    """docs/security.md says so; what comes after is safe."""
    folder, marker = hostile
    code = "import sys, runpy, anchorlens.__main__; print(*(name.partition('.')[0] for name in sys.modules))"
    before = {"anchorlens", *python("-c", code, cwd=ROOT).stdout.split()}
    for name in before:
        (folder / f"{name}.py").unlink(missing_ok=True)
    assert (folder / "torch.py").exists() and (folder / "multiprocessing.py").exists()
    python("-m", "anchorlens", *SWEEP, "--engine", "serial", "--out", "a", cwd=folder, code=2)  # no workers
    python("-m", "anchorlens", "audit", "--seeds", 2, "--workers", 2, "--steps", 2, cwd=folder)
    assert not marker.exists(), marker.read_text()


SCRIPT = """
import os, sys
import beside
from sweeping import tiny
from anchorlens import AnchorTask, train_many
from anchorlens.extras.audit import audit, mappings_of
from anchorlens.extras.sweep import sweep
from anchorlens.recipes.train_config import TrainConfig
if __name__ == "__main__":
    before = dict(os.environ), list(sys.path)
    runs = tiny({"seed": "0:2"}, steps=2)
    assert [result.status for result in train_many(runs, workers=2)] == ["finished"] * 2
    recipe = TrainConfig(steps=2, n_samples=600)
    audit(mappings_of(AnchorTask()), train_config=recipe, seeds=(0, 1), workers=2)
    for engine in sys.argv[1:]:
        assert sweep(runs, engine, engine=engine, workers=2).counts == {"finished": 2}
    changed = set(before[0].items()) ^ set(os.environ.items()) | set(before[1]) ^ set(sys.path)
    assert not changed, f"the caller's process has changed: {changed}"
"""


@pytest.mark.slow
def test_calls_from_a_script_elsewhere(hostile, tmp_path):
    """Its workers import the script and what lies beside it; its environment is as it was."""
    pytest.importorskip("distributed", reason="needs the extra [cluster]")
    script = tmp_path / "scripts/script.py"
    script.parent.mkdir()
    imported = tmp_path / "imported"
    (script.parent / "beside.py").write_text(f"open({str(imported)!r}, 'a').write('x')\n")
    tests = repr(str(Path(__file__).parents[1]))
    script.write_text(f"import sys; sys.path.append({tests})\n{SCRIPT}")
    python(script, "local", cwd=hostile[0])
    assert not hostile[1].exists(), hostile[1].read_text()
    assert len(imported.read_text()) > 2, "the workers have not imported what lies beside the script"


def test_the_environment_is_restored_by_the_last_to_leave(monkeypatch):
    monkeypatch.setenv("ONE", "1")
    monkeypatch.delenv(SAFE_PATH, raising=False)
    entered, leave = threading.Event(), threading.Event()

    def other():
        with safe_children():
            entered.set()
            leave.wait()

    before = dict(os.environ)
    with safe_children("ONE", "TWO"):
        thread = threading.Thread(target=other)
        thread.start()
        entered.wait()
        os.environ["ONE"], os.environ["TWO"] = "changed", "new"
    assert os.environ[SAFE_PATH] == "1", "the other thread's children would be unsafe"
    leave.set()
    thread.join()
    assert dict(os.environ) == before


@pytest.mark.parametrize("flag", ["-E", "-I"])
def test_python_that_passes_on_no_environment(flag, tmp_path):
    """Under -E a child would not see the variable; -I holds for children by itself."""
    code = f"""
        import sys; sys.path.insert(0, {str(ROOT)!r})
        from anchorlens.training.child_processes import safe_children
        try:
            with safe_children(): print("entered")
        except ValueError as error: print(error)
    """
    said = python(flag, "-c", textwrap.dedent(code), cwd=tmp_path).stdout
    assert ("Use python -E -P" in said) == (flag == "-E") and ("entered" in said) == (flag == "-I")
