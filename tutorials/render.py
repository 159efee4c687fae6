"""Run the tutorials and store their outputs in a form that a code-hosting page can show.

The first command runs all tutorials, the second one those with these numbers (Chrome or Chromium draws the
static pictures):

    make tutorials
    .venv/bin/python tutorials/render.py 3 4

A fresh kernel runs each notebook from top to bottom, in this folder. The stored outputs are text, small
HTML, and each interactive figure as data and as a PNG. The PNG has 256 colours, which needs a quarter of
the bytes; pages that run no scripts show it. plotly.js (4.8 MB) is not stored. A notebook is written only
if every cell ran.

This script also writes the first code cell, which installs anchorlens where it is missing. The cell takes
the `Repository` of `[project.urls]` in pyproject.toml. If the repository is on GitHub, a badge below the
title opens the notebook in Colab. The output of an exercise (a cell with the tag `exercise`) goes into the
folded answer below the cell, so that a reader can predict it first.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import re
import time
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import nbformat
import plotly.graph_objects as go
from nbclient import NotebookClient

HERE = Path(__file__).parent
PLOTLY = "application/vnd.plotly.v1+json"
REPOSITORY = (
    tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    .get("urls", {})
    .get("Repository", "")
)
"""The URL that readers can clone, without .git; empty while pyproject.toml has none."""
INSTALL = """\
# This cell installs anchorlens if it is missing. In a clone it takes the clone.
import sys
from importlib.util import find_spec
from pathlib import Path

REPOSITORY = "{}"  # on Colab, fill in the URL that `git clone` takes, between the quotation marks
if find_spec("anchorlens") is None:
    source = ".." if Path("../anchorlens/__init__.py").is_file() else f"git+{{REPOSITORY}}"
    if source == "git+":
        raise ValueError("REPOSITORY must be a URL for `git clone`, got none. Write it in the line above.")
    python = sys.executable
    %pip install --quiet uv
    !"{{python}}" -m uv pip install --python "{{python}}" --torch-backend auto "{{source}}"
"""
"""uv installs the CPU build of torch if there is no GPU, and it keeps an installed torch."""
BADGE = "[![Open in Colab](images/open_in_colab.svg)](https://colab.research.google.com/github/{}/blob/main/tutorials/{})"
SECONDS = 600
"""Time limit of a cell. A cell that trains takes minutes on a busy machine."""
SCALE, WIDE = 1.5, 800
"""Pixels of a picture for each pixel of its figure, and the widest figure to which this applies."""
LARGEST_DATA, LARGEST_HTML = 150_000, 60_000
"""Most bytes of a figure's data and of HTML. Beyond them, only the picture or the text is stored."""
LARGEST_OUTPUT = 1_500_000
"""Most bytes of a whole notebook."""


def tutorials(names: list[str]) -> list[Path]:
    """Find the notebooks with these numbers, in order; without numbers, all of them.

    Raises:
        ValueError: no tutorial has one of these numbers.
    """
    stored = sorted(HERE.glob("[0-9]*.ipynb"), key=number)
    found = [path for path in stored if not names or str(number(path)) in names]
    if not found:
        numbers = ", ".join(str(number(path)) for path in stored)
        raise ValueError(f"tutorial must be one of {numbers}, got {' '.join(names)}")
    return found


def number(path: Path) -> int:
    """The number at the start of a tutorial's file name."""
    return int(path.name.split("_")[0])


def open_with(notebook: Any, name: str, repository: str = REPOSITORY) -> None:
    """Write the beginning of a notebook: the badge below its title, and the cell that installs anchorlens.

    Args:
        notebook: a notebook whose first two cells are the title and the installing cell.
        name: name of its file.
        repository: URL of the repository.
    """
    title, install = notebook.cells[:2]
    parts = [part for part in title.source.split("\n\n") if not part.startswith("[![")]
    if on_github := re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+)", repository):
        parts.insert(1, BADGE.format(on_github[1], name))
    title.source = "\n\n".join(parts)
    install.source = INSTALL.format(repository).rstrip()


def fold(notebook: Any) -> None:
    """Move the output of each exercise into the folded answer below it, where it replaces the old output."""
    for cell, answer in pairwise(notebook.cells):
        if "exercise" in cell.metadata.get("tags", []):
            printed = "".join(output.text for output in cell.outputs).rstrip()
            before, _, after = answer.source.split("```")
            answer.source = f"{before}```\n{printed}\n```{after}"
            cell.outputs = []


def run(path: Path) -> Any:
    """Run a notebook and return it with its outputs.

    Raises:
        CellExecutionError: a cell failed.
    """
    notebook = nbformat.read(path, as_version=4)
    open_with(notebook, path.name)
    NotebookClient(notebook, timeout=SECONDS, resources={"metadata": {"path": path.parent}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times of day
        if cell.cell_type == "code":
            cell.outputs = [kept(output) for output in merged(cell.outputs)]
    fold(notebook)
    return notebook


def merged(outputs: list[Any]) -> list[Any]:
    """Join the pieces of each stream and drop blank streams."""
    together: list[Any] = []
    for output in outputs:
        last = together[-1] if together else None
        if (
            last is not None
            and output.output_type == "stream" == last.output_type
            and output.name == last.name
        ):
            last.text += output.text
        else:
            together.append(output)
    return [output for output in together if output.output_type != "stream" or output.text.strip()]


def kept(output: Any) -> Any:
    """Reduce one output to the parts that are stored."""
    if output.output_type == "stream":
        lines = (line.rstrip("\r").rsplit("\r", 1)[-1] for line in output.text.split("\n"))
        output.text = "\n".join(lines)  # the last state of a line that was overwritten
        return output
    data = output.get("data", {})
    if PLOTLY in data:
        data["image/png"] = png(data[PLOTLY])
        data.pop("text/html", None)
        if len(json.dumps(data[PLOTLY])) > LARGEST_DATA:
            del data[PLOTLY]
    if len(data.get("text/html", "")) > LARGEST_HTML:
        del data["text/html"]
    return output


def png(figure: dict[str, Any]) -> str:
    """Draw a figure as a PNG in base64."""
    drawn = go.Figure({name: figure[name] for name in ("data", "layout")})
    scale = SCALE if (drawn.layout.width or 0) <= WIDE else 1
    return base64.b64encode(with_few_colours(drawn.to_image("png", scale=scale))).decode()


def with_few_colours(picture: bytes) -> bytes:
    """Convert a PNG to a palette of 256 colours, which needs a quarter of the bytes."""
    from PIL import Image  # pyright: ignore[reportMissingImports] - of the extra [tutorials]

    file = io.BytesIO()
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(256).save(file, "PNG", optimize=True)
    return file.getvalue()


def main() -> None:
    """Run the tutorials that the command line names."""
    import kaleido  # pyright: ignore[reportMissingImports] - of the extra [tutorials]

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("number", nargs="*", help="number of a tutorial, for example 3; default: all")
    named = tutorials(parser.parse_args().number)
    kaleido.start_sync_server(silence_warnings=True)  # one browser for every picture
    for path in named:
        started = time.perf_counter()
        text = nbformat.writes(run(path))
        if len(text) > LARGEST_OUTPUT:
            raise ValueError(
                f"{path.name} must have at most {LARGEST_OUTPUT:,} bytes, got {len(text):,}. Show less in it."
            )
        path.write_text(text + "\n", encoding="utf-8")
        print(f"{path.name}: {time.perf_counter() - started:.0f} s, {len(text):,} bytes")


if __name__ == "__main__":
    main()
