"""Measuring on a GPU or on a stand-in for one: verdicts, audits, foreign models, samples, as on the CPU."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from comparing import check_same, tiny
from foreign_checkpoints import write_bare, write_hugging_face, write_released

from anchorlens import AnchorTask, Checkpoint, ModelConfig, TrainConfig, build_model, classify, train
from anchorlens.engine.layout import architecture
from anchorlens.extras.audit import audit
from anchorlens.files.importers import open_checkpoint
from anchorlens.files.model_input import resolve

pytestmark = pytest.mark.gpu
DEVICES = [f"cuda:{k}" for k in range(min(2, torch.cuda.device_count()))]


def on_both(measure, tolerance=1e-5, devices=DEVICES[:1]):
    """The same content from every device."""
    expected = json.loads(json.dumps(measure("cpu"), default=float))
    for device in devices:
        check_same(json.loads(json.dumps(measure(device), default=float)), expected, tolerance)


def test_a_verdict_of_a_run_that_was_trained_there(tmp_path):
    run = tiny(key_max=99, dtype="float64", steps=60, eval_every=60, n_checkpoints=2, d_mlp=32)
    train(
        run.task,
        run.model_config,
        replace(run.train_config, device="cuda"),
        out=tmp_path / "run",
        progress=False,
    )
    on_both(lambda device: classify(tmp_path / "run", device=device).to_dict(), tolerance=1e-4)


@pytest.mark.needs("importers")
@pytest.mark.parametrize("write", [write_released, write_hugging_face, write_bare])
def test_models_of_others(write, tmp_path):
    written = write(tmp_path)
    checkpoint = open_checkpoint(written.path, config=written.config).checkpoint
    tokens = checkpoint.task.sample(8, seed=0).tokens

    def logits(device):
        model = checkpoint.build_model(device)
        assert model.cfg.device == str(model.W_E.device) == device
        fast = checkpoint.fast_model(device)(tokens)
        return [part.detach().cpu().tolist() for part in (model(tokens)[:, -1], fast[:, -1])]

    on_both(logits, devices=DEVICES)


def test_any_hooked_transformer(tmp_path):
    model = build_model(ModelConfig(n_layers=1, d_model=16, d_head=8, d_mlp=16))
    torch.save(model.state_dict(), tmp_path / "bare.pt")

    def opened(device):
        how = {"config": model.cfg, "device": device}
        return resolve(tmp_path / "bare.pt", **how).model

    tokens = torch.arange(8)[None]
    on_both(lambda device: opened(device)(tokens).tolist(), devices=DEVICES)
    assert opened("cpu").cfg.device == "cpu"


def test_an_audit():
    task = AnchorTask(anchors={1: 5, 2: -3, 3: 1}, unseen_pairs=[], key_min=20, key_max=29, seq_len=4)
    model = ModelConfig.for_task(task, n_layers=1, d_model=16, d_head=8, d_mlp=16, gamma=0.8)
    recipe = TrainConfig(steps=6, n_samples=64, batch_size=16, warmup_steps=1)

    def probabilities(device):
        asked = replace(recipe, device=device)
        found = audit(
            task, model_config=model, train_config=asked, seeds=[0, 1], n_evaluations=3, n_draws=1, workers=1
        )
        return found.right.tolist()

    on_both(probabilities, tolerance=1e-4)


def test_samples_of_images():
    run = tiny("concept_graphs")
    layout = architecture(run.model_config)
    weights = layout.initial_weights(run.model_config, 0, torch.float64)
    checkpoint = Checkpoint(run.model_config, run.task, weights, None, 0, {})

    def images(device):
        drawn = []
        for model in (checkpoint.fast_model(device), checkpoint.build_model(device)):
            found = run.task.samples(run.task.ready(model), ["000", "110"], n=2)
            drawn.append([np.asarray(each).tolist() for each in found.values()])
        return drawn

    on_both(images)


@pytest.mark.parametrize("name", ["quick", "addition"])
def test_an_evaluation_of_weights_alone(name):
    run = tiny(name)
    weights = architecture(run.model_config).initial_weights(run.model_config, 0, torch.float32)
    checkpoint = Checkpoint(run.model_config, run.task, weights, None, 0, {})
    on_both(lambda device: checkpoint.evaluate(device=device).to_dict())
