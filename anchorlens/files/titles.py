"""Short names that tell several checkpoints apart: in the terminal, on pages, in JSON."""

from __future__ import annotations

import collections
import os
from collections.abc import Sequence
from pathlib import Path


def titles(paths: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Return the end of each path as its title.

    The ends are long enough that different paths have different titles.

    Args:
        paths: the paths of files and folders, which need not exist. Equal paths have the same title.

    >>> titles(["runs/a/ckpt.pt"]), titles(["runs/a/ckpt.pt", "runs/b/ckpt.pt", "phase3.pt"])
    (['ckpt.pt'], ['a/ckpt.pt', 'b/ckpt.pt', 'phase3.pt'])
    """
    whole = [Path(os.path.abspath(path)).parts for path in paths]
    lengths = dict.fromkeys(whole, 1) | {
        parts: 2 for path, parts in zip(paths, whole, strict=True) if os.path.isdir(path)
    }
    while True:
        called = {parts: str(Path(*parts[-length:])) for parts, length in lengths.items()}
        counts = collections.Counter(called.values())
        longer = {parts: lengths[parts] + 1 for parts, title in called.items() if counts[title] > 1}
        if not longer:
            return [called[parts] for parts in whole]
        lengths |= longer
