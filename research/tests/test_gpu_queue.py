"""`research/gpu`: every job of the queue is rehearsed, cut off, continued, brought home, and on its page."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from few_questions import draw_little

import bring_home
import jobs
import measurements
import page
import parcel
import run
from anchorlens.extras.sweep import open_sweep
from anchorlens.extras.sweep.cells import cell_ids
from anchorlens.files.checkpoint import library_versions
from claims import main_claims
from shared import numerals

ROOT = Path(__file__).parents[2]
SCALE = 0.0002
COGS = ROOT.parent / "shared/data"
QUEUE = {job.id: job for job in jobs.queue()}
TRAINED = [job for job in QUEUE.values() if job.kind == "train" and job.id not in ("a3", "a4", "b2")]
REHEARSED = [pytest.param(job, id=job.id, marks=[pytest.mark.slow] if job.data else []) for job in TRAINED]
"""COGS asks 27,000 sentences of a network, however small it is."""
_KINDS = {
    (jobs.runs(job, jobs.Choice(), "cpu")[0].task.kind, job.matmul, "stop_at_loss" in job.set): job
    for job in reversed(TRAINED)
    if not job.data
}
FIRST_OF_A_KIND = [job for job in TRAINED if job in _KINDS.values()]
"""A job of every task, precision and end, for the device: on the CPU every job is rehearsed."""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A copy of what a result changes in the repository, where it is brought home to."""
    copied = tmp_path / "repository"
    for folder in ("research/figures", "research/gpu"):
        ignored = shutil.ignore_patterns("__pycache__", "done")
        shutil.copytree(ROOT / folder, copied / folder, ignore=ignored)
    (copied / "docs/images/figures").mkdir(parents=True)
    for path in (ROOT / "docs/images/figures").glob("*.json"):
        shutil.copy(path, copied / "docs/images/figures")
    monkeypatch.setattr(jobs, "DONE", copied / "research/gpu/done")
    monkeypatch.setattr(run, "LEAST", -9.0)  # minutes: a command of none begins a job, and cuts it off
    monkeypatch.setattr(bring_home, "SCRIPTS", copied / "research/figures")
    monkeypatch.setattr(sys, "path", [str(copied / "research/figures"), *sys.path])
    monkeypatch.chdir(tmp_path)
    draw_little(monkeypatch)
    return copied


def rehearse(job, *arguments, minutes=60, out="out", work="work", device="cpu"):
    data = ["--data", str(COGS)] if job.data else []
    asked = ["--only", job.id, "--minutes", str(minutes), "--out", out, "--work", work, "--device", device]
    run.main([*asked, "--scale", str(SCALE), *data, *arguments])


def brought_home(place, *folders):
    figures = str(place / "docs/images/figures")
    bring_home.main([*folders, "--rehearsal", "--home", "home", "--figures", figures, "--suffix", ".html"])
    return (place / "research/figures/replication/gpu.md").read_text()


@pytest.mark.parametrize("job", REHEARSED)
def test_a_job_is_cut_off_continued_and_brought_home(job, place):
    if job.data and not (COGS / job.data).exists():
        pytest.skip(f"no files of {job.data} at {COGS}")
    rehearse(job, minutes=0)
    work = run.Work(job, Path("work"))
    assert 0 < work.share_left() < 1 and not list(Path("out").iterdir())
    rehearse(job)
    assert work.share_left() == 0
    page = brought_home(place, "out")
    done = json.loads((jobs.DONE / f"{job.id}.json").read_text())
    networks = jobs.runs(job, jobs.Choice(**done["choice"]), "cpu")
    assert len(done["rows"]) == len(networks) and done["card"] and done["versions"]["torch"]
    assert f"### Job {job.id}\n\n{job.decides}" in page
    home = Path("home") / f"{job.tag or job.id}_float32"
    assert {cell.id for cell in open_sweep(home)} == set(cell_ids(networks))  # the figures train nothing more
    assert len(list(home.glob("cells/*/ckpt.pt"))) == (len(networks) if job.weights != "none" else 0)
    for script, outcome in done["figures"].items():
        assert outcome == "written" or "no cell of" in outcome, (script, outcome)


