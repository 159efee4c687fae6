"""Writing files: checks of the path, and atomic writes."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from anchorlens.configuration import as_path
from anchorlens.texts import safe_repr, safe_text

PAGES = (".html",)
PICTURES = (".html", ".png", ".svg", ".pdf")
SUMMARIES = (".pdf", ".svg", ".png")
"""The suffixes of pages, pictures and summaries."""


def check_suffix(path: str | os.PathLike[str], called: str, suffixes: Sequence[str]) -> Path:
    """Return the path if its suffix is in `suffixes`.

    Raises:
        ValueError: If the suffix is not in `suffixes`.
    """
    path = as_path(called, path)
    if path.suffix not in suffixes:
        ends = " or ".join(filter(None, (", ".join(suffixes[:-1]), suffixes[-1])))
        raise ValueError(f"{called} must end in {ends}, got {safe_repr(path.name or str(path))}. Change it")
    return path


def check_can_write(
    path: str | os.PathLike[str],
    called: str,
    suffixes: Sequence[str],
    inputs: Iterable[str | os.PathLike[str] | None] = (),
) -> Path:
    """Return the path if a file can be written there. Call this function before the computation.

    Args:
        path: the path of the file. An existing file will be replaced.
        called: the name of the path in an error, such as the option or `a diagram's name`.
        suffixes: the allowed ends of the file's name.
        inputs: the files that are read, none of which may be replaced.

    Raises:
        ValueError: If the suffix is not allowed, or the folder cannot be written to.
        ValueError: If the path is an input, or is not an ordinary file.
    """
    path = check_suffix(path, called, suffixes)
    try:
        if not path.parent.is_dir():
            parent = safe_text(path.parent)
            raise ValueError(
                f"{called} must be in a folder that exists, got {safe_text(path)}. Make {parent} first"
            )
        _check_replaceable(path)
        cause = None if os.access(path.parent, os.W_OK | os.X_OK) else f"{path.parent} may not be written to"
        if path.exists() and any(_is_same(path, source) for source in inputs if source is not None):
            cause = "it is one of the files that are read"
    except OSError as error:
        cause = error.strerror
    if cause is not None:
        raise ValueError(
            f"{called} must be a file that can be written, got {safe_text(path)}: {safe_text(cause)}. Give "
            "another file"
        )
    return path


def check_summary(
    path: str | os.PathLike[str],
    called: str,
    n_models: int,
    inputs: Iterable[str | os.PathLike[str] | None] = (),
) -> Path:
    """Return the path of a summary if a file can be written there. Call this function before the computation.

    Args:
        path: the path of the file. An existing file will be replaced.
        called: the name of the path in an error.
        n_models: the number of models in the summary.
        inputs: the files that are read, none of which may be replaced.

    Raises:
        ValueError: If `check_can_write` refuses the path, or matplotlib is not installed.
        ValueError: If there are several models, and the format has only one page.
    """
    path = check_can_write(path, called, SUMMARIES, inputs)
    if n_models > 1 and path.suffix != ".pdf":
        raise ValueError(
            f"{called} must end in .pdf for several models, got {safe_repr(path.name)} for {n_models} "
            "models. Give a .pdf file, or one model"
        )
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError(
            f"matplotlib must be installed to write {called} {safe_text(path)}, got no matplotlib. Run pip "
            "install '.[export]' in a clone"
        )
    return path


def _is_same(path: Path, other: str | os.PathLike[str]) -> bool:
    try:
        return os.path.samefile(path, other)
    except (OSError, ValueError):  # there is no such file
        return False


def _check_replaceable(path: Path) -> None:
    """Refuse to replace anything but an ordinary file; links are followed.

    Raises:
        OSError: If the path is a folder, a device, a pipe or a socket.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", str(path))
    if not stat.S_ISREG(mode):
        raise FileExistsError(errno.EEXIST, "it is not an ordinary file", str(path))


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the path to disk errors, because Python's own errors often omit the path."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """Open a binary file that appears under its name only when it is complete.

    A killed process leaves no partial file. A link with this name is replaced, and its target remains
    unchanged.

    Raises:
        OSError: If the path is not an ordinary file, or the file cannot be written, for example to a full
            disk. The error names the file, and an existing file remains unchanged.
    """
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with naming(path):
            _check_replaceable(path)
            with unfinished.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    write_through(path.parent)


def write_through(path: Path) -> None:
    """Sync a file, or the names in a folder, to the disk."""
    place = os.open(path, os.O_RDONLY)
    try:
        os.fsync(place)
    finally:
        os.close(place)


def write_whole(path: Path, data: bytes | memoryview) -> None:
    """Write a file as `atomic_write` does."""
    with atomic_write(path) as file:
        file.write(data)
