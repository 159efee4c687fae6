"""A small file cannot take any memory: what its model would take is known from its header, and refused."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from foreign_checkpoints import OURS, write_bare, write_own

from anchorlens import AnchorTask, ModelConfig, TrainConfig, load_checkpoint, save_checkpoint
from anchorlens.engine.layout import architecture
from anchorlens.files.checkpoint import Checkpoint
from anchorlens.files.importers import open_checkpoint
from anchorlens.models import running
from anchorlens.models.gamma import initial_weights
from anchorlens.recipes.presets import preset, presets
from anchorlens.safe import CheckpointError
from anchorlens.tasks.shared import evaluator
from anchorlens.tasks.shared.evaluator import check_memory
from anchorlens.tasks.two_anchor.sequences import DRAWN_AT_ONCE

THIN = {"n_layers": 1, "n_heads": 1, "d_model": 1, "d_head": 1, "d_mlp": 1, "d_vocab": 110, "n_ctx": 9}
COSTLY = {
    "context": ({"n_ctx": 100_000}, {}),
    "sequence": ({"n_ctx": 10_000}, {"seq_len": 10_000}),
    "drawing": ({"n_ctx": 9000}, {"seq_len": 9000, "key_min": 20, "key_max": 22}),
    "layers": ({"n_layers": 1000}, {}),
}


def costly(name):
    shape, task = COSTLY[name]
    config = ModelConfig(**{**THIN, **shape})
    return Checkpoint(config, AnchorTask(**task), initial_weights(config, 0), TrainConfig())


@pytest.mark.parametrize("name", COSTLY)
def test_refused_before_anything_is_built(tmp_path, name, monkeypatch):
    path, given = tmp_path / "a.safetensors", costly(name)
    if name == "layers":  # a tenth of the layers that are too many, which take half a minute to write
        monkeypatch.setattr(evaluator, "FREE_BYTES", evaluator.FREE_BYTES / 10)
        monkeypatch.setattr(running, "BATCH_BYTES", running.BATCH_BYTES / 10)
    save_checkpoint(path, given)
    for read in (load_checkpoint, open_checkpoint):
        with pytest.raises(CheckpointError, match="too costly: .* GB of memory") as error:
            read(path)
        assert str(error.value).startswith(str(path)) and "\n" not in str(error.value)
    assert load_checkpoint(path, any_cost=True).model_config == given.model_config


def test_ten_thousand_layers_are_too_many():
    config = ModelConfig(**THIN | {"n_layers": 10_000})
    weights = [torch.empty(shape, device="meta") for shape in architecture(config).shapes.values()]
    with pytest.raises(ValueError, match="too costly"):
        check_memory(config, AnchorTask(), 0, weights)
    config = replace(config, n_layers=1000)
    check_memory(config, AnchorTask(), 0, weights[: len(weights) // 10])


@pytest.mark.needs("importers")
def test_a_bare_state_dict_too(tmp_path):
    weights = costly("context").weights
    written = write_bare(tmp_path, config=OURS, weights=weights)
    with pytest.raises(CheckpointError, match="too costly"):
        open_checkpoint(written.path, config=written.config)


@pytest.mark.parametrize("name", [name for name in presets() if name.startswith(("paper", "quick", "phase"))])
def test_the_papers_own_shapes_are_allowed(name):
    for fields in [{}, *([{"n_layers": 7}] if name == "paper-2l1h" else [])]:
        run = preset(name, **fields)
        shapes = architecture(run.model_config).shapes.values()
        weights = [torch.empty(shape, device="meta") for shape in shapes]
        check_memory(run.model_config, run.task, run.train_config.n_samples, weights)


def test_sequences_are_drawn_in_pieces_of_so_many_tokens(monkeypatch):
    """Long sequences are drawn few at a time, which the estimate counts."""
    task, drawn = AnchorTask(key_max=22, seq_len=600, unseen_pairs=[], anchors={1: 1, 2: 2}), []
    noise = AnchorTask.noise
    monkeypatch.setattr(AnchorTask, "noise", lambda self, n, seed: (drawn.append(n), noise(self, n, seed))[1])
    assert len(task.lazy_sample(20_000).take(np.arange(5))) == 5
    assert max(drawn) * 600 <= DRAWN_AT_ONCE and sum(drawn) == 20_000


def test_memory_grows_with_what_is_asked():
    assert AnchorTask(key_max=199).bytes_to_ask(100) > AnchorTask().bytes_to_ask(100)
    assert AnchorTask().bytes_to_ask(10_000) > AnchorTask().bytes_to_ask(100)


@pytest.mark.slow
def test_a_large_training_set_is_not_held(tmp_path):
    """Four million sequences are 500 MB; of them 4,096 are asked. The estimate allows it."""
    path = write_own(tmp_path).path
    checkpoint = load_checkpoint(path)
    train = TrainConfig(n_samples=20_000_000)
    save_checkpoint(path, Checkpoint(checkpoint.model_config, checkpoint.task, checkpoint.weights, train))
    code = (
        "import resource, sys; from anchorlens.cli import app\n"
        "try: app(['evaluate', sys.argv[1], '--json'])\n"
        "except SystemExit: pass\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    assert '"train_source": "training set"' in done.stdout, done.stderr
    assert int(done.stdout.split()[-1]) < 900
