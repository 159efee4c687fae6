"""The help of commands, with two examples, and with each option above its meaning.

`--help` shows the most important options of the chosen task in at most 60 lines. `--help-all` shows all
options in full.
"""

from __future__ import annotations

import inspect
import shutil
import textwrap
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand

from anchorlens.cli.inputs import base_parts, read_toml
from anchorlens.cli.shared import EXIT_USAGE, fail
from anchorlens.tasks.registry import task_class
from anchorlens.texts import first_sentence

MOST_LINES = 60
"""The largest number of lines of `--help`, at `USUAL_WIDTH` columns."""
USUAL_WIDTH = 80
"""The number of columns if the width of the terminal is unknown."""
LEAST_WIDTH = 20
EVERYTHING = "--help-all"
TEXTS, _ALL = "anchorlens.texts", "anchorlens.all"
"""The keys under which a context stores the texts of the options, and whether the full help is asked for."""
_EXAMPLES = "Examples:"
_FIRST = ("preset", "out", "resume", "dry_run", "kind")
_CORE = ("gamma", "seed", "steps", "n_samples", "lr")
_NEXT = ("weight_decay", "batch_size", "n_layers", "n_heads", "d_model", "config", "as_json", "tasks")
"""The options that `--help` shows first, the options of any run, and the options that follow if the options
fit. The options of the task follow the first group, or the second group if no task is named."""


class Entry(NamedTuple):
    """The help of one option or argument.

    The documentation also shows this help.
    """

    name: str
    """The name of the parameter."""
    flags: tuple[str, ...]
    """The flags, such as `--gamma`, or the name of an argument in capitals."""
    value: str
    """The placeholder after the flag, such as NUMBER or a|b. The text is empty for a flag without a value."""
    default: str
    """The default in the form that the user types. The text is empty if the help shows no default."""
    text: str
    """The meaning of the option, in sentences."""

    def heading(self) -> str:
        """Return a line with the flags, value and default of the option."""
        default = self.default and f"  (default {self.default})"
        return f"{', '.join(self.flags)} {self.value}".rstrip() + default


class Section(NamedTuple):
    """A titled group of options."""

    title: str
    entries: list[Entry]


class HelpCommand(TyperCommand):
    """A command whose help this module writes, and which leaves the options of fields to `field_options`."""

    def make_parser(self, ctx: Any) -> Any:
        """Make a parser that also reads the options of fields."""
        parser = super().make_parser(ctx)
        if fields := fields_of(self):
            fields.add_to(parser, self.params[0])
        return parser

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options, and store their texts, on which the help depends."""
        ctx.meta[_ALL] = EVERYTHING in args
        ctx.meta[TEXTS], _, _ = self.make_parser(ctx).parse_args([*args])
        hints = typing.get_type_hints(self.callback)
        for name, text in ctx.meta[TEXTS].items():
            if "Path" in str(hints.get(name)) and "" in (text if isinstance(text, list | tuple) else [text]):
                fail(f"{name} must be a path, got an empty text. Give a path", EXIT_USAGE)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        texts, in_full = ctx.meta[TEXTS], ctx.meta[_ALL]
        tasks, base = _chosen(texts, all_tasks=in_full) if fields_of(self) else (None, {})
        parts, path = sections(self, tasks, base), ctx.command_path
        if not in_full and len(list(_page(self, path, parts, USUAL_WIDTH))) > MOST_LINES:
            lines = _in_short(self, path, parts, task_first="kind" in texts)
        else:
            lines = _page(self, path, parts, width())
        formatter.write("\n".join(lines) + "\n")


def fields_of(command: Any) -> Any:
    """Return the options of fields that a command has (`FieldOptions`), or None."""
    return getattr(command.callback, "field_options", None)


def sections(command: TyperCommand, tasks: Sequence[type] | None = None, base: Any = None) -> list[Section]:
    """Collect the help of the arguments and options of a command.

    Args:
        command: the command that typer made.
        tasks: the tasks whose fields the help shows, for commands with an option for every field. None stands
            for all tasks.
        base: a dict from parts of a run to field values that replace the usual defaults.
    """
    hints = typing.get_type_hints(command.callback)
    arguments = [_entry(param, hints) for param in command.params if param.param_type_name == "argument"]
    options = [_entry(param, hints) for param in command.params if param.param_type_name == "option"]
    named = [Section("Arguments", arguments), Section("Options", options)]
    if fields := fields_of(command):
        options.append(fields.task())
        named += fields.sections(tasks, base or {})
    return [section for section in named if section.entries]


def usage(command: TyperCommand, path: str) -> str:
    """Return the usage line of a command, with its path, its arguments and [OPTIONS]."""
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    texts = [_argument(param) if param.required else f"[{_argument(param)}]" for param in arguments]
    return " ".join([path, *texts, "[OPTIONS]"])


def description(command: TyperCommand) -> tuple[list[str], list[str]]:
    """Return the paragraphs of a command's docstring, each on one line, and the examples of the command."""
    text, _, examples = inspect.cleandoc(command.help or "").partition(_EXAMPLES)
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n")]
    return paragraphs, [line.strip() for line in examples.strip().splitlines()]


def value_name(types: Sequence[Any]) -> str:
    """Return the placeholder in the help for a value of these types."""
    kinds = [kind for kind in types if kind is not type(None)]
    if len(kinds) == 1 and typing.get_origin(kinds[0]) is list:
        kinds = list(typing.get_args(kinds[0]))
    if all(typing.get_origin(kind) is typing.Literal for kind in kinds):
        return "|".join(str(choice) for kind in kinds for choice in typing.get_args(kind) if choice)
    names = {int: "INTEGER", float: "NUMBER", bool: "", Path: "PATH", str: "TEXT"}
    if set(kinds) == {float, str}:
        return "NUMBER|TEXT"
    return names.get(kinds[0], "JSON") if len(kinds) == 1 else "TEXT" if str in kinds else "JSON"


