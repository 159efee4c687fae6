"""The report: one HTML page that needs no network, and a short view for notebooks."""

from anchorlens.report.card import mechanism_html, verdict_html
from anchorlens.report.page import write_report

__all__ = ["mechanism_html", "verdict_html", "write_report"]
