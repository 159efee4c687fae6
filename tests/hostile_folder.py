"""A data folder that somebody else has sent: a Python file for every module that anybody could import."""

import importlib.metadata
import sys


def make_hostile(folder, marker):
    """Fill the folder; each of its modules writes its name into the marker file when it is imported."""
    folder.mkdir(exist_ok=True)
    installed = {name for name in importlib.metadata.packages_distributions() if name.isidentifier()}
    for name in {*sys.stdlib_module_names, *installed, "anchorlens"}:
        # the program goes on where it can, so that the marker holds all names and the error the first
        (folder / f"{name}.py").write_text(f"open({str(marker)!r}, 'a').write({name!r} + '\\n')\n")
    return folder
