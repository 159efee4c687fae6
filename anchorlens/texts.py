"""The conversion of untrusted text and values to one short line without control characters."""

from __future__ import annotations

import math
import re
import reprlib

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


_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class _Repr(reprlib.Repr):
    """A `repr` that is never long."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 6
        self.maxtuple = self.maxlist = self.maxdict = self.maxset = self.maxfrozenset = 20
        self.maxstring = self.maxother = LONGEST
        self.maxlong = LONGEST_INTEGER

    def repr_instance(self, x: object, level: int) -> str:
        """Return the repr without the memory address, or only the name of the class for a model."""
        if hasattr(type(x), "state_dict"):
            return f"<{type(x).__name__}>"
        return _ADDRESS.sub("", super().repr_instance(x, level))

    def repr_int(self, x: int, level: int) -> str:
        """Return the repr of an integer, or only the number of digits for a very long integer."""
        digits = int(x.bit_length() * math.log10(2)) + 1
        return super().repr_int(x, level) if digits < 4000 else f"an integer of {digits:,} digits"


_REPR = _Repr()


def safe_repr(value: object) -> str:
    r"""Return the `repr` of a value for an error, as one printable line of at most 200 characters.

    >>> safe_repr("a\x1b"), safe_repr([1, "b"]), len(safe_repr("x" * 10**6)) <= LONGEST
    ("'a\\x1b'", "[1, 'b']", True)
    """
    return safe_text(_REPR.repr(value))


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or the error's class name if the message is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
