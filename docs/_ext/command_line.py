"""The commands and their options, read from the command line itself: the directive `{commands}`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer
from docstrings import with_flags_as_code
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from anchorlens.cli.help import description, sections, usage


def described(name: str, command: Any) -> Iterator[str]:
    """One command in Markdown: usage, what it does, examples, its arguments, its options by section.

    Args:
        name: as it is typed.
        command: what typer made of it.
    """
    paragraphs, examples = description(command)
    yield f"## anchorlens {name}"
    for paragraph in paragraphs:
        yield from ("", with_flags_as_code(paragraph))
    yield from (
        "",
        "```console",
        *(f"$ {line}" for line in (usage(command, f"anchorlens {name}"), *examples)),
    )
    yield from ("```", "")
    for title, entries in sections(command):
        yield from (f"| {title} | default | what |", "|---|---|---|")
        for entry in entries:
            flags = ", ".join(f"`{flag}`" for flag in entry.flags)
            text = _cell(with_flags_as_code(entry.text))
            yield f"| {flags} {_cell(entry.value)} | {_code(entry.default)} | {text} |"
        yield ""


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


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
