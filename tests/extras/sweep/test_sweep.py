import json
import shutil
from dataclasses import replace

import pytest
import torch
from anchorlens_command import call
from sweeping import TINY, finished, tiny

from anchorlens import CheckpointError, classify, load_checkpoint, preset
from anchorlens.extras.shared.in_this_process import InThisProcess
from anchorlens.extras.sweep import Cell, grid, open_sweep, sweep
from anchorlens.extras.sweep.cells import cell_id
from anchorlens.extras.sweep.engines import SweepEngine
from anchorlens.extras.sweep.sweep_folder import SweepFolder
from anchorlens.extras.sweep.work import work
from anchorlens.tasks.shared import evaluator
from anchorlens.training.run import train

AXES = {"gamma": "0.3,0.5", "seed": "0:2"}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return sweep(tiny(AXES), tmp_path_factory.mktemp("sweep") / "a", engine="serial")


class TestACell:
    def test_is_a_run_with_its_numbers(self, done):
        assert repr(done) == f"SweepResult({done.out}: gamma (2) x seed (2); 4 finished)"
        for cell in done:
            assert cell.path == done.out / "cells" / cell.id and cell.status == "finished"
            assert load_checkpoint(cell.path / "ckpt.pt").model_config == cell.run.model_config
            assert cell.log()[-1]["step"] == 20 == cell.numbers["step"]
        assert not (done.out / "unfinished").exists()

    def test_has_the_numbers_of_classify(self, done):
        cell = done.cells[0]
        verdict = classify(load_checkpoint(cell.path / "ckpt.pt"), quick=True)
        assert cell.numbers["ood"] == verdict.behaviour.ood.value
        assert cell.numbers["label"] == verdict.phase.label
        assert cell.numbers["solution"] == verdict.behaviour.solution
        assert cell.verdict.behaviour.to_dict() == json.loads(json.dumps(verdict.behaviour.to_dict()))

    def test_that_has_fit_its_data_has_every_reading(self, tmp_path):
        (run,) = tiny({"seed": [0]}, steps=100, n_samples=64, lr=1e-2, warmup_steps=5, gamma=0.5)
        (cell,) = sweep([run], tmp_path, engine="serial")
        verdict = classify(load_checkpoint(cell.path / "ckpt.pt"), quick=True)
        assert cell.numbers["train"] > 0.9
        inside = verdict.by_probes
        assert cell.numbers["probability Phase 3"] == pytest.approx(inside.probabilities["Phase 3"], abs=1e-6)
        for reading in inside.evidence:
            found = cell.numbers[f"reading {reading.reading}"]
            assert found is reading.value is None or found == pytest.approx(reading.value, rel=1e-3)

    def test_that_has_not_fit_them_has_what_is_drawn_and_no_readings(self, done):
        """`classify` of the same checkpoint gives the same phases."""
        cell = done.cells[0]
        verdict = classify(load_checkpoint(cell.path / "ckpt.pt"), quick=True)
        assert cell.numbers["train"] < 0.9
        assert [name for name in cell.numbers if name.startswith(("reading", "probability"))] == []
        assert cell.verdict.by_probes.phase == verdict.by_probes.phase
        assert cell.verdict.explanation == verdict.explanation
        assert cell.numbers["stable_rank.w_q"] > 1 and "ood" in cell.numbers
        assert "train longer" in cell._repr_html_()

    def test_has_a_flat_record_without_collisions(self, done):
        cell = done.cells[0]
        row = cell.row()
        assert row["cell"] == cell.id and row["gamma"] == 0.3 and row["seed"] == 0
        assert row["id"] == cell.numbers["id"] and row["stable_rank.w_q"] > 1
        assert len(row) == 3 + len(cell.fields) + len(cell.numbers)

    def test_that_is_missing_has_no_numbers(self):
        cell = Cell(preset("quick"))
        assert not cell.done and cell.numbers == {} and cell.log() == [] and cell.phase is None


