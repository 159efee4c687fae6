"""examples/audit_noise.py: its three datasets, its table, and that it keeps what it made."""

import argparse
import importlib.util
import json
from pathlib import Path

import pytest

from anchorlens.extras.audit import mappings_of

PATH = Path(__file__).parents[3] / "examples" / "audit_noise.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("audit_noise", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_its_datasets_are_what_it_says(example):
    violating = {name: int(mappings_of(task).violates.sum()) for name, task in example.DATASETS.items()}
    assert violating == {"one broken group": 160, "5 % of mappings": 56, "clean": 0}


def test_a_row_for_each_audit_and_nothing_is_trained_twice(example, tmp_path):
    small = json.dumps({"d_model": 16, "d_head": 8, "d_mlp": 16})
    given = argparse.Namespace(seed=[0], steps=2, n_samples=512, model=small, workers=1, out=tmp_path)
    results = {(name, 0.8): example.audited(name, 0.8, given) for name in ("5 % of mappings", "clean")}
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")}
    assert len(written) == 2 and example.audited("clean", 0.8, given) == results["clean", 0.8]
    assert written == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")}
    table = example.table(results)
    cells = [list(column.cells) for column in table.columns]
    assert cells[0] == ["5 % of mappings", "clean"] and cells[2] == ["56 of 1120", "0 of 1120"]
    assert cells[3] == ["0.500 ± 0.040", "-"]  # nothing is fit after two steps: all are ties
    assert cells[5] == ["cannot tell"] * 2 and cells[11] == ["1120"] * 2


def test_wrong_flags_and_mirrors_are_counted(example):
    rows = [
        {"a1": 1, "a2": 2, "key": 30, "flagged": True, "violates": True},
        {"a1": 2, "a2": 1, "key": 30, "flagged": True, "violates": False},  # its mirror
        {"a1": 2, "a2": 1, "key": 31, "flagged": True, "violates": False},  # another key
        {"a1": 3, "a2": 1, "key": 30, "flagged": False, "violates": False},
    ]
    assert example.mirrored({"mappings": rows}) == "2 (1)"
    rows += [{"a1": 1, "a2": 1, "key": key, "flagged": False, "violates": key > 7} for key in (5, 6, 7, 8)]
    for row, late in zip(rows, (0.9, 0.8, 0.7, 0.1, 0.2, 0.3, 0.4, 0.3), strict=True):
        row["lateness"] = late
    # (a, b): the couple with an exception is later than both others; (a, a): .3 against .2, .3 and .4
    assert example.auc_of_couples({"mappings": rows}) == (1.0, 0.5)
