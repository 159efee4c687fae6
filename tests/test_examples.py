import importlib.util
import json
import struct
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from browser import needs_chromium

from anchorlens import Checkpoint, build_model, load_checkpoint, preset, train_many
from anchorlens.extras.sweep import grid
from anchorlens.models.config import VARIANTS
from anchorlens.probes import PROBES, REPORT_PROBES
from anchorlens.training import checkpoints

EXAMPLES = Path(__file__).parents[1] / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(name.replace("/", "_"), EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TINY = {"key_max": 40, "n_samples": 600, "batch_size": 64, "d_model": 16, "d_head": 8, "d_mlp": 16}


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


def test_training_benchmark_of_a_loss_of_its_own():
    benchmark = example("benchmarks/training")
    run = preset("concept_graphs", n_feat=8, n_diffusion_steps=10, n_samples=64, batch_size=16)
    names = [benchmark.EAGER, benchmark.VMAP, "ours"]  # vmap is written for tokens alone and left out
    content = benchmark.measure(run, torch.device("cpu"), 1, names, repeats=1, seconds=0.01)
    assert [row["way"] for row in content["rows"]] == [benchmark.EAGER, "anchorlens"]
    assert all(row["share_of_limit"] is None for row in content["rows"])


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_plain_rewrite_of_the_benchmark_is_the_same_model(variant):
    """Its speed would mean nothing otherwise."""
    benchmark = example("benchmarks/training")
    run = preset("quick", variant=variant, **TINY)
    model = build_model(run.model_config)
    tokens = run.task.sample(32).tokens
    logits = benchmark.plain_logits(dict(model.named_parameters()), run, tokens)
    assert (logits - model(tokens)[:, -1]).abs().max() < 1e-5


def test_probe_table_reads_trained_runs_and_trains_the_missing(tmp_path, monkeypatch):
    table = example("probe_table")
    monkeypatch.setattr(table, "train_many", partial(train_many, workers=1))
    monkeypatch.setattr(table, "COLUMNS", {"phase3-gamma0.8": "Phase 3, gamma 0.8"})
    monkeypatch.setattr(table, "preset", lambda name, **fields: preset("quick", steps=1, **TINY, **fields))
    few = PROBES[-4:]  # all would take half a minute
    first = table.runs([0, 1], tmp_path)
    assert [c.model_config.gamma for c in first["phase3-gamma0.8"]] == [0.8, 0.8]
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("ckpt.pt")}
    assert len(written) == 2 and table.runs([0, 1], tmp_path).keys() == first.keys()
    assert written == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("ckpt.pt")}
    found = table.readings(first, few)
    assert {len(values) for by_column in found.values() for values in by_column.values()} == {2}
    shown = table.table(found)
    assert shown.row_count == len(found) == sum(len(probe_readings(probe)) for probe in few)
    table.draw(first, tmp_path / "pictures", ".html", few)
    assert len(list((tmp_path / "pictures").iterdir())) == len(few)


def probe_readings(probe):
    return sys.modules[probe.__module__].__dict__[probe.__annotations__["return"]].readings


def test_probe_table_says_of_how_many_seeds():
    table = example("probe_table")
    assert table.summary([1.0, 3.0]) == "2.00 ± 1.41"
    assert table.summary([1.0, None, 3.0]) == "2.00 ± 1.41 (2 of 3)"
    assert table.summary([None, None]) == "undefined"


@pytest.mark.filterwarnings("ignore")  # of the t-SNE on tiny models
@pytest.mark.slow
def test_probe_benchmark_measures_every_probe():
    benchmark = example("benchmarks/probes")
    run = preset("quick", **TINY)
    checkpoint = Checkpoint.from_model(
        build_model(run.model_config), run.model_config, run.task, train_config=run.train_config
    )
    rows = benchmark.measure(checkpoint, "cpu", patches=True)
    assert [row["probe"] for row in rows[1:-1]] == [
        probe.__name__ for probe in REPORT_PROBES if probe in PROBES
    ]
    assert rows[-1]["probe"] == "activation patches" and json.dumps(rows)
    assert benchmark.table(rows).row_count == len({*REPORT_PROBES} & {*PROBES}) + 3


