"""The memory beside a model, over the number of exceptions: its rows, means and picture."""

import argparse

import pytest

import retrieval
from anchorlens import AnchorTask, ModelConfig, build_model, preset
from anchorlens.files.checkpoint import Checkpoint, save_checkpoint
from anchorlens.runs.run_config import RunConfig
from anchorlens.sweep import Cell


def row(arm, n, seed, value, **more):
    numbers = dict.fromkeys(("train", "id", "ood", "rules"), value)
    remembered = value if n else None
    return {"arm": arm, "n_exceptions": n, "seed": seed, "exceptions": remembered, **numbers, **more}


ROWS = [
    row(arm, n, seed, 0.25 * seed, **({"looked_up": {"unseen": 0.5}} if arm == "retrieval" else {}))
    for arm in retrieval.ARMS
    for n in (0, 20)
    for seed in (0, 1)
]


def test_means_are_over_seeds_and_leave_out_what_is_not_defined():
    found = {(one["arm"], one["n_exceptions"]): one for one in retrieval.means(ROWS)}
    assert len(found) == 6
    assert found["small", 20]["mean"]["ood"] == 0.125
    assert found["small", 20]["by_seed"]["ood"] == {
        0: 0,
        1: 0.25,
    }
    assert found["small", 0]["mean"]["exceptions"] is None
    assert found["retrieval", 20]["mean"]["looked_up_unseen"] == 0.5
    assert found["large", 20]["mean"]["looked_up_unseen"] is None


def test_the_picture_has_a_line_for_each_arm_in_each_panel():
    figure = retrieval.draw(ROWS)
    lines = [trace for trace in figure.data if trace.mode == "lines"]
    assert len(lines) == len(retrieval.ARMS) * len(retrieval.MEASURES)
    assert {line.name for line in lines} == set(retrieval.ARMS.values())


@pytest.mark.parametrize(("gamma", "arms"), [(0.8, ["small", "retrieval"]), (0.4, ["large"])])
def test_a_cell_is_measured_alone_and_with_a_small_start_beside_a_memory(tmp_path, gamma, arms):
    fields = {"gamma": gamma, "d_model": 32, "d_head": 16, "d_mlp": 64, "n_exceptions": 20}
    fields |= {"n_samples": 200, "batch_size": 100}
    task, model, recipe = preset("quick", **fields)
    built = build_model(ModelConfig.from_dict(model.to_dict()), seed=0)
    checkpoint = Checkpoint.from_model(built, model, task, train_config=recipe, step=0)
    save_checkpoint(tmp_path / "ckpt.pt", checkpoint)
    cell = Cell(RunConfig(task, model, recipe), "done", tmp_path)
    rows = retrieval.measured(cell, argparse.Namespace(noise=2))
    assert [one["arm"] for one in rows] == arms and isinstance(task, AnchorTask)
    assert all(0 <= one["exceptions"] <= 1 and one["n_exceptions"] == 20 for one in rows)
    if "retrieval" in arms:
        assert set(rows[1]["looked_up"]) == {"rules", "exceptions", "unseen"} and len(rows[1]["places"]) == 6
