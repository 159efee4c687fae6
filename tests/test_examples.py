import importlib.util
from pathlib import Path

from anchorlens import load_checkpoint

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


def test_seeds_prints_a_row_for_each_seed():
    seeds = example("seeds")
    tiny = {"steps": 2, "n_samples": 600, "d_model": 16, "d_head": 8, "d_mlp": 16}
    results = [seeds.run("quick", {**tiny, "seed": seed}, None) for seed in (0, 1)]
    assert seeds.table("quick", [0, 1], results).row_count == 3
    assert results[0][0].id.value != results[1][0].id.value


def test_task_benchmark_measures_every_task():
    benchmark = example("benchmarks/task")
    assert set(benchmark.measure(n=1000, repeats=1)) == set(benchmark.TASKS)
