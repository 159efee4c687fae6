"""A progress bar that fits where it is shown: rich in a terminal, tqdm in a notebook, else nothing."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from typing import Any

Update = Callable[[int, str], None]
"""Called with the number of steps done and a short text; an empty one leaves the text as it is."""

COLUMNS = 79
"""Characters of a bar that is text in a notebook, which does not say how wide it is."""
_FORMAT = "{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} {unit}s, {remaining} left{postfix}"
_ENDED = "{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} {unit}s in {elapsed}{postfix}"


@contextlib.contextmanager
def progress_bar(
    total: int, *, enabled: bool | None = None, what: str = "training", unit: str = "step"
) -> Iterator[Update]:
    """Show the progress of a run on stderr, in one line.

    Args:
        total: steps of the whole run.
        enabled: None shows a bar in a notebook or a terminal and nothing elsewhere; False never does.
        what: stands before the bar in a terminal.
        unit: of `total`, as a notebook shows it.

    Yields:
        A function of (steps done, short text).
    """
    if enabled is not False and _in_notebook():
        with _notebook_bar(total, unit) as bar:

            def update(done: int, text: str) -> None:
                if text:
                    bar.set_postfix_str(text, refresh=False)
                bar.update(done - bar.n)

            yield update
            if bar.bar_format:
                bar.bar_format = _ENDED
    elif enabled or (enabled is None and sys.stderr.isatty()):
        with _terminal_bar(what) as display:
            shown = display.add_task("", total=total)

            def update(done: int, text: str) -> None:
                display.update(shown, completed=done, **({"description": text} if text else {}))

            yield update
    else:
        yield lambda done, text: None


def _terminal_bar(what: str) -> Any:
    """A bar that gives way to the text in a narrow terminal; what does not fit then is cut."""
    from rich import progress
    from rich.console import Console
    from rich.table import Column

    console = Console(stderr=True)
    text = Column(no_wrap=True, overflow="ellipsis", ratio=1)
    columns: list[Any] = [
        progress.TextColumn(what),
        progress.BarColumn(max(4, min(40, console.width - 72))),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(compact=True),
        progress.TextColumn("{task.description}", table_column=text),
    ]
    return progress.Progress(*columns, console=console, expand=True)


def _notebook_bar(total: int, unit: str) -> Any:
    """The widget of tqdm where ipywidgets are there; else its text, which needs no more than the notebook.

    `tqdm.auto` chooses likewise, with a warning.
    """
    if importlib.util.find_spec("ipywidgets") is not None:
        from tqdm.notebook import tqdm

        return tqdm(total=total, unit=unit)
    from tqdm.std import tqdm

    return tqdm(total=total, unit=unit, ncols=COLUMNS, bar_format=_FORMAT)


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"
