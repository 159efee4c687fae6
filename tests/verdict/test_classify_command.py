"""`anchorlens classify` and `anchorlens demo`."""

import functools
import json
import re

import anchorlens_command
import pytest
import torch
from typer.testing import CliRunner

from anchorlens import AnchorTask, Checkpoint, ModelConfig, build_model, probes, save_checkpoint
from anchorlens.cli import app
from anchorlens.training import checkpoints

SHIPPED = {path.stem: str(path) for path in checkpoints.shipped()}
TINY = ModelConfig(n_layers=2, d_model=16, d_head=8, d_mlp=16)


@pytest.fixture(scope="module")
def untrained(tmp_path_factory):
    path = tmp_path_factory.mktemp("classify") / "untrained.pt"
    save_checkpoint(path, Checkpoint.from_model(build_model(TINY), TINY, AnchorTask()))
    return str(path)


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    path = tmp_path_factory.mktemp("classify") / "broken.pt"
    path.write_bytes(b"PK\x03\x04 and no more")
    return str(path)


call = functools.partial(anchorlens_command.call, "classify", "--quick", code=None, columns=80)


def test_one_checkpoint_is_a_page_for_people():
    done = call(SHIPPED["phase3"], "--strict")
    assert done.exit_code == 0, "its phase is decided"
    assert done.stdout.startswith("phase3.pt: Phase 3\n")
    assert "weights resemble those of models that compose the rules" in " ".join(done.stdout.split())
    assert "by the probes" in done.stdout and "Phase 3, " in done.stdout
    assert re.search(r"flow\.relative_margin (0\.9|1\.0)\d: margin on trained pairs", done.stdout)
    assert "Trust: by behaviour, the definition; by the probes, right on" in " ".join(done.stdout.split())
    parts = r"Phase 2, \d+% \(with\w* commutativity \d+%, with"
    assert re.search(parts, " ".join(re.split(r"[│\s]+", done.stdout)))
    assert done.stdout.count("    ranges: ") == 4 and "odds: " not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "\x1b[" not in done.stdout, "colours are for a terminal"


def test_the_odds_and_the_line_on_what_takes_long_are_there_where_they_belong(untrained, monkeypatch):
    monkeypatch.setattr("anchorlens.cli.shared.PATIENCE", 0.0)
    done = call(SHIPPED["phase1"], "--verbose")
    assert done.stdout.count("    odds: ") == done.stdout.count("    ranges: ") > 0
    assert "phase1.pt: measuring the model" in done.stderr and "measuring" not in done.stdout
    assert "Trust:" not in call(untrained).stdout, "nothing is assigned that one could trust"


@pytest.mark.needs("grokking")
def test_a_refusal_of_a_probe_names_the_file():
    done = anchorlens_command.call("probe", "fourier", SHIPPED["phase1"], code=2)
    assert done.stderr.startswith(f"anchorlens: {SHIPPED['phase1']}: fourier must get")


def test_json_is_one_object_for_each_with_the_promised_keys(untrained):
    done = call(SHIPPED["phase2-commutative"], untrained, "--json")
    assert done.exit_code == 0
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    keys = {"phase", "behaviour", "by_probes", "agreement", "warnings", "subject", "trajectory"}
    assert keys | {"schema_version"} <= set(first)
    assert (first["phase"]["number"], first["phase"]["commutative"], first["agreement"]) == (2, True, True)
    assert {"probabilities", "evidence"} <= set(first["by_probes"])
    assert {"path", "sha256", "step"} <= set(first["subject"])
    assert first["subject"]["path"] == SHIPPED["phase2-commutative"]
    assert second["phase"]["number"] is None and second["agreement"] is None


def test_one_unreadable_file_does_not_stop_the_others(broken, untrained, tmp_path):
    done = call(broken, untrained, str(tmp_path / "missing.pt"), "--json")
    assert done.exit_code == 3
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert ["error" in row for row in rows] == [True, False, True]
    assert (
        rows[1]["phase"]["label"] == "undecided: training data unknown"
        and rows[1]["by_probes"]["phase"]["cause"] == "at chance"
    )
    assert "broken.pt" in rows[0]["error"] and "missing.pt" in rows[2]["error"]
    assert len(done.stderr.strip().splitlines()) == 2
    assert call(broken, "--strict").exit_code == 3


def test_several_are_a_table_and_strict_exits_with_4_where_a_phase_is_undecided(untrained):
    done = call(SHIPPED["phase1"], untrained, "--strict", columns=300)
    assert done.exit_code == 4
    assert "phase1.pt" in done.stdout and "untrained.pt" in done.stdout
    assert "undecided: training data unknown" in done.stdout and "Phase 1" in done.stdout


def test_a_report_of_nothing_is_not_written_and_one_without_a_folder_refused_before_any_work(tmp_path):
    assert call(str(tmp_path / "none.pt"), "--report", str(tmp_path / "no.html")).exit_code == 3
    assert not (tmp_path / "no.html").exists()
    refused = call(SHIPPED["phase1"], "--report", str(tmp_path / "no/report.html"))
    assert refused.exit_code == 2 and "folder that exists" in refused.stderr


@pytest.mark.needs("importers")
def test_a_bare_state_dict_needs_config(tmp_path):
    from anchorlens import load_checkpoint

    checkpoint = load_checkpoint(SHIPPED["phase3"])
    torch.save(checkpoint.build_model().state_dict(), tmp_path / "theirs.pt")
    (tmp_path / "theirs.toml").write_text("[model]\nvariant = 'gpt2'\nact_fn = 'gelu'\n")
    refused = call(str(tmp_path / "theirs.pt"))
    assert refused.exit_code == 3 and "--config" in refused.stderr
    done = call(str(tmp_path / "theirs.pt"), "--config", str(tmp_path / "theirs.toml"), "--json")
    assert json.loads(done.stdout)["phase"]["number"] == 3


def test_an_unusable_device_is_one_line():
    done = call(SHIPPED["phase1"], "--device", "tpu")
    assert done.exit_code == 2 and len(done.stderr.strip().splitlines()) == 1


def test_the_demo_classifies_what_is_shipped_and_writes_the_report(tmp_path, monkeypatch):
    monkeypatch.setattr(
        probes, "with_own", lambda own, shipped: probes.PROBES[-3:]
    )  # all would take a minute
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "demo")], env={"COLUMNS": "160"})
    assert done.exit_code == 0, done.output
    for label in ("Phase 1", "Phase 2 without", "Phase 2 with", "Phase 3"):
        assert label in done.stdout
    page = tmp_path / "demo/report.html"
    assert page.stat().st_size > 1_000_000
    assert str(page) in done.stderr and str(page) not in done.stdout
