"""The group of each command in the main help."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

OTHERS = "Go further"
"""The title of the group for commands that do not name a group."""

C = TypeVar("C", bound=Callable[..., object])


def in_group(title: str) -> Callable[[C], C]:
    """List a command of a package under a title in the main help.

    Args:
        title: the title of a group in the help, such as `Train and compare many models`.

    Returns:
        A decorator, which must be the outermost decorator.
    """

    def marked(command: C) -> C:
        command.group = title  # pyright: ignore[reportFunctionMemberAccess]
        return command

    return marked
