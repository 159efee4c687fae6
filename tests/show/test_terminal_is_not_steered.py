"""What the command line itself says of names and fields that were typed or read: one harmless line each."""

from pathlib import Path

import pytest
from sweeping import flags
from typer.testing import CliRunner

from anchorlens import AnchorTask, ModelConfig, evaluate
from anchorlens.cli import app
from anchorlens.extras.sweep.engines import SweepEngine
from anchorlens.files.checkpoint import Checkpoint
from anchorlens.models.gamma import initial_weights
from anchorlens.show.terminal.training import print_behaviour
from anchorlens.training.run import train_many

NAME = "x\x1b]52;c;a\x07:smile:"


def harmless(text):
    assert all(line.isprintable() for line in text.splitlines()), repr(text)
    return text


def test_names_of_folders_of_runs_and_sweeps(tmp_path):
    out = tmp_path / NAME
    runner = CliRunner()
    commands = [
        ["train", "--out", str(out), *flags({"seed": "0"}, steps=2)],
        ["sweep", "--out", str(out / "sweep"), "--engine", "serial", *flags({"seed": "0,1"}, steps=2)],
        ["sweep", "--dry-run", "--device", f"cpu,{NAME}", *flags({"seed": "0"}, steps=2)],
    ]
    for command in commands:
        done = runner.invoke(app, command)
        assert "Traceback" not in harmless(done.output)
    assert "\\x1b]52;c;a\\x07:smile:" in runner.invoke(app, ["train", "--out", str(out)]).output


def test_a_task_of_many_anchors_needs_no_table(capsys):
    """Not every pair is among the 20,000 (pair, key, position) that are asked."""
    task = AnchorTask(key_min=1000, key_max=1019, seq_len=4, anchors={a: a for a in range(1, 61)})
    config = ModelConfig.for_task(task, n_layers=1, d_model=8, d_head=4, d_mlp=8)
    checkpoint = Checkpoint(config, task, initial_weights(config, 0))
    behaviour = evaluate(checkpoint.last_position_model(), task, max_trials=500, n_noise=2)
    print_behaviour(Path("ckpt.pt"), checkpoint, checkpoint.task, behaviour, as_json=False)
    assert "accuracy by pair" not in capsys.readouterr().out


@pytest.mark.parametrize("workers", [10**12, 10**30])
def test_more_processes_than_any_machine_has(workers):
    for start in (lambda: SweepEngine("local", workers), lambda: train_many([], workers=workers)):
        with pytest.raises(ValueError, match="workers must be an integer >= 1 and <= 1024"):
            start()


def test_a_checkpoint_in_a_notebook_is_short():
    config = ModelConfig(n_layers=1, d_model=8, d_head=4, d_mlp=8)
    metrics = {"a": "x" * 5_000_000, **{f"m{k}": 1.0 for k in range(20_000)}}
    html = Checkpoint(config, AnchorTask(), initial_weights(config, 0), metrics=metrics)._repr_html_()
    assert len(html) < 50_000
    odd = Checkpoint(config, AnchorTask(), initial_weights(config, 0))
    object.__setattr__(odd, "versions", {"torch": 2.13})  # which the tests' own check of types would refuse
    assert "torch 2.13" in odd._repr_html_()
