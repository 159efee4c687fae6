"""Writes of every kind on a file system of 4 MB that is nearly full: `test_full_disk.py` runs it there.

Argument: the mounted folder. Prints JSON: what each attempt raised or recorded, and what there is after the
disk has room again.
"""

import json
import shutil
import sys
import tempfile
from inspect import unwrap
from pathlib import Path

import plotly.graph_objects as go
from few_questions import asked_less
from known_cures import IDLE, damaged
from sweeping import tiny
from typer.testing import CliRunner

from anchorlens import control, load_checkpoint, plots, save_checkpoint
from anchorlens.cli import app
from anchorlens.extras.sweep import open_sweep, sweep
from anchorlens.files.checkpoint import Checkpoint
from anchorlens.models.gamma import initial_weights

BLOCK = 4096
TRAIN = "--n-layers 1 --d-model 16 --d-head 8 --d-mlp 16 --key-max 40 --n-samples 512 --steps 6 --log-every 1"
STATES = "--batch-size 64 --state-every-seconds 0 --n-checkpoints 2"


def leave(disk, n_bytes):
    """Fill the disk up to so many free bytes."""
    filler = disk / "filler"
    filler.unlink(missing_ok=True)
    left = shutil.disk_usage(disk).free - n_bytes
    filler.write_bytes(bytes(max(0, left // BLOCK * BLOCK)))


def raised(function, *arguments):
    try:
        function(*arguments)
    except OSError as error:
        return [error.strerror, error.filename]
    return None


def main(disk):
    found = {}
    (run,) = tiny({"seed": [0]})
    checkpoint = Checkpoint(run.model_config, run.task, initial_weights(run.model_config, 0))
    for suffix in (".pt", ".safetensors"):
        path = disk / f"a{suffix}"
        save_checkpoint(path, checkpoint)
        before = path.read_bytes()
        for n_bytes in range(0, len(before), 2 * BLOCK):
            leave(disk, n_bytes)
            got = raised(save_checkpoint, path, checkpoint)
            found[f"{suffix} {n_bytes}"] = got
            assert path.read_bytes() == before and load_checkpoint(path).step is None
    leave(disk, 0)
    picture = disk / "picture.html"
    picture.write_text("")
    found["picture"] = raised(plots.save, go.Figure(), picture)
    found["files"] = sorted(file.name for file in disk.iterdir())

    runs = tiny({"seed": [0, 1]}, steps=6, state_every_seconds=0)
    found["sweeps"] = []
    for n_bytes in range(0, 40 * BLOCK, 8 * BLOCK):
        leave(disk, n_bytes)
        found["sweeps"].append(raised(lambda: sweep(runs, disk / "sweep", engine="serial", progress=False)))
        found.setdefault("failed", []).extend(map(str, (disk / "sweep" / "failed").glob("*")))
    runner = CliRunner()
    found["trains"] = []
    for n_bytes in range(0, 24 * BLOCK, 6 * BLOCK):
        leave(disk, n_bytes)
        command = f"train --resume --out {disk / 'run'} {TRAIN} {STATES}".split()
        done = runner.invoke(app, command)
        found["trains"].append([done.exit_code, done.stderr, repr(done.exception)])
    with tempfile.TemporaryDirectory() as elsewhere, asked_less() as patch:
        patch.setitem(unwrap(control).__kwdefaults__, "interventions", [IDLE])
        command_of_control = ["control", str(damaged(Path(elsewhere) / "start.pt")), "--workers", "1"]
        command_of_control += ["--out", str(disk / "control")]
        leave(disk, 0)
        done = runner.invoke(app, command_of_control)
        found["control"] = [done.exit_code, done.stderr, done.stdout]
    (disk / "filler").unlink()
    for got in (disk / "sweep", disk / "run"):
        found[f"parts of {got.name}"] = [file.name for file in got.glob("*.tmp")]
    found["sweep"] = sweep(runs, disk / "sweep", engine="serial", progress=False).counts
    found["cells"] = open_sweep(disk / "sweep").counts
    found["train"] = runner.invoke(app, command).exit_code
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
