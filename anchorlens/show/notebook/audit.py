"""An audit as a notebook shows it."""

from __future__ import annotations

from anchorlens.audit.result import Audit
from anchorlens.show.audit_tables import fit_in_words, listings, outline, summary
from anchorlens.views import view

MOST_MAPPINGS = 8


def audit_html(audit: Audit) -> str:
    """What stands out, how that compares with the truth, and the latest mappings, without a script.

    Args:
        audit: what `audit` gave.
    """
    return view(
        "audit.html",
        outline=outline(audit),
        summary=summary(audit),
        fit=fit_in_words(audit),
        shown=list(listings(audit, MOST_MAPPINGS)),
    )
