"""The picture of a report in the README: the beginning of the page about the shipped Phase 3 model.

    python examples/report_picture.py --out docs/images/report.png

It shows both verdicts, the probability of each phase, and the readings that have a vote. Chrome or Chromium
takes the picture; half a minute.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path

from anchorlens import classify
from anchorlens.checkpoints import shipped

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDTH, HEIGHT = 1200, 1156
"""Pixels: the page down to the last of the four readings that have a vote."""


def photographed(page: Path, picture: Path, width: int = WIDTH, height: int = HEIGHT) -> None:
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
    """Read the command line, write the report of the shipped Phase 3 model, take its picture."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--out", type=Path, default=Path("runs/report.png"), help="a PNG file")
    out = parser.parse_args().out
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        classify(shipped()[3]).report(page)
        photographed(page, out)
    print(f"the picture is in {out}")


if __name__ == "__main__":
    main()