def wrapped(text: str, width: int, indent: str = "", hanging: str | None = None) -> list[str]:
    """Wrap a text.

    A word, such as a path or flag, is broken only if the word is longer than a line.
    """
    later = indent if hanging is None else hanging
    lines = textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=later, break_on_hyphens=False)
    return lines or [""]


def group_lines(group: Any, path: str, width: int) -> Iterator[str]:
    """Yield the lines of the main help, which lists every command and its purpose by group."""
    yield from wrapped(f"Usage: {path} COMMAND [OPTIONS]", width)
    yield ""
    yield from wrapped(group.help, width)
    yield ""
    longest = max(map(len, group.commands))
    title = None
    for name, command in group.commands.items():
        if command.rich_help_panel != title:
            title = command.rich_help_panel
            yield from (typer.style(line, bold=True) for line in wrapped(f"{title}:", width))
        text = f"{name:{longest}}  {first_sentence(description(command)[0][0])}"
        first, *more = wrapped(text, width, "  ", " " * min(longest + 4, width // 2))
        yield first.replace(name, typer.style(name, bold=True), 1)
        yield from more
    yield ""
    yield from wrapped(f"{path} COMMAND --help explains a command and shows two examples.", width)
    yield from wrapped(f"{path} --version prints the version.", width)


def _page(
    command: TyperCommand, path: str, parts: Sequence[Section], width: int, n_more: int = 0
) -> Iterator[str]:
    """Yield the lines of the help of these options, of which `n_more` others are not shown."""
    yield from wrapped(f"Usage: {usage(command, path)}", width, hanging="  ")
    paragraphs, examples = description(command)
    for paragraph in paragraphs[:-1] if n_more else paragraphs:
        yield ""
        yield from wrapped(paragraph, width)
    yield from ("", typer.style(_EXAMPLES, bold=True))
    for example in examples:
        yield from wrapped(example, width, "  ", "      ")
    for title, entries in parts:
        yield from ("", typer.style(f"{title}:", bold=True))
        for entry in entries:
            yield from _lines(entry, width)
    if n_more:
        yield ""
        yield from wrapped(f"{EVERYTHING} shows {n_more} more options, with all details.", width)


def _in_short(
    command: TyperCommand, path: str, parts: Sequence[Section], *, task_first: bool
) -> Iterator[str]:
    """Return the help of the most important options that fit into `MOST_LINES`, each in one sentence."""
    of_tasks = [entry.name for part in parts if part.title.startswith("Task ") for entry in part.entries]
    middle = (*of_tasks, *_CORE) if task_first else (*_CORE, *of_tasks)
    names = list(dict.fromkeys((*getattr(fields_of(command), "first", ()), *_FIRST, *middle, *_NEXT)))
    short = [Section(t, [e._replace(text=first_sentence(e.text)) for e in entries]) for t, entries in parts]
    while True:
        shown = [Section(title, [e for e in entries if e.name in names]) for title, entries in short]
        shown = [part for part in shown if part.entries]
        n_more = len({e.name for part in parts for e in part.entries}.difference(names))
        if not names or len(list(_page(command, path, shown, USUAL_WIDTH, n_more))) <= MOST_LINES:
            return _page(command, path, shown, width(), n_more)
        names.pop()


def _lines(entry: Entry, width: int) -> Iterator[str]:
    for line in wrapped(entry.heading(), width, "  ", "    "):
        yield typer.style(line, bold=True)
    yield from wrapped(entry.text, width, "    ")


def _entry(param: Any, hints: Mapping[str, Any]) -> Entry:
    """Make the help of an argument or option that is not a field."""
    if param.param_type_name == "argument":
        return Entry(param.name, (_argument(param),), "", "", param.help or "")
    hint = hints[param.name]
    is_union = typing.get_origin(hint) in (typing.Union, UnionType)
    value = param.metavar or value_name(typing.get_args(hint) if is_union else (hint,))
    default = param.default if param.show_default and not isinstance(param.default, bool) else None
    default = f"{default}" if isinstance(default, str | int | float | Path) else ""
    return Entry(param.name, tuple(param.opts), value, default, param.help)


def _argument(param: Any) -> str:
    return param.name.upper() + ("..." if param.nargs != 1 else "")


def _chosen(values: Mapping[str, Any], *, all_tasks: bool) -> tuple[list[type] | None, Mapping[str, Any]]:
    """Return the tasks that the options of a command name, and the base configuration of the run.

    Args:
        values: the text of each option, by name.
        all_tasks: whether to return None, which stands for all tasks, if no task is named.
    """
    kind, preset, config, start = named = [values.get(name) for name in ("kind", "preset", "config", "start")]
    if all_tasks and not any(named):
        return None, {}
    try:
        file: dict[str, Any] = read_toml(Path(config)) if config else {}
        base = base_parts(preset or file.get("preset"), start)
        for table in (file.get("sweep"), file.get("task"), base.get("task")):
            kind = kind or (table.get("kind") if isinstance(table, dict) else None)
        kinds = kind.split(",") if isinstance(kind, str) else kind if isinstance(kind, list) else [kind]
        return [task_class(each) for each in kinds], base
    except ValueError as error:
        fail(str(error), EXIT_USAGE)


def width() -> int:
    """Return the number of columns of the terminal."""
    return max(LEAST_WIDTH, shutil.get_terminal_size((USUAL_WIDTH, 24)).columns)
