import json
import os
import re
from pathlib import Path

import pytest
from anchorlens_command import call as run
from filelock import FileLock
from sweeping import flags, tiny

from anchorlens.extras.sweep import open_sweep
from anchorlens.extras.sweep.sweep_folder import SweepFolder

AXES = {"gamma": "0.3,0.5", "seed": "0:2"}


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    out = tmp_path_factory.mktemp("command") / "a"
    run("sweep", "--engine", "serial", "--out", out, *flags(AXES))
    return out


def test_status_counts_and_maps(out):
    text = run("status", out).stdout
    assert f"{out}: 4 finished" in text and "phases: 4 undecided: underfit" in text
    assert "gamma" in text.splitlines()[3] and "/" not in text.splitlines()[3]  # one axis beside the seed
    assert text.count("??") == 2 and "One symbol per seed: ? underfit: no phase\n" in text


def test_status_lists_cells(out):
    text = run("status", out, "--cells").stdout
    assert all(cell.id in text for cell in open_sweep(out)) and text.count("undecided: underfit") >= 4


def test_status_json_is_one_object(out):
    content = json.loads(run("status", out, "--json").stdout)
    assert content["counts"] == {"finished": 4} and content["axes"] == {"gamma": [0.3, 0.5], "seed": [0, 1]}
    assert [row["cell"] for row in content["cells"]] == [cell.id for cell in open_sweep(out)]


def test_a_file_gives_axes_and_a_flag_beats_it(tmp_path, out):
    plain, text = {"steps": 20, "n_samples": 600, "batch_size": 64, "n_checkpoints": 0}, ""
    text = "[task]\nkey_max = 40\n[train]\n" + "".join(f"{name} = {value}\n" for name, value in plain.items())
    text += "[model]\nd_model = 16\nd_head = 8\nd_mlp = 16\n"
    text += '[sweep]\ngamma = "0.3:0.5:0.2"\nseed = [0, 1, 2]\n'
    (tmp_path / "grid.toml").write_text(text)
    done = run(
        "sweep", "--config", tmp_path / "grid.toml", "--seed", "0:2", "--out", out, "--engine", "serial"
    )
    assert "4 finished" in done.stdout  # the cells of the other command: nothing was trained
    assert len(open_sweep(out)) == 4


def test_a_dry_run_trains_nothing(tmp_path, out):
    done = run("sweep", "--dry-run", "--out", out, *flags({"gamma": "0.3,0.5,0.7", "seed": "0:2"}))
    assert "6 runs\n  gamma: 0.3 0.5 0.7\n  seed: 0 1" in done.stdout
    assert "4 runs are in" in done.stdout and "the other 2 runs: about" in done.stdout
    said = " ".join(done.stdout.split())
    assert "at the speed measured now" in said and re.search(r"memory: at most [\d,]+ MB, of [\d,]+ MB", said)
    assert len(open_sweep(out)) == 4
    run("sweep", "--dry-run", "--out", tmp_path / "b", *flags(AXES))
    assert not (tmp_path / "b").exists()


def test_a_run_of_a_dead_process_is_not_in_training(tmp_path):
    """The lock of a run ends with its process."""
    (run_,) = tiny({"seed": [0]})
    folder = SweepFolder(tmp_path)
    with folder.lock([run_]) as ((name, _),):
        folder.unfinished(name).mkdir(parents=True)
    (folder.unfinished(name) / "log.jsonl").write_text('{"step": 7}\n')
    lock = FileLock(folder.unfinished(f"{name}.lock"))
    with lock:
        assert f"in training: {name}: step 7 of" in run("status", tmp_path).stdout
    stopped = " ".join(run("status", tmp_path).stdout.split())
    assert f"stopped: {name}: step 7 of" in stopped and "in training" not in stopped
    Path(lock.lock_file).unlink(missing_ok=True)
    os.mkfifo(lock.lock_file)  # a trap for who opens it
    assert "stopped" in run("status", tmp_path).stdout


@pytest.mark.parametrize("command", [["classify"], ["evaluate"], ["probe", "stable_rank"]])
def test_its_folder_in_place_of_a_model_names_what_reads_it(out, command):
    said = run(*command, out, code=3).stderr
    assert "got the folder of a sweep" in said and "status" in said and "diagram" in said
    assert said.count("\n") == 1


def test_a_failed_cell_is_said(tmp_path):
    out = tmp_path / "a"
    run("sweep", "--engine", "serial", "--out", out, *flags({"seed": "0:1"}))
    run("sweep", "--dry-run", "--out", out, *flags({"seed": "0:2"}))
    from sweeping import tiny

    from anchorlens.extras.sweep.cells import cell_id

    blocked = SweepFolder(out).unfinished(cell_id(tiny({"seed": [1]})[0]))
    blocked.parent.mkdir()
    blocked.write_text("in the way")
    done = run("sweep", "--engine", "serial", "--out", out, *flags({"seed": "0:2"}), code=1)
    assert (
        "1 finished, 1 failed" in done.stdout and "must be the path of a folder, got the file" in done.stdout
    )
    assert "1 of 2 runs have failed" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["sweep", "--gamma", "0.3"], 2, "--out must be the folder of the sweep"),
        (["sweep", "--gamma", "x", "--out", "{}"], 2, "gamma must be a finite number"),
        (["sweep", "--preset", "slow", "--out", "{}"], 2, "preset must be one of"),
        (["status", "{}"], 3, "cannot be read: No such file"),
    ],
)
def test_errors_are_one_line(tmp_path, arguments, code, message):
    done = run(*(argument.format(tmp_path / "none") for argument in arguments), code=code)
    assert message in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "none").exists()
