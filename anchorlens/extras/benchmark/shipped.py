"""The files of the package: the benchmark's models, and the scores of our own readings on them."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from anchorlens.configuration import check_number
from anchorlens.extras.benchmark.result import Benchmark, BenchmarkModel
from anchorlens.files import Checkpoint, check_suffix, from_contents, save_checkpoint, write_whole
from anchorlens.records import Record, limits
from anchorlens.safe import read_bytes, reading, tensors_in, zip_in
from anchorlens.texts import safe_text

FOLDER = Path(__file__).parent
CHECKPOINTS = FOLDER / "checkpoints.zip"
"""The file with our checkpoints, NAME.safetensors, and a manifest."""
REFERENCE = FOLDER / "reference.json"
"""The file with the `Benchmark` of our own readings."""
MANIFEST = "models.json"
MOST_MODELS = 1_000
MOST_BYTES = 100 * 2**20
"""The largest size of the zip file, in bytes."""
MOST_BYTES_OF_MODEL = 16 * 2**20
"""The largest size of each file in the zip file, in bytes."""
_HOW_TO_MAKE = (
    "Train them in a clone of the repository with `python research/zoo.py`, and make the file with "
    "`python research/benchmark_checkpoints.py`"
)


@dataclass(frozen=True)
class BenchmarkManifest(Record):
    """The models of a benchmark's file, in order."""

    models: Annotated[tuple[BenchmarkModel, ...], limits(min_length=1, max_length=MOST_MODELS)]


def shipped_models(
    first: int | None = None, *, path: str | os.PathLike[str] | None = None
) -> list[tuple[BenchmarkModel, Checkpoint]]:
    """Read the models of the benchmark.

    Args:
        first: the number of models to read, >= 1. These models are balanced over the kinds of model. Default:
            all models.
        path: a file that `save_models` wrote. Default: the file of the package.

    Returns:
        The description and checkpoint of each model.

    Raises:
        ValueError: If the file is missing. The message states how to make the file.
        CheckpointError: If the file is damaged or unsafe. No code in the file is executed.

    Example:
        >>> about, checkpoint = shipped_models(1)[0]  # doctest: +SKIP
        >>> about.ending, checkpoint  # doctest: +SKIP
        ('Phase 1', Checkpoint(gpt2, 2 layers, gamma 0.35, seed 2017, step 1000))
    """
    check_number("first", first, minimum=1, integer=True, optional=True)
    path = CHECKPOINTS if path is None else path
    if not Path(path).exists():
        raise ValueError(
            f"{safe_text(path)} must be the file with the models of the benchmark, got no file. "
            f"{_HOW_TO_MAKE}"
        )
    with reading(path), zip_in(read_bytes(path, MOST_BYTES), MOST_MODELS + 1) as archive:
        about = BenchmarkManifest.from_json(_member(archive, MANIFEST)).models[:first]
        return [(one, _checkpoint(path, archive, one.name)) for one in about]


def save_models(path: str | os.PathLike[str], models: Iterable[tuple[BenchmarkModel, Checkpoint]]) -> None:
    """Write models and their descriptions to one file.

    Args:
        path: the path of the file to write, ending in .zip.
        models: the description and checkpoint of at least one model, in order and with different names.

    Raises:
        ValueError: If the suffix is not .zip, or `models` is empty. The models must have different names. The
            weights of each model must fit its configuration.
        OSError: If writing fails. An existing file is then unchanged.
    """
    path, known = check_suffix(path, "the name of a benchmark's models", (".zip",)), []
    with tempfile.TemporaryDirectory() as folder:
        packed, member = Path(folder) / "packed.zip", Path(folder) / "model.safetensors"
        with zipfile.ZipFile(packed, "w") as archive:
            for about, checkpoint in models:
                if about.name in {one.name for one in known}:
                    raise ValueError(
                        f"models must have different names, got {safe_text(about.name)} twice. Rename a model"
                    )
                save_checkpoint(member, checkpoint)
                _pack(archive, f"{about.name}.safetensors", member.read_bytes())
                known.append(about)
            manifest = BenchmarkManifest.from_dict({"models": [about.to_dict() for about in known]})
            _pack(archive, MANIFEST, json.dumps(manifest.to_dict(), indent=1).encode())
        write_whole(path, packed.read_bytes())


def _pack(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    """Add a file without a date; LZMA best compresses the zeros of weights rounded to 16 bits."""
    archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_LZMA)


def reference() -> Benchmark | None:
    """Return the scores of anchorlens's readings and of WeightWatcher's alpha on all models of the benchmark.

    Returns:
        The AUCs and values, or `None` if the package lacks the file that `research/benchmark_checkpoints.py`
        writes.

    Raises:
        CheckpointError: If the file with the scores is damaged.
    """
    if not REFERENCE.exists():
        return None
    with reading(REFERENCE):
        return Benchmark.from_json(read_bytes(REFERENCE))


def _checkpoint(path: str | os.PathLike[str], archive: zipfile.ZipFile, name: str) -> Checkpoint:
    member = f"{name}.safetensors"
    with reading(f"{os.fspath(path)}/{member}"):
        content = tensors_in(_member(archive, member)).values
    return from_contents(f"{os.fspath(path)}/{member}", content)


def _member(archive: zipfile.ZipFile, name: str) -> bytes:
    """Return the content of a file in the archive, and check its checksum.

    Raises:
        ValueError: If the file is missing, or larger than allowed.
    """
    try:
        entry = archive.getinfo(name)
    except KeyError:
        raise ValueError(
            f"the archive must contain {safe_text(name)}, got an archive without this entry. Make the "
            "archive again"
        ) from None
    if entry.file_size > MOST_BYTES_OF_MODEL:
        raise ValueError(
            f"{safe_text(name)} must have at most {MOST_BYTES_OF_MODEL:,} bytes, got {entry.file_size:,}. "
            "Use a smaller model"
        )
    return archive.read(entry)
