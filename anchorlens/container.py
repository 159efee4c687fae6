"""A header and named tensors in one file: written atomically, read without ever running code.

Two suffixes, one content: `.pt` (a zip that `torch.load(weights_only=True)` reads) and `.safetensors`.
The header is JSON; a SHA-256 over header and tensors stands beside it and is verified on reading.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pickle
import re
import secrets
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

SUFFIXES = (".pt", ".safetensors")
_HEADER = "anchorlens"
_DIGEST = "sha256"


class CheckpointError(ValueError):
    """A file that cannot be read safely and whole; the message is one line: the file, then the cause."""

    def __init__(self, path: str | os.PathLike[str], cause: str) -> None:
        super().__init__(f"{os.fspath(path)}: {' '.join(cause.split())}")


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
    path = Path(path)
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(9)
    except OSError as error:
        raise CheckpointError(path, f"cannot be read: {error.strerror or error}") from None
    if start.startswith(b"PK\x03\x04"):
        text, digest, tensors = _read_pt(path, size)
    elif len(start) == 9 and start[8:] == b"{" and int.from_bytes(start[:8], "little") <= size - 8:
        text, digest, tensors = _read_safetensors(path)
    else:
        what = "it is empty" if size == 0 else "it is neither a .pt zip nor a .safetensors file"
        raise CheckpointError(path, f"not an anchorlens file: {what}, or its start is damaged")
    for name, tensor in tensors.items():
        if not _is_plain(tensor, size):
            raise CheckpointError(path, f"not an anchorlens file: {name!r} is no plain tensor")
    if digest != _digest(text, tensors):
        raise CheckpointError(path, "damaged: its content does not match its checksum; copy it again")
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise CheckpointError(path, "not an anchorlens file: its header is not a JSON object")
    return header, tensors


def _read_pt(path: Path, size: int) -> tuple[str, str, dict[str, Any]]:
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, RuntimeError) as error:
        raise CheckpointError(path, f"truncated or damaged: {error}") from None
    if (
        any(e.compress_type != zipfile.ZIP_STORED for e in entries)
        or sum(e.file_size for e in entries) > size
    ):
        raise CheckpointError(path, "unsafe: a compressed zip is never written by torch.save; refused")
    try:
        with path.open("rb") as file:  # by name, torch.load would go by the suffix
            content = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        code = re.search(r"GLOBAL (\S+)", str(error))
        if code:
            raise CheckpointError(path, f"unsafe: it asks to run {code[1]}; refused, nothing ran") from None
        raise CheckpointError(path, "unsafe or damaged: it is more than plain tensors; refused") from None
    except Exception as error:  # a damaged zip makes torch raise nearly anything
        raise CheckpointError(path, f"truncated or damaged: {_first_line(error)}") from None
    if not isinstance(content, dict) or not isinstance(content.get(_HEADER), str):
        raise CheckpointError(path, "not an anchorlens file: it has no anchorlens header")
    tensors = content.get("tensors")
    if not isinstance(tensors, dict) or not all(isinstance(name, str) for name in tensors):
        raise CheckpointError(path, "not an anchorlens file: it has no table of tensors")
    return content[_HEADER], str(content.get(_DIGEST)), tensors


def _read_safetensors(path: Path) -> tuple[str, str, dict[str, Tensor]]:
    try:
        with safetensors.safe_open(path, framework="pt", device="cpu") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except Exception as error:  # safetensors' own error class, and torch's for odd dtypes
        raise CheckpointError(path, f"truncated or damaged: {_first_line(error)}") from None
    if _HEADER not in metadata:
        raise CheckpointError(path, "not an anchorlens file: it has no anchorlens header")
    return metadata[_HEADER], metadata.get(_DIGEST, ""), tensors


def _is_plain(tensor: Any, size: int) -> bool:
    """A dense CPU tensor whose bytes really are in the file (no expanded views of one number)."""
    return (
        type(tensor) is Tensor
        and tensor.layout == torch.strided
        and tensor.device.type == "cpu"
        and tensor.is_contiguous()
        and tensor.numel() * tensor.element_size() <= size
    )


def _digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.detach().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
