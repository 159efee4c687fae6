"""The command line: `anchorlens train`, `sweep`, `classify` and the rest.

Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 internal error or a run that
failed, 2 usage, 3 unreadable or unsafe checkpoint, 4 undecided (`classify --strict`), 130 interrupted.
Nothing heavy is imported before it is needed.
"""

from __future__ import annotations

from anchorlens.cli.app import app, main

__all__ = ["app", "main"]
