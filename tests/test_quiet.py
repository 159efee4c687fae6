"""Importing, building, training, measuring and drawing say nothing that nobody asked for.

In processes of their own with `-W default`, which shows every warning once, those of libraries included.
"""

import os
import subprocess
import sys

import pytest
from foreign_checkpoints import write_bare, write_hugging_face, write_released

from anchorlens.models.config import VARIANTS

pytestmark = [pytest.mark.needs(), pytest.mark.system]  # it is about the whole package

TINY = {"n_layers": 2, "d_model": 16, "d_head": 8, "d_mlp": 16, "key_max": 40, "n_samples": 600, "steps": 2}
EVERYTHING = """
from pathlib import Path

import torch

from anchorlens import *
from anchorlens import files, probes, show, verdict
from anchorlens.extras.audit import audit
from anchorlens.files.importers import open_checkpoint
from anchorlens import plots
from anchorlens.extras.sweep import grid, sweep
from sklearn.manifold import TSNE

TSNE.__init__.__kwdefaults__["max_iter"] = 250  # nobody looks at the pictures
for variant in VARIANTS:
    build_model(ModelConfig(variant=variant))(torch.zeros(1, 9, dtype=torch.long))
result = train(*preset("quick", **TINY), out="run", progress=False)
result._repr_html_()
plots.save(result.plot(), Path("curve.html"))
verdict = classify("run")
verdict._repr_html_()
verdict.report("report.html")  # with the picture of every probe
for name in ("a.pt", "a.safetensors"):
    save_checkpoint(name, result.checkpoint)
    load_checkpoint(name).build_model()
probes.compare([result.checkpoint] * 2, "stable_rank").plot().to_json()
cells = sweep(grid("quick", {"seed": [1]}, **TINY), "sweep", engine="serial", progress=False)
cells._repr_html_()
cells.diagram("diagram.html")
for name in ("cells.csv", "cells.parquet"):
    cells.table(name)
recipe = TrainConfig(steps=2, n_samples=600)
small = result.checkpoint.model_config
few = {"seeds": [0], "n_evaluations": 2, "progress": False}
audit(AnchorTask(key_max=40), model_config=small, train_config=recipe, **few).plot()
for path, config in FOREIGN:
    open_checkpoint(path, config=config).checkpoint.build_model()
"""


def said(code, folder):
    """What a fresh process writes to both streams."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
    command = [sys.executable, "-W", "default", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_importing_and_all_the_rest_is_quiet(tmp_path):
    folders = [tmp_path / name for name in ("bare", "hugging_face", "released")]
    for folder in folders:
        folder.mkdir()
    writers = (write_bare, write_hugging_face, write_released)
    written = [write(folder) for write, folder in zip(writers, folders, strict=True)]
    foreign = [(str(one.path), None if one.config is None else str(one.config)) for one in written]
    given = f"VARIANTS, TINY, FOREIGN = {VARIANTS}, {TINY}, {foreign}\n"
    assert said(given + EVERYTHING, tmp_path) == ""


def test_a_warning_would_be_seen(tmp_path):
    assert "look here" in said("import warnings; warnings.warn('look here', DeprecationWarning)", tmp_path)
