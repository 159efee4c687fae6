"""Folders of runs and sweeps whose files are anything: one line with the name, and nobody is stopped."""

import contextlib
import json
import os
import shutil
import warnings
from dataclasses import replace

import pytest
import torch
from sweeping import tiny
from typer.testing import CliRunner

from anchorlens import AnchorTask, ModelConfig, TrainConfig, load_checkpoint, save_checkpoint, train
from anchorlens.cli import app
from anchorlens.extras.sweep import open_sweep, sweep
from anchorlens.extras.sweep.sweep_folder import SweepFolder
from anchorlens.files import container
from anchorlens.safe import CheckpointError
from anchorlens.training.run_folder import RunFolder, read_log, stored_run

STEERING = "a\x1b]52;c;aGk=\x07\r\nb‮:smile:"


def put(path, content):
    """Something in the place of a file: bytes, text, JSON, or what is no file."""
    if path.is_file():
        path.unlink()
    if content == "fifo":
        os.mkfifo(path)
    elif content == "folder":
        path.mkdir()
    elif content == "device":
        path.symlink_to("/dev/zero")
    elif content == "loop":
        path.symlink_to(path.name)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))


ANYTHING = {
    "empty": b"",
    "no text": b"\xff\xfe\x00",
    "no JSON": b"{",
    "deep": b"[" * 100_000,
    "deep but whole": b"[" * 900 + b"]" * 900,
    "a list": b"[]",
    "a number": b"7",
    "null": b"null",
    "NaN": b'{"format": NaN}',
    "huge number": b'{"format_version": 1e999999}',
    "long number": b'{"format_version": ' + b"9" * 10_000 + b"}",
    "large": b'{"a": "' + b"x" * 5_000_000 + b'"}',
    "many values": b"[" + b"[]," * 2_000_000 + b"[]]",
    "another format": b'{"format": "a\\u001b[31m", "format_version": 1}',
    "steering": json.dumps({"format": STEERING}).encode(),
    "no keys": b'{"format": "FORMAT", "format_version": 1}',
    "fifo": "fifo",
    "device": "device",
    "folder": "folder",
    "loop": "loop",
}


def of_format(content, name):
    return content.replace(b"FORMAT", name.encode()) if isinstance(content, bytes) else content


def one_line(error):
    text = str(error)
    assert text.isprintable() and len(text) < 5000, text
    return text


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return sweep(tiny({"seed": [0, 1]}), tmp_path_factory.mktemp("sweeps") / "a", engine="serial")


@pytest.fixture
def copied(finished, tmp_path):
    shutil.copytree(finished.out, tmp_path / "a")
    return open_sweep(tmp_path / "a")


@pytest.mark.parametrize("what", ANYTHING)
def test_a_cell(copied, what):
    first, second = copied.cells
    put(first.path / "cell.json", of_format(ANYTHING[what], "anchorlens cell"))
    read, other = open_sweep(copied.out).cells
    assert read.status == "damaged" and other.status == "finished"
    assert str(first.path / "cell.json") in one_line(read.error)


@pytest.mark.parametrize("what", ANYTHING)
def test_a_list_of_cells(copied, what):
    put(copied.out / "sweep.json", of_format(ANYTHING[what], "anchorlens sweep"))
    with pytest.raises(CheckpointError) as error:
        open_sweep(copied.out)
    assert str(copied.out / "sweep.json") in one_line(error.value)


@pytest.mark.parametrize("what", ANYTHING)
def test_a_failure(copied, what):
    first, _ = copied.cells
    shutil.rmtree(first.path)
    failed = copied.out / "failed"
    failed.mkdir(exist_ok=True)
    put(failed / f"{first.id}.json", of_format(ANYTHING[what], "anchorlens failed cell"))
    read, _ = open_sweep(copied.out).cells
    if what == "loop":  # as if it were not there
        assert read.status == "missing"
    else:
        assert read.status == "damaged" and f"{first.id}.json" in one_line(read.error)


