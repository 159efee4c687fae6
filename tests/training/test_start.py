"""Runs that start from a checkpoint: its weights, a fresh optimizer, and no claim that would be false."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from anchorlens_command import call

from anchorlens import load_checkpoint, train
from anchorlens.engine.engines import Stack
from anchorlens.extras.sweep import sweep
from anchorlens.files.checkpoint import training_set
from anchorlens.models.config import ModelConfig
from anchorlens.recipes.run_config import RunConfig, identity
from anchorlens.recipes.train_config import TrainConfig
from anchorlens.tasks.two_anchor.task import AnchorTask

TASK = AnchorTask(key_max=40)
TINY = ModelConfig.for_task(TASK, n_layers=1, d_model=16, d_head=8, d_mlp=16, gamma=0.5)
RECIPE = TrainConfig(n_samples=256, batch_size=64, steps=12, warmup_steps=2, n_checkpoints=0, eval_every=12)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The folder of a run that has ended."""
    out = tmp_path_factory.mktemp("first") / "run"
    train(TASK, TINY, RECIPE, out=out)
    return out


def test_a_run_starts_from_the_weights_with_moments_of_zero(first, tmp_path):
    """By hand: a stack whose weights are put in place, and nothing else."""
    recipe = replace(RECIPE, seed=1, start=str(first))
    result = train(TASK, TINY, recipe, out=tmp_path / "run")
    by_hand = Stack(
        [RunConfig(TASK, TINY, replace(RECIPE, seed=1))], [training_set(TASK, recipe)], torch.device("cpu")
    )
    for name, view in by_hand.layout.views(by_hand._rows).items():
        view.data[0].copy_(load_checkpoint(first / "ckpt.pt").weights[name])
    by_hand.advance(12)
    for name, weight in by_hand.weights(0).items():
        assert torch.equal(result.checkpoint.weights[name], weight), name
    assert result.checkpoint.train_config.start == str(first)
    initial = result.checkpoint.initial_model(start=first).state_dict()
    assert torch.equal(initial["embed.W_E"], load_checkpoint(first / "ckpt.pt").weights["embed.W_E"])


def test_rescaled_at_its_start_it_is_the_model_times_the_factor(first):
    recipe = replace(RECIPE, start=str(first / "ckpt.pt"), rescale="mlp=0.5@0", lr=1e-30, weight_decay=0)
    weights, before = train(TASK, TINY, recipe).checkpoint.weights, load_checkpoint(first / "ckpt.pt").weights
    assert torch.equal(weights["blocks.0.mlp.W_in"], 0.5 * before["blocks.0.mlp.W_in"])
    assert torch.equal(weights["embed.W_E"], before["embed.W_E"])


def test_what_the_file_holds_decides_which_run_it_is_and_where_it_lies_does_not(first, tmp_path):
    shutil.copy(first / "ckpt.pt", tmp_path / "elsewhere.pt")
    here, there = (replace(RECIPE, start=str(path)) for path in (first, tmp_path / "elsewhere.pt"))
    assert here == there and identity(RunConfig(TASK, TINY, here)) == identity(RunConfig(TASK, TINY, there))
    assert identity(RunConfig(TASK, TINY, here)) != identity(RunConfig(TASK, TINY, RECIPE))


def test_a_file_that_has_changed_is_refused(first, tmp_path):
    shutil.copytree(first, tmp_path / "run")
    recipe = replace(RECIPE, start=str(tmp_path / "run"))
    train(TASK, TINY, replace(RECIPE, seed=5), out=tmp_path / "other")
    shutil.copy(tmp_path / "other/ckpt.pt", tmp_path / "run/ckpt.pt")
    with pytest.raises(ValueError, match="with other contents. Give the original file"):
        train(TASK, TINY, recipe)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model": {"gamma": 0.7}}, r"start must be .*of the model"),
        (
            {"task": {"unseen_pairs": ((1, 2), (2, 1))}},
            r"start must be .*of the task",
        ),
    ],
)
def test_another_model_or_task_is_refused(first, tmp_path, changes, says):
    task = replace(TASK, **changes.get("task", {}))
    model = replace(TINY, **changes.get("model", {}))
    with pytest.raises(ValueError, match=says):
        train(task, model, replace(RECIPE, start=str(first)), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_relative_start_is_found_from_other_folders(first, tmp_path, monkeypatch):
    monkeypatch.chdir(first.parent)
    recipe = replace(RECIPE, start=first.name)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    result = train(TASK, TINY, recipe, out=tmp_path / "run")
    assert result.checkpoint.train_config.start == str(first)


def test_a_run_that_has_ended_needs_its_start_no_more(first, tmp_path):
    start, out = tmp_path / "start", tmp_path / "run"
    shutil.copytree(first, start)
    recipe = replace(RECIPE, start=str(start))
    weights = train(TASK, TINY, recipe, out=out).checkpoint.weights
    cell = RunConfig(TASK, TINY, recipe)
    sweep([cell], tmp_path / "sweep", engine="serial", progress=False)
    shutil.rmtree(start)
    again = train(TASK, TINY, recipe, out=out, resume=True)
    assert torch.equal(again.checkpoint.weights["embed.W_E"], weights["embed.W_E"])
    assert "finished at step 12" in call("train", "--resume", "--out", out).stderr
    assert sweep([cell], tmp_path / "sweep", engine="serial", progress=False).counts == {"finished": 1}
    (out / "ckpt.pt").unlink()  # one that has not ended does
    assert "start must be" in call("train", "--resume", "--out", out, code=2).stderr


@pytest.mark.parametrize("start", ["nowhere.pt", "/dev/null", "."])
def test_what_is_no_checkpoint_is_one_error(start, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"start.*folder of a run that has ended"):
        replace(RECIPE, start=start)


def test_on_the_command_line_the_rest_is_that_of_the_checkpoint(first, tmp_path):
    out = tmp_path / "run"
    call("train", "--from", first, "--rescale", "all=0.5@3", "--steps", "6", "--out", out)
    config = json.loads((out / "config.json").read_text())
    assert config["model"]["gamma"] == 0.5 and config["task"]["key_max"] == 40
    assert config["train"]["n_samples"] == 256 and config["train"]["steps"] == 6
    assert len(config["train"]["start_sha256"]) == 64
    out = tmp_path / "sweep"
    call("sweep", "--from", first, "--rescale", "none,all=0.5@0", "--engine", "serial", "--out", out)
    assert len(list((out / "cells").iterdir())) == 2


@pytest.mark.parametrize("value", ["3", "true", '["a"]', '""'])
def test_a_start_that_is_no_path_is_one_error(value, tmp_path):
    (tmp_path / "c.toml").write_text(f"[train]\nstart = {value}\n")
    done = call("train", "--config", tmp_path / "c.toml", "--dry-run", code=2)
    assert "start must be the path of a checkpoint or run" in done.stderr


def test_an_error_is_all_that_is_said(first, tmp_path):
    """Not that a training began."""
    done = call("train", "--from", first, "--gamma", "0.9", "--out", tmp_path / "run", code=2)
    assert done.stderr.count("\n") == 1 and "got another gamma. Omit gamma" in done.stderr


def test_a_part_of_a_toml_file_that_is_no_table_is_one_error(tmp_path):
    (tmp_path / "c.toml").write_text("train = 3\n")
    done = call("train", "--config", tmp_path / "c.toml", "--dry-run", code=2)
    assert "train must be a table of fields, got 3" in done.stderr
