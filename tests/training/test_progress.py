"""The progress bar in a real terminal (a pseudo-terminal), in a real notebook kernel, and in none."""

import fcntl
import importlib.util
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
TRAIN = ["train", "--n-layers", "1", "--d-model", "16", "--d-head", "8", "--d-mlp", "16", "--steps", "60"]
FEW = ["--key-max", "40", "--n-samples", "600"]  # so that evaluating is short
COMMAND = [sys.executable, "-m", "anchorlens", *TRAIN, *FEW, "--log-every", "1"]


def read_all(terminal):
    chunks = []
    while True:
        try:
            chunk = os.read(terminal, 4096)
        except OSError:  # the other end is closed
            chunk = b""
        if not chunk:
            return b"".join(chunks).decode()
        chunks.append(chunk)


@pytest.mark.parametrize("columns", [*[pytest.param(n, marks=pytest.mark.slow) for n in (40, 100)], 60])
def test_a_terminal_shows_one_line_that_fits_and_stdout_stays_clean(tmp_path, columns):
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    command = [*COMMAND, "--eval-every", "20", "--json", "--out", str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=end, cwd=ROOT, env=environment) as process:
        os.close(end)
        shown = read_all(terminal)
        assert process.stdout is not None
        printed = process.stdout.read().decode()
    os.close(terminal)
    assert process.returncode == 0
    assert printed.startswith("{") and printed.count("\n") == 1
    assert "\x1b[1A" not in shown  # never a line up, so it never took two
    bars = [line for line in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown).split("\r") if "training" in line]
    assert len(bars) > 2 and max(map(len, bars)) <= columns
    if columns >= 60:
        assert "60/60" in bars[-1] and "ood 0." in bars[-1]
    if columns == 100:
        assert "loss" in shown


SETTINGS = """
from anchorlens import AnchorTask, ModelConfig, TrainConfig, preset, train, train_many
from anchorlens.audit import audit
from anchorlens.sweep import grid, sweep
tiny = {"n_layers": 1, "d_model": 16, "d_head": 8, "d_mlp": 16, "key_max": 40, "n_samples": 600, "steps": 6}
runs = grid("quick", {"seed": [0, 1]}, eval_every=2, log_every=1, **tiny)
"""
CALLS = {
    "train": "a = train(*runs[0])",
    "train_many": "b = train_many(runs, workers=1)",
    "sweep": "c = sweep(runs, 'sweep', engine='serial')",
    "audit": "d = audit(AnchorTask(key_max=40), model_config=runs[0].model_config, "
    "train_config=TrainConfig(steps=4, n_samples=600), seeds=[0], n_evaluations=2)",
}
no_widgets = pytest.mark.skipif(importlib.util.find_spec("ipywidgets") is not None, reason="it is here")


def outputs_of(sources, folder):
    """What each cell of a notebook shows that a real kernel runs."""
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=180, resources={"metadata": {"path": folder}}).execute()
    return [cell.outputs for cell in notebook.cells]


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    """Call -> the outputs of its cell."""
    first, *others = outputs_of((SETTINGS, *CALLS.values()), tmp_path_factory.mktemp("notebook"))
    assert not first
    return dict(zip(CALLS, others, strict=True))


@no_widgets
@pytest.mark.filterwarnings("ignore")  # of the notebook client itself, not of the cells
@pytest.mark.parametrize("call", CALLS)
def test_a_notebook_without_widgets_shows_one_line_that_fits(notebook, call):
    assert {(output.output_type, output.name) for output in notebook[call]} == {("stream", "stderr")}
    text = "".join(output.text for output in notebook[call])
    assert text.count("\n") == 1 and text.endswith("\n")  # and no warning above it
    states = text.strip().split("\r")
    assert max(map(len, states)) <= 79
    assert states[0].startswith("0%") and re.match(r"100%\|█+\| (\d+)/\1 steps in 00:\d\d, ", states[-1])


@pytest.mark.slow
@no_widgets
@pytest.mark.filterwarnings("ignore")
def test_the_bar_that_tqdm_would_choose_warns(tmp_path):
    ((warning,),) = outputs_of(["import tqdm.auto"], tmp_path)
    assert "IProgress not found" in warning.text
