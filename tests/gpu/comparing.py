"""What the tests on a GPU share: tiny runs of every kind, and the numbers of both devices side by side."""

import hashlib
import math

import pytest
import torch

from anchorlens import preset
from anchorlens.extras.cogs import files
from anchorlens.recipes.presets import preset_parts, presets

SIZES = {"n_layers": 2, "n_heads": 2, "d_model": 16, "d_head": 8, "d_mlp": 24}
RECIPE = {"batch_size": 16, "steps": 5, "epochs": None, "warmup_steps": 2, "log_every": 3, "eval_every": 5}
TASKS = {
    "two_anchor": {"key_max": 24, "n_samples": 32},
    "addition": {"largest": 20, "square_min": 5, "square_max": 8, "n_held_out": 20, "n_samples": 32},
    "modular": {"modulus": 7, "d_vocab": 8, "d_vocab_out": 7, "n_samples": 32, "gamma": 0.8},
    "scan": {"n_held_out": 20, "n_samples": 32},
    "prontoqa": {"n_test": 20, "n_samples": 32},
    "cogs": {"n_samples": 4, "batch_size": 2},
    "text": {"n_samples": 32, "seq_len": 24, "n_ctx": 24, "corpus": "files", "held_out_share": 0.1},
    "concept_graphs": {
        "n_samples": 32,
        "image_side": 16,
        "input_side": 16,
        "n_feat": 8,
        "dtype": "float64",
        "n_diffusion_steps": 10,
    },
}
"""Task -> what makes a run of it tiny, with few questions to ask."""


def tiny(name="quick", data="", **fields):
    """A preset in a tiny size."""
    kind = preset_parts(name).get("task", {}).get("kind", "two_anchor")
    sizes = {} if kind == "concept_graphs" else SIZES
    own = {"data": data} if kind in ("cogs", "text") else {}
    return preset(name, **{**sizes, **RECIPE, **TASKS[kind], **own, **fields})


def cogs_files(folder, monkeypatch):
    """A folder of a few sentences, taken for the published files of COGS."""
    trained = [(f"A {noun} ran .", f"run . agent ( x _ 2 , {noun} )", "in_distribution") for noun in "abcd"]
    trained += [("e", "LAMBDA a . e ( a )", "primitive")]
    new = [
        ("A e ran .", "run . agent ( x _ 2 , e )", case) for case in ("prim_to_subj_common", "pp_recursion")
    ]
    for name, lines in {"train": trained, "dev": trained[:1], "test": trained[1:2], "gen": new}.items():
        content = "".join("\t".join(line) + "\n" for line in lines).encode()
        (folder / f"{name}.tsv").write_bytes(content)
        published = (len(content), hashlib.sha256(content).hexdigest())
        monkeypatch.setitem(files.FILES, f"{name}.tsv", published)


def check_same(found, expected, tolerance, where=""):
    """Every number of one is that of the other, in dictionaries and lists too; times are not compared."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for name in expected.keys() - {"seconds"}:
            check_same(found[name], expected[name], tolerance, f"{where}.{name}")
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), where
        for k, (one, other) in enumerate(zip(found, expected, strict=True)):
            check_same(one, other, tolerance, f"{where}[{k}]")
    elif isinstance(expected, float) and math.isfinite(expected):
        assert found == pytest.approx(expected, rel=tolerance, abs=tolerance), where
    else:
        assert found == expected or found != found, where


ALL = tuple(presets())
_KINDS = {
    (run.task.kind, getattr(run.task, "mode", ""), getattr(run.model_config, "variant", "")): name
    for name, run in ((name, preset(name)) for name in reversed(ALL))
}
FIRST_OF_A_KIND = tuple(_KINDS.values())
"""A preset of every task, and of every variant of the model."""
ASKED = FIRST_OF_A_KIND if torch.cuda.get_device_name() == "stand-in" else ALL
"""On the stand-in, those alone: `tiny` leaves the others little but their rates."""