@pytest.mark.gpu
@pytest.mark.parametrize("job", FIRST_OF_A_KIND, ids=lambda job: job.id)
def test_a_job_is_cut_off_and_continued_on_the_device(job, place):
    rehearse(job, minutes=0, device="cuda")
    assert 0 < run.Work(job, Path("work")).share_left() < 1
    rehearse(job, device="cuda")
    content, _ = parcel.unpack(Path("out") / f"{job.id}.json")
    assert content["choice"]["matmul"] == job.matmul  # on the stand-in tf32 is float32, and agrees
    assert len(content["networks"]) == len(jobs.runs(job, jobs.Choice(**content["choice"]), "cpu"))


def test_the_speed_is_measured_and_brought_home(place):
    rehearse(QUEUE["speed"])
    page = brought_home(place, "out")
    done = json.loads((jobs.DONE / "speed.json").read_text())
    assert [row["matmul"] for row in done["rows"]] == ["float32", "bf16"]
    assert all(row["share_of_limit"] > 0 and row["kernels"] for row in done["rows"])
    assert "| bf16 |" in page


def test_a_killed_job_loses_nothing_that_was_saved(place):
    """SIGKILL while it trains; the next command continues from the last state."""
    script = [sys.executable, str(ROOT / "research/gpu/run.py"), "--only", "h", "--scale", "0.02"]
    places = ["--minutes", "5", "--out", "out", "--work", "work", "--device", "cpu"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([*script, *places], env=environment, stdout=subprocess.DEVNULL)
    work = run.Work(QUEUE["h"], Path("work"))
    while work.share_left() == 1:
        assert process.poll() is None
        time.sleep(0.05)
    process.kill()
    process.wait()
    assert 0 < work.share_left() < 1
    run.main([*script[2:], *places])
    run.main([*script[2:], *places[:2], "--out", "whole", "--work", "not killed", "--device", "cpu"])
    one, other = (parcel.unpack(Path(out) / "h.json")[1] for out in ("out", "whole"))
    assert one and all(one[name].equal(other[name]) for name in one)


def test_states_travel_to_another_machine(place):
    job = QUEUE["a1"]
    rehearse(job, "--last", minutes=0)
    assert not Path("work").exists()  # it would not end
    rehearse(job, minutes=0)
    rehearse(job, "--last", minutes=0)
    assert {path.name for path in Path("out").iterdir()} == {"a1.states.json", "a1.states.0"}
    bring_home.main(["out", "--rehearsal", "--work", "other"])
    there = run.Work(job, Path("other"))
    assert there.share_left() == run.Work(job, Path("work")).share_left() and not jobs.is_done(job)
    for work in ("work", "other"):
        rehearse(job, out=f"out of {work}", work=work)
    one, other = (parcel.unpack(Path(f"out of {work}") / "a1.json")[1] for work in ("work", "other"))
    assert one and all(one[name].equal(other[name]) for name in one)


def test_seeds_of_two_commands_are_one_figure_and_one_alone_replaces_none(place):
    rehearse(QUEUE["b"])
    rehearse(QUEUE["b2"], out="out of b2")
    brought_home(place, "out", "out of b2")
    path = place / "docs/images/figures/j3_phases_released_d640_float32.json"
    assert json.loads(path.read_text())["seed"] == [0, 1]
    shutil.rmtree("home")
    brought_home(place, "out of b2")
    done = json.loads((jobs.DONE / "b2.json").read_text())
    assert "give the folders of all of them" in done["figures"]["j3_phases"]
    assert json.loads(path.read_text())["seed"] == [0, 1]


class TestParcels:
    def packed(self, folder, n=5):
        folder.mkdir()
        parcel.pack(folder, "x", {"job": "a1", "loss": 0.5}, {"w": torch.arange(n).to(torch.bfloat16)})
        return folder / "x.json"

    def test_come_back_as_they_were(self, tmp_path):
        content, tensors = parcel.unpack(self.packed(tmp_path / "out"))
        assert content["loss"] == 0.5 and tensors["w"].tolist() == [0, 1, 2, 3, 4]
        assert tensors["w"].dtype == torch.bfloat16

    def test_go_home_in_pieces(self, tmp_path, monkeypatch):
        monkeypatch.setattr(parcel, "PIECE", 100)
        path = self.packed(tmp_path / "out")
        assert len(list(path.parent.iterdir())) > 3
        assert parcel.unpack(path)[1]["w"].tolist() == [0, 1, 2, 3, 4]

    @pytest.mark.parametrize(("limit", "value"), [("MOST_BYTES", 200), ("MOST_FILES", 1)])
    def test_that_are_too_large_leave_their_tensors(self, tmp_path, monkeypatch, limit, value):
        monkeypatch.setattr(parcel, limit, value)
        content, tensors = parcel.unpack(self.packed(tmp_path / "out"))
        assert not tensors and "do not fit" in content["tensors_left_out"]

    @pytest.mark.parametrize("text", ["NaN", "Infinity", "1e999"])
    def test_with_a_number_that_is_not_finite_are_refused(self, tmp_path, text):
        path = self.packed(tmp_path / "out")
        path.write_text(path.read_text().replace("0.5", text))
        with pytest.raises(ValueError, match="finite"):
            parcel.unpack(path)

    def test_that_were_altered_are_refused(self, tmp_path):
        path = self.packed(tmp_path / "out")
        piece = path.with_name("x.0")
        piece.write_bytes(piece.read_bytes()[:-1] + b"?")
        with pytest.raises(ValueError, match="must be the file that the job wrote"):
            parcel.unpack(path)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"job": "z"}, "must be of a job of queue.toml"),
        ({"choice": {"scale": 0.01}}, "must be of a whole job"),
        ({"source": "0" * 64}, "must be of code that is committed"),
        ({"versions": {}}, "must name the versions"),
        ({"networks": {}}, "must hold the 2 networks"),
        ({"choice": {"updates": 7}}, "must hold the 2 networks"),
    ],
)
def test_what_is_not_of_the_queue_is_refused(tmp_path, changed, message):
    job = QUEUE["a1"]
    networks = dict.fromkeys(cell_ids(jobs.runs(job, jobs.Choice(), "cpu")), {})
    whole = {"job": "a1", "choice": {}, "source": run.source(), "versions": library_versions()}
    parcel.pack(tmp_path, "good", {**whole, "networks": networks}, {})
    bring_home.Parcel(tmp_path / "good.json", QUEUE)
    parcel.pack(tmp_path, "bad", {**whole, "networks": networks, **changed}, {})
    with pytest.raises(ValueError, match=message):
        bring_home.Parcel(tmp_path / "bad.json", QUEUE)


