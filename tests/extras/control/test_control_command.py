"""`anchorlens control`, and what is shown of its result."""

import json
import threading
from dataclasses import replace
from inspect import unwrap
from pathlib import Path

import psutil
import pytest
from anchorlens_command import call
from known_cures import ANEW, CURE, HURT, IDLE, STILL, ask_fewest, damaged, result
from sweeping import wait_for

from anchorlens import control
from anchorlens.extras.control import INTERVENTIONS, Control
from anchorlens.extras.control.views import control_table, notes, overview, summary
from anchorlens.show.tables import text_of
from anchorlens.training import checkpoints


@pytest.fixture(scope="module", autouse=True)
def fewest_questions(few_questions):
    ask_fewest(few_questions)


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    return damaged(tmp_path_factory.mktemp("start") / "start.pt")


@pytest.fixture(autouse=True)
def a_short_list(monkeypatch):
    monkeypatch.setitem(unwrap(control).__kwdefaults__, "interventions", [IDLE, CURE, ANEW])


def shipped(name):
    return next(path for path in checkpoints.shipped() if path.stem == name)


def test_it_says_what_helped_and_where_to_go_on(start, tmp_path):
    out = tmp_path / "out"
    done = call("control", start, "--out", out, "--workers", 1)
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"{start}: Phase 2 without commutativity; 0.")
    became = "Phase 2 without commutativity became Phase 3"
    assert lines[1] == f"cure helped: {became}. Its run is in {out}/cure."
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")]
    assert [row[:3] for row in rows] == [
        ["original run", "", "Phase 2 without commutativity"],
        ["idle", "final weights", "Phase 2 without commutativity"],
        ["cure", "final weights", "Phase 3"],
    ]
    assert "Retraining from scratch (gamma 0.8) was not finished; it takes about" in done.stdout
    assert "anew: Phase 3 was reached before it began." in done.stdout
    assert "selected on one half of the OOD test inputs and is reported on the other" in done.stdout
    assert done.stderr == (f"trying to take {start} to a later phase in at most 20 minutes, into {out}\n")
    again = json.loads(call("control", start, "--out", out, "--workers", 1, "--json").stdout)
    assert again["best"] == str(out / "cure") and again["helped"] == ["cure"] and again["reached"] == 3
    assert "Phase 3" in call("evaluate", out / "cure/ckpt.pt").stdout


@pytest.mark.system
def test_a_killed_worker_is_one_error_and_what_has_ended_is_kept(start, monkeypatch, tmp_path):
    quick = replace(IDLE, name="quick")
    endless = replace(IDLE, name="endless", steps=500.0, fields={**STILL, "log_every": 1})
    monkeypatch.setitem(unwrap(control).__kwdefaults__, "interventions", [quick, endless])
    out = tmp_path / "out"

    def outcome():
        return json.loads((out / "control.json").read_text())["attempts"][0]["outcome"]

    def kill():
        wait_for((out / "endless/log.jsonl").exists)
        wait_for(lambda: outcome() == "finished")
        workers = (one for one in psutil.Process().children() if "popen_loky" in " ".join(one.cmdline()))
        max(workers, key=lambda one: one.cpu_times().user).kill()

    killing = threading.Thread(target=kill)
    killing.start()
    done = call("control", start, "--out", out, "--workers", 2, "--all", code=1)
    killing.join()
    said = done.stderr.splitlines()[-1]
    assert said.startswith("anchorlens: ") and "got a process that was killed" in said
    assert "Finished attempts are kept" in said
    assert not done.stdout and "Traceback" not in done.stderr
    attempts = json.loads((out / "control.json").read_text())["attempts"]
    assert [one["outcome"] for one in attempts] == ["finished", "planned"]


@pytest.mark.parametrize("seconds", [-1.0, 1e300, "long"])
def test_an_impossible_time_in_a_checkpoint_is_not_believed(seconds, tmp_path):
    lying = damaged(tmp_path / "lying.pt", seconds=seconds)
    found = json.loads(call("control", lying, "--dry-run", "--json").stdout)
    assert all(0 < one["estimate"] < 60 for one in found["attempts"])