@pytest.mark.parametrize("what", ANYTHING)
def test_a_run(tmp_path, what):
    tiny_model = ModelConfig(n_layers=1, d_model=16, d_head=8, d_mlp=16)
    folder = RunFolder(tmp_path / "run", tiny({"seed": [0]})[0], resume=False)
    folder.begin()
    folder.close()
    path = tmp_path / "run" / "config.json"
    put(path, of_format(ANYTHING[what], "anchorlens run"))
    if what == "loop":  # as if it were not there
        assert stored_run(path.parent) is None
        return
    with pytest.raises(CheckpointError) as error:
        stored_run(path.parent)
    assert str(path) in one_line(error.value)
    with pytest.raises(CheckpointError):
        train(AnchorTask(), tiny_model, TrainConfig(steps=2), out=path.parent, resume=True)


@pytest.mark.parametrize("what", ANYTHING)
def test_a_log(tmp_path, what):
    put(tmp_path / "log.jsonl", ANYTHING[what])
    if what in ("fifo", "device", "folder"):
        with pytest.raises(CheckpointError, match="log.jsonl"):
            read_log(tmp_path / "log.jsonl")
    else:
        assert read_log(tmp_path / "log.jsonl") == []


def test_a_log_ends_where_a_line_is_no_longer_one_of_numbers(tmp_path):
    lines = ['{"step": 1, "loss": 2.0, "id_accuracy": null}', '{"step": 2, "loss": "high"}', '{"step": 3}']
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    assert [line["step"] for line in read_log(tmp_path / "log.jsonl")] == [1]


GOOD_LINES = [json.dumps({"step": step, "loss": 1.0}) + "\n" for step in range(1, 7)]


@pytest.mark.parametrize("damage", ['{"step": 3, "lo\n', "\0" * 70_000, "x" * 70_000 + "\n", "[1]\n"])
def test_a_damaged_log_is_kept_when_its_run_goes_on(tmp_path, damage):
    log, whole = tmp_path / "log.jsonl", "".join([*GOOD_LINES[:2], damage, *GOOD_LINES[3:]])
    for number in (1, 2):
        kept_as = tmp_path / f"log.damaged-{number}.jsonl"
        with contextlib.closing(RunFolder(tmp_path, tiny({"seed": [0]})[0], resume=True)) as folder:
            folder.begin()
            log.write_text(whole)
            with pytest.warns(UserWarning, match=f"line 3 of .* the complete original is in {kept_as}"):
                kept = folder.open_log(6)
        assert [line["step"] for line in kept] == [1, 2] and read_log(log) == kept
        assert kept_as.read_text() == whole


@pytest.mark.parametrize("end", ["", '{"step": 7, "lo', "\0\0\0", '{"step": 7}'])
def test_a_log_that_a_kill_cut_off_is_not_damaged(tmp_path, end):
    folder = RunFolder(tmp_path, tiny({"seed": [0]})[0], resume=True)
    with contextlib.closing(folder):
        (tmp_path / "log.jsonl").write_text("".join(GOOD_LINES) + end)
        assert [line["step"] for line in folder.open_log(6)] == [1, 2, 3, 4, 5, 6]
    assert not list(tmp_path.glob("log.*-*"))


def changed(cell, change):
    content = json.loads((cell.path / "cell.json").read_text())
    change(content)
    (cell.path / "cell.json").write_text(json.dumps(content))


CHANGES = {
    "status": lambda c: c.update(status="well"),
    "error": lambda c: c.update(error=["a"]),
    "loss": lambda c: c.update(loss="low"),
    "probes": lambda c: c["probes"].update({"stable_rank.w_q": "3"}),
    "verdict": lambda c: c.pop("verdict"),
    "verdict.phase": lambda c: c["verdict"].pop("phase"),
    "verdict.phase.number": lambda c: c["verdict"]["phase"].update(number=4),
    "verdict.behaviour.train_fresh": lambda c: c["verdict"]["behaviour"].pop("train_fresh"),
    "verdict.behaviour.measures.id.value": lambda c: c["verdict"]["behaviour"]["measures"]["id"].update(
        value="7"
    ),
    "verdict.behaviour.pairs": lambda c: c["verdict"]["behaviour"].update(pairs={}),
    "verdict.by_probes.evidence": lambda c: c["verdict"]["by_probes"].update(evidence=[{}]),
    "verdict.by_probes.probabilities": lambda c: c["verdict"]["by_probes"].update(probabilities=[1]),
    "verdict.subject.versions": lambda c: c["verdict"]["subject"].update(versions={"torch": 2}),
}


