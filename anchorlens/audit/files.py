"""A dataset as a file: a CSV of mappings, or a TOML with a task."""

from __future__ import annotations

import csv
import io
import os
import re
import tomllib
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np

from anchorlens.audit.mappings import Mappings, mappings_of
from anchorlens.configuration import suggestion
from anchorlens.sequences import Cells
from anchorlens.task import AnchorTask

MOST_BYTES = 50_000_000
MOST_MAPPINGS = 100_000
MOST_QUESTIONS = 2_000_000
"""Chains that the anchors of a file can form, times its keys."""
N_POSITIONS = 7
"""Positions at which the key of a file's mapping can stand, as in the papers."""

_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
_ANCHOR = re.compile(r"a[1-9][0-9]*")


class _Row(NamedTuple):
    line: int
    chain: tuple[int, ...]
    key: int
    target: int
    violates: int | None


def open_dataset(path: str | os.PathLike[str]) -> Mappings:
    """Read a dataset: a `.csv` of mappings (`read_csv`), or a `.toml` whose table `task` is an AnchorTask.

    Raises:
        ValueError: another suffix, a file that makes no dataset, or a TOML with more than the table `task`.
        OSError: it cannot be read.
    """
    path = Path(path)
    if path.suffix.lower() == ".csv":
        return read_csv(path)
    if path.suffix.lower() != ".toml":
        raise ValueError(f"a dataset must be a .csv of mappings or a .toml with a task, got {str(path)!r}")
    try:
        content = tomllib.loads(_text(path))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: not a TOML file: {error}") from None
    others = sorted(content.keys() - {"task"})
    if others or not isinstance(content.get("task"), dict):
        found = f"{others[0]!r} too" if others else "no such table"
        raise ValueError(
            f"{path}: must hold the table [task] alone, got {found}; the model is the audit's own"
        )
    try:
        return mappings_of(AnchorTask.from_dict(content["task"]), path.name)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def read_csv(path: str | os.PathLike[str]) -> Mappings:
    """Read mappings from a CSV file with a header: `key`, `a1`, `a2` [, `a3` ...], `target` [, `violates`].

    Every row is a mapping: the anchors in order, applied to the key, give the target. All are integers that
    mean nothing but themselves: they may be negative or large, and an anchor may be written like a key.
    `violates` (0 or 1) is what is known of the truth; it is for scoring, and the model never sees it. Columns
    stand in any order; a row that repeats another counts once. Not every chain needs every key: what is
    not in the file is neither trained nor asked.

    The mappings are put as the papers' sequences: the key at one of 7 positions, its anchors next, and keys
    as noise elsewhere. Chains of different lengths in one file are not supported, nor are sequences of
    another shape, nor mappings that occur more often than others.

    Raises:
        ValueError: no such table, in one line with the file, the line in it, and the cause; or one that is
            too large (50 MB, 100,000 mappings, 2,000,000 chains of its anchors times keys).
        OSError: it cannot be read.
    """
    path = Path(path)
    found: dict[tuple[tuple[int, ...], int], _Row] = {}
    for row in _rows(path):
        first = found.setdefault((row.chain, row.key), row)
        for name in ("target", "violates"):
            here, before = getattr(row, name), getattr(first, name)
            if here != before:
                anchors = " ".join(map(str, row.chain))
                raise ValueError(
                    f"{path}, line {row.line}: {name} of key {row.key} with the anchors {anchors} is {here}, "
                    f"and {before} in line {first.line}; a question must have one answer: keep one of them"
                )
        if len(found) > MOST_MAPPINGS:
            raise ValueError(f"{path}: must hold at most {MOST_MAPPINGS:,} mappings; audit a part of them")
    if not found:
        raise ValueError(f"{path}: must hold a row below its header, got none")
    rows = [found[question] for question in sorted(found)]
    known = None if rows[0].violates is None else np.array([row.violates == 1 for row in rows])
    chains, keys, targets = (
        np.array([getattr(row, name) for row in rows], dtype=np.int64) for name in ("chain", "key", "target")
    )
    return _as_sequences(path, chains, keys, targets, known)


