"""control: a known cure is found, nothing is trained twice, time is kept, no help is said to be none."""

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import forked
import pytest
import torch
from known_cures import ANEW, CURE, HURT, IDLE, STILL, ask_fewest, damaged
from sweeping import ROOT, wait_for

from anchorlens import control, load_checkpoint, preset, save_checkpoint
from anchorlens.extras.control import INTERVENTIONS, Control, Intervention
from anchorlens.recipes.run_config import RunConfig
from anchorlens.training import checkpoints
from anchorlens.training.plan import check_runs

QUIET = {"progress": False, "workers": 1}


@pytest.fixture(scope="module", autouse=True)
def fewest_questions(few_questions):
    ask_fewest(few_questions)


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    return damaged(tmp_path_factory.mktemp("start") / "start.pt")


def shipped(name):
    return next(path for path in checkpoints.shipped() if path.stem == name)


@pytest.fixture(scope="module")
def cured(start, tmp_path_factory):
    """Folder and result of a call that found the cure."""
    out = tmp_path_factory.mktemp("cured") / "out"
    return out, control(start, out, interventions=[IDLE, HURT, CURE, ANEW], **QUIET)


def test_the_cure_is_found_and_is_a_run_to_go_on_with(cured, start):
    out, found = cured
    assert found.before.phase.number == 2 and found.goal == 3
    assert [one.outcome for one in found.attempts] == ["finished", "finished", "finished", "skipped"]
    assert found.helped == ["cure"] and found.best == str(out / "cure") and found.reached == 3
    assert found.attempts[3].note == "Phase 3 was reached before it began"
    whole = load_checkpoint(shipped("phase3")).weights
    best = load_checkpoint(Path(found.best) / "ckpt.pt")
    assert all(torch.allclose(weight, whole[name]) for name, weight in best.weights.items())
    assert best.train_config.start == str(start)
    idle, hurt, cure = found.tried
    assert idle.answers.phase.number == 2 and hurt.answers.phase.cause == "underfit" and hurt.steps == 2
    assert cure.minutes is not None and repr(found).startswith(
        "Control(Phase 2 without commutativity; cure: Ph"
    )


def test_the_best_is_chosen_on_even_keys_and_reported_on_odd_ones(cured):
    _, found = cured
    checkpoint = load_checkpoint(Path(found.best) / "ckpt.pt")
    chosen, reported = (checkpoint.evaluate(half=half) for half in (0, 1))
    cure = found.best_attempt
    assert (cure.chosen_by.ood, cure.answers.ood) == (chosen.ood.value, reported.ood.value)
    assert found.halves and cure.chosen_by.ood != cure.answers.ood


def test_its_file_is_the_result(cured):
    out, found = cured
    content = json.loads((out / "control.json").read_text())
    again = Control.from_dict(content)
    assert again.attempts == found.attempts and content["best"] == found.best and content["reached"] == 3


def measured(found):
    return [
        (one.name, one.outcome, one.minutes, one.chosen_by, one.answers, one.out) for one in found.attempts
    ]


def test_what_has_ended_is_not_trained_again_and_every_goes_on(cured, start):
    out, found = cured
    changed = {path: path.stat().st_mtime_ns for path in out.glob("*/*.pt")}
    again = control(start, out, interventions=[IDLE, HURT, CURE, ANEW], **QUIET)
    assert measured(again) == measured(found) and again.best == found.best
    every = control(start, out, every=True, interventions=[IDLE, HURT, CURE, ANEW], **QUIET)
    assert [one.outcome for one in every.attempts] == ["finished"] * 4
    assert measured(every)[:3] == measured(found)[:3] and every.best == found.best
    assert all(path.stat().st_mtime_ns == when for path, when in changed.items())


def test_a_folder_of_another_checkpoint_is_refused(cured, tmp_path):
    out, _ = cured
    other = damaged(tmp_path / "other.pt", seconds=0.5)
    with pytest.raises(ValueError, match=r"this checkpoint.*from '.*start\.pt'"):
        control(other, out, interventions=[IDLE], **QUIET)


def test_it_says_so_when_nothing_helped(start, tmp_path):
    found = control(start, tmp_path / "out", interventions=[IDLE, HURT], **QUIET)
    assert found.helped == [] and found.best is None and found.reached is None
    assert repr(found) == "Control(Phase 2 without commutativity; nothing helped, 2 of 2 tried)"


