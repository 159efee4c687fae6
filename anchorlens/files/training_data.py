"""Training data in a file: tokens and targets, read as data alone and never larger than they may be."""

from __future__ import annotations

import io
import math
import os
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow
import pyarrow.csv

from anchorlens.files.container import CheckpointError, readable
from anchorlens.foreign import printable, read_bytes, shown
from anchorlens.tasks.shared.batch import TokenBatch
from anchorlens.tasks.shared.checked_batch import token_batch

_MOST_BYTES = 2**30
"""Of a file, and of what a compressed one becomes."""
_MOST_BYTES_OF_CSV = 2**27
_MOST_COLUMNS = 10_000
_MOST_ENTRIES = 1000
_MOST_COMPRESSION = 64
"""Times an array may be larger than its compressed file; tokens in int64 shrink to a tenth."""
_SMALL = 2**20
"""Bytes that any compressed file may become."""
_LARGEST_HEADER = 16 * 2**20
_DAMAGED_ZIP = (zipfile.BadZipFile, zlib.error, RuntimeError, OverflowError, EOFError, OSError)
"""What zipfile raises, beside ValueError; the file's bytes are in memory already."""


def read_training_data(path: str | os.PathLike[str]) -> TokenBatch:
    r"""The sequences that a model was trained on, from a file; never executes code from it.

    Args:
        path: a `.pt` or `.safetensors` file with the tensors `tokens` [batch, pos] and `targets` [batch], or
            [batch, pos] with -100 where nothing is asked; a `.npz` file with such arrays; or a `.csv` file:
            in each row the tokens and then the one target, with or without a first row of names. Recognised
            by content; at most 1 GiB, CSV 128 MiB.

    Returns:
        Tokens and targets, int64.

    Raises:
        CheckpointError: missing, truncated, too large, unsafe, or something else than such integers; one line
            with the file and the cause.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "data.csv"
        >>> _ = path.write_text("23,1,2,29\n31,2,1,37\n")
        >>> read_training_data(path)
        TokenBatch(2 sequences of 3 tokens with their targets)
    """
    with readable(path):
        try:
            return token_batch(_pair(read_bytes(path, _MOST_BYTES)), every_position=None)
        except ValueError as error:
            raise CheckpointError(path, str(error)) from None


def _pair(data: bytes) -> tuple[Any, Any]:
    """Tokens and targets as a file has them, whose kind is told by its first bytes."""
    if data.startswith(b"PK\x03\x04"):
        return _of_zip(data)
    if data[8:9] == b"{":
        return _named(_of_safetensors(data))
    if not data or data.startswith((b"\x80", b"\x93NUMPY")):
        what = "it is empty" if not data else "it is a bare pickle or array"
        raise ValueError(
            f"not training data: {what}; give a .pt, .safetensors, .npz or .csv file of tokens and targets"
        )
    rows = _of_csv(data)
    return rows[:, :-1], rows[:, -1]


def _named(found: Any) -> tuple[Any, Any]:
    """The two of a file's named arrays that are asked for."""
    names: Iterable[Any] = found if isinstance(found, Mapping) else ()
    if not {"tokens", "targets"} <= set(names):
        there = ", ".join(shown(name) for name in list(names)[:3]) or "no names"
        raise ValueError(
            f"training data must be named tokens and targets, got {there}; save them as a dict of two"
        )
    return found["tokens"], found["targets"]


def _of_safetensors(data: bytes) -> Mapping[str, Any]:
    import safetensors.torch

    if int.from_bytes(data[:8], "little") > _LARGEST_HEADER:
        raise ValueError(f"unsafe: its header has more than {_LARGEST_HEADER:,} bytes; refused")
    try:
        return safetensors.torch.load(data)
    except Exception as error:  # safetensors' own error class, and torch's for odd dtypes
        raise _damaged(error) from None


