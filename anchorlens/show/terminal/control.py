"""The attempts of `control`, in the terminal."""

from __future__ import annotations

from anchorlens.controlling.result import Control
from anchorlens.show.control_tables import control_table, notes, overview, plan_table, summary
from anchorlens.show.terminal.console import Terminal, rich_table


def print_control(control: Control) -> None:
    """Print what helped, every attempt and the original run, and how to read the numbers."""
    console = Terminal()
    console.print(overview(control))
    console.print(summary(control), style="bold")
    console.print(rich_table(control_table(control)))
    for note in notes(control):
        console.print(note)


def print_plan_of_control(control: Control) -> None:
    """Print the plan of attempts."""
    console = Terminal()
    console.print(overview(control))
    console.print(rich_table(plan_table(control)))
