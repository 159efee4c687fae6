"""An audit in a notebook."""

from __future__ import annotations

from pathlib import Path

from anchorlens.extras.audit.result import Audit
from anchorlens.extras.audit.tables import audit_tables, fit_in_words, overview, summary, suspects
from anchorlens.show.templating import view
from anchorlens.views import html

TEMPLATE = Path(__file__).parent / "templates/audit.html"

MOST_MAPPINGS = 8


@html.register
def audit_html(audit: Audit) -> str:
    """Return HTML with the outliers, the agreement with known violations, and the latest mappings."""
    return view(
        TEMPLATE,
        overview=overview(audit),
        summary=summary(audit),
        fit=fit_in_words(audit),
        suspects=suspects(audit),
        n_flagged=int(audit.flagged.sum()),
        shown=[table.shortened(60) for table in audit_tables(audit, MOST_MAPPINGS)],
    )
