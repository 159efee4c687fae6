import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from typer.testing import CliRunner

from anchorlens import build_model
from anchorlens.cli import app
from anchorlens.files.checkpoint import training_set
from anchorlens.recipes.presets import preset
from anchorlens.training import plan as planning
from anchorlens.training.plan import count_cost, members_at_once, processes, training_plan

TINY = {
    "n_layers": 1,
    "d_model": 16,
    "d_head": 8,
    "d_mlp": 32,
    "n_samples": 512,
    "batch_size": 64,
    "steps": 4,
    "device": "cpu",
}


def test_parameters_and_products_by_hand():
    """One layer, so everything behind the first keys and values is for the last position alone.

    Products per sequence or table row, in multiply-adds: 84 tokens x 9 positions = 756 rows of the table
    take queries 16 x 8 and keys beside values 16 x 16; each of 64 sequences takes scores and mix of one
    query with 9 positions (8 each), W_O 8 x 16, the MLP 2 x 16 x 32 and the unembedding 16 x 201.
    """
    cost = count_cost(preset("quick", **TINY))
    matrices = 2 * 201 * 16 + 9 * 16 + 3 * 16 * 8 + 8 * 16 + 2 * 16 * 32
    biases = 3 * 8 + 16 + 32 + 16 + 3 * 2 * 16 + 201
    assert cost.parameters == matrices + biases
    table = 84 * 9 * (16 * 8 + 16 * 16)
    rest = 64 * (2 * 9 * 8 + 8 * 16 + 2 * 16 * 32 + 16 * 201)
    assert cost.flops == pytest.approx(3 * 2 * (table + rest), rel=0.01)  # forward, and two products back


def test_a_gamma_below_0_is_a_warning():
    for fields in ({"gamma": -0.5}, {"gamma_mlp": -1}):
        with pytest.warns(UserWarning, match="gamma is below 0"):
            planning.check_runs([preset("quick", **TINY), preset("quick", **TINY, **fields)])
    planning.check_runs([preset("quick", **TINY, gamma=0)])


@pytest.mark.slow
def test_memory_is_what_a_process_takes():
    """The peak of a real process over that of one that trains a tiny model."""

    def peak(**fields):
        code = (
            "import json, re, sys; from anchorlens.recipes.presets import preset;"
            "from anchorlens.training.run import train;"
            "train(*preset('quick', steps=3, threads=1, n_checkpoints=0, **json.loads(sys.argv[1])));"
            "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, json.dumps(fields)], check=True, capture_output=True, text=True
        )
        return 1024 * int(done.stdout)

    if not Path("/proc/self/status").exists():
        pytest.skip("the peak memory of a process is read from Linux' /proc")
    both = {"n_samples": 2048, "key_max": 40, "d_vocab": 201}  # few keys, so that evaluating is short
    large = {"d_model": 256, "d_mlp": 512, "batch_size": 1024, **both}
    small = {"d_model": 16, "d_head": 8, "d_mlp": 16, "batch_size": 16, **both}
    counted = count_cost(preset("quick", **large)).bytes - count_cost(preset("quick", **small)).bytes
    assert peak(**large) - peak(**small) == pytest.approx(counted, rel=0.25)


def test_a_plan_measures_and_says_it_all():
    result = training_plan([preset("quick", **TINY)] * 3, workers=2, seconds=0.05)
    assert (result.n_models, result.at_once, result.steps, result.device) == (3, 2, 4, "cpu")
    assert result.memory_bytes == 2 * (result.cost.bytes + planning.PROCESS_BYTES)
    assert result.seconds > 2 * 4 * result.seconds_per_update > 0  # two rounds of four updates
    assert json.loads(json.dumps(result.to_dict()))["cost"]["parameters"] == result.cost.parameters
    with pytest.raises(ValueError, match="at least one run"):
        training_plan([])
    with pytest.raises(ValueError, match="runs must be a list of RunConfigs"):
        training_plan(preset("quick"))


@pytest.mark.needs()
@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("text", {"n_samples": 64, "d_model": 16, "d_head": 4, "d_mlp": 16}),
        ("concept_graphs", {"n_samples": 64, "n_feat": 8, "n_diffusion_steps": 10, "batch_size": 16}),
        ("scan", {"n_samples": 420, "d_model": 16, "d_head": 4, "d_mlp": 16, "batch_size": 16}),
    ],
)
def test_every_kind_of_task_is_planned(name, fields):
    result = training_plan([preset(name, **fields, steps=4, epochs=None)], seconds=0.05)
    assert result.seconds is not None and result.seconds_per_update is not None
    assert result.seconds > 4 * result.seconds_per_update > 0 and result.cost.flops > 0


