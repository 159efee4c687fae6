"""What `anchorlens demo` prints, as a picture of a terminal.

python examples/demo_picture.py --out docs/images/demo.svg     # a minute
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

COLUMNS = 104


def printed() -> str:
    """Run the demo in a folder of its own, and take what it prints, without the lines that tell the time."""
    env = {**os.environ, "COLUMNS": str(COLUMNS)}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "anchorlens", "demo"]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=True)
    return done.stdout.rstrip()


def main() -> None:
    """Read the command line, run the demo, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print("$ anchorlens demo", style="bold", highlight=False)
    console.print(Text(printed()))
    offline = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.S)
    given.out.write_text(console.export_svg(title="anchorlens", code_format=offline), encoding="utf-8")


if __name__ == "__main__":
    main()