def test_a_dry_run_prints_the_list_in_its_order(start, monkeypatch, tmp_path):
    monkeypatch.setitem(unwrap(control).__kwdefaults__, "interventions", INTERVENTIONS)
    done = call("control", start, "--dry-run", columns=300)
    names = [line.split("│")[1].strip() for line in done.stdout.splitlines() if line.startswith("│")]
    assert [name for name in names if name] == [one.name for one in INTERVENTIONS]
    assert "plan; nothing is trained" in done.stdout and done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["RUN"], 2, "--out must be the folder of the attempts"),
        (["RUN", "--out", "OUT", "--minutes", "0"], 2, "--minutes must be a finite number > 0, got 0"),
        ([shipped("phase3"), "--out", "OUT"], 2, "must be in Phase 1 or 2"),
        (["nowhere.pt", "--out", "OUT"], 3, "nowhere.pt: cannot be read: No such file"),
        (["RUN", "--out", "OUT", "--device", "cuda:99"], 2, "device"),
    ],
)
def test_errors_are_one_line(arguments, code, says, start, tmp_path):
    places = {"RUN": start, "OUT": tmp_path / "out"}
    done = call("control", *(places.get(one, one) for one in arguments), code=code)
    assert says in done.stderr.splitlines()[-1] and done.stdout == ""
    assert not (tmp_path / "out").exists()


class TestWords:
    def test_nothing_helped(self):
        found = result((IDLE, 2, 2, 1.0), (ANEW, 2, 2, 2.0))
        assert found.best is None and found.reached is None
        none = "No intervention helped: none of 2 is in Phase 3. The best was idle:"
        assert summary(found).startswith(none)
        assert not any(control_table(found).strong)

    def test_something_cheaper_than_training_anew(self):
        found = result((IDLE, 2, 2, 0.5), (CURE, 3, 3, 1.0), (ANEW, 3, 3, 2.0))
        assert found.best == "out/cure" and found.helped == ["cure", "anew"]
        assert next(notes(found)) == (
            "Retraining from scratch (x 1) ended in Phase 3, in 2.0 minutes; cure did as well in less time."
        )
        assert control_table(found).strong == [False, False, True, False]

    def test_nothing_cheaper(self):
        found = result((IDLE, 2, 2, 0.5), (CURE, 3, 3, 5.0), (ANEW, 3, 3, 2.0))
        assert next(notes(found)).endswith("in 2.0 minutes; no cheaper attempt did as well.")

    def test_what_chose_it_and_what_is_reported_may_differ(self):
        found = result((CURE, 3, 2, 1.0))
        assert found.helped == ["cure"] and found.reached == 2
        assert "cure is in Phase 3 on the selection half only, not on the other half" in summary(found)

    def test_from_phase_1_phase_2_helps_and_of_equals_the_first_is_best(self):
        found = result((HURT, 1, 1, 1.0), (IDLE, 2, 2, 1.0), (CURE, 2, 2, 1.0), before=1)
        assert found.helped == ["idle", "cure"] and found.best == "out/idle"
        assert summary(found).startswith("idle helped: Phase 1 became Phase 2 without commutativity.")
        assert "none of 1 is in Phase 2 or 3" in summary(result((HURT, 1, 1, 1.0), before=1))

    def test_a_task_without_halves_is_reported_on_what_chose(self):
        found = result((CURE, 3, 3, 1.0), halves=False)
        assert "on the selection data, so it is too high" in control_table(found).title
        assert list(notes(found))[-1].endswith("so its OOD is biased upwards.")

    def test_names_steer_no_terminal(self):
        found = replace(result((CURE, 3, 3, 1.0)), path="a\x1b[31m")
        assert overview(found).isprintable()

    def test_a_notebook_shows_it(self):
        found = result((IDLE, 2, 2, 0.5), (CURE, 3, 3, 1.0))
        html = found._repr_html_()
        assert "cure helped" in html and "<script" not in html
        assert [text_of(row[0]) for row in control_table(found).rows] == ["original run", "idle", "cure"]
        planned = replace(found, attempts=tuple(replace(one, outcome="planned") for one in found.attempts))
        assert "nothing is trained" in planned._repr_html_().lower()

    def test_json_gives_it_back(self):
        found = result((IDLE, 2, 2, 0.5), (CURE, 3, 3, 1.0))
        again = Control.from_dict(json.loads(json.dumps(found.to_dict())))
        assert again.to_dict() == found.to_dict() and again.best == "out/cure"
        assert Path(again.best).name == "cure"