def test_what_does_not_fit_into_the_time_is_not_begun(tmp_path):
    slow = damaged(tmp_path / "slow.pt", seconds=4 * 3600.0)  # an hour for an update
    found = control(slow, tmp_path / "out", minutes=1, interventions=[IDLE, CURE], **QUIET)
    assert [one.outcome for one in found.attempts] == ["skipped"] * 2 and found.best is None
    assert found.attempts[0].note.startswith("it takes about 2.4e+02 minutes, and ")
    assert [path.name for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")] == [
        "control.json"
    ]


def test_a_dry_run_trains_nothing(start):
    found = control(start, dry_run=True, interventions=[HURT, CURE, replace(ANEW, added={"gamma_x": 1})])
    assert [one.outcome for one in found.attempts] == ["planned", "planned", "skipped"]
    assert [round(one.estimate, 6) for one in found.attempts[:2]] == [round(0.2 / 60, 6), round(0.4 / 60, 6)]
    assert "the run must record a value of gamma_x" in found.attempts[2].note
    assert repr(found) == "Control(Phase 2 without commutativity; 2 of 3 to try)"


def test_attempts_under_way_end_with_the_time(tmp_path):
    """Two processes, whose updates take far longer than the log says; the next test goes on with such."""
    endless = Intervention("endless", "Takes long.", "ours", {**STILL, "weight_decay_qk": 0}, steps=1000)
    other = replace(endless, name="other", fields={**STILL, "weight_decay_qk": 0.1})
    quick = damaged(tmp_path / "quick.pt", seconds=1e-6)
    out = tmp_path / "out"
    found = control(quick, out, minutes=0.1, interventions=[endless, other], workers=2, progress=False)
    assert [one.outcome for one in found.attempts] == ["cut off"] * 2 and found.best is None
    assert "the time was up before it ended" in found.attempts[0].note and found.minutes >= 0.1
    assert found.attempts[1].out == str(out / "other") and not list(out.glob("*/ckpt.pt"))
    assert repr(found) == "Control(Phase 2 without commutativity; nothing helped, 0 of 2 tried)"


SCRIPT = """
from few_questions import asked_less
from known_cures import CURE, HURT, IDLE, ask_fewest
from anchorlens.extras.control import Intervention, control
import sys
from dataclasses import replace

if __name__ == "__main__":
    long = replace(IDLE, name="long", steps=10.0, fields={**IDLE.fields, "state_every_seconds": 0})
    tried = {"interventions": [HURT, long, CURE], "workers": 1, "progress": False}
    with asked_less() as patch:
        ask_fewest(patch)
        control(sys.argv[1], sys.argv[2], minutes=60, **tried)
"""


def test_killed_it_goes_on_where_it_was(start, tmp_path):
    out = tmp_path / "out"
    path = os.pathsep.join([str(ROOT / "tests"), str(ROOT)])
    command = [sys.executable, "-c", SCRIPT, str(start), str(out)]
    process = forked.Popen(command, env={**os.environ, "PYTHONPATH": path}, start_new_session=True)
    wait_for((out / "long/state.pt").exists, seconds=400)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    content = json.loads((out / "control.json").read_text())
    assert [one["outcome"] for one in content["attempts"]] == ["finished", "planned", "planned"]
    when = (out / "hurt/ckpt.pt").stat().st_mtime_ns
    assert not (out / "long/ckpt.pt").exists()
    forked.run(command, env={**os.environ, "PYTHONPATH": path}, check=True)
    content = json.loads((out / "control.json").read_text())
    assert [one["outcome"] for one in content["attempts"]] == ["finished"] * 3
    assert content["helped"] == ["cure"] and (out / "hurt/ckpt.pt").stat().st_mtime_ns == when


def test_of_a_run_in_phase_1_phase_2_is_help(tmp_path):
    found = control(shipped("phase1"), dry_run=True)
    assert found.goal == 2 and found.before.phase.number == 1


