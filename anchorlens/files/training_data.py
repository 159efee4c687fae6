"""Read training data (tokens and targets) from a file, as data only and within size limits."""

from __future__ import annotations

import io
import math
import os
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from anchorlens import safe
from anchorlens.files.csv_file import TARGETS, CsvFile, count_up, in_words, is_json_lines
from anchorlens.tasks.shared.batch import token_batch
from anchorlens.texts import safe_repr

_MOST_BYTES, _MOST_BYTES_OF_CSV = 2**29, 2**27
_MOST_COLUMNS = 10_000
_MOST_ENTRIES = 1000
_MOST_NUMBERS, _MOST_SEQUENCES = 2**25, 2**22
"""The most numbers (tokens and targets) and sequences, checked before a zip or CSV is unpacked."""
_BYTES = 8
"""The number of bytes counted for each number, for every type in the file."""
_MOST_COMPRESSION = 128
"""The largest ratio of unpacked to compressed size; padded sequences reach 80."""
_ENOUGH = 10
"""The number of CSV rows that determine whether the first row or column is an index."""
_NUMBERED = re.compile(r"(.*?)([0-9]{1,6})[\])]?")
_NPY = b"\x93NUMPY"
_TARGETS_OF = (("x", "y"), ("X", "y"), ("tokens", "targets"))
"""The parts of the names of two .npy files that belong together."""
_OTHERWISE = "Rename the columns, or write no header. Without a header, the last column is the target"
_SMALL = 2**20
"""The unpacked size in bytes that is always allowed."""
_LARGEST_HEADER_OF_NPY = 2**16


def read_training_data(path: str | os.PathLike[str], *, floats: bool = False) -> Any:
    r"""Read the training sequences of a model from a file, without executing code from the file.

    Args:
        path: the path of a `.pt`, `.safetensors`, `.npz`, `.npy`, `.csv`, `.tsv` or `.jsonl` file. A text has
            a sequence in each row. Files of arrays have `tokens` [batch, pos] and `targets` [batch], or `x`
            and `y`. A `.pt` file may also have the pair itself. `targets` may also be [batch, pos], with -100
            at unscored positions. A `.npy` file of tokens, `x.npy`, goes with the file of targets next to it,
            `y.npy` (also `train_x.npy` with `train_y.npy`, and `tokens` with `targets`). In a text without a
            header, or with the default header of pandas (0, 1, 2, ...), the last column is the target. With
            any other header, one column has the name `target`, `label`, `answer` or `y`, or there is one for
            each token (`y0`, `y1`, ...). All other columns have the names `x0`, `x1`, ..., or `key`, `a1`,
            `a2`. In JSON Lines, each row has these names as keys, and `x` and `y` may be lists. anchorlens
            recognises the format by the content. A text may have at most 128 MiB, and any other file at most
            512 MiB. A file may have at most 33,554,432 numbers (tokens and targets) and at most 4,194,304
            sequences.
        floats: whether arrays may hold the inputs of any torch module: integers or floats [row, ...].

    Returns:
        The tokens and targets, in the narrowest integer types that hold their values. `take` returns int64.
        With `floats`, the pair (x, y) if `x` are not rows of integers.

    Raises:
        CheckpointError: If the file is missing, truncated, too large or unsafe, or does not contain training
            data. The message is one line with the file and the cause.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "data.csv"
        >>> _ = path.write_text("23,1,2,29\n31,2,1,37\n")
        >>> read_training_data(path)
        TokenBatch(2 sequences of 3 tokens with their targets)
    """
    with safe.reading(path):
        data, kinds = safe.read_bytes(path, _MOST_BYTES), "iuf" if floats else "iu"
        if data.startswith(_NPY):
            targets = safe.read_bytes(_targets_of(Path(path)), _MOST_BYTES)
            pair = _of_npy(data, kinds), _of_npy(targets, "iu")
        else:
            pair = _pair(data, kinds)
        _check_count(*(tuple(array.shape) for array in pair if hasattr(array, "shape")))
        as_they_are = floats and not (np.ndim(pair[0]) == 2 and np.asarray(pair[0]).dtype.kind in "iu")
        return pair if as_they_are else token_batch(pair, every_position=None)


def _targets_of(path: Path) -> Path:
    """Return the file of targets next to a .npy file of inputs.

    Raises:
        ValueError: If the name of the inputs has no x or tokens, or the other file is missing.
    """
    for inputs, targets in _TARGETS_OF:
        stem, n = re.subn(rf"(?<![A-Za-z]){inputs}(?![A-Za-z])", targets, path.stem)
        file = path.with_name(f"{stem}.npy")
        if n and file.is_file():
            safe.check_inside(path.parent, file)
            return file
    raise ValueError(
        "the targets of a .npy file must be next to it, as y.npy of x.npy and targets.npy of tokens.npy, got "
        "none. Save both under such names, or together in a .npz file"
    )