@pytest.mark.parametrize("place", CHANGES)
def test_a_cell_whose_content_is_of_another_kind(copied, place):
    changed(copied.cells[0], CHANGES[place])
    read, other = open_sweep(copied.out).cells
    assert read.status == "damaged" and place in one_line(read.error) and other.status == "finished"


def test_a_log_of_too_many_lines(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"step":1}\n' * 500_001)
    with pytest.raises(CheckpointError, match="at most 500,000 lines"):
        read_log(tmp_path / "log.jsonl")


def test_a_log_that_cannot_be_read_stops_nobody(copied):
    """Neither that of a finished cell nor that of one under way."""
    first, second = copied.cells
    put(first.path / "log.jsonl", "fifo")
    assert open_sweep(copied.out).cells[0].log() == []
    second.path.rename(copied.out / "unfinished")
    (copied.out / "unfinished" / second.id).mkdir()
    put(copied.out / "unfinished" / second.id / "log.jsonl", "device")
    runner = CliRunner()
    for command in ("status", "diagram"):
        done = runner.invoke(app, [command, str(copied.out)])
        assert done.exit_code == 0, done.stderr


def test_a_list_of_cells_with_many_large_tasks(copied):
    """Some kilobytes that would take gigabytes; equal tasks are made once."""
    cell = {"model": {"d_vocab": 200_000}, "train": {"steps": 2}}
    for large in (True, False):
        cells = [{**cell, "task": {"key_max": 100_019 - k * large}} for k in range(50)]
        content = {"format": "anchorlens sweep", "format_version": 1, "cells": cells}
        content["ids"] = [f"{k:016x}" for k in range(50)]
        (copied.out / "sweep.json").write_text(json.dumps(content))
        if large:
            with pytest.raises(CheckpointError, match="targets in total"):
                open_sweep(copied.out)
        else:
            runs = [run for _, run in SweepFolder(copied.out).stored()]
            assert len(runs) == 50 and len({id(run.task) for run in runs}) == 1


@pytest.mark.parametrize("name", ["label", "by_probes_label", "gamma", "a.b.c", "x" * 300])
def test_a_number_of_a_probe_is_called_as_no_other_column(copied, name):
    changed(copied.cells[0], lambda content: content["probes"].update({name: 1.0}))
    assert open_sweep(copied.out).cells[0].status == "damaged"


@pytest.fixture
def interrupted(tmp_path):
    """The folder of a run with a state, and what its header says."""
    run = tiny({"seed": [0]}, state_every_seconds=0)[0]
    train(*run, out=tmp_path / "run")
    folder = RunFolder(tmp_path / "run", run, resume=True)
    folder.save_state(5, 1, {"a": torch.ones(1)})
    folder.close()
    (tmp_path / "run" / "ckpt.pt").rename(tmp_path / "ckpt.pt")
    return tmp_path / "run", run


@pytest.mark.parametrize("change", [{"threads": None}, {"threads": STEERING}, {"step": -1}, {"step": 20}])
def test_a_forged_state(interrupted, change):
    path, run = interrupted
    header, tensors = container.read(path / "state.pt")
    container.write(path / "state.pt", {**header, **change}, tensors)
    with pytest.raises(CheckpointError, match="is not the state of a run") as error:
        train(*run, out=path, resume=True)
    one_line(error.value)


