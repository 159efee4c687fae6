"""Every tutorial runs from top to bottom in a real kernel, with nothing but the progress bar on stderr."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

TUTORIALS = sorted((Path(__file__).parents[1] / "tutorials").glob("*.ipynb"))


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore")  # of the notebook client itself, not of the cells
def test_tutorial_runs(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=180, resources={"metadata": {"path": tmp_path}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("Phase" in str(output) or "undecided" in str(output) for output in outputs)
    stderr = "".join(o["text"] for o in outputs if o.output_type == "stream" and o.name == "stderr")
    assert " steps in " in stderr and "arning" not in stderr and "rror" not in stderr, stderr
