"""What a job sends home: one JSON with its numbers, and its tensors in pieces that a transfer takes."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anchorlens.files import container

MIB = 2**20
PIECE, MOST_BYTES, MOST_FILES = 15 * MIB, 62 * MIB, 8
"""Bytes of a piece, and what all files of a command may have together."""
FORMAT = "anchorlens GPU job"


def pack(out: Path, name: str, content: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str | None:
    """Write `NAME.json`, and the tensors as `NAME.0`, `NAME.1`, ...

    Returns:
        Why the tensors were left out, where they would not fit beside what is there; else None.
    """
    pieces: list[bytes] = []
    if tensors:
        whole = out / f"{name}.safetensors"
        container.write(whole, {"format": FORMAT}, tensors)
        data = whole.read_bytes()
        whole.unlink()
        pieces = [data[start : start + PIECE] for start in range(0, len(data), PIECE)]
    there = [path.stat().st_size for path in out.iterdir()]
    why = None
    if sum(there) + sum(map(len, pieces)) > MOST_BYTES or len(there) + len(pieces) + 1 > MOST_FILES:
        why = f"{sum(map(len, pieces)) / MIB:.0f} MiB of tensors do not fit into what may go home"
        pieces = []
    names = [f"{name}.{k}" for k in range(len(pieces))]
    for piece, data in zip(names, pieces, strict=True):
        (out / piece).write_bytes(data)
    hashes = {piece: sha256(data) for piece, data in zip(names, pieces, strict=True)}
    whole = {"format": FORMAT, **content, "pieces": hashes, "tensors_left_out": why}
    (out / f"{name}.json").write_text(json.dumps(whole, allow_nan=False) + "\n", encoding="utf-8")
    return why


def unpack(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What `pack` wrote, checked.

    Raises:
        ValueError: a file is missing or altered, or a number is not finite.
    """
    content = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
    if content.get("format") != FORMAT:
        raise ValueError(
            f"{path} must be the JSON of a GPU job, got another file. Take it out of the folder."
        )
    _check_finite(content, path)
    pieces = []
    for name, expected in content["pieces"].items():
        file = path.with_name(name)
        if not file.exists() or sha256(file.read_bytes()) != expected:
            raise ValueError(f"{file} must be the file that the job wrote, got another. Copy it again.")
        pieces.append(file.read_bytes())
    if not pieces:
        return content, {}
    whole = path.with_suffix(".safetensors")
    whole.write_bytes(b"".join(pieces))
    try:
        tensors = container.read(whole)[1]
    finally:
        whole.unlink()
    bad = [name for name, tensor in tensors.items() if not bool(torch.isfinite(tensor).all())]
    if bad:
        raise ValueError(f"{path} must have finite weights, got others in {bad[0]}. Run the job again.")
    return content, tensors


def sha256(data: bytes) -> str:
    """64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def _refuse(constant: str) -> None:
    raise ValueError(f"every number must be finite, got {constant}. Run the job again.")


def _check_finite(value: Any, path: Path) -> None:
    """JSON allows 1e999, which Python reads as infinity."""
    if isinstance(value, Mapping):
        for item in value.values():
            _check_finite(item, path)
    elif isinstance(value, list):
        for item in value:
            _check_finite(item, path)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{path} must have finite numbers, got {value}. Run the job again.")
