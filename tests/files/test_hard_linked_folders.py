"""Folders that are small on the disk, whose cells are one large file: reading them takes little memory."""

import json
import subprocess
import sys

import pytest
from hard_linked import hard_linked
from known_cells import cell as known_cell
from sweeping import ROOT
from typer.testing import CliRunner

from anchorlens import AnchorTask, CheckpointError
from anchorlens.cli import app
from anchorlens.extras.sweep import open_sweep, sweep, sweep_folder
from anchorlens.extras.sweep.sweep_folder import LARGEST_CELL, SweepFolder

N_CELLS = 60
MOST_MEGABYTES = 300
READING = """
import json, sys
sys.path.insert(0, "tests")
from malicious_files import _peak
from anchorlens.extras.sweep.diagram.page import diagram_html
from anchorlens.extras.sweep import open_sweep

before, found = _peak(), []
for out in sys.argv[1:]:
    result = open_sweep(out)
    json.dumps([cell.row() for cell in result])
    diagram_html(result)
    found.append(result.counts)
print(json.dumps([found, _peak() - before]))
"""


def content(n_bytes, filling):
    """What cell.json holds, with as many values more as its size allows, at a place that `filling` names."""
    good = {
        **known_cell("3").content.to_dict(), "format": "anchorlens cell", "format_version": 1,
    }  # fmt: skip
    mark, value = filling(good)
    left = n_bytes - len(json.dumps(good))
    return json.dumps(good).replace(json.dumps(mark), ",".join([value] * (left // (len(value) + 1)))).encode()


def junk(good):
    good["junk"] = ["FILLING"]
    return "FILLING", "[]"


def pairs(good):
    pair = json.dumps(good["verdict"]["behaviour"]["pairs"][0])
    good["verdict"]["behaviour"]["pairs"] = ["FILLING"]
    return "FILLING", pair


def junk_of_text(good):
    good["junk"] = ["FILLING"]
    return "FILLING", '"some words that nobody asked for"'


def options(good):
    good["verdict"]["behaviour"]["options"] = {"some": ["FILLING"]}
    return "FILLING", '"abcdef"'


def warnings(good):
    good["verdict"]["warnings"] = ["FILLING"]
    return "FILLING", '"a"'


@pytest.mark.system
def test_what_they_take(tmp_path):
    """In one process, one folder after the other; each has 40 to 600 MB to read."""
    cases = [
        (4_000_000, junk, "damaged"),
        (LARGEST_CELL, junk, "damaged"),  # of too many values
        (LARGEST_CELL, junk_of_text, "finished"),
        (LARGEST_CELL, pairs, "finished"),
        (LARGEST_CELL, options, "damaged"),
        (LARGEST_CELL, warnings, "damaged"),
    ]
    outs = [tmp_path / str(k) for k in range(len(cases))]
    for out, (n_bytes, filling, _) in zip(outs, cases, strict=True):
        hard_linked(out, content(n_bytes - 100, filling), N_CELLS)
    command = [sys.executable, "-c", READING, *map(str, outs)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    counts, megabytes = json.loads(done.stdout)
    assert counts == [{status: N_CELLS} for _, _, status in cases] and megabytes < MOST_MEGABYTES


def test_what_nobody_asked_for_is_dropped(tmp_path):
    hard_linked(tmp_path, content(10_000, junk), 1)
    (cell,) = open_sweep(tmp_path)
    assert "junk" not in cell.content.to_dict() and cell.content.step == 1000 == cell.numbers["step"]
    assert cell.verdict.behaviour.pairs and cell.phase.label == "Phase 3"


def test_too_large_a_cell_says_so(tmp_path):
    hard_linked(tmp_path, content(1_000_000, junk), 1)
    (cell,) = open_sweep(tmp_path)
    assert cell.status == "damaged" and "anchorlens cell: the file must have at most" in cell.error


def test_all_together_are_bounded_and_nothing_is_read(tmp_path, monkeypatch):
    runs = hard_linked(tmp_path, content(250_000, junk_of_text), 30)
    monkeypatch.setattr(sweep_folder, "MOST_TOGETHER", 5 * 2**20)
    with pytest.raises(CheckpointError, match="have 7 MiB together, and 5 are read"):
        open_sweep(tmp_path)
    for command in ("status", "diagram"):
        done = CliRunner().invoke(app, [command, str(tmp_path)])
        assert done.exit_code == 3 and done.stderr.count("\n") == 1 and "too costly" in done.stderr
    assert sweep(runs, tmp_path, engine="serial").counts == {"finished": 30}  # they are one's own
    monkeypatch.undo()
    assert open_sweep(tmp_path).counts == {"finished": 30}


def test_a_genuine_cell_of_many_pairs_is_read(tmp_path):
    """60 anchors have 3,600 pairs: 400 kB."""
    task = AnchorTask(anchors={k: k for k in range(1, 61)}, key_min=100, key_max=140)
    large = content(450_000, pairs)
    hard_linked(tmp_path, large, 1)
    folder = SweepFolder(tmp_path)
    ((name, run),) = folder.stored()
    assert folder.read([(name, run)]).counts == {"damaged": 1}
    assert folder.read([(name, run._replace(task=task))]).counts == {"finished": 1}


def test_a_long_traceback_is_cut_when_it_is_written(tmp_path):
    hard_linked(tmp_path, b"", 1)
    folder = SweepFolder(tmp_path)
    ((name, run),) = folder.stored()
    (folder.cell(name) / "cell.json").unlink()
    folder.cell(name).rmdir()
    folder.fail(name, "x" * 10**6, "the first line\n" * 10**5 + "the last line")
    (cell,) = folder.read([(name, run)])
    assert cell.status == "failed" and cell.details.endswith("the last line")
