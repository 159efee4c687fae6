import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from anchorlens import build_model, load_checkpoint, preset, train_many

EXAMPLES = Path(__file__).parents[1] / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(name.replace("/", "_"), EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_demo_trains_saves_and_explains(tmp_path, capsys):
    example("demo").main(tmp_path / "run", steps=2, n_samples=600, d_model=16, d_head=8, d_mlp=16)
    printed = capsys.readouterr().out
    assert load_checkpoint(tmp_path / "run/ckpt.pt").step == 2
    assert f"The model is in {tmp_path}/run/ckpt.pt" in printed
    assert "unseen pairs" in printed and "undecided: underfit" in printed


TINY = {"n_samples": 600, "batch_size": 64, "d_model": 16, "d_head": 8, "d_mlp": 16}


def test_grid_prints_a_row_for_each_run_and_a_map_of_phases():
    grid = example("grid")
    cells = grid.cells({"gamma": [0.4, 0.8], "weight_decay": [0.0, 1.0], "seed": [0, 1]})
    assert len(cells) == 8 and cells[1] == {"gamma": 0.4, "weight_decay": 0.0, "seed": 1}
    results = train_many([preset("quick", steps=2, **TINY, **cell) for cell in cells], workers=1)
    rows = grid.run_table("quick", cells, results)
    assert rows.row_count == 9  # and the mean
    table = grid.phase_map(cells, results)
    assert table.row_count == 2 and list(table.columns[1].cells) == ["? ?", "? ?"]


def test_grid_runs_as_a_command(tmp_path):
    command = [sys.executable, EXAMPLES / "grid.py", "--gamma", "0.5", "--steps", "1", "--workers", "1"]
    done = subprocess.run(
        [*command, "--out", tmp_path / "runs", "--json", tmp_path / "numbers.json"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "1 models in" in done.stdout
    (run,) = json.loads((tmp_path / "numbers.json").read_text())["runs"]
    assert run["status"] == "finished" and run["gamma"] == 0.5
    assert (tmp_path / "runs/quick-steps1-gamma0.5-seed0/ckpt.pt").exists()


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch.func's own, of attention on a CPU
def test_training_benchmark_measures_every_way(tmp_path):
    benchmark = example("benchmarks/training")
    run, cpu = preset("quick", **TINY), torch.device("cpu")
    names = [benchmark.EAGER, benchmark.TUNED, benchmark.PLAIN, benchmark.VMAP, "ours", "ours K"]
    content = benchmark.measure(run, cpu, 2, [*names, "ours lockstep"], repeats=2, seconds=0.01)
    assert len(content["rows"]) == 7 and json.dumps(content)
    assert all(row["ms_per_update_and_model"] > 0 for row in content["rows"])
    assert benchmark.table(content).row_count == 7
    curves = {"models (K)": {"at": [1, 2], "HookedTransformer": [2.0, 4.0], "anchorlens": [1.0, 2.0]}}
    benchmark.draw(curves, "a machine", tmp_path / "cost.html")
    assert "models (K)" in (tmp_path / "cost.html").read_text()


@pytest.mark.parametrize("variant", ["gpt2", "postnorm", "released"])
def test_the_plain_rewrite_of_the_benchmark_is_the_same_model(variant):
    """Its speed would mean nothing otherwise."""
    benchmark = example("benchmarks/training")
    run = preset("quick", variant=variant, **TINY)
    model = build_model(run.model)
    tokens = run.task.sample(32).tokens
    logits = benchmark.plain_logits(dict(model.named_parameters()), run, tokens)
    assert (logits - model(tokens)[:, -1]).abs().max() < 1e-5


def test_task_benchmark_measures_every_task():
    benchmark = example("benchmarks/task")
    assert set(benchmark.measure(n=1000, repeats=1)) == set(benchmark.TASKS)
