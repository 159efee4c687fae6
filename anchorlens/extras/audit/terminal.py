"""An audit in the terminal."""

from __future__ import annotations

from anchorlens.extras.audit.result import Audit
from anchorlens.extras.audit.tables import audit_tables, fit_in_words, overview, summary
from anchorlens.show.terminal.console import FittedTable, Terminal


def print_audit(audit: Audit, *, top: int = 20) -> None:
    """Print the outliers, the agreement with known violations, and the mappings and groups that are fit last.

    Args:
        audit: the audit to print.
        top: the largest number of listed mappings. The list starts with the mapping that is fit last.
    """
    console = Terminal()
    console.print(overview(audit))
    console.print(summary(audit), style="bold")
    console.print(fit_in_words(audit))
    for table in audit_tables(audit, top):
        console.print(FittedTable(table))
