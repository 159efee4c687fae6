"""A header and named tensors in one file: written atomically, read without ever running code.

Two suffixes, one content: `.pt` (a zip that `torch.load(weights_only=True)` reads) and `.safetensors`.
The header is JSON; a SHA-256 over header and tensors stands beside it and is verified on reading.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from anchorlens.files.writing import atomic_write, check_suffix
from anchorlens.foreign import ordinary_file, printable, read_json, shown

if TYPE_CHECKING:  # torch takes seconds to import, and what reads no tensor needs none of it
    from torch import Tensor

SUFFIXES = (".pt", ".safetensors")
_HEADER = "anchorlens"
_DIGEST = "sha256"
_LARGEST_HEADER = 16 * 2**20
_MOST_VALUES_OF_HEADER = 2_000_000
_LONGEST_PATH, _LONGEST_CAUSE = 500, 600
_COPIES = 3
"""Times a file's bytes are in memory while it is read: as they are, as tensors, and one storage once more."""


class CheckpointError(ValueError):
    """A file that cannot be read safely and whole; the message is one line: the file, then the cause."""

    def __init__(self, path: str | os.PathLike[str], cause: str) -> None:
        self.path = os.fspath(path)
        super().__init__(self.path, cause)  # both, so that it comes whole out of another process

    def __str__(self) -> str:
        path, cause = self.args
        return f"{printable(path, _LONGEST_PATH)}: {printable(cause, _LONGEST_CAUSE)}"


