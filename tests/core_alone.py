"""Copy the repository without `extras/` and without its entry points: core_alone.py FOLDER.

In the copy the core is alone: `make test-core` runs the tests of the core there.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCTS = ("anchorlens/extras/", "tests/extras/")
ENTRY_POINTS = r'(?ms)^\[project\.entry-points\."anchorlens\.\w+"\]\n.*?(?=^\[)'
METADATA = "Metadata-Version: 2.1\nName: anchorlens\nVersion: 0.1.0\n"


def copy_core(folder: Path) -> None:
    """Write the tracked and new files of the core to a folder, and the metadata of an installation."""
    shutil.rmtree(folder, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in listed.stdout.splitlines():
        if not name.startswith(PRODUCTS) and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    project = folder / "pyproject.toml"
    project.write_text(re.sub(ENTRY_POINTS, "", project.read_text(encoding="utf-8")), encoding="utf-8")
    info = folder / "site/anchorlens-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(METADATA)
    (info / "entry_points.txt").write_text("[console_scripts]\nanchorlens = anchorlens.cli:main\n")


if __name__ == "__main__":
    copy_core(Path(sys.argv[1]).resolve())