def _pair(data: bytes, kinds: str) -> tuple[Any, Any]:
    """Read the tokens and targets of a file, whose format is recognised by its first bytes."""
    if data.startswith(safe.ZIP):
        return _of_zip(data, kinds)
    if data[8:9] == b"{" and not is_json_lines(data):
        return _named(safe.read_safetensors(data))
    if not data or (safe.kind_of(data[: safe.START]) and not is_json_lines(data)):
        wanted = "it is not a .pt, .safetensors, .npz, .npy, .csv, .tsv or .jsonl file of tokens and targets"
        raise ValueError(f"not training data: {safe.instead(wanted, data[: safe.START])}")
    return _of_csv(data)


def _named(content: object) -> tuple[Any, Any]:
    """Take the arrays `tokens` and `targets` from a file's named arrays, or from a pair."""
    if isinstance(content, tuple | list) and len(content) == 2:
        return content[0], content[1]
    named = content if isinstance(content, Mapping) else {}
    if {"x", "y"} <= named.keys() and "tokens" not in named:
        return named["x"], named["y"]
    if not {"tokens", "targets"} <= named.keys():
        names = ", ".join(safe_repr(name) for name in list(named)[:3]) or "no keys"
        raise ValueError(
            f"training data must have the keys tokens and targets, got {names}. Save a dict with the keys "
            "tokens and targets"
        )
    return named["tokens"], named["targets"]


def _of_zip(data: bytes, kinds: str) -> tuple[Any, Any]:
    """Read the tokens and targets in a zip that numpy.savez or torch.save wrote."""
    with safe.zip_in(data, _MOST_ENTRIES) as archive:
        entries = [entry for entry in archive.infolist() if entry.filename.endswith(".npy")]
        if entries:
            named = {entry.filename.removesuffix(".npy"): entry for entry in entries}
            pair = _named(named)
            unpacked = _check_count(*(_shape_of_entry(archive, entry, kinds) for entry in pair))
            if unpacked > (most := max(_SMALL, _MOST_COMPRESSION * len(data))):
                raise ValueError(
                    f"unsafe: the unpacked numbers of this file must have at most {most:,} bytes, got "
                    f"{unpacked:,}. Use another copy of the file"
                )
            return _array(archive, pair[0]), _array(archive, pair[1])
    return _named(safe.read_torch_zip(data))


def _check_count(*shapes: tuple[int, ...]) -> int:
    """Compute the bytes that the arrays take at 8 bytes a number, and refuse arrays beyond the limits."""
    numbers, sequences = sum(map(math.prod, shapes)), max((shape[0] for shape in shapes if shape), default=0)
    if numbers > _MOST_NUMBERS or sequences > _MOST_SEQUENCES:
        raise ValueError(
            f"training data must have at most {_MOST_NUMBERS:,} numbers in {_MOST_SEQUENCES:,} sequences, "
            f"got {numbers:,} numbers in {sequences:,} sequences. Give a part of the data"
        )
    return _BYTES * numbers


def _of_npy(data: bytes, kinds: str) -> np.ndarray:
    """Read the array of a .npy file."""
    _check_count(_shape(data[:_LARGEST_HEADER_OF_NPY], len(data), "the file", kinds))
    return np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)


def _shape_of_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, kinds: str) -> tuple[int, ...]:
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(
            "unsafe: the compression must be as in numpy.savez_compressed, got compression method "
            f"{entry.compress_type}. Save the file again"
        )
    with archive.open(entry) as packed:
        start = packed.read(_LARGEST_HEADER_OF_NPY)
    return _shape(start, entry.file_size, safe_repr(entry.filename), kinds)


def _shape(start: bytes, size: int, name: str, kinds: str) -> tuple[int, ...]:
    """Read the shape in an array's header and check it against the size of its file."""
    file = io.BytesIO(start)
    try:
        version, format = np.lib.format.read_magic(file), np.lib.format
        read = format.read_array_header_1_0 if version[0] == 1 else format.read_array_header_2_0
        shape, _, dtype = read(file)
    except Exception as error:  # of Python's tokenizer too
        raise safe.incomplete(error) from None
    if dtype.kind not in kinds:
        raise ValueError(
            f"training data must be integers, got {safe_repr(str(dtype))}. Save the data as integers"
        )
    whole = all(type(n) is int and n >= 0 for n in shape)  # True is an int to NumPy
    if not whole or dtype.itemsize * math.prod(shape) != size - file.tell():
        raise ValueError(
            f"{name} must have the size of its shape {safe_repr(shape)}, got "
            f"{size - file.tell():,} bytes. The file is truncated or damaged. Copy the file again"
        )
    return shape


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    """Read an array whose `_shape` was checked."""
    try:
        with archive.open(entry) as packed:
            return np.lib.format.read_array(packed, allow_pickle=False)
    except ValueError as error:
        raise safe.incomplete(error) from None