class TestErrors:
    @pytest.mark.parametrize(
        ("make", "says"),
        [
            (
                lambda _: shipped("phase3"),
                r"must be in Phase 1 or 2.*got Phase 3",
            ),
            (lambda path: _changed(path, train_config=None), "must record its training, .* train$"),
            (
                lambda path: _changed(path, weights=_zero),
                r"must be in Phase 1 or 2.*underfit: .*train --from",
            ),
        ],
    )
    def test_what_cannot_be_helped_is_one_error(self, make, says, tmp_path):
        out = tmp_path / "out"
        with pytest.raises(ValueError, match=says):
            control(make(tmp_path / "a.pt"), out)
        assert not out.exists()

    def test_a_task_without_phases(self, tmp_path):
        from anchorlens.files.checkpoint import Checkpoint
        from anchorlens.models.gamma import initial_weights

        small = {"n_layers": 1, "d_model": 16, "d_head": 8, "d_mlp": 16, "n_heads": 1}
        run = preset("text", **small)
        checkpoint = Checkpoint(run.model_config, run.task, initial_weights(run.model_config, 0), run[2])
        save_checkpoint(tmp_path / "text.pt", checkpoint)
        with pytest.raises(ValueError, match="task must have phases, got the task text"):
            control(tmp_path / "text.pt", tmp_path / "out")

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"minutes": 0}, "minutes must be a finite number > 0"),
            ({"workers": 0}, "workers must be an integer >= 1"),
            ({"interventions": []}, "must be a list of 1 to"),
            ({"interventions": [IDLE, IDLE]}, "interventions with different names"),
            ({"out": None}, "out must be the folder of the attempts"),
        ],
    )
    def test_unusable_options(self, options, says, start, tmp_path):
        with pytest.raises(ValueError, match=says):
            control(start, **{"out": tmp_path / "out", **options})

    def test_a_folder_of_something_else(self, start, tmp_path):
        (tmp_path / "mine.txt").write_text("mine")
        with pytest.raises(ValueError, match="with 'mine.txt' and no control"):
            control(start, tmp_path, interventions=[IDLE], **QUIET)


class TestTheList:
    @pytest.mark.parametrize("one", INTERVENTIONS, ids=lambda one: one.name)
    @pytest.mark.parametrize("name", ["quick", "addition", "scan", "paper-2l1h"])
    def test_each_is_a_run_that_can_be_trained(self, one, name, start):
        run = preset(name, gamma=0.5)
        attempt = one.applied(run, str(start))
        check_runs([attempt], starts=False)
        assert attempt != run and attempt.task == run.task
        assert (attempt.train_config.start is None) == one.anew
        assert attempt.train_config.seed == run.train_config.seed
        assert one.why.endswith(".") and one.source

    def test_there_is_one_baseline_anew_at_gamma_7_and_names_differ(self, start):
        (baseline,) = [one for one in INTERVENTIONS if one.baseline]
        gammas = [
            baseline.applied(preset(gamma=gamma), str(start)).model_config.gamma for gamma in (0.3, 0.5, 0.6)
        ]
        assert gammas == [0.7, 0.7, 0.8] and baseline.anew
        assert len({one.name for one in INTERVENTIONS}) == len(INTERVENTIONS)

    def test_what_a_recipe_did_on_the_way_is_left_out(self, start):
        run = preset(weight_decay="0.1 0.5:1=2", penalty="nuclear:qk=1", early_stop_evaluations=3, epochs=2)
        train = IDLE.applied(run, str(start)).train_config
        assert (train.penalty, train.early_stop_evaluations) == (None, None)
        assert (train.steps, train.epochs) == (run.train_config.total_steps, None)

    def test_a_part_has_the_gamma_of_all_where_it_has_none_of_its_own(self, start):
        one = Intervention("parts", "a", "b", added={"gamma_mlp": 0.3, "gamma_qk": 0.1}, anew=True)
        model = one.applied(preset(gamma=0.5, gamma_qk=0.2), str(start)).model_config
        assert (model.gamma, model.gamma_mlp, model.gamma_qk) == (0.5, 0.8, 0.3)

    @pytest.mark.parametrize(
        ("fields", "says"),
        [
            ({"name": "../a"}, "must have only lower-case letters, digits and _"),
            ({"steps": 0}, "the steps of a must be a finite number > 0"),
        ],
    )
    def test_unusable_ones(self, fields, says):
        with pytest.raises(ValueError, match=says):
            Intervention(**{"name": "a", "why": "a", "source": "b", **fields})

    def test_a_model_is_changed_anew_alone(self, start):
        with pytest.raises(ValueError, match=r"`anew` must be True.*\(gamma\)"):
            Intervention("a", "a", "b", {"gamma": 0.7}).applied(RunConfig(*preset()), str(start))


def _zero(weights):
    return {name: torch.zeros_like(weight) for name, weight in weights.items()}


def _changed(path, **changes):
    checkpoint = load_checkpoint(damaged(path))
    changes = {
        name: value(getattr(checkpoint, name)) if callable(value) else value
        for name, value in changes.items()
    }
    save_checkpoint(path, replace(checkpoint, **changes))
    return path
