"""The experiment of control on ten runs: what it counts, and its whole way on a run of seconds."""

import json

import pytest

from control import ten_runs

SMALL = {
    "n_samples": 400, "batch_size": 100, "steps": 250, "warmup_steps": 20, "lr": 4e-3, "d_model": 64,
    "d_head": 32, "d_mlp": 64, "n_checkpoints": 0, "eval_every": 250, "threads": 1,
}  # fmt: skip
"""Few sequences, which such a model knows by heart: Phase 1."""


def case(after, best="halve", anew=3):
    attempts = [{"name": "halve", "anew": False}, {"name": "anew", "anew": True}]
    control = {"phase_after": after, "best": best, "minutes": 4.0, "attempts": attempts}
    return {"control": control, "anew": {"phase": anew, "minutes": 2.0}}


def test_totals_by_hand():
    cases = [case(3), case(3, "anew"), case(2, None, anew=2), {"anew": {"phase": 3, "minutes": 1.0}}]
    assert ten_runs.totals(cases) == {
        "cases": 4,
        "controlled": 3,
        "taken_to_phase_3": 2,
        "of_them_from_the_checkpoint": 1,
        "anew_in_phase_3": 2,
        "minutes_of_control": 12.0,
        "minutes_of_training_anew": 6.0,
    }


@pytest.fixture
def written(tmp_path, monkeypatch):
    path = tmp_path / "ten.json"
    options = ["--seeds=0:1", "--minutes=0.1", f"--out={tmp_path}/out", f"--json={path}"]
    monkeypatch.setattr("sys.argv", ["ten_runs.py", *options, f"--fields={json.dumps(SMALL)}"])
    ten_runs.main()
    first = path.read_bytes()
    ten_runs.main()  # from what is there
    assert path.read_bytes() == first
    return json.loads(first)


def test_the_whole_way_on_a_run_of_seconds(written):
    (one,) = written["cases"]
    assert one["before"]["phase"] == 1 and one["anew"]["phase"] in (None, 1, 2, 3)
    control = one["control"]
    assert control["phase_before"] == 1 and control["budget"] == 0.1
    assert [attempt["outcome"] for attempt in control["attempts"]].count("planned") == 0
    assert written["totals"]["controlled"] == 1 and written["fields"]["n_samples"] == 400