def test_padding_is_counted():
    """Fewer operations in groups than in one, and fewest where every batch has one length."""
    benchmark = example("benchmarks/padding")
    one, groups, length = benchmark.shares(preset("scan"), 5).values()
    assert 0 < length < groups < one < 1


def test_task_benchmark_measures_every_task():
    benchmark = example("benchmarks/task")
    assert set(benchmark.measure(n=1000, repeats=1)) == set(benchmark.TASKS)


def test_sweep_benchmark_measures_both_ways():
    benchmark = example("benchmarks/sweep")
    row = benchmark.measure(grid("quick", {"seed": [0, 1]}, steps=2, **TINY), "serial", turns=1)
    assert {name: len(each) for name, each in row["seconds"].items()} == {"bare": 1, "sweep": 1, "start": 1}
    assert row["ratio"] > row["ratio_without_start"] and json.dumps(row)
    assert benchmark.table([row]).row_count == 1


def test_cutting_edges_of_the_shipped_phase_3_model(capsys):
    cut = example("cut_an_edge").main(checkpoints.shipped()[-1])
    assert set(cut) == {(layer, name) for layer in (0, 1) for name in ("key token", "anchor 1", "anchor 2")}
    assert cut[0, "key token"] < 0.1  # the inferential route: key to anchors in the first layer
    assert cut[1, "anchor 2"] < 0.1  # and anchors to the last position in the second
    assert "nothing cut: accuracy 1.000" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:.*HookedTransformer:DeprecationWarning")  # transformer_lens' own
def test_a_model_of_ones_own_is_classified():
    verdict = example("your_own_loop").main(steps=2, batch_size=32)
    assert verdict.phase.label == "undecided: underfit" and verdict.subject.checkpoint is None


def test_gamma_and_seeds_has_a_number_for_each(monkeypatch):
    script = example("gamma_and_seeds")
    monkeypatch.setattr(script, "train_many", partial(train_many, workers=1))
    found = script.main([0.3, 0.8], [0, 1], 2, **TINY)
    assert {gamma: len(values) for gamma, values in found.items()} == {0.3: 2, 0.8: 2}


def test_four_phases_is_one_column_for_each_shipped_model():
    picture = example("four_phases")
    checkpoint = load_checkpoint(checkpoints.shipped()[0])
    figure = picture.draw([picture.measured(checkpoint)], list(checkpoint.task.anchors))
    assert "Phase 1" in figure.layout.annotations[0].text
    assert [trace.type for trace in figure.data] == ["heatmap"] + 12 * ["scatter"]


@needs_chromium
def test_the_picture_of_a_report_is_the_top_of_the_page(tmp_path):
    page, picture = tmp_path / "page.html", tmp_path / "top.png"
    page.write_text("<body style='margin:0; background:#ff0000'><div style='height:3000px'></div>")
    example("report_picture").photographed(page, picture, width=300, height=200)
    width, height = struct.unpack(">II", picture.read_bytes()[16:24])
    assert (width, height) == (300, 200)


def test_without_a_browser_the_picture_of_a_report_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="install Chromium"):
        example("report_picture").photographed(tmp_path / "page.html", tmp_path / "top.png", 300, 200)


def test_the_gallery_draws_the_four_shipped_models(tmp_path):
    gallery = example("gallery")
    gallery.draw(["stable_rank"], tmp_path / "pictures", ".html")
    page = (tmp_path / "pictures/stable_rank.html").read_text(encoding="utf-8")
    assert all(f"\\u003cb\\u003e{label}" in page for label in gallery.LABELS)


def test_a_gpt_of_ones_own_is_drawn_trained_and_asked(capsys):
    accuracies = example("your_own_gpt").main([0.3, 0.7], [0], steps=2, batch_size=8)
    assert list(accuracies) == [0.3, 0.7] and all(len(values) == 1 for values in accuracies.values())
    printed = capsys.readouterr().out
    assert (
        "gamma 0.7, seed 0: AnchorEvaluation(undecided: too few training sequences" in printed
        and "fan-in" in printed
    )