def _of_zip(data: bytes) -> tuple[Any, Any]:
    """What numpy.savez or torch.save wrote."""
    if data.count(b"PK\x01\x02") > _MOST_ENTRIES:
        raise ValueError(f"unsafe: its zip has more than {_MOST_ENTRIES:,} entries; refused")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = [entry for entry in archive.infolist() if entry.filename.endswith(".npy")]
            if entries:
                named = {entry.filename.removesuffix(".npy"): entry for entry in entries}
                tokens, targets = _named(named)
                _check_unpacked(len(data), tokens, targets)
                return _npy(archive, tokens), _npy(archive, targets)
    except _DAMAGED_ZIP as error:
        raise _damaged(error) from None
    from anchorlens.files.torch_zip import read_torch_zip

    return _named(read_torch_zip(data))


def _check_unpacked(size: int, *entries: zipfile.ZipInfo) -> None:
    """Refuse arrays that are far larger than their file, before they are unpacked."""
    if any(entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for entry in entries):
        raise ValueError("unsafe: it is compressed in a way that numpy.savez does not know; refused")
    unpacked = sum(entry.file_size for entry in entries)
    if unpacked > min(_MOST_BYTES, max(_SMALL, _MOST_COMPRESSION * size)):
        raise ValueError(f"unsafe: its arrays would have {unpacked:,} bytes, and it has {size:,}; refused")


def _npy(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(entry) as packed:
        data = packed.read(entry.file_size)  # never more, whatever is behind it
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version[0] == 1 else np.lib.format.read_array_header_2_0
        shape, by_columns, dtype = read(file)
    except Exception as error:  # of Python's tokenizer too
        raise _damaged(error) from None
    if dtype.kind not in "iu":
        raise ValueError(f"training data must be integers, got {shown(str(dtype))}")
    if min(shape, default=0) < 0 or dtype.itemsize * math.prod(shape) != len(data) - file.tell():
        raise ValueError(f"truncated or damaged: {shown(entry.filename)} has not the bytes of {shown(shape)}")
    return np.ndarray(shape, dtype, buffer=data, offset=file.tell(), order="F" if by_columns else "C")


def _of_csv(data: bytes) -> np.ndarray:
    """The rows, [batch, pos + 1], without that of names."""
    if len(data) > _MOST_BYTES_OF_CSV:
        raise ValueError(f"a CSV file must have at most {_MOST_BYTES_OF_CSV:,} bytes; give a .npz file")
    data = data.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
    first = data[: 2**20].splitlines()[:1]
    fields = first[0].split(b",") if first else []
    if not 2 <= len(fields) <= _MOST_COLUMNS:
        raise ValueError(
            f"not training data: neither a .pt, .safetensors nor .npz file, nor comma-separated rows of 2 to "
            f"{_MOST_COLUMNS:,} integers, got {len(fields):,} in the first"
        )
    names = all(field and not _is_number(field) for field in fields)
    options = pyarrow.csv.ReadOptions(use_threads=False, skip_rows=int(names), autogenerate_column_names=True)
    kinds = {f"f{i}": pyarrow.int64() for i in range(len(fields))}
    convert = pyarrow.csv.ConvertOptions(column_types=kinds, null_values=[])
    try:
        table = pyarrow.csv.read_csv(io.BytesIO(data), read_options=options, convert_options=convert)
    except (pyarrow.ArrowException, UnicodeError) as error:
        raise ValueError(f"not rows of integers: {printable(error)}") from None
    if table.num_columns != len(fields):
        raise ValueError(f"its first row has {len(fields)} columns, the second {table.num_columns}")
    return np.column_stack([column.to_numpy() for column in table.columns])


def _is_number(field: bytes) -> bool:
    try:
        float(field.strip(b" \"'"))
    except ValueError:
        return False
    return True


def _damaged(error: Exception) -> ValueError:
    return ValueError(f"truncated or damaged: {printable(error) or type(error).__name__}")
