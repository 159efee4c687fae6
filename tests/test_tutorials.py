"""The tutorials as they are stored, for who reads them on a page that runs nothing; nbmake runs them."""

import base64
import importlib.util
import io
import re
import shutil
from pathlib import Path

import nbformat
import numpy as np
import plotly.graph_objects as go
import pytest

FOLDER = Path(__file__).parents[1] / "tutorials"
TUTORIALS = sorted(FOLDER.glob("[0-9]*.ipynb"), key=lambda path: int(path.name.split("_")[0]))
PROGRESS = re.compile(r"\s*\d+%\|.*\| \d+/\d+ (\[.*\]|\w+ in .*)")

spec = importlib.util.spec_from_file_location("tutorials_render", FOLDER / "render.py")
render = importlib.util.module_from_spec(spec)
spec.loader.exec_module(render)


@pytest.fixture(params=TUTORIALS, ids=lambda path: path.stem)
def path(request):
    return request.param


@pytest.fixture
def notebook(path):
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook):
    return [output for cell in code_cells(notebook) for output in cell.outputs]


def displayed(notebook):
    return [output.data for output in outputs(notebook) if "data" in output]


def texts(notebook):
    """Everything that is text: sources, streams, and what is displayed but pictures."""
    yield from (cell.source for cell in notebook.cells)
    yield from (output.text for output in outputs(notebook) if output.output_type == "stream")
    for data in displayed(notebook):
        yield from (str(content) for kind, content in data.items() if kind != "image/png")


class TestStored:
    def test_tutorials_are_numbered_without_gaps(self):
        numbers = [int(path.name.split("_")[0]) for path in TUTORIALS]
        assert len(numbers) == 10 and numbers == list(range(1, len(numbers) + 1))

    def test_it_is_a_valid_notebook(self, notebook):
        nbformat.validate(notebook)

    def test_a_question_stands_at_the_head_and_its_answer_at_the_end(self, path, notebook):
        first, last = notebook.cells[0], notebook.cells[-1]
        title, _, question, *_ = first.source.split("\n")
        assert first.cell_type == last.cell_type == "markdown"
        assert title.startswith(f"# {path.name.split('_')[0]}. ")
        assert re.match(r"\*\*Question: .*", question) and "?**" in first.source
        assert "**Answer" in last.source

    def test_it_was_run_from_top_to_bottom_and_its_outputs_are_kept(self, notebook):
        cells = code_cells(notebook)
        assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
        assert sum(bool(cell.outputs) for cell in cells) > len(cells) / 2

    def test_no_cell_failed_and_none_warns(self, notebook):
        assert not [output for output in outputs(notebook) if output.output_type == "error"]
        stderr = [output.text for output in outputs(notebook) if output.get("name") == "stderr"]
        lines = [line for text in stderr for line in text.splitlines() if line.strip()]
        assert not [line for line in lines if not PROGRESS.match(line)]

    def test_it_has_pictures_and_each_interactive_one_has_a_static_one_beside(self, notebook):
        shown = displayed(notebook)
        assert any("image/png" in data for data in shown)
        for data in shown:
            assert "image/png" in data or render.PLOTLY not in data
            assert base64.b64decode(data.get("image/png", "iVBORw0KGgo=")).startswith(b"\x89PNG")

    def test_pictures_beside_the_notebook_are_there(self, notebook):
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                for address in re.findall(r"!\[[^]]*\]\(([^)]+)\)", cell.source):
                    assert (FOLDER / address).read_bytes().startswith(b"\x89PNG")

    def test_nothing_is_loaded_from_a_network(self, notebook):
        loads = r"""<(?:script|link|img|iframe)[^>]*(?:src|href)=["']?(?:https?:)?//|!\[[^]]*\]\(https?:"""
        for text in texts(notebook):
            assert not re.search(loads, text)
            assert not re.search(r"urlopen|requests\.get|from_pretrained|load_dataset|pip install", text)

    def test_no_path_of_the_machine_it_was_made_on_is_in_it(self, notebook):
        for text in texts(notebook):
            assert not re.search(r"/(home|root|tmp|work|Users)/|[A-Z]:\\\\", text)

    def test_it_is_small(self, path):
        assert path.stat().st_size < render.LARGEST_OUTPUT

    def test_its_outputs_are_those_that_render_keeps(self, notebook):
        for cell in code_cells(notebook):
            assert "execution" not in cell.metadata
            assert render.merged(cell.outputs) == cell.outputs
            for output in cell.outputs:
                if output.output_type == "stream":
                    assert "\r" not in output.text
                    continue
                assert len(output.data.get("text/html", "")) <= render.LARGEST_HTML
                if render.PLOTLY in output.data:
                    assert "text/html" not in output.data  # it would hold the figure once more


