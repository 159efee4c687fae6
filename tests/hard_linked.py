"""A sweep's folder that is small on the disk and large to read: the cell.json of all cells is one file."""

import os

from sweeping import tiny

from anchorlens.extras.sweep.sweep_folder import SweepFolder


def hard_linked(out, content, n_cells):
    """Make one of so many cells, each with this content as its cell.json; the runs."""
    folder = SweepFolder(out)
    runs = tiny({"seed": f"0:{n_cells}"})
    with folder.lock(runs) as named:
        pass
    one = out / "one"
    one.write_bytes(content)
    for name, _ in named:
        folder.cell(name).mkdir(parents=True)
        os.link(one, folder.cell(name) / "cell.json")
    one.unlink()
    return runs
