"""Run the tutorials and keep their outputs as a code-hosting page can show them.

Run line, for all of them or those named (Chrome or Chromium draws the static pictures):

    make tutorials
    .venv/bin/python tutorials/render.py 3 4

A notebook is run from top to bottom in a fresh kernel, in this folder. Of what it displays these stay: text,
small HTML, and each interactive figure as data with a PNG of it beside, for pages that run no scripts, of
256 colours: a quarter of the bytes. plotly.js (4.8 MB) goes. A notebook is written only if every cell ran.

The first code cell is written here too: it installs anchorlens where it is not, from the `Repository` of
`[project.urls]` in pyproject.toml, and says what to fill in while there is none. Where that is on GitHub, a
badge below the title opens the notebook in Colab. What an exercise prints (a cell with the tag `exercise`)
goes into the folded answer below it, so that a reader can predict it first.
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
# On a hosted notebook this installs anchorlens; where it is installed already, it does nothing.
import sys
from importlib.util import find_spec

REPOSITORY = "{}"  # the URL of anchorlens' git repository
if find_spec("anchorlens") is None:
    if not REPOSITORY:
        raise ValueError("write the URL that you would `git clone` anchorlens from into REPOSITORY above")
    python = sys.executable
    %pip install --quiet uv
    !"{{python}}" -m uv pip install --python "{{python}}" --torch-backend auto "git+{{REPOSITORY}}"
"""
"""uv takes the CPU build of torch where there is no GPU, and leaves a torch that is there as it is."""
BADGE = "[![Open in Colab](images/open_in_colab.svg)](https://colab.research.google.com/github/{}/blob/main/tutorials/{})"
SECONDS = 600
"""A cell may not take longer: on a busy machine one that trains takes minutes."""
SCALE, WIDE = 1.5, 800
"""Pixels of a picture for each of the figure's, if that is not wider than this; else one."""
LARGEST_DATA, LARGEST_HTML = 150_000, 60_000
"""Bytes of a figure's data, and of HTML, beyond which the picture or the text beside it has to do."""
LARGEST_OUTPUT = 1_500_000
"""Bytes of a whole notebook."""


def tutorials(names: list[str]) -> list[Path]:
    """The notebooks of these numbers, or all, in order.

    Raises:
        ValueError: there is none of that number.
    """
    there = sorted(HERE.glob("[0-9]*.ipynb"), key=number)
    found = [path for path in there if not names or str(number(path)) in names]
    if not found:
        raise ValueError(f"there is no tutorial {' or '.join(names)}; there are {[p.name for p in there]}")
    return found


def number(path: Path) -> int:
    """Of a tutorial, which its name begins with."""
    return int(path.name.split("_")[0])


def open_with(notebook: Any, name: str, repository: str = REPOSITORY) -> None:
    """Write what a notebook begins with: the badge below its title, and the cell that installs.

    Args:
        notebook: its first two cells are the title and that cell.
        name: of its file.
        repository: a URL.
    """
    title, install = notebook.cells[:2]
    parts = [part for part in title.source.split("\n\n") if not part.startswith("[![")]
    if on_github := re.fullmatch(r"https://github\.com/([\w.-]+/[\w.-]+)", repository):
        parts.insert(1, BADGE.format(on_github[1], name))
    title.source = "\n\n".join(parts)
    install.source = INSTALL.format(repository).rstrip()


def fold(notebook: Any) -> None:
    """Put what each exercise printed into the folded answer below it, in place of what stands there."""
    for cell, answer in pairwise(notebook.cells):
        if "exercise" in cell.metadata.get("tags", []):
            printed = "".join(output.text for output in cell.outputs).rstrip()
            before, _, after = answer.source.split("```")
            answer.source = f"{before}```\n{printed}\n```{after}"
            cell.outputs = []


def run(path: Path) -> Any:
    """The notebook with the outputs of this run.

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
    """Outputs with a stream's pieces put together, without those that are blank."""
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
    """What stays of one output."""
    if output.output_type == "stream":
        lines = (line.rstrip("\r").rsplit("\r", 1)[-1] for line in output.text.split("\n"))
        output.text = "\n".join(lines)  # of what was written over, the last
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
    """A figure's picture, in base64."""
    drawn = go.Figure({name: figure[name] for name in ("data", "layout")})
    scale = SCALE if (drawn.layout.width or 0) <= WIDE else 1
    return base64.b64encode(with_few_colours(drawn.to_image("png", scale=scale))).decode()


def with_few_colours(picture: bytes) -> bytes:
    """A PNG with a palette of 256 colours: a quarter of the bytes."""
    from PIL import Image  # pyright: ignore[reportMissingImports] - of the extra [tutorials]

    file = io.BytesIO()
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(256).save(file, "PNG", optimize=True)
    return file.getvalue()


def main() -> None:
    """Run what the command line names."""
    import kaleido  # pyright: ignore[reportMissingImports] - of the extra [tutorials]

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("number", nargs="*", help="of a tutorial, 3 for example; all where there is none")
    named = tutorials(parser.parse_args().number)
    kaleido.start_sync_server(silence_warnings=True)  # one browser for every picture
    for path in named:
        started = time.perf_counter()
        text = nbformat.writes(run(path))
        if len(text) > LARGEST_OUTPUT:
            raise ValueError(
                f"{path.name} would have {len(text):,} bytes of at most {LARGEST_OUTPUT:,}; show less"
            )
        path.write_text(text + "\n", encoding="utf-8")
        print(f"{path.name}: {time.perf_counter() - started:.0f} s, {len(text):,} bytes")


if __name__ == "__main__":
    main()
