"""Short texts: untrusted text and values as one line without control characters, and the titles of paths."""

from __future__ import annotations

import collections
import math
import os
import re
import reprlib
from collections.abc import Sequence
from pathlib import Path

LONGEST = 200
"""The largest number of shown characters of untrusted text."""
LONGEST_INTEGER = 40
"""The largest number of shown digits of an integer."""


def safe_text(text: object, most: int | None = LONGEST) -> str:
    r"""Convert a text to one line that is safe in a terminal.

    The function folds white space and escapes unprintable characters.

    Args:
        text: the text, or an object whose `str` is the text.
        most: the largest number of shown characters, or `None` to show all characters.

    >>> safe_text("a\n\x1b[31mred\x07"), safe_text("x" * 300, 5)
    ('a \\x1b[31mred\\x07', 'xxxx…')
    """
    line = str(text)
    if most is not None and len(line) > most:
        line = f"{line[: most - 1]}…"
    line = " ".join(line.split())
    return line if line.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


_MOST_PARTS = 1000
"""The largest number of shown parts of a value, of which the first characters are shown."""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class _Repr(reprlib.Repr):
    """A `repr` that is never long."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 6
        self.maxtuple = self.maxlist = self.maxdict = self.maxset = self.maxfrozenset = 20
        self.maxstring = self.maxother = LONGEST
        self.maxlong = LONGEST_INTEGER
        self._left = _MOST_PARTS

    def repr1(self, x: object, level: int) -> str:
        """Return the repr of a part, or dots after many parts: lists may share what is in them."""
        self._left -= 1
        return super().repr1(x, level) if self._left >= 0 else "..."

    def repr_instance(self, x: object, level: int) -> str:
        """Return the repr without the memory address, or only the name of the class for a model."""
        if hasattr(type(x), "state_dict"):
            return f"<{type(x).__name__}>"
        return _ADDRESS.sub("", super().repr_instance(x, level))

    def repr_int(self, x: int, level: int) -> str:
        """Return the repr of an integer, or only the number of digits for a very long integer."""
        digits = int(x.bit_length() * math.log10(2)) + 1
        return super().repr_int(x, level) if digits < 4000 else f"an integer of {digits:,} digits"


def safe_repr(value: object) -> str:
    r"""Return the `repr` of a value for an error, as one printable line of at most 200 characters.

    >>> safe_repr("a\x1b"), safe_repr([1, "b"]), len(safe_repr("x" * 10**6)) <= LONGEST
    ("'a\\x1b'", "[1, 'b']", True)
    """
    return safe_text(_Repr().repr(value))


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or the error's class name if the message is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def first_sentence(text: str) -> str:
    """Return the first sentence of a text in one line.

    >>> first_sentence("Anchors per sequence, >= 2 (2 in the papers). One more.")
    'Anchors per sequence, >= 2 (2 in the papers).'
    >>> first_sentence("How evenly a head looks, e.g. at two tokens. 0 = at one.")
    'How evenly a head looks, e.g. at two tokens.'
    """
    return re.split(r"(?<=[.!?])\s+(?![a-z])", " ".join(text.split()), maxsplit=1)[0]


def few(names: Sequence[str], most: int = 3) -> str:
    """Join the first names, and count the others.

    >>> few(["a", "b"]), few(["a", "b", "c", "d"], 2)
    ('a, b', 'a, b and 2 more')
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def titles(paths: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return the end of each path as its title.

    The ends are long enough that different paths have different titles.

    Args:
        paths: the paths of files and folders, which need not exist. Equal paths have the same title.

    >>> titles(["runs/a/ckpt.pt"]), titles(["runs/a/ckpt.pt", "runs/b/ckpt.pt", "phase3.pt"])
    (['ckpt.pt'], ['a/ckpt.pt', 'b/ckpt.pt', 'phase3.pt'])
    """
    whole = [Path(os.path.abspath(path)).parts for path in paths]
    lengths = dict.fromkeys(whole, 1) | {
        parts: 2 for path, parts in zip(paths, whole, strict=True) if os.path.isdir(path)
    }
    while True:
        called = {parts: str(Path(*parts[-length:])) for parts, length in lengths.items()}
        counts = collections.Counter(called.values())
        longer = {parts: lengths[parts] + 1 for parts, title in called.items() if counts[title] > 1}
        if not longer:
            return [called[parts] for parts in whole]
        lengths |= longer