def stream(text, name="stdout"):
    return nbformat.v4.new_output("stream", name=name, text=text)


class TestRender:
    def test_pieces_of_a_stream_are_put_together_but_not_two_streams(self):
        said = [stream(text) for text in ("a", "\n", "b\n")]
        pieces = [*said, stream("bar", "stderr"), stream("c"), stream("\n", "stderr")]
        together = render.merged(pieces)
        assert [(output.name, output.text) for output in together] == [
            ("stdout", "a\nb\n"), ("stderr", "bar"), ("stdout", "c"),
        ]  # fmt: skip

    def test_of_a_progress_bar_the_last_state_stays(self):
        kept = render.kept(stream("\r 0%|    |\r50%|##  |\r100%|####|\n", "stderr"))
        assert kept.text == "100%|####|\n"

    def test_lines_of_a_command_stay(self):
        assert render.kept(stream("one\r\ntwo\r\n")).text == "one\ntwo\n"

    def test_small_html_stays_and_large_html_goes(self):
        def after(size):
            data = {"text/html": "x" * size, "text/plain": "x"}
            return set(render.kept(nbformat.v4.new_output("display_data", data=data)).data)

        assert after(render.LARGEST_HTML) == {"text/html", "text/plain"}
        assert after(render.LARGEST_HTML + 1) == {"text/plain"}

    @pytest.mark.parametrize("n_points", [3, pytest.param(100_000, marks=pytest.mark.slow)])
    def test_a_figure_gets_a_picture_and_loses_its_page_and_what_is_too_large(self, n_points):
        for needed in ("kaleido", "PIL"):
            pytest.importorskip(needed, reason="the extra [tutorials] is not installed")
        if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))):
            pytest.skip("there is no Chrome or Chromium to draw with")
        figure = go.Figure(go.Scattergl(y=list(range(n_points))), {"width": 300, "height": 200})
        data = {render.PLOTLY: figure.to_plotly_json(), "text/html": "<script>plotly.js</script>"}
        data = {**data, "text/plain": "Figure"}
        kept = render.kept(nbformat.v4.new_output("display_data", data=data)).data
        assert base64.b64decode(kept["image/png"]).startswith(b"\x89PNG")
        assert "text/html" not in kept and kept["text/plain"] == "Figure"
        assert (render.PLOTLY in kept) == (n_points == 3)

    def test_a_picture_of_few_colours_is_unchanged_by_the_palette(self):
        image = pytest.importorskip("PIL.Image", reason="Pillow, of the extra [tutorials], is not installed")
        pixels = np.kron(np.eye(16, dtype=np.uint8), np.full((8, 8), 200, np.uint8))
        before, after = io.BytesIO(), io.BytesIO()
        image.fromarray(np.dstack([pixels, pixels // 2, 255 - pixels])).save(before, "PNG")
        after.write(render.with_few_colours(before.getvalue()))
        found = image.open(after)
        assert found.mode == "P"
        assert (np.asarray(found.convert("RGB")) == np.asarray(image.open(before))).all()

    def test_an_unknown_tutorial_is_refused_by_name(self):
        with pytest.raises(ValueError, match="there is no tutorial 99"):
            render.tutorials(["99"])
