"""Read a dataset from a file: a table of mappings (CSV, TSV or JSON Lines), or a TOML with a task."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from anchorlens.extras.audit.mappings import Mappings, mappings_of
from anchorlens.files import TARGETS, CsvFile
from anchorlens.safe import START, kind_of, read_bytes, read_toml
from anchorlens.tasks import AnchorTask, Trials, distinct_rows
from anchorlens.texts import safe_repr

TABLES = (".csv", ".tsv", ".jsonl")
"""The suffixes of files of mappings."""
MOST_BYTES = 50_000_000
MOST_TOML_BYTES = 10_000_000
MOST_MAPPINGS = 500_000
MOST_QUESTIONS = 2_000_000
"""The largest product of the number of chains of a file and its number of keys."""
N_POSITIONS = 7
"""The number of positions of the key in a sequence, as in the papers."""

_ANCHOR = re.compile(r"a[1-9][0-9]?")


def open_dataset(path: str | os.PathLike[str]) -> Mappings:
    """Read a dataset from a table of mappings (`read_csv`), or a `.toml` file with the table `task`.

    Raises:
        ValueError: If the suffix is not .csv, .tsv, .jsonl or .toml, or the file is not a dataset. A TOML
            file must have only the table `task`.
        OSError: If the file cannot be read.
    """
    path = Path(path)
    if path.suffix.lower() in TABLES:
        return replace(read_csv(path), file=path)
    if path.suffix.lower() != ".toml":
        raise ValueError(
            "the dataset must be a .csv, .tsv or .jsonl file of mappings or a .toml file with a task, got "
            f"{safe_repr(str(path))}. Give a file of this kind"
        )
    with _named(path):
        content = read_toml(_content(path, MOST_TOML_BYTES))
        others = sorted(content.keys() - {"task"})
        if others or not isinstance(content.get("task"), dict):
            got = f"also {safe_repr(others[0])}" if others else "no table of that name"
            raise ValueError(
                f"the file must have only the table [task], got {got}. Keep only [task], because the audit "
                "chooses the model"
            )
        return replace(mappings_of(AnchorTask.from_dict(content["task"]), path.name), file=path)


def read_csv(path: str | os.PathLike[str]) -> Mappings:
    """Read mappings from a table with the columns `key`, `a1`, `a2` [, `a3` ...], `target` [, `violates`].

    Every row is a mapping. The target is the result of applying the row's anchors to the key in order. The
    column of the target may also have the name `label`, `answer` or `y`. All values are integers, which serve
    only as labels. Values may be negative or large. An anchor and a key may have the same value. The column
    `violates` (0 or 1) marks known violations of the rule. The audit uses this column only for scoring.
    Columns may be in any order. Commas, semicolons or tabs separate the columns. In JSON Lines, each line is
    an object with these keys. Repeated rows count once. If rows with the same key and anchors have different
    targets, the most frequent target counts, or the first of these; `Mappings.disagreeing` lists all rows.
    Training and evaluation use only the mappings in the file.

    The function presents the mappings as sequences of tokens. The key is at one of 7 positions, the anchors
    follow the key, and random keys fill the other positions. The function does not support chains of
    different lengths, sequences with another number of positions, or mappings of different frequencies.

    Raises:
        ValueError: If the file does not have this format. The message gives the file, the line and the cause.
            The file may have at most 50 MB and 500,000 mappings. The number of chains times the number of
            keys may be at most 2,000,000.
        OSError: If the file cannot be read.
    """
    path = Path(path)
    with _named(path):
        return _mappings(path.name, CsvFile(_content(path, MOST_BYTES)))


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Begin the message of a ValueError with the path."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _mappings(name_of_file: str, file: CsvFile) -> Mappings:
    names = _columns(f"line {file.first_line}", file.names)
    rows = file.rows()
    anchors = [f"a{k + 1}" for k in range(len(names) - 2 - ("violates" in names))]
    column = {name: rows[:, place].astype(np.int64) for place, name in enumerate(names)}
    violates = column.get("violates")
    if violates is not None:
        for odd in np.flatnonzero((violates != 0) & (violates != 1))[:1]:
            raise ValueError(
                f"line {file.lines()[odd]}: `violates` must be 0 or 1, got {violates[odd]}. Correct the value"
            )
    question = np.stack([*(column[name] for name in anchors), column["key"]], axis=1)
    _, place = distinct_rows(question)
    answers, answer = distinct_rows(np.column_stack([place, column["target"]]))
    order = np.lexsort((answers, -np.bincount(answer), place[answers]))  # the most frequent target first
    _, best = np.unique(place[answers[order]], return_index=True)
    first = answers[order[best]]
    kept = column["target"] == column["target"][first[place]]
    if violates is not None:
        for row in np.flatnonzero(kept & (violates != violates[first[place]]))[:1]:
            chain, lines = " ".join(map(str, question[row, :-1])), file.lines()
            here, there = (f"{violates[k]} in line {lines[k]}" for k in (row, first[place[row]]))
            raise ValueError(
                f"violates must have one value for the key {question[row, -1]} with the anchors "
                f"{chain}, got {here} and {there}. Keep one of the rows"
            )
    if len(first) > MOST_MAPPINGS:
        raise ValueError(
            f"the file must have at most {MOST_MAPPINGS:,} mappings, got {len(first):,}. Audit a "
            "part of the mappings"
        )
    chains, keys = question[first, :-1], question[first, -1]
    is_violation = None if violates is None else violates[first] == 1
    mappings = _as_sequences(name_of_file, chains, keys, column["target"][first], is_violation)
    odd = np.flatnonzero(np.isin(place, place[~kept]))
    lines = file.lines() if odd.size else []
    rows_of: dict[int, list[tuple[int, int]]] = {}
    for row in odd.tolist():
        rows_of.setdefault(int(place[row]), []).append((lines[row], int(column["target"][row])))
    return replace(mappings, disagreeing=rows_of)


def _content(path: Path, most: int) -> bytes:
    content = read_bytes(path, most)
    if (kind := kind_of(content[:START])) and path.suffix.lower() != ".jsonl":
        raise ValueError(f"the file must be a {path.suffix.lower()} file, got {kind}")
    return content


def _columns(where: str, given: Sequence[str]) -> list[str]:
    """Check the names of the columns and return them, with the column of answers named `target`."""
    answers = [name for name in given if name in TARGETS]
    columns = ["target" if [name] == answers else name for name in given]
    anchors = [name for name in columns if _ANCHOR.fullmatch(name)]
    expected = {"key", *(f"a{k + 1}" for k in range(max(2, len(anchors)))), "target"}
    if {*columns} - {"violates"} != expected:
        wrong = sorted(expected.symmetric_difference(columns) - {"violates"})
        raise ValueError(
            f"{where}: the header must have the columns key, a1, a2 (a3, ..), target and perhaps violates, "
            f"got {safe_repr(wrong[0][:40])} missing or in addition. Correct the header, or add a header if "
            "the file has no header"
        )
    return columns


def _as_sequences(
    name: str, chains: np.ndarray, keys: np.ndarray, targets: np.ndarray, violates: np.ndarray | None
) -> Mappings:
    """Assign tokens to anchors, keys and targets in this order; a target equal to a key has the same token.

    The functions of the anchors are unknown, so every chain of the file is an override of the task, and the
    anchors' shifts of 0 have no meaning. Chains that are not in the file are unseen. A chain's table has a
    placeholder for each key that the chain lacks; no trial uses the placeholder.
    """
    k = chains.shape[1]
    anchors, chain_tokens = np.unique(chains, return_inverse=True)
    chain_tokens = chain_tokens.reshape(-1, k)
    numbers, keys_at = np.unique(keys, return_inverse=True)
    others = np.setdiff1d(targets, numbers)
    n_chains = len(anchors) ** k
    if n_chains * len(numbers) > MOST_QUESTIONS:
        raise ValueError(
            f"the number of chains times the number of keys must be at most {MOST_QUESTIONS:,}, got "
            f"{n_chains:,} times {len(numbers):,}. Audit fewer anchors or keys at a time"
        )
    key_range = range(len(anchors), len(anchors) + len(numbers))
    at, at_other = np.searchsorted(numbers, targets), np.searchsorted(others, targets)
    is_key = np.isin(targets, numbers, kind="sort")
    tokens = len(anchors) + np.where(is_key, at, len(numbers) + at_other)
    first, table_of = distinct_rows(chain_tokens)
    trained = np.full((len(first), len(numbers)), key_range.start)
    trained[table_of, keys_at] = tokens
    inputs = list(key_range)  # one list, so that all tables share its numbers
    tables = {
        tuple(chain): dict(zip(inputs, row.tolist(), strict=True))
        for chain, row in zip(chain_tokens[first].tolist(), trained, strict=True)
    }
    task = AnchorTask(
        anchors=dict.fromkeys(range(len(anchors)), 0),
        chain_length=k,
        key_min=key_range.start,
        key_max=key_range.stop - 1,
        seq_len=N_POSITIONS + k,
        unseen_pairs=[c for c in product(range(len(anchors)), repeat=k) if c not in tables],
        overrides=tables,
        split_modulus=2,  # any: every position is trained
    )
    every = np.repeat(np.arange(len(keys)), N_POSITIONS)
    positions = np.tile(task.positions, len(keys))
    trials = Trials(chain_tokens[every], key_range.start + keys_at[every], positions)
    first = N_POSITIONS * np.arange(len(keys))
    return Mappings(name, chains, keys, targets, violates, task, trials, first)
