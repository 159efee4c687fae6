"""What `pip install` brings: the package with its shipped checkpoints, and nothing else of size."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from core_alone import copy_core

pytestmark = [pytest.mark.needs(), pytest.mark.system]  # it is about the whole package

ROOT = Path(__file__).parents[1]
SHIPPED = {
    f"anchorlens/training/checkpoints/{p}.pt" for p in ("phase1", "phase2", "phase2-commutative", "phase3")
}
BENCHMARK = {
    "anchorlens/extras/benchmark/checkpoints.zip": 12_000_000,
    "anchorlens/extras/benchmark/reference.json": 150_000,
}
"""Files of the benchmark, and the bytes that each may have."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("anchorlens-*.whl")
    return path


def test_it_holds_the_checkpoints_and_nothing_else_of_size(wheel):
    with zipfile.ZipFile(wheel) as archive:
        sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
    assert {name for name, size in sizes.items() if size > 100_000} - BENCHMARK.keys() == SHIPPED
    assert all(sizes[name] <= most for name, most in BENCHMARK.items())
    assert all(name.startswith(("anchorlens/", "anchorlens-")) for name in sizes)
    assert not [name for name in sizes if "__pycache__" in name or "/tests/" in name]
    assert "anchorlens/py.typed" in sizes


def test_it_works_from_another_folder(wheel, tmp_path):
    site = tmp_path / "site"
    install = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        str(site),
        str(wheel),
    ]
    subprocess.run([sys.executable, *install], check=True, capture_output=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def run(*arguments):
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=elsewhere, env={"PYTHONPATH": str(site)}, capture_output=True, text=True, check=True,
        )  # fmt: skip

    home = run("-c", "import anchorlens; print(anchorlens.__file__)")
    assert home.stdout.startswith(str(site)) and not home.stderr
    assert "classify" in run("-m", "anchorlens", "--help").stdout
    script = (
        "from anchorlens import checkpoints, load_checkpoint; "
        "print(*map(load_checkpoint, checkpoints.shipped()))"
    )
    assert run("-c", script).stdout.count("Checkpoint(") == len(SHIPPED)


CORE = """
import json, subprocess, sys
import anchorlens.verdict
assert not [name for name in sys.modules if name.startswith("anchorlens.extras")]
from typer.testing import CliRunner
from anchorlens.cli import app

def call(*words, code=0):
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == code, (words, done.output)
    return done

tiny = ["--steps", "30", "--n-samples", "600", "--d-model", "16", "--d-head", "8", "--d-mlp", "16"]
call("train", *tiny, "--out", "run")
assert json.loads(call("evaluate", "run", "--json").stdout)["subject"]["step"] == 30
assert "StableRank(" in call("probe", "stable_rank", "run").stdout
assert json.loads(call("classify", "run", "--json").stdout)["phase"]
missing = call("sweep", "--out", "s", code=2).stderr
assert missing.count("\\n") == 1 and "the command must be available, got 'sweep'" in missing, missing
assert "pip install --force-reinstall . in a clone" in missing
assert call("train", "--task", "scan", "--dry-run", code=2).stderr.count("\\n") == 1
print(sorted({name.split(".")[1] for name in sys.modules if name.startswith("anchorlens.")}))
"""


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    """The repository without `extras/`, and its wheel unpacked in `installed`."""
    folder = tmp_path_factory.mktemp("core")
    copy_core(folder / "copy")
    shutil.rmtree(folder / "copy/site")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=folder / "copy", check=True, capture_output=True)
    (path,) = folder.glob("anchorlens-*.whl")
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder / "installed")
    return folder


def test_without_products_the_core_works(core, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(core / "installed"), "OMP_NUM_THREADS": "1"}
    assert not (core / "installed/anchorlens/extras").exists()
    done = subprocess.run(
        [sys.executable, "-c", CORE], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "extras" not in done.stdout and "verdict" in done.stdout


@pytest.mark.slow
def test_without_products_the_tutorials_of_the_core_run(core):
    """Tutorials 1 to 4 and 6, and the lines of the README."""
    environment = {**os.environ, "PYTHONPATH": str(core / "installed"), "OMP_NUM_THREADS": "1"}
    shutil.rmtree(core / "copy/anchorlens", ignore_errors=True)
    tutorials = sorted(
        path for n in (1, 2, 3, 4, 6) for path in (core / "copy/tutorials").glob(f"0{n}_*.ipynb")
    )
    words = [sys.executable, "-m", "pytest", "--noconftest", "-p", "no:cacheprovider", "--nbmake"]
    words += [*map(str, tutorials), str(core / "copy/tutorials/test_readme_lines.py")]
    done = subprocess.run(words, cwd=core / "copy", env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "6 passed" in done.stdout, done.stdout
