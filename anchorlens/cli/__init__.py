"""The command line: `anchorlens train`, `sweep`, `classify` and the rest.

Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 internal error, a run that failed or
output that cannot be written, 2 usage, 3 a checkpoint or file of data that cannot be read, 4 undecided
(`classify --strict`), 130 interrupted, 141 stdout closed by its reader. Slow imports are made only when
needed, and nothing is imported before Ctrl-C is caught.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