class TestTheSameCallAgain:
    def test_trains_nothing(self, done):
        before = finished(done.out)
        again = sweep(tiny(AXES), done.out, engine="serial")
        assert finished(done.out) == before and again.counts == {"finished": 4}

    def test_with_more_cells_trains_those(self, done, tmp_path):
        out = tmp_path / "b"
        shutil.copytree(done.out, out)
        before = finished(out)
        more = sweep(tiny({"gamma": "0.5,0.7", "seed": "0"}), out, engine="serial")
        assert [cell.fields["gamma"] for cell in more] == [0.5, 0.7]
        assert len(open_sweep(out)) == 5 and before.items() <= finished(out).items()

    def test_continues_a_cell_from_its_state(self, tmp_path):
        """What a killed process left: the cell's folder with a saved state, at step 10 of 20."""
        (run,) = tiny({"seed": [0]}, state_every_seconds=0, log_every=1)
        folder = SweepFolder(tmp_path / "a")
        whole = sweep([run], tmp_path / "whole", engine="serial").cells[0]
        sweep([], folder.out, engine="serial")
        unfinished = folder.unfinished(cell_id(run))

        class Killed(BaseException):
            pass

        def killed(self, step, threads, tensors, save=None):
            save_state(self, step, threads, tensors)
            if step == 10:
                raise Killed

        from anchorlens.training.run_folder import RunFolder

        save_state = RunFolder.save_state
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RunFolder, "save_state", killed)
            with pytest.raises(Killed):
                train(*run, out=unfinished)
        cell = sweep([run], folder.out, engine="serial").cells[0]
        assert [line["step"] for line in cell.log()] == list(range(1, 21))
        ours, theirs = (load_checkpoint(c.path / "ckpt.pt").weights for c in (cell, whole))
        assert all((ours[name] == theirs[name]).all() for name in theirs)

    def test_begins_anew_what_was_left_damaged(self, tmp_path):
        (run,) = tiny({"seed": [0]})
        unfinished = SweepFolder(tmp_path / "a").unfinished(cell_id(run))
        sweep([], tmp_path / "a", engine="serial")
        unfinished.mkdir(parents=True)
        (unfinished / "config.json").write_text("{half a fi")
        with pytest.warns(UserWarning, match=r"config\.json.*unreadable"):
            assert sweep([run], tmp_path / "a", engine="serial").counts == {"finished": 1}
        kept = tmp_path / "a/unreadable" / f"{cell_id(run)}-1"
        assert (kept / "config.json").read_text() == "{half a fi"

    def test_leaves_alone_what_its_neighbours_have(self, tmp_path):
        """Of two cells trained together one is damaged; the other had ended, and is read."""
        runs = tiny({"seed": "0:2"})
        folder = SweepFolder(tmp_path / "a")
        ended, damaged = (folder.unfinished(cell_id(run)) for run in runs)
        train(*_on_one_thread(runs[0]), out=ended)
        damaged.mkdir()
        (damaged / "config.json").write_text("{half a fi")
        weights = (ended / "ckpt.pt").read_bytes()
        with pytest.warns(UserWarning, match="training of this cell restarts"):
            work(folder.runs_with_ids(runs), folder.out)
        assert (folder.cell(cell_id(runs[0])) / "ckpt.pt").read_bytes() == weights
        assert (folder.cell(cell_id(runs[1])) / "cell.json").exists()

    def test_reads_a_run_that_had_ended_whatever_it_costs(self, tmp_path, monkeypatch):
        """What was asked for is no stranger's file: it is neither refused nor trained once more."""
        (run,) = tiny({"seed": [0]})
        folder = SweepFolder(tmp_path / "a")
        unfinished = folder.unfinished(cell_id(run))
        train(*_on_one_thread(run), out=unfinished)
        weights = (unfinished / "ckpt.pt").read_bytes()
        monkeypatch.setattr(evaluator, "FREE_BYTES", -(10**10))
        with pytest.raises(CheckpointError, match="too costly"):
            load_checkpoint(unfinished / "ckpt.pt")
        work(folder.runs_with_ids([run]), folder.out)
        assert (folder.cell(cell_id(run)) / "ckpt.pt").read_bytes() == weights


def _on_one_thread(run):
    return run._replace(train_config=replace(run.train_config, threads=1))


