"""Progress in a real terminal (a pseudo-terminal), in a real notebook kernel, and where there is neither."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import forked
import nbformat
import pytest
from anchorlens_command import call
from nbclient import NotebookClient
from sweeping import tiny

from anchorlens.extras.sweep import grid, sweep
from anchorlens.extras.sweep.engines import SweepEngine
from anchorlens.extras.sweep.run import _Driver, last_step
from anchorlens.extras.sweep.sweep_folder import SweepFolder
from anchorlens.training.progress import Progress
from anchorlens.training.run import train
from anchorlens.training.run_folder import read_log

ROOT = Path(__file__).parents[2]
TRAIN = ["train", "--n-layers", "1", "--d-model", "16", "--d-head", "8", "--d-mlp", "16", "--steps", "60"]
FEW = ["--key-max", "40", "--n-samples", "600"]  # so that evaluating is short
COMMAND = [sys.executable, "-m", "anchorlens", *TRAIN, *FEW, "--log-every", "1"]


def read_all(terminal):
    chunks = []
    while True:
        try:
            chunk = os.read(terminal, 4096)
        except OSError:  # the other end is closed
            chunk = b""
        if not chunk:
            return b"".join(chunks).decode()
        chunks.append(chunk)


@pytest.mark.parametrize("columns", [*[pytest.param(n, marks=pytest.mark.slow) for n in (40, 100)], 60])
def test_a_terminal_shows_one_line_that_fits_and_stdout_stays_clean(tmp_path, columns):
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    command = [*COMMAND, "--eval-every", "20", "--json", "--out", str(tmp_path / "run")]
    with forked.Popen(command, stdout=subprocess.PIPE, stderr=end, cwd=ROOT, env=environment) as process:
        os.close(end)
        shown = read_all(terminal)
        assert process.stdout is not None
        printed = process.stdout.read().decode()
    os.close(terminal)
    assert process.returncode == 0
    assert printed.startswith("{") and printed.count("\n") == 1
    assert "\x1b[1A" not in shown  # never a line up, so it never took two
    bars = [line for line in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown).split("\r") if "training" in line]
    assert len(bars) > 2 and max(map(len, bars)) <= columns
    if columns >= 60:
        assert "60/60" in bars[-1] and "ood 0." in bars[-1]
    if columns == 100:
        assert "loss" in shown


SETTINGS = """
from anchorlens import AnchorTask, ModelConfig, TrainConfig, preset, train, train_many
from anchorlens.extras.audit import audit
from anchorlens.extras.sweep import grid, sweep
tiny = {"n_layers": 1, "d_model": 16, "d_head": 8, "d_mlp": 16, "key_max": 40, "n_samples": 600, "steps": 6}
runs = grid("quick", {"seed": [0, 1]}, eval_every=2, log_every=1, **tiny)
"""
TINY = {
    "n_layers": 1, "d_model": 16, "d_head": 8, "d_mlp": 16, "key_max": 40, "n_samples": 600, "steps": 6,
    "eval_every": 2, "device": "cpu",
}  # fmt: skip
CALLS = {
    "train": "a = train(*runs[0])",
    "train_many": "b = train_many(runs, workers=1)",
    "sweep": "c = sweep(runs, 'sweep', engine='serial')",
    "audit": "d = audit(AnchorTask(key_max=40), model_config=runs[0].model_config, "
    "train_config=TrainConfig(steps=4, n_samples=600), seeds=[0], n_evaluations=2)",
}


def outputs_of(sources, folder):
    """What each cell of a notebook shows that a real kernel runs, and the sizes of what came on the way."""
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    client = NotebookClient(
        nbformat.v4.new_notebook(cells=cells), timeout=180, resources={"metadata": {"path": folder}}
    )
    sizes, process = [], client.process_message

    def noted(message, *others):
        if message["msg_type"] == "update_display_data":
            sizes.append(len(message["content"]["data"]["text/html"]))
        return process(message, *others)

    client.process_message = noted
    client.execute()
    return [cell.outputs for cell in client.nb.cells], sizes


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    """Call -> the outputs of its cell; and the sizes of all that came on the way."""
    (first, *others), sizes = outputs_of((SETTINGS, *CALLS.values()), tmp_path_factory.mktemp("notebook"))
    assert not first
    return dict(zip(CALLS, others, strict=True)), sizes


@pytest.mark.filterwarnings("ignore")  # of the notebook client itself, not of the cells
class TestNotebook:
    @pytest.mark.parametrize("call", CALLS)
    def test_one_output_that_is_replaced(self, notebook, call):
        (output,) = notebook[0][call]  # and no warning above it
        assert re.match(r"training: (\d+) of \1 steps in \d+ s; ", output.data["text/plain"])
        assert re.search(r'<progress value="(\d+)" max="\1">', output.data["text/html"])

    def test_a_training_has_its_curve(self, notebook):
        html = {call: output.data["text/html"] for call, (output,) in notebook[0].items()}
        assert {call for call in CALLS if "<polyline" in html[call]} == {"train"}
        assert html["train"].count("<polyline") == 4  # loss, train, ID and OOD accuracy
        assert "Training from step 1 to 6" in html["train"]

    def test_it_is_small_and_without_a_script(self, notebook):
        outputs, sizes = notebook
        assert len(sizes) >= len(CALLS) and max(sizes) < 10_000  # bytes
        assert not [call for call, (output,) in outputs.items() if "<script" in output.data["text/html"]]


LINE = r"{}: [\d,]+ of {} {}s(, time left not known yet|, .+ left| in .+ s)(; .+)?"


class TestLines:
    """Where there is neither a terminal nor a notebook."""

    def lines(self, capfd, what="training", total=r"\d+", unit="step"):
        lines = capfd.readouterr().err.splitlines()
        assert len(lines) > 1 and all(re.fullmatch(LINE.format(what, total, unit), line) for line in lines)
        return lines

    def test_come_regularly_with_the_time_left_and_one_at_the_end(self, capfd):
        train(*grid("quick", {"seed": 0}, log_every=1, **TINY)[0], progress=1e-3)
        *lines, last = self.lines(capfd, total=6)
        assert any(re.search(r"[1-5] of 6 steps, \d+ s left; .*loss", line) for line in lines)
        assert re.match(r"training: 6 of 6 steps in \d+ s; train \S+ id \S+ ood \S+ loss", last)

    def test_come_from_a_sweep_with_the_steps_of_cells_under_way(self, capfd, tmp_path):
        sweep(grid("quick", {"seed": [0, 1]}, log_every=1, **TINY), tmp_path, engine="serial", progress=1e-3)
        *lines, last = self.lines(capfd, total=12)
        assert [line for line in lines if re.search(r" [1-5] of 12 steps.*; 0 of 2 runs", line)]
        assert last.startswith("training: 12 of 12 steps in ") and last.endswith("; 2 of 2 runs")

    def test_come_from_commands(self, capfd, tmp_path, monkeypatch):
        for where in ("cli.training", "extras.sweep.commands", "extras.audit.commands"):
            monkeypatch.setattr(f"anchorlens.{where}.COMMAND_LINE_SECONDS", 1e-3)
        options = [word for name, value in TINY.items() for word in (f"--{name.replace('_', '-')}", value)]
        rows = [f"{key},{a},{b},{key + a + b}" for key in range(10, 16) for a in (1, 2) for b in (1, 2)]
        (tmp_path / "few.csv").write_text("\n".join(["key,a1,a2,target", *rows]))
        few = [tmp_path / "few.csv", "--seeds", 1, "--workers", 1, "--steps", 4, "--n-samples", 600]
        for words in (["train", *options], ["sweep", "--engine", "serial", *options], ["audit", *few]):
            lines = call(*words, "--out", tmp_path / words[0]).stderr.splitlines()
            told = [line for line in lines if re.fullmatch(LINE.format("training", r"\d+", "step"), line)]
            assert len(told) > 1, words

    def test_do_not_come_from_what_is_short_or_wants_none(self, capfd):
        run = grid("quick", {"seed": 0}, **TINY)[0]
        train(*run, progress=3600)
        train(*run, progress=False)
        assert capfd.readouterr().err == ""

    @pytest.mark.parametrize("progress", [0, -1, "often", float("nan")])
    def test_bad_seconds_are_refused(self, progress):
        with pytest.raises(ValueError, match="progress must be"):
            train(*grid("quick", {"seed": 0}, **TINY)[0], progress=progress)


def test_the_time_left_is_that_of_steps_that_took_time(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    progress = Progress(1000, "training", "step")
    progress.update(400, "")  # of a run that goes on
    assert progress.seconds_left is None
    now[0] = 110.0
    progress.update(450, "")  # 50 steps in 10 s
    assert progress.seconds_left == 110  # (1000 - 450) * 10 / 50
    now[0] = 130.0
    assert progress.seconds_left == 90  # nothing was said since
    progress.update(850, "", skipped=800)  # 400 others were read; 50 in 30 s
    assert progress.seconds_left == 90  # 150 * 30 / 50
    assert repr(progress) == "training: 850 of 1,000 steps, 90 s left"


def test_the_time_left_leaves_out_what_a_log_tells_of_before(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    progress = Progress(1000, "training", "step")
    progress.update(400, "")  # as the log says; the last saved state is of step 300
    now[0] = 110.0
    progress.update(300, "")
    assert progress.seconds_left is None
    now[0] = 120.0
    progress.update(400, "")
    assert progress.seconds_left == 120  # 600 * 20 / 100


def test_a_sweep_that_goes_on_counts_what_unfinished_cells_did_before(tmp_path):
    done = sweep(grid("quick", {"seed": 0}, **TINY), tmp_path / "a", engine="serial", progress=False)
    folder = SweepFolder(done.out)
    with folder.lock(grid("quick", {"seed": [0, 1]}, **TINY)) as cells:
        log = folder.unfinished(cells[1][0]) / "log.jsonl"
        log.parent.mkdir(parents=True)
        log.write_text('{"step": 4}\n')
        driver, told = _Driver(cells, folder, SweepEngine("serial")), []
        driver.show = lambda done, text: told.append((done, text))
        driver._missing()
    assert told == [(6 + 4, "1 of 2 runs")]  # so that the speed is that of the steps after these


@pytest.mark.parametrize(
    ("log", "step"),
    [(b"", 0), (b'{"step": 5}\n{"step": 10}\n{"st', 10), (b'{"step": 5', 0), (b"no\n", 0), (None, 0)],
)
def test_the_last_step_of_a_log_is_read_from_its_end(tmp_path, log, step):
    if log is not None:
        (tmp_path / "log.jsonl").write_bytes(log)
    assert last_step(tmp_path / "log.jsonl") == step
    if log:
        (tmp_path / "log.jsonl").write_bytes(b'{"step": 1}\n' * 20_000 + log)
        assert last_step(tmp_path / "log.jsonl") == (step or 1 - (log == b"no\n"))


@pytest.mark.parametrize("seconds", [-5, 1e300, 10**12, None])
def test_an_impossible_time_in_a_log_is_none_and_the_run_goes_on(seconds, tmp_path):
    (run,) = tiny({"seed": [0]}, steps=4, log_every=1, state_every_seconds=0)
    stopped = []

    def stop(line):
        stopped.append(line)
        if line["step"] == 2:
            raise RuntimeError("enough")

    out = tmp_path / "run"
    with pytest.raises(RuntimeError):
        train(*run, out=out, on_log=stop, progress=False)
    lines = [json.loads(text) for text in (out / "log.jsonl").read_text().splitlines()]
    (out / "log.jsonl").write_text("".join(json.dumps({**line, "seconds": seconds}) + "\n" for line in lines))
    assert {line["seconds"] for line in read_log(out / "log.jsonl")} == {None}
    log = train(*run, out=out, resume=True, progress=False).log
    assert [line["step"] for line in log] == [1, 2, 3, 4] and 0 <= log[-1]["seconds"] < 600
