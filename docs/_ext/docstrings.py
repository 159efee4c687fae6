"""What autodoc needs to know of this package's docstrings: they are written for `help()` first."""

from __future__ import annotations

import re
import textwrap
from dataclasses import is_dataclass
from typing import Any

from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config, GoogleDocstring

_CODE = re.compile(r"(`[^`]*`)")
_EXAMPLE = re.compile(r"(^ *>>>.*\n?(?:^ *\S.*\n?)*)", re.MULTILINE)
_MARKUP = re.compile(r"\||\*|(?<=[\w|])_(?!\w)|(?<=\|)_")
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_RETURNS = re.compile(r"^Returns:\n((?: {4}.*\n?|\n)+)", re.MULTILINE)


def prepared(text: str, kind: str) -> str:
    r"""A docstring as napoleon reads it, so that the page says what `help()` says.

    The fields of a dataclass stand in its docstring, too; here each has an entry of its own, with its type.
    Bars, stars and trailing underscores mean norms, products and subscripts, no markup; flags are code. What
    stands before a colon after Returns is no type.

    Args:
        text: the docstring, dedented.
        kind: of the object, in autodoc's words.

    >>> print(prepared("||W||_F of `a|b`", "function"))
    \|\|W\|\|\_F of `a|b`
    >>> print(prepared("Sum.\n\nReturns:\n    Phase 1: ID < .90.\n", "function"))
    Sum.
    <BLANKLINE>
    :returns: Phase 1: ID < .90.
    """
    if kind == "class":
        text = re.split(r"^Attributes:$", text, flags=re.MULTILINE)[0]
    text = _RETURNS.sub(_returns, text)
    parts = _EXAMPLE.split(text)
    parts[::2] = [_escaped(part) for part in parts[::2]]
    return "".join(parts).rstrip()


def _returns(found: re.Match[str]) -> str:
    words = textwrap.dedent(found[1]).strip()
    return ":returns: " + words.replace("\n", "\n    ") + "\n\n"


def _escaped(text: str) -> str:
    parts = _CODE.split(text)
    parts[::2] = [_MARKUP.sub(r"\\\g<0>", with_flags_as_code(part)) for part in parts[::2]]
    return "".join(parts)


def with_flags_as_code(text: str) -> str:
    """Text in which a flag keeps its two hyphens, which would become a dash.

    >>> with_flags_as_code("continue the run in --out")
    'continue the run in `--out`'
    """
    return _FLAG.sub(r"`\g<0>`", text)


def _process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    text = prepared("\n".join(lines), what)
    # napoleon takes what stands before a colon in an attribute's docstring for its type
    kind = "function" if what in ("attribute", "property", "data") else what
    lines[:] = GoogleDocstring(text, Config(), app, kind, name, obj, options).lines()


def _process_signature(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str | None, str | None]:
    """A dataclass without its arguments: they are its fields, which follow with types and defaults."""
    return ("", None) if is_dataclass(obj) else (signature, returns)


def setup(app: Sphinx) -> dict[str, Any]:
    """In place of the extension sphinx.ext.napoleon."""
    app.connect("autodoc-process-docstring", _process)
    app.connect("autodoc-process-signature", _process_signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