def _of_csv(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Read the tokens and targets in rows of values, with or without a header."""
    if len(data) > _MOST_BYTES_OF_CSV:
        raise ValueError(
            f"a CSV file must have at most {_MOST_BYTES_OF_CSV:,} bytes, got {len(data):,}. Use a .npz file"
        )
    file = CsvFile(data)
    n = len(file.fields)
    if not 2 <= n <= _MOST_COLUMNS:
        raise ValueError(
            f"the training data must be a .pt, .safetensors or .npz file, or rows of 2 to {_MOST_COLUMNS:,} "
            f"integers, got a first row of length {n:,}. Give another file"
        )
    _check_count((file.n_lines, n))
    order, every = _order(file) if file.names else (list(range(n)), False)
    rows = file.rows()
    if file.names:
        rows = rows if order == sorted(order) else rows[:, order]
    elif count_up(file.fields):
        rows = _without_default_header(rows)
    elif n > 2 and len(rows) >= _ENOUGH and (rows[:, 0] == np.arange(len(rows))).all():
        raise ValueError(
            "the first column must contain tokens, got numbers that count the rows. If the column is the "
            "index of pandas, write the file with to_csv(..., index=False). Otherwise, put the rows in "
            "another order"
        )
    n_tokens = n // 2 if every else n - 1
    return rows[:, :n_tokens], rows[:, n_tokens:] if every else rows[:, -1]


def _without_default_header(rows: np.ndarray) -> np.ndarray:
    """Drop a first row that counts up, like the column names that pandas gives.

    Raises:
        ValueError: If the first row may be a sequence, because another row counts up or there are few rows.
    """
    alike = rows[1:]
    for place in range(1, rows.shape[1]):
        alike = alike[alike[:, place].astype(np.int64) - alike[:, 0] == place]
    if len(rows) <= _ENOUGH or len(alike):
        raise ValueError(
            f"the first row must clearly be column names or a sequence, got the values {rows[0, 0]} to "
            f"{rows[0, -1]}, which may be either. Omit names with to_csv(..., header=False, index=False). If "
            "the row is a sequence, put another row first"
        )
    return rows[1:]


def _order(file: CsvFile) -> tuple[list[int], bool]:
    """Find the columns of the tokens, in the order of their names, then those of the targets.

    Returns:
        The columns, and whether each token has a target.

    Raises:
        ValueError: If the names do not determine the columns.
    """
    names = file.names
    targets = [name for name in names if name in TARGETS]
    several = [name for name in names if _place(name)[0].rstrip("[(_ ") in TARGETS]
    if not targets and 2 * len(several) == len(names):
        return [*_numbered(file, [n for n in names if n not in several]), *_numbered(file, several)], True
    if len(targets) != 1:
        raise ValueError(
            f"line {file.first_line}: the header must name one column target (or label, answer, y), or one "
            f"for each token, got {in_words(targets or names)}. {_OTHERWISE}"
        )
    tokens = [name for name in names if name != targets[0]]
    return [*_numbered(file, tokens), names.index(targets[0])], False


def _numbered(file: CsvFile, tokens: list[str]) -> list[int]:
    """Return the columns with these names, in the order of the numbers in the names.

    Raises:
        ValueError: If a name has no number, or numbers are missing.
    """
    names = file.names
    places = {name: _place(name) for name in tokens}
    stems = [stem for stem, number in places.values() if number >= 0]
    usual = max(stems, key=stems.count, default="")
    odd = [name for name in tokens if stems and (places[name][0] != usual or places[name][1] < 0)]
    if odd == ["key"] and usual == "a":
        places["key"], odd = ("a", 0), []
    if odd:
        raise ValueError(
            f"line {file.first_line}: every column must be the target or a numbered token "
            f"({in_words([n for n in tokens if n not in odd])}), got {safe_repr(odd[0])}. Remove the column, "
            "and every row that was not trained"
        )
    in_order = sorted(tokens, key=lambda name: places[name][1])
    first = places[in_order[0]][1]
    first = first if first in (0, 1, ord("a")) else 0
    for number, name in enumerate(in_order, start=first):
        if places[name][1] != number and len(tokens) > 1:
            raise ValueError(
                f"line {file.first_line}: the tokens must be numbered from 0 or 1 without gaps (x0, x1, ..), "
                f"got {safe_repr(name)} at position {number - first + 1}. {_OTHERWISE}"
            )
    return [names.index(name) for name in in_order]


def _place(name: str) -> tuple[str, int]:
    """Split a column's name into prefix and number; a single letter is a number, no number is -1.

    >>> _place("x10"), _place("tokens[3]"), _place("b"), _place("split")
    (('x', 10), ('tokens[', 3), ('', 98), ('split', -1))
    """
    if len(name) == 1 and name.isascii() and name.isalpha():
        return "", ord(name)
    found = _NUMBERED.fullmatch(name)
    return (found[1], int(found[2])) if found else (name, -1)
