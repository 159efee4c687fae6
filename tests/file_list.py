"""The list of every file in CONTRIBUTING.md: the first line of each docstring, in the order of the folders.

python tests/file_list.py    # writes it anew
"""

import ast
from pathlib import Path

from test_architecture import FOLDERS, ROOT

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"
HEADING = "## Every file\n"


def first_line(path):
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n")[0].rstrip(".")


def file_list():
    """The table in Markdown."""
    lines = ["| file | what stands there |", "|---|---|"]
    for folder in FOLDERS:
        inside = ROOT.joinpath(*folder.split("."))
        name = "/".join(["anchorlens", *filter(None, folder.split(".")), ""])
        lines.append(f"| **{name}** | {first_line(inside / '__init__.py')} |")
        files = sorted(path for path in inside.glob("*.py") if not path.name.startswith("__"))
        lines += [f"| `{path.name}` | {first_line(path)} |" for path in files]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    before = PAGE.read_text(encoding="utf-8").split(HEADING)[0]
    PAGE.write_text(f"{before}{HEADING}\n{file_list()}", encoding="utf-8")