@contextlib.contextmanager
def readable(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn the disk's refusals into the one line that a file gets."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(path, f"cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        if "null byte" not in str(error):
            raise
        raise CheckpointError(path, "cannot be read: no file's name has a null character") from None


def write(path: str | os.PathLike[str], header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write a header and tensors to `path` atomically, in the format its suffix names.

    Raises:
        ValueError: another suffix, or a header that is not JSON.
        OSError: the disk refuses; a file that was there before is untouched.
    """
    import safetensors.torch
    import torch

    path = check_suffix(path, "a checkpoint's name", SUFFIXES)
    try:
        text = json.dumps(header, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path.name} must have JSON-ready metrics and configuration: {error}") from None
    tensors = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    digest = _digest(text, tensors)
    if path.suffix == ".pt":  # in memory, as torch takes a full disk for an error of its own
        made = io.BytesIO()
        torch.save({_HEADER: text, _DIGEST: digest, "tensors": tensors}, made)
        data = made.getbuffer()
    else:
        data = safetensors.torch.save(tensors, metadata={_HEADER: text, _DIGEST: digest})
    with atomic_write(path) as file:
        file.write(data)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read header and tensors (on the CPU); the format is recognised by content, not by suffix.

    Raises:
        CheckpointError: missing, truncated, damaged, foreign or unsafe; nothing is half read.
    """
    return unpack(path, contents(path).values)


class Contents(NamedTuple):
    """A file as it was read, once: what happens to it afterwards changes nothing here."""

    values: dict[str, Any]
    """What is in it: names, and tensors on the CPU or other plain values."""
    sha256: str
    """Of the bytes that were read, 64 hexadecimal digits."""


def contents(path: str | os.PathLike[str]) -> Contents:
    """What is in a file, ours or another's, and the SHA-256 of just those bytes.

    Raises:
        CheckpointError: missing, truncated, damaged or unsafe; nothing ran, and no more memory was taken
            than the file has bytes, three times over.
    """
    with readable(path):
        try:
            with ordinary_file(path) as (file, size):
                _check_start(file.read(_START) or b"", size)
                file.seek(0)
                data = file.read(size) or b""
            values = _values(data)
        except ValueError as error:
            raise CheckpointError(path, _first_line(error)) from None
    return Contents(values, hashlib.sha256(data).hexdigest())


_ZIP = b"PK\x03\x04"
_START = 9
"""Bytes that tell what a file is."""


def _check_start(start: bytes, size: int) -> None:
    """Refuse what the first bytes give away, before the others are read.

    Raises:
        ValueError: no checkpoint, or one that does not fit into the memory.
    """
    if not start.startswith(_ZIP) and not _is_safetensors(start, size):
        if start.startswith((b"\x80", b"(")):
            raise ValueError(
                "unsafe: a bare pickle (torch.save's format before 1.6) is a program, neither a .pt zip nor "
                "a .safetensors file; refused, nothing ran"
            )
        what = "it is empty" if size == 0 else "it is neither a .pt zip nor a .safetensors file"
        raise ValueError(f"not a checkpoint: {what}, or its start is damaged")
    if size > 2**20 and _COPIES * size > (free := psutil.virtual_memory().available):
        raise ValueError(
            f"too large: it has {size / 1e9:,.1f} GB, {_COPIES} times as much must be free to read it, and "
            f"{free / 1e9:,.1f} GB are"
        )


def _is_safetensors(start: bytes, size: int) -> bool:
    length = int.from_bytes(start[:8], "little")
    if len(start) < _START or start[8:9] != b"{" or length > size - 8:
        return False
    if length > _LARGEST_HEADER:
        raise ValueError(f"unsafe: its header has more than {_LARGEST_HEADER:,} bytes; refused")
    return True


def _values(data: bytes) -> dict[str, Any]:
    _check_start(data[:_START], len(data))
    if not data.startswith(_ZIP):
        return _safetensors(data)
    from anchorlens.files.torch_zip import read_torch_zip

    content = read_torch_zip(data)
    if not isinstance(content, dict):
        raise ValueError("not a checkpoint: torch.save wrote something that is no dict into it")
    return content


def _safetensors(data: bytes) -> dict[str, Any]:
    import safetensors.torch

    try:
        tensors = safetensors.torch.load(data)
    except Exception as error:  # safetensors' own error class, and torch's for odd dtypes
        raise ValueError(f"truncated or damaged: {_first_line(error)}") from None
    length = int.from_bytes(data[:8], "little")
    header = read_json(data[8 : 8 + length], most_values=_MOST_VALUES_OF_HEADER)
    metadata = header.get("__metadata__") or {}
    return {**metadata, "tensors": tensors} if is_ours(metadata) else tensors


def is_ours(content: Mapping[str, Any]) -> bool:
    """Whether `contents` gave what `write` wrote."""
    return isinstance(content.get(_HEADER), str)


def unpack(
    path: str | os.PathLike[str], content: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Header and tensors among the contents of a file that `write` wrote, the checksum verified.

    Raises:
        CheckpointError: another's file, or one whose content is not what was written.
    """
    from torch import Tensor

    if not is_ours(content):
        raise CheckpointError(path, "not an anchorlens file: it has no anchorlens header")
    text, tensors = content[_HEADER], content.get("tensors")
    if not isinstance(tensors, dict) or not all(isinstance(name, str) for name in tensors):
        raise CheckpointError(path, "not an anchorlens file: it has no table of tensors")
    for name, tensor in tensors.items():
        if not (isinstance(tensor, Tensor) and tensor.is_contiguous()):
            raise CheckpointError(path, f"not an anchorlens file: {shown(name)} is no plain tensor")
    if content.get(_DIGEST) != _digest(text, tensors):
        raise CheckpointError(path, "damaged: its content does not match its checksum; copy it again")
    try:
        if len(text) > _LARGEST_HEADER:
            raise ValueError(f"has more than {_LARGEST_HEADER:,} bytes")
        header = read_json(text, most_values=_MOST_VALUES_OF_HEADER)
    except ValueError as error:
        raise CheckpointError(path, f"not an anchorlens file: its header {error}") from None
    if not isinstance(header, dict):
        raise CheckpointError(path, "not an anchorlens file: its header is not a JSON object")
    return header, tensors


def _digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    import torch

    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.detach().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
