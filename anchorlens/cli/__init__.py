"""The command line, with `anchorlens train`, `sweep`, `classify` and other commands.

Commands print results on stdout and everything else on stderr. The exit codes are:

- 0 for success
- 1 for an internal error, a run that failed, or output that cannot be written
- 2 for a usage error
- 3 for a checkpoint or data file that cannot be read
- 4 for an undecided phase (`classify --strict`)
- 130 for an interruption
- 141 if the reader closed stdout

Commands make slow imports only when needed. The program catches Ctrl-C before any import.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
