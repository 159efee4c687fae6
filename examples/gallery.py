"""The pictures of docs/probes: every probe on the four shipped checkpoints, side by side.

    python examples/gallery.py --out docs/images/gallery

A few minutes, most of them for `survival`; Chrome or Chromium and kaleido (extra [export]) draw the
pictures. Name probes to draw only those.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from anchorlens import load_checkpoint, plots
from anchorlens.probes import PROBES, compare, probe_named
from anchorlens.training import checkpoints

LABELS = ("Phase 1", "Phase 2 (not comm.)", "Phase 2 (comm.)", "Phase 3")
"""What the shipped checkpoints are called, in their order."""


def draw(names: list[str], folder: Path, suffix: str) -> None:
    """One picture for each probe."""
    folder.mkdir(parents=True, exist_ok=True)
    models = [load_checkpoint(path) for path in checkpoints.shipped()]
    for name in names:
        comparison = compare(models, probe_named(name), labels=LABELS)
        print(name, comparison, sep=": ")
        plots.save(comparison.plot(), folder / f"{name}{suffix}")


def main() -> None:
    """Read the command line, draw."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("probe", nargs="*", default=[probe.__name__ for probe in PROBES])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--suffix", default=".svg", help=".svg, .png, .pdf or .html")
    given = parser.parse_args()
    draw(given.probe, given.out, given.suffix)


if __name__ == "__main__":
    main()
