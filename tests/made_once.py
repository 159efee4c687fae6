"""What takes long to make, made by the first process of the tests that asks for it, for all of them."""

import os

from filelock import FileLock


def made_once(tmp_path_factory, name, make):
    """The path of a file that `make` writes where no process of this run of the tests has made it yet."""
    folder = tmp_path_factory.getbasetemp()
    path = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / name
    with FileLock(f"{path}.lock"):
        if not path.exists():
            make(path)
    return path
