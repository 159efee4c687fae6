"""A progress bar that fits where it is shown: rich in a terminal, tqdm in a notebook, else nothing."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

Update = Callable[[int, str], None]
"""Called with the number of steps done and a short text."""


@contextlib.contextmanager
def progress_bar(
    total: int, *, enabled: bool | None = None, what: str = "training", unit: str = "step"
) -> Iterator[Update]:
    """Show the progress of a run on stderr.

    Args:
        total: steps of the whole run.
        enabled: None shows a bar in a notebook or a terminal and nothing elsewhere; False never does.
        what: stands before the bar in a terminal.
        unit: of `total`, as a notebook shows it.

    Yields:
        A function of (steps done, short text).
    """
    if enabled is not False and _in_notebook():
        from tqdm.auto import tqdm

        with tqdm(total=total, unit=unit) as bar:

            def update(done: int, text: str) -> None:
                bar.set_postfix_str(text, refresh=False)
                bar.update(done - bar.n)

            yield update
    elif enabled or (enabled is None and sys.stderr.isatty()):
        from rich import progress
        from rich.console import Console

        columns: list[Any] = [
            progress.TextColumn(what),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeRemainingColumn(),
            progress.TextColumn("{task.description}"),
        ]
        with progress.Progress(*columns, console=Console(stderr=True)) as display:
            shown = display.add_task("", total=total)
            yield lambda done, text: display.update(shown, completed=done, description=text)
    else:
        yield lambda done, text: None


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"
