"""A small file cannot take any memory or time: what it would cost is known from its header, and refused."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from foreign_checkpoints import write_bare, write_own

from anchorlens import AnchorTask, ModelConfig, TrainConfig, load_checkpoint, save_checkpoint
from anchorlens.engine.evaluation_cost import asking_cost, check_cost
from anchorlens.files.checkpoint import Checkpoint
from anchorlens.files.importers import open_checkpoint
from anchorlens.models.gamma import initial_weights
from anchorlens.recipes.presets import preset, presets
from anchorlens.safe import FACTOR, CheckpointError
from anchorlens.tasks.two_anchor.sequences import DRAWN_AT_ONCE

THIN = {"n_layers": 1, "n_heads": 1, "d_model": 1, "d_head": 1, "d_mlp": 1, "d_vocab": 110, "n_ctx": 9}
COSTLY = {
    "training set": ({}, {}, {"n_samples": 100_000_000}),
    "vocabulary": ({"d_vocab": 1_000_000, "d_model": 2}, {}, {}),
    "MLP": ({"d_mlp": 1_000_000}, {}, {}),
    "heads": ({"n_heads": 200_000}, {}, {}),
    "context": ({"n_ctx": 100_000}, {}, {}),
    "sequence": ({"n_ctx": 10_000}, {"seq_len": 10_000}, {}),
    "drawing": (
        {"n_ctx": 9000, "n_layers": 1},
        {"seq_len": 9000, "key_min": 20, "key_max": 22},
        {"n_samples": 10**6},
    ),
    "layers": ({"n_layers": 1001}, {}, {}),
}


def costly(name):
    shape, task, train = COSTLY[name]
    config = ModelConfig(**{**THIN, **shape})
    return Checkpoint(config, AnchorTask(**task), initial_weights(config, 0), TrainConfig(**train))


@pytest.mark.parametrize("name", COSTLY)
def test_refused_before_anything_is_built(tmp_path, name):
    path = tmp_path / "a.safetensors"
    save_checkpoint(path, costly(name))
    for read in (load_checkpoint, open_checkpoint):
        with pytest.raises(CheckpointError, match=f"too costly: .*set {FACTOR}=") as error:
            read(path)
        assert str(error.value).startswith(str(path)) and "\n" not in str(error.value)


def test_whoever_trusts_it_may_open_it(tmp_path, monkeypatch):
    path = tmp_path / "a.pt"
    save_checkpoint(path, costly("training set"))
    with pytest.raises(CheckpointError) as error:
        load_checkpoint(path)
    assert load_checkpoint(path, any_cost=True).train_config.n_samples == 100_000_000
    monkeypatch.setenv(FACTOR, str(error.value).split(f"{FACTOR}=")[1].split()[0])  # as it says
    assert load_checkpoint(path).train_config.n_samples == 100_000_000
    monkeypatch.setenv(FACTOR, "much")
    with pytest.raises(CheckpointError, match=f"{FACTOR} must be a number above 0, got 'much'"):
        load_checkpoint(path)


def test_a_bare_state_dict_too(tmp_path):
    written = write_bare(tmp_path, config="task.seq_len = 9\ntrain.n_samples = 100000000\n")
    with pytest.raises(CheckpointError, match="too costly"):
        open_checkpoint(written.path, config=written.config)


@pytest.mark.parametrize("name", [name for name in presets() if name.startswith(("paper", "quick", "phase"))])
def test_the_papers_own_shapes_are_allowed(name, monkeypatch):
    """GPT-2 small asked all of COGS is beyond a file of its size, as docs/science.md says."""
    run = preset(name)
    if name == "paper-cogs":
        with pytest.raises(ValueError, match=f"set {FACTOR}=2.5"):
            check_cost(run.model_config, run.task, run.train_config)
        monkeypatch.setenv(FACTOR, "2.5")
    check_cost(run.model_config, run.task, run.train_config)
    if name == "paper-2l1h":
        run = preset(name, n_layers=7)
        check_cost(run.model_config, run.task, run.train_config)


def test_sequences_are_drawn_in_pieces_of_so_many_tokens(monkeypatch):
    """Long sequences are drawn few at a time, which the estimate counts."""
    task, drawn = AnchorTask(key_max=22, seq_len=600, unseen_pairs=[], anchors={1: 1, 2: 2}), []
    noise = AnchorTask.noise
    monkeypatch.setattr(AnchorTask, "noise", lambda self, n, seed: (drawn.append(n), noise(self, n, seed))[1])
    assert len(task.lazy_sample(20_000).take(np.arange(5))) == 5
    assert max(drawn) * 600 <= DRAWN_AT_ONCE and sum(drawn) == 20_000


def test_cost_grows_with_what_is_asked():
    task, model = AnchorTask(), ModelConfig()
    base = asking_cost(model, task)
    assert asking_cost(model, task, TrainConfig(n_samples=10**6)).operations > base.operations
    assert asking_cost(ModelConfig(d_mlp=512), task).operations > base.operations
    assert asking_cost(model, AnchorTask(key_max=199)).bytes > base.bytes


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
        [sys.executable, "-c", code, path], capture_output=True, text=True, cwd=Path(__file__).parents[3]
    )
    assert '"train_source": "training set"' in done.stdout, done.stderr
    assert int(done.stdout.split()[-1]) < 900
