"""The attempts of `control` in the terminal."""

from __future__ import annotations

from anchorlens.extras.control.result import Control
from anchorlens.extras.control.tables import control_table, notes, overview, plan_table, summary
from anchorlens.show.terminal.console import FittedTable, Terminal


def print_control(control: Control) -> None:
    """Print the successful attempts, every attempt, the original run, and how to read the results."""
    console = Terminal()
    console.print(overview(control))
    console.print(summary(control), style="bold")
    console.print(FittedTable(control_table(control)))
    for note in notes(control):
        console.print(note)


def print_plan_of_control(control: Control) -> None:
    """Print the plan of attempts."""
    console = Terminal()
    console.print(overview(control))
    console.print(FittedTable(plan_table(control)))
