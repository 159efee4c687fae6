"""The whole way of a task without anchors on the command line, on a small square."""

import json

import pytest
from anchorlens_command import call
from browser import Browser, needs_chromium

from anchorlens import load_checkpoint, save_checkpoint

SQUARE = "--task addition --mode reversed --largest 19 --square-min 8 --square-max 11 --n-held-out 20"
MODEL = "--n-layers 1 --n-heads 2 --d-model 16 --d-head 8 --d-mlp 16 --d-vocab 13 --n-ctx 9"
RECIPE = "--n-samples 400 --batch-size 50 --steps 30 --eval-every 10"
ALL = [*SQUARE.split(), *MODEL.split(), *RECIPE.split()]
ANCHORS_ALONE = "information_flow", "mask_key_token", "first_layer_tsne"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("addition") / "run"
    done = call("train", *ALL, "--out", out)
    assert "Never seen (OOD test): 16 sums, both operands in 8..11." in " ".join(done.stdout.split())
    return out


def test_evaluate_says_what_training_said(run):
    content = json.loads(call("evaluate", run / "ckpt.pt", "--json").stdout)
    assert content["subject"]["task"]["kind"] == "addition"
    stored = content["subject"]["metrics"]
    measures = content["behaviour"]["measures"]
    assert {name: one["value"] for name, one in measures.items()} == {
        name: stored[name] for name in ("train", "id", "ood")
    }
    assert "left-out sums" in call("evaluate", run / "ckpt.pt").stdout
    assert "known argument, got 'n_noise'" in call("evaluate", run / "ckpt.pt", "--n-noise", 4, code=2).stderr


def test_resume_keeps_the_task(run):
    assert (
        "task.mode of a resumed run must stay"
        in call("train", "--resume", "--mode", "digits", "--out", run, code=2).stderr
    )
    assert "finished at step 30" in call("train", "--resume", "--out", run).stderr


def test_a_field_of_another_task_is_one_error(tmp_path):
    done = call("train", "--mode", "digits", "--out", tmp_path / "a", code=2)
    assert "two_anchor, got mode of the task addition" in done.stderr
    done = call("train", "--task", "addition", "--regime", "conflict", "--out", tmp_path / "a", code=2)
    assert "addition, got regime of the task two_anchor" in done.stderr
    done = call("train", "--task", "sums", "--out", tmp_path / "a", code=2)
    assert "task must be a known task, got 'sums'" in done.stderr
    done = call("train", *ALL, "--d-vocab", 12, "--out", tmp_path / "a", code=2)
    assert "d_vocab must be at least 13 for the task, got 12" in done.stderr
    assert not (tmp_path / "a").exists()


def test_its_training_data_may_come_from_a_file(run, tmp_path):
    import numpy as np

    checkpoint = load_checkpoint(run / "ckpt.pt")
    data = checkpoint.training_set()
    untold = tmp_path / "untold.pt"
    save_checkpoint(untold, type(checkpoint)(checkpoint.model_config, checkpoint.task, checkpoint.weights))
    np.savez(tmp_path / "data.npz", tokens=data.tokens.numpy(), targets=data.targets.numpy())
    told = call("evaluate", untold, "--train-data", tmp_path / "data.npz", "--json").stdout
    stored = json.loads(call("evaluate", run / "ckpt.pt", "--json").stdout)
    assert json.loads(told)["behaviour"]["measures"] == stored["behaviour"]["measures"]
    for command in ("evaluate", "classify"):
        without = json.loads(call(command, untold, "--json").stdout)
        assert without["behaviour"]["train_source"] == "every training sum"
        assert without["behaviour"]["phase"]["cause"] == "training data unknown"
        assert "train longer" not in str(without) and "noise" not in str(without["behaviour"])


def test_a_probe_of_weights_reads_it_and_one_of_anchors_says_what_it_needs(run):
    assert "StableRank" in call("probe", "stable_rank", run / "ckpt.pt").stdout
    stderr = call("probe", "information_flow", run / "ckpt.pt", code=2).stderr
    assert "AnchorTask" in stderr and stderr.count("\n") == 1


def test_it_is_swept_listed_and_drawn(tmp_path):
    out = tmp_path / "sweep"
    call("sweep", *ALL, "--gamma", "0.4,0.6", "--split", "square,random", "--engine", "serial", "--out", out)
    assert "4 finished" in call("status", out).stdout
    rows = json.loads(call("status", out, "--json").stdout)["cells"]
    assert {(row["kind"], row["split"]) for row in rows} == {("addition", "square"), ("addition", "random")}
    assert all(0 <= row["id"] <= 1 and row["by_probes_phase"] is None for row in rows)
    call("diagram", out, "--out", tmp_path / "diagram.html", "--table", tmp_path / "cells.csv")
    page = (tmp_path / "diagram.html").read_text()
    assert "left-out sums, those of the square." in page and "Commutativity" not in page
    assert (tmp_path / "cells.csv").read_text().count("addition") == 4


@needs_chromium
@pytest.mark.slow
def test_the_report_has_the_plane_of_sums_in_a_browser(run, tmp_path):
    stdout = call("classify", run, "--report", tmp_path / "report.html").stdout
    shown = " ".join(stdout.replace("│", " ").split())
    assert "by the probes" in shown and "probe verdict is undecided (" in shown
    with Browser(tmp_path / "profile") as browser:
        browser.open(tmp_path / "report.html")
        ids = browser.evaluate("[...document.querySelectorAll('figure[id]')].map((figure) => figure.id)")
        assert ids[0] == "answers-0" and not set(ANCHORS_ALONE) & set(ids)
        of_weights = {"q_condensation", "embedding_pca", "stable_rank", "training_regime"}
        assert of_weights | {"answers-1", "training_curve"} <= set(ids)
        drawn = "document.querySelectorAll('#answers-0 .main-svg, #answers-1 .main-svg').length"
        browser.evaluate("document.querySelector('#answers-0').scrollIntoView()")
        browser.wait(f"{drawn} >= 2")
        words = browser.evaluate("document.querySelector('#answers-0').textContent")
        assert "The frame holds the sums that are never trained" in words
        assert not browser.complaints()
