"""Noise finder: which mappings of a dataset models with a small initialisation fit late."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anchorlens.lazy import lazy_names

if TYPE_CHECKING:
    from anchorlens.audit.card import audit_html
    from anchorlens.audit.corruption import corrupted
    from anchorlens.audit.files import open_dataset, read_csv
    from anchorlens.audit.lateness import Score
    from anchorlens.audit.mappings import Mappings, mappings_of
    from anchorlens.audit.result import Audit
    from anchorlens.audit.run import audit

__all__ = [
    "Audit",
    "Mappings",
    "Score",
    "audit",
    "audit_html",
    "corrupted",
    "mappings_of",
    "open_dataset",
    "read_csv",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Audit": "anchorlens.audit.result",
        "Mappings": "anchorlens.audit.mappings",
        "Score": "anchorlens.audit.lateness",
        "audit": "anchorlens.audit.run",
        "audit_html": "anchorlens.audit.card",
        "corrupted": "anchorlens.audit.corruption",
        "mappings_of": "anchorlens.audit.mappings",
        "open_dataset": "anchorlens.audit.files",
        "read_csv": "anchorlens.audit.files",
    },
)
