"""What `pip install` brings: the package with its shipped checkpoints, and nothing else of size."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.needs()  # it is about the whole package

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