class TestTheNextJob:
    @pytest.fixture
    def given(self, tmp_path, monkeypatch):
        monkeypatch.setattr(jobs, "DONE", tmp_path / "done")
        return Namespace(work=tmp_path, data=None, device="cpu", last=False, scale=1.0)

    def test_is_the_first_that_is_not_done(self, given):
        assert run.next_job(jobs.queue(), given, 9, ()).id == "a1"
        jobs.DONE.mkdir()
        (jobs.DONE / "a1.json").write_text("{}")
        assert run.next_job(jobs.queue(), given, 9, ()).id == "a2"

    def test_is_the_one_that_was_begun(self, given):
        run.Work(QUEUE["c"], given.work).write({"choice": {}})
        assert run.next_job(jobs.queue(), given, 9, ()).id == "c"
        run.Work(QUEUE["c"], given.work).write({"choice": {}, "sent": True})
        assert run.next_job(jobs.queue(), given, 9, ()).id == "a1"

    def test_is_at_the_end_of_a_loan_one_that_ends(self, given):
        given.last = True
        assert run.next_job(jobs.queue(), given, 9, ()).id == "speed"
        assert run.next_job(jobs.queue(), given, 9, ("speed",)).id == "c"
        assert run.next_job(jobs.queue(), given, 0.1, ()) is None

    def test_is_not_begun_where_no_time_is_left_to_choose_its_precision(self, given):
        assert run.next_job([QUEUE["a1"]], given, run.LEAST - 0.1, ()) is None
        assert run.next_job([QUEUE["a1"]], given, run.LEAST + 0.1, ()) is QUEUE["a1"]

    def test_is_never_one_that_can_neither_end_nor_continue(self, given):
        assert run.next_job([QUEUE["speed"]], given, 2.9, ()) is None
        assert run.next_job([QUEUE["speed"]], given, 3.1, ()) is QUEUE["speed"]

    def test_is_none_that_failed(self, given, monkeypatch, capsys):
        monkeypatch.setattr(run, "do", lambda job, given, ends: 1 / 0)
        run.main(["--only", "g", "h", "--out", str(given.work / "out"), "--work", str(given.work)])
        assert "h: " in capsys.readouterr().out
        assert run.Work(QUEUE["g"], given.work).begun == {"error": "ZeroDivisionError: division by zero"}
        assert run.next_job([QUEUE["g"], QUEUE["h"]], given, 9, ()) is None

    def test_needs_its_files(self, given):
        assert run.next_job([QUEUE["d2"]], given, 9, ()) is None