@pytest.mark.needs()
def test_products_of_a_text_are_those_of_a_hooked_transformer():
    """Attention by blocks leaves out what lies behind a query; the first layer's table has some rows more."""
    run = preset("text", n_samples=64)
    model, batch = build_model(run.model_config), training_set(run.task, run.train_config).take(np.arange(32))
    with FlopCounterMode(display=False) as counter:
        run.task.loss(model, batch, np.random.default_rng(0)).backward()
    pairs = 32 * 2 * 4 * 256**2  # sequences, layers, heads; of 4 x 4 blocks of pairs 6 are left out
    left_out = 3 * (2 * pairs * 2 * 32) * 6 / 16
    assert count_cost(run).flops == pytest.approx(counter.get_total_flops() - left_out, rel=0.03)


@pytest.mark.needs()
def test_data_that_stay_on_the_disk_are_not_counted():
    costs = [count_cost(preset("text", n_samples=n, d_model=16, d_head=4, d_mlp=16)) for n in (100, 1100)]
    assert costs[1].data_bytes - costs[0].data_bytes == 1000 * 16  # where each begins, and their order


def test_what_no_memory_holds_is_counted_and_not_tried(monkeypatch):
    monkeypatch.setattr(planning, "available_bytes", lambda device: 1000)
    result = training_plan([preset("quick", **TINY)])
    assert result.seconds is None and result.seconds_per_update is None and result.cost.flops > 0
    huge = CliRunner().invoke(app, ["train", "--dry-run", "--d-model", "60000", "--d-mlp", "240000"])
    assert huge.exit_code == 0 and "not measured" in huge.stdout and "unknown" in huge.stdout


def test_the_plan_of_runs_that_cannot_be_trained_is_refused():
    for option, message in (
        ("--d-vocab=50", "d_vocab must be at least 110"),
        ("--n-ctx=4", "n_ctx must be at least 9"),
    ):
        result = CliRunner().invoke(app, ["train", "--dry-run", option])
        assert result.exit_code == 2 and message in result.stderr
    if not torch.cuda.is_available():
        result = CliRunner().invoke(app, ["train", "--dry-run", "--matmul", "tf32"])
        assert result.exit_code == 2 and "must be CUDA for matmul" in result.stderr


def test_what_does_not_fit_is_split_in_equal_shares(monkeypatch):
    run = preset("quick", **TINY)
    need = count_cost(run).bytes
    monkeypatch.setattr(planning, "available_bytes", lambda device: 10.5 * need / planning.USABLE)
    assert [members_at_once(run, n) for n in (1, 10, 11, 36)] == [1, 10, 6, 9]
    monkeypatch.setattr(planning, "available_bytes", lambda device: 2.5 * need / planning.USABLE)
    assert processes([run] * 8, workers=4) == 1  # a process is more than its model
    large = preset("quick", **(TINY | {"d_model": 512, "d_mlp": 2048, "batch_size": 512}))
    room = 2.5 * (count_cost(large).bytes + planning.PROCESS_BYTES) / planning.USABLE
    monkeypatch.setattr(planning, "available_bytes", lambda device: room)
    assert processes([large] * 8, workers=4) == processes([run, *[large] * 7], workers=4) == 2
    assert processes([run] * 8, workers=4) >= 2
    monkeypatch.setattr(planning, "available_bytes", lambda device: 0)
    assert members_at_once(run, 36) == 1


def test_dry_run_prints_and_trains_nothing(tmp_path):
    options = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]
    result = CliRunner().invoke(app, ["train", "--dry-run", "--out", str(tmp_path / "run"), *options])
    assert result.exit_code == 0, result.output
    for word in ("parameters", "memory", "steps", "FLOPs", "time", "nothing is trained"):
        assert word in result.stdout
    assert not (tmp_path / "run").exists()
    as_json = CliRunner().invoke(app, ["train", "--dry-run", "--json", *options])
    content = json.loads(as_json.stdout)
    assert content["schema_version"] == 1 and content["plan"]["steps"] == 4


@pytest.mark.gpu
def test_memory_on_a_gpu_is_about_what_was_counted():
    from anchorlens.engine.engines import Stack
    from anchorlens.files.checkpoint import training_set

    run = preset("quick", batch_size=512, device="cuda")
    data = training_set(run.task, run.train_config)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    Stack([run] * 4, [data] * 4, torch.device("cuda")).advance(2)
    assert torch.cuda.max_memory_allocated() - before < 4 * count_cost(run).bytes
