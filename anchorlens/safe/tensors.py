"""Read tensors in untrusted files (`.pt` zips and `.safetensors`) by content, without running code."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from anchorlens.safe.data import ordinary_file, read_json
from anchorlens.safe.kinds import START, instead
from anchorlens.safe.refusals import check_at_most, incomplete, reading

if TYPE_CHECKING:  # torch takes seconds to import, and what reads no tensor needs none of it
    from torch import Tensor

HEADER = "anchorlens"
"""The key of the header in our files: in the dict of a `.pt`, in the metadata of a `.safetensors`."""
LARGEST_HEADER = 16 * 2**20
MOST_VALUES_OF_HEADER = 2_000_000
ZIP = b"PK\x03\x04"
_COPIES = 3
"""The copies of a file's bytes in memory during reading: bytes, tensors, and one copy of a storage."""


class Contents(NamedTuple):
    """The contents of a file.

    Later changes of the file do not affect these contents.
    """

    values: dict[str, Any]
    """The tensors on the CPU and other plain values, by name."""
    sha256: str
    """The SHA-256 of the bytes that were read, 64 hexadecimal digits."""


def read_tensors(path: str | os.PathLike[str]) -> Contents:
    """Return the contents of a file of any format, and the SHA-256 of the same bytes.

    The function runs no code from the file, and takes at most three times the file's size in memory.

    Raises:
        CheckpointError: If the file is missing, truncated, damaged or unsafe.
    """
    with reading(path):
        with ordinary_file(path) as (file, size):
            _check_start(file.read(START) or b"", size)
            file.seek(0)
            data = file.read(size) or b""
        return tensors_in(data)


def tensors_in(data: bytes) -> Contents:
    """Return the contents of a file of any format, given as bytes, and the SHA-256 of the bytes.

    The function runs no code from the file.

    Raises:
        ValueError: If the file is truncated, damaged or unsafe.
    """
    _check_start(data[:START], len(data))
    if not data.startswith(ZIP):
        values = _safetensors(data)
    else:
        from anchorlens.safe.torch_zip import read_torch_zip

        values = read_torch_zip(data)
        if not isinstance(values, dict):
            raise ValueError(
                f"the file must hold a dict, got {type(values).__name__}. Save the weights by name: "
                "torch.save(model.state_dict(), path)"
            )
    return Contents(values, hashlib.sha256(data).hexdigest())


def _check_start(start: bytes, size: int) -> None:
    """Check a file by its first bytes and its size, before the rest is read.

    Raises:
        ValueError: If the file is not a checkpoint, or does not fit into the memory.
    """
    length = int.from_bytes(start[:8], "little")
    if start[8:9] == b"{" and length <= max(LARGEST_HEADER, size - 8):
        check_at_most(LARGEST_HEADER, length, "its header", "bytes")
        if length > size - 8:
            raise ValueError(
                f"the header must be {length:,} bytes, got {size - 8:,} (truncated). Download the file again"
            )
    elif not start.startswith(ZIP):
        wanted = "it is not a .pt zip or a .safetensors file"
        raise ValueError(f"not a checkpoint: {instead(wanted, start)}")
    if size > 2**20 and _COPIES * size > (free := psutil.virtual_memory().available):
        raise ValueError(
            f"the free memory must be at least {_COPIES * size / 1e9:,.1f} gigabytes to read this file of "
            f"{size / 1e9:,.1f} gigabytes, got {free / 1e9:,.1f}. Free some memory"
        )


def read_safetensors(data: bytes) -> dict[str, Tensor]:
    """Return the tensors of a `.safetensors` file by name, from the bytes of the file.

    Raises:
        ValueError: If the file is truncated or damaged, or the header is too large.
    """
    import safetensors.torch

    check_at_most(LARGEST_HEADER, int.from_bytes(data[:8], "little"), "its header", "bytes")
    try:
        return safetensors.torch.load(data)
    except Exception as error:  # safetensors' own error class, and torch's for odd dtypes
        raise incomplete(error) from None


def _safetensors(data: bytes) -> dict[str, Any]:
    """Return the tensors by name; for our files the metadata, with the tensors under `tensors`."""
    tensors = read_safetensors(data)
    length = int.from_bytes(data[:8], "little")
    header = read_json(data[8 : 8 + length], most_values=MOST_VALUES_OF_HEADER)
    metadata = header.get("__metadata__") or {}
    return {**metadata, "tensors": tensors} if HEADER in metadata else dict(tensors)