@pytest.mark.parametrize(
    "job", [job for job in TRAINED if not job.data and job.id != "e"], ids=lambda job: job.id
)
def test_the_queue_says_what_is_counted(job):
    choice = jobs.smallest(job)
    of_update, n = jobs.cost(job, choice), len(jobs.runs(job, choice, "cpu"))
    assert job.networks == n
    assert job.minutes == pytest.approx(jobs.minutes(job, choice, of_update), rel=0.02, abs=0.06)
    assert n * of_update.bytes / 2**30 <= job.memory_gib + 1


@pytest.mark.parametrize("job", TRAINED, ids=lambda job: job.id)
def test_a_job_fits_into_a_loan_and_looks_at_the_clock_often(job):
    assert job.minutes <= jobs.LONGEST and job.decides.endswith(("?", "."))
    assert set(job.claims) <= set(main_claims.read())
    if not job.data:
        train = jobs.runs(job, jobs.smallest(job), "cpu")[0].train_config
        assert 60 * job.minutes / train.total_steps * train.log_every < 30


@pytest.mark.parametrize(("shift", "agrees"), [(0.0, True), (1e-3, True), (0.5, False)])
def test_tf32_is_used_where_it_differs_less_than_two_seeds(monkeypatch, shift, agrees):
    """Losses 1 / (1 + step), of another seed .1 more; what tf32 adds is given."""

    class Engine:
        def __init__(self, matmul, seed):
            self.step, self.more = 0, shift if matmul == "tf32" else 0.1 * bool(seed)

        def advance(self, step):
            self.step = step
            return [Namespace(loss=1 / (1 + step) + self.more)]

    monkeypatch.setattr(measurements, "stack", lambda runs, matmul, seed: Engine(matmul, seed))
    monkeypatch.setattr(measurements, "choose_device", lambda name: Namespace(type="cuda"))
    monkeypatch.setattr(measurements, "numeric_settings", lambda device, tf32: contextlib.nullcontext())
    found = measurements.precisions([Namespace(train_config=Namespace(device="cuda"))], 20)
    assert found["agrees"] is agrees
    assert found["between_precisions"] == pytest.approx([shift])
    assert found["between_seeds"] == pytest.approx([0.1])


def test_the_code_that_ran_is_known_by_its_commit():
    """By git's own names of the files, so that a machine without the repository can say it."""
    head = bring_home.git("rev-parse", "HEAD").strip()
    entries = [line.split() for line in bring_home.git("ls-tree", "-r", head, "anchorlens").splitlines()]
    code = run.code_of({name: blob for *_, blob, name in entries})
    commits = bring_home.git("rev-list", "--max-count=100", "HEAD").split()
    found = bring_home.commit_of(code, Path("x"))
    assert found in commits and not bring_home.git("diff", found, head, "--", "anchorlens/*.py")
    with pytest.raises(ValueError, match="committed"):
        bring_home.commit_of("0" * 64, Path("x"))


def test_the_page_says_which_outcomes_wait_for_which_job():
    text = (ROOT / "research/figures/replication/gpu.md").read_text()
    for job in QUEUE.values():
        assert f"| {job.id} | {job.decides} |" in text
    waits = re.search(r"## Outcomes that may change\n\n(.*?)\n\n", text, re.DOTALL)[1].splitlines()[2:]
    claimed = {figure for job in QUEUE.values() for figure in job.claims if not jobs.is_done(job)}
    assert len(waits) == len(claimed)
    for figure in claimed:
        ids = [job.id for job in QUEUE.values() if figure in job.claims and not jobs.is_done(job)]
        assert any(line.endswith(f"| {numerals.joined(ids)} |") for line in waits)


def test_a_table_of_results_by_hand():
    rows = [
        {"gamma": 0.5, "seed": seed, "label": label, "id": known, "step": 300, "kernels": []}
        for seed, label, known in ((0, "Phase 1", 0.25), (1, "Phase 3", 1.0), (2, "Phase 1", None))
    ]
    assert page.job_table(rows).splitlines() == [
        "| gamma | label | id | step |",
        "|---|---|---|---|",
        "| 0.5 | Phase 1 (2), Phase 3 (1) | 0.25 1.00 - | 300 300 300 |",
    ]
    assert page.job_table([{"matmul": "tf32", "ms": 1.5}]).splitlines()[2] == "| tf32 | 1.50 |"
