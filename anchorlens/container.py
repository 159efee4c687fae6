"""A header and named tensors in one file: written atomically, read without ever running code.

Two suffixes, one content: `.pt` (a zip that `torch.load(weights_only=True)` reads) and `.safetensors`.
The header is JSON; a SHA-256 over header and tensors stands beside it and is verified on reading.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from anchorlens.torch_zip import read_torch_zip

SUFFIXES = (".pt", ".safetensors")
_HEADER = "anchorlens"
_DIGEST = "sha256"
_LARGEST_HEADER = 16 * 2**20


class CheckpointError(ValueError):
    """A file that cannot be read safely and whole; the message is one line: the file, then the cause."""

    def __init__(self, path: str | os.PathLike[str], cause: str) -> None:
        line = " ".join(cause.split())
        line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
        super().__init__(f"{os.fspath(path)}: {line}")


@contextlib.contextmanager
def readable(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn the disk's refusals into the one line that a file gets."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(path, f"cannot be read: {error.strerror or error}") from None


def check_suffix(path: str | os.PathLike[str]) -> Path:
    """The path, if its suffix is one of ours.

    Raises:
        ValueError: another suffix.
    """
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise ValueError(f"a checkpoint's name must end in .pt or .safetensors, got {path.name!r}")
    return path


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """A binary file that appears under its name whole or not at all, also when the process is killed."""
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with unfinished.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write(path: str | os.PathLike[str], header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write a header and tensors to `path` atomically, in the format its suffix names.

    Raises:
        ValueError: another suffix, or a header that is not JSON.
        OSError: the disk refuses; a file that was there before is untouched.
    """
    path = check_suffix(path)
    try:
        text = json.dumps(header, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path.name} must have JSON-ready metrics and configuration: {error}") from None
    tensors = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    digest = _digest(text, tensors)
    with atomic_write(path) as file:
        if path.suffix == ".pt":
            torch.save({_HEADER: text, _DIGEST: digest, "tensors": tensors}, file)
        else:
            file.write(safetensors.torch.save(tensors, metadata={_HEADER: text, _DIGEST: digest}))


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read header and tensors (on the CPU); the format is told by content, not by suffix.

    Raises:
        CheckpointError: missing, truncated, damaged, foreign or unsafe; nothing is half read.
    """
    return unpack(path, contents(path))


def contents(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What is in a file, ours or another's: names, and tensors on the CPU or other plain values.

    Raises:
        CheckpointError: missing, truncated, damaged or unsafe; nothing ran, and no more memory was taken
            than the file has bytes, a few times over.
    """
    path = Path(path)
    with readable(path):
        status = path.stat()
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            raise CheckpointError(path, "cannot be read: it is no ordinary file")
        with path.open("rb") as file:
            start = file.read(9)
    try:
        return _contents(path, start, status.st_size)
    except ValueError as error:
        raise CheckpointError(path, _first_line(error)) from None


def _contents(path: Path, start: bytes, size: int) -> dict[str, Any]:
    if start.startswith(b"PK\x03\x04"):
        content = read_torch_zip(path)
        if not isinstance(content, dict):
            raise ValueError("not a checkpoint: torch.save wrote something that is no dict into it")
        return content
    length = int.from_bytes(start[:8], "little")
    if len(start) == 9 and start[8:] == b"{" and length <= size - 8:
        if length > _LARGEST_HEADER:
            raise ValueError(f"unsafe: its header has more than {_LARGEST_HEADER:,} bytes; refused")
        return _read_safetensors(path)
    if start.startswith((b"\x80", b"(")):
        raise ValueError(
            "unsafe: a bare pickle (torch.save's format before 1.6) is a program, neither a .pt zip nor a "
            ".safetensors file; refused, nothing ran"
        )
    what = "it is empty" if size == 0 else "it is neither a .pt zip nor a .safetensors file"
    raise ValueError(f"not a checkpoint: {what}, or its start is damaged")


def _read_safetensors(path: Path) -> dict[str, Any]:
    try:
        with safetensors.safe_open(path, framework="pt", device="cpu") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except Exception as error:  # safetensors' own error class, and torch's for odd dtypes
        raise ValueError(f"truncated or damaged: {_first_line(error)}") from None
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
    if not is_ours(content):
        raise CheckpointError(path, "not an anchorlens file: it has no anchorlens header")
    text, tensors = content[_HEADER], content.get("tensors")
    if not isinstance(tensors, dict) or not all(isinstance(name, str) for name in tensors):
        raise CheckpointError(path, "not an anchorlens file: it has no table of tensors")
    for name, tensor in tensors.items():
        if not (isinstance(tensor, Tensor) and tensor.is_contiguous()):
            raise CheckpointError(path, f"not an anchorlens file: {name!r} is no plain tensor")
    if content.get(_DIGEST) != _digest(text, tensors):
        raise CheckpointError(path, "damaged: its content does not match its checksum; copy it again")
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise CheckpointError(path, "not an anchorlens file: its header is not a JSON object")
    return header, tensors


def _digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.detach().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
