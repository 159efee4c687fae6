"""Documents: the sources of text, file by file, and the check that the sources are text.

`code` is the standard library of the running Python. `text` is English prose from that library: its
docstrings and the help topics of `pydoc`. Nothing is downloaded. The user's own files are read in pieces.
"""

from __future__ import annotations

import ast
import codecs
import functools
import hashlib
import itertools
import os
import platform
import sysconfig
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from anchorlens.safe import ordinary_file
from anchorlens.texts import safe_repr

CODE = "code"
TEXT = "text"
FILES = "files"
MOST_FILES = 10_000
MOST_ENTRIES = 100_000
MOST_BYTES = 2**32
"""The largest numbers of files, of folder entries searched for them, and of bytes in all."""
_LEFT_OUT = frozenset({"site-packages", "dist-packages", "test", "tests", "encodings", "pydoc_data"})
"""The folders of the standard library that are excluded: tests, tables of characters, and prose as code."""
_STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib"))
_PIECE = 2**20


class Document(NamedTuple):
    """A text that belongs to one split as a whole."""

    source: str
    """The file of the document. All documents from one file are in the same split."""
    pieces: Iterable[bytes]
    """The bytes of the document in order, UTF-8 without a NUL byte."""


def python_version() -> str:
    """Return the Python version, which determines the content of `code` and `text`.

    >>> python_version().split()[0]
    'Python'
    """
    return f"Python {platform.python_version()}"


def documents(corpus: str, data: str = "") -> Iterator[Document]:
    """Read the documents in turn, with one piece of the user's own files in memory at a time.

    Args:
        corpus: the name of the corpus: `code`, `text`, `code+text` or `files`.
        data: the paths of `files`, separated as in PATH. A folder stands for all files in the folder.

    Raises:
        ValueError: If a file does not exist, is empty, or is not text.
    """
    if corpus == FILES:
        for name, path in distinct_files(data).items():
            yield Document(name, text_of(path))
        return
    for path in sorted(_STANDARD_LIBRARY.rglob("*.py")):
        module = path.relative_to(_STANDARD_LIBRARY)
        if _LEFT_OUT.isdisjoint(module.parts[:-1]) and (code := path.read_bytes()):
            if corpus != TEXT:
                yield Document(module.as_posix(), [code])
            if corpus != CODE and (prose := _docstrings(code)):
                yield Document(module.as_posix(), [prose])
    if corpus != CODE:
        from pydoc_data.topics import topics

        for name, topic in sorted(topics.items()):
            yield Document(f"help topic {name}", [topic.encode()])


def sizes(corpus: str, data: str = "") -> dict[str, int]:
    """Return the number of bytes that are taken from each source.

    Raises:
        ValueError: If a path does not exist, or no path is given.
    """
    if corpus == FILES:
        return {name: path.stat().st_size for name, path in distinct_files(data).items()}
    n_bytes: Counter[str] = Counter()
    for source, pieces in documents(corpus):
        n_bytes[source] += sum(map(len, pieces))
    return dict(n_bytes)


def absolute(data: str) -> str:
    """Make the paths absolute, so that a run can be resumed from any folder."""
    return os.pathsep.join(os.path.abspath(path) for path in filter(None, data.split(os.pathsep)))


def named_files(data: str) -> dict[str, Path]:
    """Return the name and path of every file in the given order, with the files of a folder sorted by name.

    A folder stands for the plain files in the folder and its subfolders, without hidden files and links.

    Raises:
        ValueError: If a path does not exist or is not a plain file, or if the number of files is zero or too
            large.
    """
    files: dict[str, Path] = {}
    n_entries = 0
    for text in filter(None, data.split(os.pathsep)):
        path = Path(text)
        named = {path.name: path}
        if os.path.isdir(path):
            entries = list(itertools.islice(_inside(path), MOST_ENTRIES + 1 - n_entries))
            n_entries += len(entries)
            plain = (entry for entry in entries if entry.is_file() and not entry.is_symlink())
            named = {f"{path.resolve().name}/{file.relative_to(path).as_posix()}": file for file in plain}
        elif not os.path.isfile(path):
            raise ValueError(
                f"data must name existing text files or folders, separated by {os.pathsep!r}, got "
                f"{safe_repr(text)}. Correct the path"
            )
        if twice := sorted(files.keys() & named):
            raise ValueError(
                f"the files in data must have different names, got {safe_repr(twice[0])} twice. Put the "
                "files into one folder"
            )
        files |= dict(sorted(named.items()))
        if n_entries > MOST_ENTRIES or len(files) > MOST_FILES:
            raise ValueError(
                f"data must name at most {MOST_FILES:,} files, in folders of at most {MOST_ENTRIES:,} "
                f"entries, got more with {safe_repr(text)}. Put the files into a separate folder"
            )
    if not files:
        raise ValueError(
            f"data must name text files, or folders with text files, got {safe_repr(data)}. Give other paths"
        )
    return files


