"""Rows of numbers and texts as a table: CSV or Parquet."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anchorlens.files.writing import atomic_write, check_can_write

if TYPE_CHECKING:
    import pyarrow

TABLES = (".csv", ".parquet")
"""The suffixes of tables."""


def write_rows(rows: Sequence[Mapping[str, Any]], path: str | os.PathLike[str]) -> None:
    """Write one row for each record.

    The table has a column for each name that occurs in a record. Missing values are empty. Lists and tables,
    such as the anchors and the unseen pairs, are JSON text. In CSV, text that a spreadsheet would take for a
    formula gets a leading apostrophe.

    Args:
        rows: the records, of which there is at least one.
        path: the path of a `.csv` or `.parquet` file. An existing file is replaced.

    Raises:
        ValueError: If there is no row, or pyarrow is not installed.
        ValueError: If `path` is not a .csv or .parquet file in an existing folder.
        OSError: If the file cannot be written. A failed write does not change an existing file.
    """
    path = check_can_write(path, "a table's name", TABLES)
    table = table_of_rows(rows)
    import pyarrow.csv
    import pyarrow.parquet

    with atomic_write(path) as file:
        if path.suffix == ".csv":
            pyarrow.csv.write_csv(_without_formulas(table), file)
        else:
            pyarrow.parquet.write_table(table, file)


def table_of_rows(rows: Sequence[Mapping[str, Any]]) -> pyarrow.Table:
    """Make the table that `write_rows` writes.

    Raises:
        ValueError: If there is no row, or pyarrow is not installed.
    """
    try:
        import pyarrow
    except ImportError:
        raise ValueError(
            "pyarrow must be installed to write a table, got no pyarrow. Run pip install '.[export]' in a "
            "clone"
        ) from None

    if not rows:
        raise ValueError("a table must have at least one row, got none. Give at least one row")
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pyarrow.table({name: _column([row.get(name) for row in rows]) for name in names})


def _without_formulas(table: pyarrow.Table) -> pyarrow.Table:
    """Put an apostrophe before each text and name that a spreadsheet would take for a formula."""
    import pyarrow

    columns = [
        pyarrow.array([text and _no_formula(text) for text in column.to_pylist()], pyarrow.string())
        if column.type == pyarrow.string()
        else column
        for column in table.columns
    ]
    return pyarrow.table(columns, names=[_no_formula(name) for name in table.column_names])


def _no_formula(text: str) -> str:
    """Put an apostrophe before a text that a spreadsheet would take for a formula.

    >>> _no_formula("=HYPERLINK(1)"), _no_formula("-1"), _no_formula("a=b")
    ("'=HYPERLINK(1)", '-1', 'a=b')
    """
    return f"'{text}" if text.startswith(_STARTS_OF_FORMULAS) and not _NUMBER.fullmatch(text) else text


_STARTS_OF_FORMULAS = tuple("=+-@\t\r\n＝＋－＠")
_NUMBER = re.compile(r"[+-]?[0-9.]+(e[+-]?[0-9]+)?")


def _column(values: list[Any]) -> pyarrow.Array:
    """Make a column of one type; values of several types, nested or too large, become JSON text."""
    import pyarrow

    present = [value for value in values if value is not None]
    kinds = {type(value) for value in present}
    if kinds == {int, float}:
        kinds, values = {float}, [value if value is None else float(value) for value in values]
    too_large = kinds == {int} and max(map(abs, present)) >= 2**63
    if kinds <= {str} or (len(kinds) == 1 and kinds <= {bool, int, float} and not too_large):
        return pyarrow.array([value and _text(value) for value in values])
    texts = [value if value is None else json.dumps(value, sort_keys=True) for value in values]
    return pyarrow.array(texts, pyarrow.string())


def _text(value: object) -> Any:
    """Return the value; in a string, characters that UTF-8 cannot encode are replaced."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value
