"""Texts and values of others as one short line that no terminal obeys."""

from __future__ import annotations

import math
import re
import reprlib

LONGEST = 200
"""Characters of another's text that are shown."""
LONGEST_INTEGER = 40
"""Digits of an integer that are shown."""


def safe_text(text: object, most: int | None = LONGEST) -> str:
    r"""A text as one line that no terminal obeys: white space folded, what cannot be printed escaped.

    Args:
        text: anything; its `str`.
        most: characters that are shown; None for all.

    >>> safe_text("a\n\x1b[31mred\x07"), safe_text("x" * 300, 5)
    ('a \\x1b[31mred\\x07', 'xxxx…')
    """
    line = str(text)
    if most is not None and len(line) > most:
        line = f"{line[: most - 1]}…"
    line = " ".join(line.split())
    return line if line.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class _Repr(reprlib.Repr):
    """As `repr`, but never long."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 6
        self.maxtuple = self.maxlist = self.maxdict = self.maxset = self.maxfrozenset = 20
        self.maxstring = self.maxother = LONGEST
        self.maxlong = LONGEST_INTEGER

    def repr_instance(self, x: object, level: int) -> str:
        """Without the address that Python gives by default, which means nothing to a reader."""
        return _ADDRESS.sub("", super().repr_instance(x, level))

    def repr_int(self, x: int, level: int) -> str:
        """Python refuses to write integers of thousands of digits."""
        digits = int(x.bit_length() * math.log10(2)) + 1
        return super().repr_int(x, level) if digits < 4000 else f"an integer of {digits:,} digits"


_REPR = _Repr()


def safe_repr(value: object) -> str:
    r"""The `repr` of a value in an error: one printable line of at most 200 characters.

    >>> safe_repr("a\x1b"), safe_repr([1, "b"]), len(safe_repr("x" * 10**6)) <= LONGEST
    ("'a\\x1b'", "[1, 'b']", True)
    """
    return safe_text(_REPR.repr(value))


def first_line(error: Exception) -> str:
    """Of an error's message; its kind where it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