@pytest.mark.parametrize(
    "other",
    [{"metrics": {}}, {"metrics": {"status": [1]}}, {"gamma": 0.1}, {"n_samples": 10**8}, {"seed": 9}],
)
def test_a_last_checkpoint_of_something_else(interrupted, other):
    path, run = interrupted
    kept = load_checkpoint(path.with_name("ckpt.pt"))
    model = replace(kept.model_config, gamma=other.get("gamma", kept.model_config.gamma))
    metrics = other.get("metrics", kept.metrics)
    trained = replace(
        kept.train_config, **{name: other[name] for name in ("n_samples", "seed") if name in other}
    )
    save_checkpoint(
        path / "ckpt.pt", replace(kept, model_config=model, metrics=metrics, train_config=trained)
    )
    with pytest.raises(CheckpointError, match="the file must be the last checkpoint of this run"):
        train(*run, out=path, resume=True)


def test_a_damaged_cell_stops_nobody(copied):
    """The table, the page and the sweep itself go on; the command says that something is damaged."""
    changed(copied.cells[0], lambda content: content.pop("verdict"))
    runner = CliRunner()
    for options in ([], ["--cells"], ["--json"]):
        done = runner.invoke(app, ["status", str(copied.out), *options])
        assert done.exit_code == 0 and "damaged" in done.stdout, done.stderr
    table = copied.out / "cells.csv"
    done = runner.invoke(app, ["diagram", str(copied.out), "--table", str(table)])
    assert done.exit_code == 0, done.stderr
    assert "damaged" in (copied.out / "diagram.html").read_text() and "damaged" in table.read_text()
    runs = [cell.run for cell in copied]
    assert sweep(runs, copied.out, engine="serial").counts == {"damaged": 1, "finished": 1}
    shutil.rmtree(copied.cells[0].path)  # as the message says
    assert sweep(runs, copied.out, engine="serial").counts == {"finished": 2}


def test_steering_texts_stay_texts(copied):
    """Wherever a text of a cell comes out: the terminal, the table, the page."""

    def change(content):
        content["error"] = STEERING
        content["verdict"] |= {"label": STEERING, "reason": STEERING, "warnings": [STEERING]}
        content["verdict"]["by_probes"]["phase"] |= {"reason": STEERING}
        content["status"] = "diverged"

    changed(copied.cells[0], change)
    (copied.out / "failed").mkdir(exist_ok=True)
    shutil.rmtree(copied.cells[1].path)
    failure = {"format": "anchorlens failed cell", "format_version": 1, "id": "x"}
    failure |= {"error": STEERING, "details": f"{STEERING}\n{STEERING}"}
    (copied.out / "failed" / f"{copied.cells[1].id}.json").write_text(json.dumps(failure))
    hostile = copied.out.with_name("b\x1b[31m\n:smile:")
    copied.out.rename(hostile)
    runner = CliRunner()
    shown = [runner.invoke(app, ["status", str(hostile), *more]) for more in ([], ["--cells"], ["--json"])]
    shown.append(runner.invoke(app, ["diagram", str(hostile), "--table", str(hostile / "t.csv")]))
    texts = [done.output for done in shown]
    texts += [(hostile / name).read_text() for name in ("t.csv", "diagram.html")]
    assert all(done.exit_code == 0 for done in shown)
    for text in texts:
        for steering in ("\x1b]52", "\x1b[31m", "\x07", "‮", "😄"):
            assert steering not in text
    assert ":smile:" in texts[0]


def test_what_killed_processes_left_is_cleaned(copied):
    (copied.out / ".sweep.json.0123.tmp").write_text("{")
    (copied.out / "failed").mkdir(exist_ok=True)
    (copied.out / "failed" / ".x.json.0123.tmp").write_text("{")
    sweep([cell.run for cell in copied], copied.out, engine="serial")
    assert not [*copied.out.rglob("*.tmp")]


def test_a_state_left_by_a_kill_after_the_last_checkpoint_goes(tmp_path):
    run = tiny({"seed": [0]})[0]
    result = train(*run, out=tmp_path / "run")
    state = tmp_path / "run" / "state.pt"
    state.write_bytes(b"left")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = train(*run, out=tmp_path / "run", resume=True)
    assert not state.exists() and again.checkpoint.step == result.checkpoint.step