def _text(path: Path) -> str:
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{path}: must have at most {MOST_BYTES // 10**6} MB; audit a part of it")
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: must be UTF-8 text, got byte {error.object[error.start]:#04x}") from None


def _rows(path: Path) -> Iterator[_Row]:
    """The rows, checked one by one."""
    reader = csv.reader(io.StringIO(_text(path), newline=""), strict=True)
    columns: list[str] = []
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise ValueError(f"{path}, line {reader.line_num}: not a CSV file: {error}") from None
        if row is None:
            break
        where = f"{path}, line {reader.line_num}"
        if not any(field.strip() for field in row):
            continue
        if not columns:
            columns = [name.strip().lower() for name in row]
            _check_columns(where, columns)
            continue
        yield _read_row(where, reader.line_num, columns, row)
    if not columns:
        raise ValueError(f"{path}: must be a CSV of mappings, got an empty file")


def _check_columns(where: str, columns: Sequence[str]) -> None:
    anchors = [name for name in columns if _ANCHOR.fullmatch(name)]
    expected = ["key", *(f"a{k + 1}" for k in range(max(2, len(anchors)))), "target"]
    missing = [name for name in expected if name not in columns]
    if missing:
        raise ValueError(
            f"{where}: the header must have the columns key, a1, a2 (a3, ..) and target, "
            f"got no {missing[0]!r}; is the first line a header?"
        )
    for name in columns:
        if name not in expected and name != "violates":
            hint = suggestion(name[:40], [*expected, "violates"])
            raise ValueError(f"{where}: the column {name[:40]!r} is unknown; {hint}, or leave it out")
        if columns.count(name) > 1:
            raise ValueError(f"{where}: the column {name!r} is there twice; leave one out")


def _read_row(where: str, line: int, columns: Sequence[str], row: Sequence[str]) -> _Row:
    if len(row) != len(columns):
        raise ValueError(f"{where}: must have {len(columns)} values, as the header has, got {len(row)}")
    values = {}
    for name, field in zip(columns, row, strict=True):
        if not _NUMBER.fullmatch(field.strip()):
            raise ValueError(f"{where}: {name} must be an integer of up to 18 digits, got {field[:40]!r}")
        values[name] = int(field)
    violates = values.get("violates")
    if violates not in (None, 0, 1):
        raise ValueError(f"{where}: violates must be 0 or 1, got {violates}")
    n_anchors = len(values) - 2 - ("violates" in values)
    chain = tuple(values[f"a{k + 1}"] for k in range(n_anchors))
    return _Row(line, chain, values["key"], values["target"], violates)


def _as_sequences(
    path: Path, chains: np.ndarray, keys: np.ndarray, targets: np.ndarray, known: np.ndarray | None
) -> Mappings:
    """Give anchors, keys and targets tokens, in this order; a target that is also a key has the key's token.

    The task carries the tables alone. What the anchors do is unknown: every chain is an override, and the
    shifts of 0 stand for nothing. Chains that are not there are unseen; keys that a chain lacks have an
    entry in its table that no cell asks for.
    """
    anchors, chain_tokens = np.unique(chains, return_inverse=True)
    chain_tokens = chain_tokens.reshape(chains.shape)
    numbers = np.unique(keys)
    others = np.setdiff1d(targets, numbers)
    n_chains = len(anchors) ** chains.shape[1]
    if n_chains * len(numbers) > MOST_QUESTIONS:
        raise ValueError(
            f"{path}: {len(anchors):,} anchors in chains of {chains.shape[1]} and {len(numbers):,} keys make "
            f"more than {MOST_QUESTIONS:,} questions; audit fewer anchors or keys at a time"
        )
    token_of = {x: len(anchors) + k for k, x in enumerate([*numbers.tolist(), *others.tolist()])}
    key_range = range(len(anchors), len(anchors) + len(numbers))
    tables: dict[tuple[int, ...], dict[int, int]] = {}
    asked = [tuple(map(int, chain)) for chain in chain_tokens]
    for chain, key, target in zip(asked, keys.tolist(), targets.tolist(), strict=True):
        table = tables.setdefault(chain, dict.fromkeys(key_range, key_range.start))
        table[token_of[key]] = token_of[target]
    try:
        task = AnchorTask(
            anchors=dict.fromkeys(range(len(anchors)), 0),
            chain_length=chains.shape[1],
            key_min=key_range.start,
            key_max=key_range.stop - 1,
            seq_len=N_POSITIONS + chains.shape[1],
            unseen_pairs=[c for c in product(range(len(anchors)), repeat=chains.shape[1]) if c not in tables],
            overrides=tables,
            split_modulus=2,  # any: every position is trained
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    n = len(keys)
    cells = Cells(
        np.repeat(chain_tokens, N_POSITIONS, axis=0),
        np.repeat(len(anchors) + np.searchsorted(numbers, keys), N_POSITIONS),
        np.tile(task.positions, n),
    )
    return Mappings(path.name, chains, keys, targets, known, task, cells, N_POSITIONS * np.arange(n))
