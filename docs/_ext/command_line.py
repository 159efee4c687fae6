"""The commands and their options, read from the command line itself: the directive `{commands}`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer
from docstrings import with_flags_as_code
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

OWN = "options"
"""What options are called that belong to no panel."""


def described(name: str, command: Any) -> Iterator[str]:
    """One command in Markdown: usage, what it does, its arguments, its options by panel.

    Args:
        name: as it is typed.
        command: what typer made of it.
    """
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option"]
    named = [f"{p.name.upper()}{' ...' if p.nargs != 1 else ''}" for p in arguments]
    usage = [
        "anchorlens",
        name,
        *(text if p.required else f"[{text}]" for text, p in zip(named, arguments, strict=True)),
    ]
    yield from (f"## anchorlens {name}", "", inspect.cleandoc(command.help or ""), "")
    yield from ("```text", " ".join([*usage, "[OPTIONS]"]), "```", "")
    if arguments:
        yield from ("| argument | what |", "|---|---|")
        yield from (f"| `{text}` | {_plain(p.help)} |" for text, p in zip(named, arguments, strict=True))
        yield ""
    panels: dict[str, list[Any]] = {}
    for option in options:
        panels.setdefault(getattr(option, "rich_help_panel", None) or OWN, []).append(option)
    for panel, members in panels.items():
        yield from (f"| {panel} | what |", "|---|---|")
        yield from (f"| {_flags(option)} | {_plain(option.help)}{_default(option)} |" for option in members)
        yield ""


def _flags(option: Any) -> str:
    return ", ".join(f"`{flag}`" for flag in [*option.opts, *option.secondary_opts])


def _default(option: Any) -> str:
    worth_saying = option.show_default and option.default not in (None, False, (), [])
    return f" Default `{option.default}`." if worth_saying else ""


def _plain(text: str | None) -> str:
    """Help text in a cell of a table; rich's escapes are none there."""
    return " ".join(with_flags_as_code(text or "").replace("\\[", "[").replace("|", "\\|").split())


class Commands(SphinxDirective):
    """Every command of `anchorlens`, in the order of its help."""

    def run(self) -> list[Any]:
        """Parse the Markdown where the directive stands."""
        from anchorlens.cli import app

        group: Any = typer.main.get_command(app)
        lines = [line for name, command in group.commands.items() for line in described(name, command)]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
