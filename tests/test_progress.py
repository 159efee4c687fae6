"""The progress bar in a real terminal (a pseudo-terminal) and in none."""

import os
import pty
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TRAIN = ["train", "--n-layers", "1", "--d-model", "16", "--d-head", "8", "--d-mlp", "16", "--steps", "60"]
COMMAND = [sys.executable, "-m", "anchorlens", *TRAIN, "--n-samples", "600", "--log-every", "1"]


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


def test_a_terminal_shows_a_bar_and_stdout_stays_clean(tmp_path):
    terminal, end = pty.openpty()
    command = [*COMMAND, "--json", "--out", str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=end, cwd=ROOT) as process:
        os.close(end)
        shown = read_all(terminal)
        assert process.stdout is not None
        printed = process.stdout.read().decode()
    os.close(terminal)
    assert process.returncode == 0
    assert "training" in shown and "60/60" in shown and "loss" in shown
    assert printed.startswith("{") and printed.count("\n") == 1


def test_a_pipe_shows_none(tmp_path):
    done = subprocess.run(
        [*COMMAND, "--out", str(tmp_path / "run")], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stderr == f"finished at step 60; the model is in {tmp_path}/run/ckpt.pt\n"
