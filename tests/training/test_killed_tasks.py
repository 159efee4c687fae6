"""Runs of other tasks and recipes: real processes, killed with SIGKILL and resumed, beside one left alone."""

import os
import signal
import time

import pytest
import torch
from anchorlens_command import call
from few_questions import draw_little
from sweeping import start

from anchorlens import load_checkpoint

SHORT = {
    "batch-size": 16,
    "log-every": 1,
    "eval-every": 10_000,
    "n-checkpoints": 3,
    "state-every-seconds": 0.02,
}
RUNS = {
    "concept_graphs": {
        "n-feat": 8,
        "n-diffusion-steps": 10,
        "n-samples": 64,
        "image-side": 16,
        "input-side": 16,
    },
    "two_anchor": {
        "d-model": 16,
        "d-head": 8,
        "d-mlp": 16,
        "n-samples": 640,
        "steps": 200,
        "weight-decay": "0 0.1:0.5=1.0..0.1 0.5:1=0.3",
        "weight-decay-qk": 0.2,
        "lr": "0.001 0.25:0.3=0.002",
        "rescale": "all=0.9@30 qk=1.1@150",
        "penalty": "stable_rank:qk=0.01@0.1:0.9",
    },
    "text": {"seq-len": 32, "n-ctx": 32, "d-model": 16, "d-head": 8, "d-mlp": 16, "n-samples": 64},
}
KILLED_AT = 10
"""Lines of the log; the runs have 20 and more, so that there is time to kill them."""


@pytest.fixture
def command(tmp_path, monkeypatch, request):
    """The real command that trains a run of the kind."""
    monkeypatch.setenv("ANCHORLENS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    kind, fields = request.param, dict(RUNS[request.param])
    if kind == "two_anchor":
        kind = "quick"
    elif kind == "text":
        text = tmp_path / "text.txt"
        text.write_text("".join(f"line {k} of a text\n" for k in range(1000)))
        fields |= {"data": text, "epochs": 20}
    else:
        fields |= {"steps": 20}
    options = [f"--{name}={value}" for name, value in {**SHORT, **fields, "threads": 1}.items()]
    return ["train", "--preset", kind, *options]


@pytest.mark.system
@pytest.mark.parametrize("command", RUNS, indirect=True)
def test_killed_and_resumed_the_bits_are_equal(command, tmp_path, monkeypatch):
    draw_little(monkeypatch)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    call(*command, "--out", whole)
    process = start(*command, "--out", cut)
    while process.poll() is None and not ((cut / "state.pt").exists() and lines(cut) >= KILLED_AT):
        time.sleep(0.002)
    assert process.poll() is None, process.communicate()
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (cut / "ckpt.pt").exists() and lines(cut) < lines(whole)
    if "concept_graphs" in command:  # here, where it draws little at its end
        call("train", "--resume", "--out", cut)
    else:
        resumed = start("train", "--resume", "--out", cut)
        output = resumed.communicate()
        assert resumed.returncode == 0, output
    names = [path.name for path in sorted((whole / "checkpoints").iterdir())]
    for name in ("ckpt.pt", *(f"checkpoints/{name}" for name in names)):
        one, other = (load_checkpoint(folder / name) for folder in (whole, cut))
        assert one.step == other.step and one.weights.keys() == other.weights.keys()
        assert all(torch.equal(value, other.weights[name]) for name, value in one.weights.items())


def lines(folder):
    """Lines of the log so far."""
    log = folder / "log.jsonl"
    return log.read_bytes().count(b"\n") if log.exists() else 0
