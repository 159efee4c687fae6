"""`python -m anchorlens`: the command line, started without looking for modules in the current folder."""

import os
import sys

if __name__ == "__main__":
    # Python has put the current folder first; what it holds is data, unless it holds this package
    package = os.path.dirname(os.path.abspath(__file__))
    if os.path.exists(".") and sys.path[0] == os.getcwd() and sys.path[0] != os.path.dirname(package):
        del sys.path[0]
    from anchorlens.cli import main

    main()