def distinct_files(data: str) -> dict[str, Path]:
    """Return the named files without repeated content, so that no text is in both splits.

    Raises:
        ValueError: For the same reasons as `named_files`.
    """
    by_content: dict[str, tuple[str, Path]] = {}
    for name, path in named_files(data).items():
        by_content.setdefault(content_digest(path), (name, path))
    return dict(by_content.values())


def fingerprint(data: str, expected: str = "") -> str:
    """Identify the files by their number, their size in bytes, and a SHA-256 of their names and contents.

    Args:
        data: the paths of the files, separated as in PATH.
        expected: the required result. The function reads no file if the number of files or bytes already
            differs.

    Raises:
        ValueError: If a path does not exist, the text is too large, or the files differ from `expected`.
    """
    files = named_files(data)
    n_bytes = sum(path.stat().st_size for path in files.values())
    if n_bytes > MOST_BYTES:
        raise ValueError(
            f"data must be at most {MOST_BYTES:,} bytes of text, got {n_bytes:,}. Name fewer or smaller files"
        )
    named = f"{len(files)} {'file' if len(files) == 1 else 'files'}, {n_bytes:,} bytes"
    if not expected or expected.startswith(f"{named}, "):
        contents = "".join(f"{name}\0{content_digest(path)}\n" for name, path in files.items())
        whole = f"{named}, SHA-256 {hashlib.sha256(contents.encode()).hexdigest()[:16]}"
        if expected in ("", whole):
            return whole
        named += " with other contents"  # not their hash, which would tell a stranger what they hold
    raise ValueError(
        f"the text must be {safe_repr(expected)}, got {named}. Name the same files in the same order"
    )


def text_of(path: Path) -> Iterator[bytes]:
    """Read a text file piece by piece.

    Raises:
        ValueError: If the file cannot be read, is empty or is not text.
    """
    decoder, n_bytes = codecs.getincrementaldecoder("utf-8")(), 0
    for piece in itertools.chain(_pieces(path), [b""]):  # at the end, no character may be incomplete
        piece = piece if n_bytes else piece.removeprefix(codecs.BOM_UTF8)
        wrong = "a NUL byte" if b"\0" in piece else "" if piece or n_bytes else "an empty file"
        try:
            decoder.decode(piece, final=not piece)
        except UnicodeDecodeError as error:
            wrong = f"invalid bytes near byte {n_bytes + max(error.start, 0)}"
        if wrong:
            raise ValueError(
                f"{safe_repr(str(path))} must be text in UTF-8, got {wrong}. Save it as UTF-8, or omit it"
            )
        n_bytes += len(piece)
        yield piece


def _pieces(path: Path) -> Iterator[bytes]:
    """Read the bytes of a plain file, piece by piece."""
    try:
        with ordinary_file(path) as (file, _):
            while piece := file.read(_PIECE):
                yield piece
    except OSError as error:
        raise ValueError(f"{safe_repr(str(path))} must be readable, got an error: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{safe_repr(str(path))}: {error}") from None


def _inside(folder: Path) -> Iterator[Path]:
    """List the entries of a folder and its subfolders, without hidden entries and without following links."""

    def refuse(error: OSError) -> None:
        raise ValueError(
            f"{safe_repr(error.filename)} must be readable, got an error: {error.strerror}"
        ) from None

    for this, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(this, name) for name in (*folders, *files) if not name.startswith("."))


def content_digest(path: Path) -> str:
    """Return the SHA-256 of a file, cached while its size and modification time stay the same.

    Raises:
        ValueError: If the file cannot be read.
        OSError: If the file does not exist.
    """
    status = path.stat()
    return _file_digest(path, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=MOST_FILES)
def _file_digest(path: Path, changed: int, size: int) -> str:
    """Compute the SHA-256 of the first `size` bytes of a file, cached by the time of its last change."""
    digest = hashlib.sha256()
    for piece in _pieces(path):
        digest.update(piece[:size])
        size -= len(piece)
        if size <= 0:
            break
    return digest.hexdigest()


def _docstrings(code: bytes) -> bytes:
    """Return the docstrings of a module, in order, with a blank line between two."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError):
        return b""
    texts = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds))
    return "\n\n".join(filter(None, texts)).encode()
