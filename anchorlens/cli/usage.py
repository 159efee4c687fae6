"""Usage errors that stay short and printable, whatever was typed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from typer.core import TyperGroup

from anchorlens.foreign import printable

_LONGEST = 300
"""Characters of what a usage error says."""


class BoundedGroup(TyperGroup):
    """Commands whose usage errors repeat no long or steering text."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """Read the options before a command."""
        with _bounded():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        """Read a command's options, and run it."""
        with _bounded():
            return super().invoke(ctx)


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        message = getattr(error, "message", None)
        if isinstance(message, str) and hasattr(error, "format_message"):  # click's
            error.message = printable(message, _LONGEST)  # pyright: ignore[reportAttributeAccessIssue]
        raise
