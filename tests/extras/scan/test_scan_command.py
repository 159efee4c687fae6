"""The whole way of a task in words on the command line, on a tiny model."""

import json

import pytest
import torch
from anchorlens_command import call
from html_page import Page

from anchorlens import ScanTask, preset, train
from anchorlens.extras.shared.word_task import WordTask

MODEL = "--n-layers 1 --n-heads 2 --d-model 16 --d-head 8 --d-mlp 16"
RECIPE = "--n-samples 400 --batch-size 20 --steps 12 --eval-every 6 --n-checkpoints 2"
ALL = ["--preset", "scan", "--split", "jump", *MODEL.split(), *RECIPE.split()]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("scan") / "run"
    done = call("train", *ALL, "--out", out)
    assert "Never seen (OOD test): 7,706 commands" in " ".join(done.stdout.split())
    return out


def test_evaluate_says_what_training_said(run):
    content = json.loads(call("evaluate", run / "ckpt.pt", "--json").stdout)
    stored = content["subject"]["metrics"]
    measures = content["behaviour"]["measures"]
    assert {name: one["value"] for name, one in measures.items()} == {name: stored[name] for name in measures}
    assert content["subject"]["task"] == {
        "kind": "scan",
        "split": "jump",
        "n_held_out": 1000,
        "split_seed": 0,
        "bos": True,
    }
    assert "commands that the split leaves out" in call("evaluate", run / "ckpt.pt").stdout


def test_classify_of_an_underfit_run_has_readings_of_its_weights_and_a_report_with_answers(run, tmp_path):
    page = tmp_path / "report.html"
    done = call("classify", run / "ckpt.pt", "--report", page, "--json")
    verdict = json.loads(done.stdout)
    assert verdict["phase"]["label"] == "undecided: underfit"
    assert verdict["by_probes"]["phase"]["cause"] == "underfit"
    weights = {one["reading"]: one for one in verdict["by_probes"]["evidence"]}
    assert set(weights) == {
        "q_condensation.mean_abs_cosine",
        "stable_rank.w_q_normalized",
        "embedding_pca.rank_normalized",
    }
    assert all(one["sees"] == "weights" and not one["odds"] for one in weights.values())
    texts = "".join(Page(page.read_text()).texts)
    assert "Answer" in texts and "I_TURN_LEFT" in texts and "Exact match by length" in texts
    assert "stable_rank" in page.read_text()


def test_a_run_that_dies_and_is_resumed_is_bit_equal(tmp_path, monkeypatch):
    class Killed(Exception):
        """Stands for the end of the process."""

    fields = {"n_layers": 1, "d_model": 16, "d_head": 8, "d_mlp": 16, "n_heads": 2, "n_samples": 100}
    recipe = {"batch_size": 10, "steps": 20, "eval_every": 5, "state_every_seconds": 0}
    run = preset("scan", **fields, **recipe)
    whole = train(*run, out=tmp_path / "whole", progress=False)
    measured = []

    def dying(self, *args, **options):
        measured.append(1)
        if len(measured) == 3:
            raise Killed
        return WordTask.measure(self, *args, **options)

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(ScanTask, "measure", dying)
        train(*run, out=tmp_path / "killed", progress=False)
    assert (tmp_path / "killed" / "state.pt").exists()
    again = train(*run, out=tmp_path / "killed", resume=True, progress=False)
    for name, weight in whole.checkpoint.weights.items():
        assert torch.equal(weight, again.checkpoint.weights[name]), name
