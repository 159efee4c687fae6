"""The picture of a report: the beginning of the page about the shipped Phase 3 model, or of any other.

    python examples/report_picture.py --out docs/images/report.png
    python examples/report_picture.py --page tutorials/out/disagreement/report.html --width 1000 --height 1278
        --out tutorials/images/4_report.png

It shows the verdicts, the map of pairs, the probability of each phase, and the readings that moved the
verdict. Chrome or Chromium takes the picture; half a minute. `python tutorials/render.py 4` makes the page
of the second command.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path

from anchorlens import classify
from anchorlens.training.checkpoints import shipped

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDTH, HEIGHT = 1280, 1245
"""Pixels: the page down to the last of the readings that it shows first."""


def photographed(page: Path, picture: Path, width: int, height: int) -> None:
    """Write the top of an HTML page as a PNG.

    Args:
        page: the HTML file.
        picture: the PNG to write.
        width: of the window, in pixels.
        height: of the window, in pixels.

    Raises:
        FileNotFoundError: there is no Chrome or Chromium on the PATH.
        CalledProcessError: the browser failed.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise FileNotFoundError(
            f"a browser is needed: none of {', '.join(BROWSERS)} is there; install Chromium"
        )
    with tempfile.TemporaryDirectory() as profile:
        command = [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            "--virtual-time-budget=20000", f"--user-data-dir={profile}", f"--window-size={width},{height}",
            f"--screenshot={picture.resolve()}", page.resolve().as_uri(),
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True)


def main() -> None:
    """Read the command line, write the report of the shipped model if no other is named, take its picture."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--page", type=Path, help="an HTML report; without it, that of the shipped model")
    parser.add_argument("--width", type=int, default=WIDTH, help="of the window, in pixels")
    parser.add_argument("--height", type=int, default=HEIGHT, help="of the window, in pixels")
    parser.add_argument("--out", type=Path, default=Path("runs/report.png"), help="a PNG file")
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        page = given.page or Path(folder) / "report.html"
        if given.page is None:
            classify(shipped()[3], quick=True).report(page)
        photographed(page, given.out, given.width, given.height)
    print(f"the picture is in {given.out}")


if __name__ == "__main__":
    main()
