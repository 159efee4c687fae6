"""The published COGS files: read from a folder, or downloaded once into the user's cache; checked by hash.

Source: Kim & Linzen, arXiv 2010.05465; github.com/najoungkim/COGS (MIT licence).
"""

from __future__ import annotations

import codecs
import functools
import gzip
import hashlib
import io
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from anchorlens.extras.shared.cache import user_cache
from anchorlens.safe import CheckpointError, read_bytes
from anchorlens.texts import safe_repr

PUBLISHED = "https://raw.githubusercontent.com/najoungkim/COGS/165a7b669eade971fa47bf568a2e51925360fed8/data/"

FILES = {
    "train.tsv": (4_146_574, "220b3804b562c0156ee986eff1bdd15c27e52142549362a64f57baf86e304c78"),
    "dev.tsv": (522_121, "ab66388a309c7ac1ad210c781a6a0ce12281a9ef24619a12422a752cef61bc21"),
    "test.tsv": (521_111, "68f8e51e9f6d9cd22d64efe68dd21d7ea5ba327e9a2359481030161aea757035"),
    "gen.tsv": (5_532_102, "d013d9eee0bafc153f8decc85f42814ac97260f84964d980e1e2b84577b82361"),
}
"""A map from the name of each published file to the size in bytes and the SHA-256 of its content."""
_LINE_ENDS = 2**15
"""The bytes that Windows line ends and a byte order mark may add: no file has as many lines."""
_GZIP = 2**16
"""The bytes that gzip may add to content that it cannot compress."""


class Line(NamedTuple):
    """A sentence of a published file, its logical form, and its kind."""

    sentence: str
    logical_form: str
    kind: str
    """The kind: `in_distribution`, `primitive`, `exposure_example_...`, or the case of generalisation."""


def published_files(folder: str = "", url: str = PUBLISHED) -> Mapping[str, tuple[Line, ...]]:
    """Read the four files.

    Args:
        folder: the folder with `train.tsv`, `dev.tsv`, `test.tsv` and `gen.tsv`, each with or without `.gz`.
            Default: the user's cache. The function downloads missing files into the cache.
        url: the address from which files are downloaded, ending with a slash.

    Returns:
        A map from the names `train`, `dev`, `test` and `gen` to the lines of the file.

    Raises:
        ValueError: If the folder or a file is missing, or a download fails.
        CheckpointError: If a file cannot be read, or is not the published file.
    """
    if folder and not Path(folder).is_dir():
        raise ValueError(
            f"data must be a folder with the files {', '.join(FILES)} of COGS, or with their .gz files, got "
            f"{safe_repr(folder)}, which was not found. Give another folder (--data DIR), or omit the folder "
            "to download the files"
        )
    return _read(str(Path(folder).resolve()) if folder else str(_fetched(url)))


@functools.cache
def _read(folder: str) -> Mapping[str, tuple[Line, ...]]:
    return {name.removesuffix(".tsv"): _lines(Path(folder), name) for name in FILES}


def _lines(folder: Path, name: str) -> tuple[Line, ...]:
    file, (size, sha256) = folder / name, FILES[name]
    most = size + _LINE_ENDS
    try:  # reads little more than the published size; content of another file is neither used nor shown
        if file.exists():
            data = read_bytes(file, most)
        else:
            file = folder / f"{name}.gz"
            with gzip.GzipFile(fileobj=io.BytesIO(read_bytes(file, most + _GZIP))) as unpacked:
                data = unpacked.read(most + 1)
    except FileNotFoundError:
        raise ValueError(
            f"the folder must hold the files {', '.join(FILES)} of COGS, or their .gz files, got "
            f"{safe_repr(str(folder))} without {name}. Add {name}"
        ) from None
    except ValueError as error:  # no ordinary file, or too large
        raise CheckpointError(file, f"{error}. Give the published file of COGS") from None
    except (OSError, EOFError, zlib.error) as error:
        raise CheckpointError(file, f"the file must be readable, got: {safe_repr(str(error))}") from None
    plain = data.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n")  # as Git and editors write on Windows
    if len(plain) != size or hashlib.sha256(plain).hexdigest() != sha256:
        ends = " with Windows line ends (CRLF)" if b"\r\n" in data else ""
        raise CheckpointError(
            file,
            f"{name} must be the published file, {size:,} bytes with SHA-256 {sha256[:12]}..., got other "
            f"contents{ends}, perhaps cut off or another split. Omit the folder to download the files",
        )
    return tuple(Line(*line.split("\t")) for line in plain.decode().split("\n") if line)


def _fetched(url: str) -> Path:
    """Return the user's cache after downloading missing files into it."""
    import torch.hub  # late, since torch is slow

    cache = user_cache("cogs")
    for name, (_, sha256) in FILES.items():
        file = cache / name
        try:
            if not file.exists() or hashlib.sha256(file.read_bytes()).hexdigest() != sha256:
                torch.hub.download_url_to_file(url + name, str(file), sha256, progress=False)
        except Exception as error:  # of the network or the disk, or for other content
            why = str(error).split("\n")[0].split(". ")[0]
            raise ValueError(
                "COGS must be in a folder (--data DIR) or downloadable, got an error in the download of "
                f"{name}: {safe_repr(why)}. Put the files {', '.join(FILES)} from the folder data of "
                "github.com/najoungkim/COGS into a folder, and give this folder"
            ) from None
    return cache