class TestWhichRunACellIs:
    def test_moving_to_another_machine_trains_nothing(self, done, tmp_path):
        shutil.copytree(done.out, tmp_path / "a")
        before = finished(tmp_path / "a")
        elsewhere = {"device": "cpu", "threads": 2, "log_every": 3, "eval_every": 7, "state_every_seconds": 1}
        again = sweep(tiny(AXES, **elsewhere), tmp_path / "a", engine="serial")
        assert again.counts == {"finished": 4} and finished(tmp_path / "a") == before
        assert list(again.axes) == ["gamma", "seed"]

    def test_cells_that_were_added_elsewhere_make_no_axis(self, done, tmp_path):
        shutil.copytree(done.out, tmp_path / "a")
        sweep(tiny({"gamma": "0.7", "seed": "0:2"}, log_every=7), tmp_path / "a", engine="serial")
        assert list(open_sweep(tmp_path / "a").axes) == ["gamma", "seed"]

    def test_one_run_carried_out_twice_is_refused(self, tmp_path):
        runs = tiny({"threads": [1, 2]})
        assert len(runs) == 2
        with pytest.raises(ValueError, match="only in other fields, such as threads: 1 and 2"):
            sweep(runs, tmp_path / "a", engine="serial")
        assert not (tmp_path / "a/sweep.json").exists()

    def test_what_it_may_end_by_makes_it_another_run(self, tmp_path):
        result = sweep(tiny({"log_every": [2, 3]}, stop_at_loss=100.0), tmp_path / "a", engine="serial")
        assert [cell.numbers["step"] for cell in result] == [10, 15] and list(result.axes) == ["log_every"]

    def test_the_same_run_twice_is_one_cell(self, tmp_path):
        (run,) = tiny({"seed": [0]})
        result = sweep([run, run], tmp_path / "a", engine="serial")
        assert [cell.status for cell in result] == ["finished"] * 2
        assert len(open_sweep(tmp_path / "a")) == 1


