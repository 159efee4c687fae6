"""Our file format: a header and named tensors in one file, written atomically and read safely.

Two suffixes have the same content: `.pt` (`torch.load(weights_only=True)` reads it) and `.safetensors`. The
header is JSON; a SHA-256 over header and tensors is stored next to it and verified on reading.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from anchorlens.files.writing import check_suffix, write_whole
from anchorlens.safe import HEADER, MOST_VALUES_OF_HEADER, CheckpointError, read_json, read_tensors, reading
from anchorlens.texts import safe_repr

if TYPE_CHECKING:  # torch takes seconds to import, and what reads no tensor needs none of it
    from torch import Tensor

SUFFIXES = (".pt", ".safetensors")
_DIGEST = "sha256"


def write(path: str | os.PathLike[str], header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write a header and tensors to `path` atomically, in the format of the suffix.

    Raises:
        ValueError: If the suffix is not supported, or the header cannot be written as JSON.
        OSError: If the file cannot be written. A failed write does not change an existing file.
    """
    import safetensors.torch
    import torch

    path = check_suffix(path, "a checkpoint's name", SUFFIXES)
    try:
        text = json.dumps(header, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the metrics and the configuration of {path.name} must be JSON-ready, got an error: {error}. "
            "Use plain Python values"
        ) from None
    tensors = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    digest = _digest(text, tensors)
    if path.suffix == ".pt":  # to memory first: torch reports a full disk as an error of its own
        made = io.BytesIO()
        torch.save({HEADER: text, _DIGEST: digest, "tensors": tensors}, made)
        data = made.getbuffer()
    else:
        data = safetensors.torch.save(tensors, metadata={HEADER: text, _DIGEST: digest})
    write_whole(path, data)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read the header and the tensors (on the CPU) of a file that `write` wrote, in either format.

    Raises:
        CheckpointError: If the file is missing, truncated, damaged, unsafe, or in another format.
    """
    return unpack(path, read_tensors(path).values)


def is_ours(content: Mapping[str, Any]) -> bool:
    """Check whether the contents that `read_tensors` returned come from a file that `write` wrote."""
    return isinstance(content.get(HEADER), str)


def unpack(
    path: str | os.PathLike[str], content: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Split the contents of a file that `write` wrote into header and tensors, and verify the checksum.

    Raises:
        CheckpointError: If the file is in another format, or its content does not match its checksum.
    """
    from torch import Tensor

    with reading(path, "not an anchorlens file"):
        if not is_ours(content):
            raise ValueError(
                "the file must have an anchorlens header, got none. Use open_checkpoint for other formats"
            )
        text, tensors = content[HEADER], content.get("tensors")
        if not isinstance(tensors, dict) or not all(
            isinstance(key, str) and isinstance(tensor, Tensor) and tensor.is_contiguous()
            for key, tensor in tensors.items()
        ):
            raise ValueError("the file must have a table of plain tensors, got another object")
        if content.get(_DIGEST) != _digest(text, tensors):
            raise CheckpointError(
                path, "the content must match its checksum, got another checksum. Copy the file again"
            )
        header = read_json(text, most_values=MOST_VALUES_OF_HEADER)
        if not isinstance(header, dict):
            raise ValueError(f"the header must be a JSON object, got {type(header).__name__}")
    return header, tensors


def check_format(path: str | os.PathLike[str], header: Any, name: str, version: int) -> None:
    """Check that a header is a JSON object of the expected format, in a version that anchorlens reads.

    Raises:
        CheckpointError: If the header is not a JSON object, or has another format or a later version.
    """
    with reading(path, f"not an {name}"):
        if not isinstance(header, dict):
            raise ValueError(f"the content must be a JSON object, got {safe_repr(header)}")
        its_version = header.get("format_version")
        if header.get("format") != name:
            raise ValueError(f"the format must be {name!r}, got {safe_repr(header.get('format'))}")
        if type(its_version) is not int or not 1 <= its_version <= version:
            got = f"{safe_repr(its_version)}. Upgrade anchorlens"
            raise CheckpointError(path, f"the format version must be 1 to {version}, got {got}")


def _digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    import torch

    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.detach().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
