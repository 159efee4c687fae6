"""The command line: `anchorlens train`, `sweep`, `classify` and the rest.

Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 internal error, a run that failed or
output that cannot be written, 2 usage, 3 unreadable or unsafe checkpoint, 4 undecided (`classify --strict`),
130 interrupted, 141 nobody reads stdout any more. Nothing heavy is imported before it is needed, and nothing
at all before Ctrl-C is caught.
"""

from __future__ import annotations

from anchorlens.cli.start import main
from anchorlens.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from anchorlens.cli.commands import app

__all__ = ["app", "main"]

__getattr__, __dir__ = lazy_names(__name__, {"app": "anchorlens.cli.commands"})