def test_what_a_cell_costs_the_driver_does_not_grow_with_their_number(tmp_path, monkeypatch):
    """Looks into the folder, identities and events for each cell of 5 and of 50."""
    from anchorlens.extras.sweep import run as driver
    from anchorlens.recipes import run_config

    counted = dict.fromkeys(("looks", "identities", "events"), 0)

    def counting(owner, name, what):
        original = getattr(owner, name)

        def called(*arguments):
            counted[what] += 1
            return original(*arguments)

        monkeypatch.setattr(owner, name, called)

    class Progress:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def __call__(self, steps, text):
            counted["events"] += 1
            self.last = steps, text

    def finish(job, out):
        for name, _ in job:
            (out / "cells" / name).mkdir(parents=True)

    bar = Progress()
    monkeypatch.setattr(driver, "progress_bar", lambda total, **options: bar)
    monkeypatch.setattr(driver, "work", finish)
    monkeypatch.setattr(SweepFolder, "read", lambda self, cells, **options: list(cells))
    counting(SweepFolder, "cell", "looks")
    counting(SweepFolder, "failure", "looks")
    counting(run_config, "recipe", "identities")
    each = {}
    for n in (5, 50):
        counted.update(dict.fromkeys(counted, 0))
        sweep(tiny({"seed": f"0:{n}"}, device="cpu"), tmp_path / str(n), engine="serial")
        assert bar.last == (20 * n, f"{n} of {n} runs")
        each[n] = {what: count // n for what, count in counted.items()}
    assert each[5] == each[50] == {"looks": each[5]["looks"], "identities": 1, "events": 1}


@pytest.mark.parametrize(
    ("n_processes", "that_fit", "sizes"),
    [
        (1, 100, [7, 1]),
        (2, 100, [4, 3, 1]),
        (3, 100, [3, 3, 1, 1]),
        (20, 100, [1] * 8),
        (2, 2, [2, 2, 2, 1, 1]),
    ],
)
def test_cells_that_fit_on_one_gpu_are_shared_by_all_processes(
    tmp_path, monkeypatch, n_processes, that_fit, sizes
):
    """Seven cells of one shape and one of another, where a GPU takes `that_fit` at a time."""
    from anchorlens.extras.sweep import run as driver

    jobs = []
    monkeypatch.setattr(driver, "trained_together", lambda run, n: min(n, that_fit))
    monkeypatch.setattr(driver, "work", lambda job, out: jobs.append(len(job)))
    engine = SweepEngine("serial")
    engine.n_processes = n_processes
    folder = SweepFolder(tmp_path)
    cells = folder.runs_with_ids([*tiny({"seed": "0:7"}), *tiny({"seed": [0]}, d_mlp=24)])
    one = driver._Driver(cells, folder, engine)
    one.show = lambda steps, text: None
    one._give_out(InThisProcess(), cells)
    assert jobs == sizes


class TestAFailingCell:
    @pytest.fixture
    def failed(self, tmp_path):
        """Where the second of three cells should be trained lies a file, so that it fails each time."""
        runs = tiny({"seed": "0:3"})
        blocked = SweepFolder(tmp_path / "a").unfinished(cell_id(runs[1]))
        first = sweep(runs[:1], tmp_path / "a", engine="serial")
        blocked.parent.mkdir(exist_ok=True)
        blocked.write_text("in the way")
        return sweep(runs, first.out, engine="serial"), runs, blocked

    def test_is_recorded_and_stops_nobody(self, failed):
        result, _, _ = failed
        assert [cell.status for cell in result] == ["finished", "failed", "finished"]
        cell = result.cells[1]
        assert "must be the path of a folder, got the file" in cell.error and "Traceback" in cell.details
        assert cell.numbers == {} and cell.row()["error"] == cell.error

    def test_is_tried_again_only_when_asked(self, failed):
        result, runs, blocked = failed
        blocked.unlink(missing_ok=True)  # gone with the last cell
        assert sweep(runs, result.out, engine="serial").counts == {"finished": 2, "failed": 1}
        assert sweep(runs, result.out, engine="serial", retry_failed=True).counts == {"finished": 3}


def test_a_faulty_cell_of_a_stack_stops_none_of_the_others(tmp_path):
    """Cells that one process got together, as on a GPU; each is then tried alone."""
    runs = tiny({"seed": "0:3"})
    blocked = SweepFolder(tmp_path).unfinished(cell_id(runs[1]))
    blocked.parent.mkdir()
    blocked.write_text("in the way")
    cells = SweepFolder(tmp_path).runs_with_ids(runs)
    work(cells, tmp_path)
    first, failed, last = SweepFolder(tmp_path).read(cells)
    assert (first.status, failed.status, last.status) == ("finished", "failed", "finished")
    assert failed.id == cell_id(runs[1]) and "must be the path of a folder, got the file" in failed.error
    assert set(finished(tmp_path)) == {cell_id(runs[0]), cell_id(runs[2])}
    before = finished(tmp_path)
    work([cells[0], cells[2]], tmp_path)
    assert finished(tmp_path) == before  # nothing was left to do


def test_a_cell_that_asks_for_tf32_is_trained_with_it_and_measured_without(tmp_path, monkeypatch):
    """On the CPU, taken for a GPU where others are refused; the switch is the same."""
    from anchorlens.extras.sweep import work as working
    from anchorlens.training import loop, plan

    found = {}

    def noting(module, name):
        original = getattr(module, name)

        def noted(*arguments, **options):
            found[name] = torch.get_float32_matmul_precision()
            return original(*arguments, **options)

        monkeypatch.setattr(module, name, noted)

    monkeypatch.setattr(plan, "choose_device", lambda name: torch.device("cuda"))
    noting(loop.Loop, "run")
    noting(working, "classify")
    (run,) = tiny({"seed": [0]}, matmul="tf32")
    cells = SweepFolder(tmp_path).runs_with_ids([run])
    work(cells, tmp_path)
    (cell,) = SweepFolder(tmp_path).read(cells)
    assert cell.status == "finished", cell.error
    assert found == {"run": "high", "classify": "highest"}
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.filterwarnings("ignore:gamma is below 0")
def test_a_diverged_run_is_a_cell_with_its_message(tmp_path):
    """Updates so large that the loss overflows."""
    runs = tiny({"lr": [1e30, 1e-3]}, warmup_steps=0, gamma=0.1)
    runs += tiny({"seed": [0, 1]}, steps=2, gamma=-1)
    result = sweep(runs, tmp_path / "a", engine="serial")
    assert sweep(runs, tmp_path / "a", engine="serial").counts == result.counts  # nothing is left to train
    assert [cell.status for cell in result] == ["diverged", "finished", "finished", "finished"]
    assert "training diverged" in result.cells[0].error and result.cells[0].numbers["phase"] is None


class TestRefuses:
    def test_a_folder_of_something_else(self, tmp_path):
        (tmp_path / "thesis.tex").write_text("precious")
        with pytest.raises(ValueError, match=r"with 'thesis.tex' and no sweep"):
            sweep(tiny({"seed": [0]}), tmp_path, engine="serial")
        assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]

    def test_a_file(self, tmp_path):
        (tmp_path / "a").write_text("")
        with pytest.raises(ValueError, match="must be the path of a folder, got the file"):
            sweep(tiny({"seed": [0]}), tmp_path / "a", engine="serial")

    def test_a_folder_that_is_being_trained(self, tmp_path):
        runs = tiny({"seed": [0]})
        with SweepFolder(tmp_path).lock(runs), pytest.raises(ValueError, match="by another process"):
            sweep(runs, tmp_path, engine="serial")

    def test_what_is_no_run(self, tmp_path):
        with pytest.raises(ValueError, match="runs must be a list of RunConfigs"):
            sweep(preset("quick"), tmp_path / "a", engine="serial")
        assert not (tmp_path / "a").exists()

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"engine": "quantum"}, "engine must be serial, local, slurm"),
            ({"engine": "serial", "workers": 2}, "number of workers"),
            ({"engine": "slurm"}, "number of workers"),
            ({"engine": "local", "workers": 0}, "workers must be an integer >= 1"),
        ],
    )
    def test_an_engine(self, tmp_path, options, message):
        with pytest.raises(ValueError, match=message):
            sweep(tiny({"seed": [0]}), tmp_path / "a", **options)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "is no anchorlens sweep"),
            ("[1, 2]", "not an anchorlens sweep"),
            ('{"format": "anchorlens run", "format_version": 1}', "not an anchorlens sweep"),
            ('{"format": "anchorlens sweep", "format_version": 9}', "the format version must be"),
            ('{"format": "anchorlens sweep", "format_version": 1}', "not a list of cells"),
            (
                '{"format": "anchorlens sweep", "format_version": 1, "cells": [{"x": 1}]}',
                "not a list of cells",
            ),
        ],
    )
    def test_a_damaged_list_of_cells(self, tmp_path, text, message):
        (tmp_path / "sweep.json").write_text(text)
        with pytest.raises(CheckpointError, match=message):
            open_sweep(tmp_path)

    def test_the_folder_of_a_run_and_a_file(self, done):
        run = done.out / "cells" / done.cells[0].id
        for path in (run, run / "ckpt.pt"):
            with pytest.raises(CheckpointError, match=r"sweep\.json: cannot be read"):
                open_sweep(path)

    def test_no_sweep(self, tmp_path):
        with pytest.raises(CheckpointError, match="cannot be read: No such file"):
            open_sweep(tmp_path / "nothing")

    def test_a_damaged_cell(self, done, tmp_path):
        shutil.copytree(done.out, tmp_path / "a")
        path = tmp_path / "a" / "cells" / done.cells[0].id
        (path / "cell.json").write_bytes(b"\xff")
        first, *others = open_sweep(tmp_path / "a").cells
        assert first.status == "damaged" and not first.done and first.numbers == {}
        assert first.error.startswith(f"{path}/cell.json: is no anchorlens cell")
        assert "got byte 0xff" in first.error and f"Move {path} out of the sweep" in first.error
        assert all(cell.status == "finished" for cell in others)
        said = call("diagram", tmp_path / "a").stderr
        assert f"1 of {len(others) + 1} runs could not be read: {first.id}: {path}/cell.json" in said
        assert f"damaged: {first.id}" in call("status", tmp_path / "a", columns=500).stdout

    @pytest.mark.parametrize("what", ["cells", "one"])
    def test_results_on_another_disk_are_read_through_their_link(self, what, done, tmp_path):
        out, scratch = tmp_path / "a", tmp_path / "scratch"
        shutil.copytree(done.out, out)
        moved = out / "cells" if what == "cells" else out / "cells" / done.cells[0].id
        shutil.move(moved, scratch)
        moved.symlink_to(scratch)
        assert open_sweep(out).counts == done.counts
        scratch.rename(tmp_path / "unmounted")
        result = open_sweep(out)
        assert result.counts["damaged"] == (len(done) if what == "cells" else 1)
        error = result.cells[0].error
        assert error.startswith(f"{moved}: is a link to a folder that was not found") and "Move" not in error
        again = sweep([cell.run for cell in result], out, engine="serial")  # trains nothing in its place
        assert again.counts == result.counts and moved.is_symlink()


def test_stop_at_loss_ends_a_run_there(tmp_path):
    """A loss that is there from the first five lines on."""
    (run,) = tiny({"seed": [0]}, stop_at_loss=100.0, log_every=2)
    cell = sweep([run], tmp_path / "a", engine="serial").cells[0]
    assert cell.status == "stopped early" and cell.numbers["step"] == 10
    assert TINY["n_checkpoints"] == 0


def test_a_sweep_over_kinds_of_task_is_shown_and_drawn(tmp_path):
    """Their fields differ: a run that lacks the field of an axis stands where its value is None."""
    runs = [
        *tiny({"seed": [0]}),
        *grid("addition", {"seed": [0]}, steps=20, n_samples=200, batch_size=50, d_mlp=16),
    ]
    result = sweep(runs, tmp_path / "sweep", engine="serial", progress=False)
    assert set(result.axes["kind"]) == {"two_anchor", "addition"} and None in result.axes["anchors"]
    assert "kind" in call("status", tmp_path / "sweep").stdout
    call("diagram", tmp_path / "sweep")
    assert (tmp_path / "sweep/diagram.html").exists()
