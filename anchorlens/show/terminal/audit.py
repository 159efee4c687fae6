"""An audit on stdout: tables for people, or one JSON object for programs."""

from __future__ import annotations

import json
import sys

from rich.table import Table

from anchorlens.audit.result import Audit
from anchorlens.show.audit_tables import Listing, fit_in_words, listings, outline, summary
from anchorlens.show.terminal.console import Terminal


def print_audit_json(audit: Audit) -> None:
    """Print exactly one JSON object, on one line: `Audit.to_dict`."""
    sys.stdout.write(json.dumps(audit.to_dict(), allow_nan=False) + "\n")


def print_audit(audit: Audit, *, top: int = 20) -> None:
    """Print what stands out, how that compares with the truth, and the latest mappings and groups.

    Args:
        audit: what to print.
        top: mappings that are listed, the latest.
    """
    console = Terminal()
    console.print(outline(audit))
    console.print(summary(audit), style="bold")
    console.print(fit_in_words(audit))
    for listing in listings(audit, top):
        console.print(_table(listing))


def _table(listing: Listing) -> Table:
    table = Table(*listing.columns, title=listing.title)
    for stands_out, texts in listing.rows:
        table.add_row(*texts, style="bold" if stands_out else None)
    return table
