"""The stored tutorials, which are read on pages that run nothing; nbmake runs the notebooks.

nbmake also runs `post_cell_execute` in the metadata of a cell, which checks the answer of an exercise.
"""

import base64
import copy
import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import nbformat
import numpy as np
import plotly.graph_objects as go
import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tutorials"
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
        assert len(numbers) == 11 and numbers == list(range(1, len(numbers) + 1))
        assert sorted(TUTORIALS) == TUTORIALS  # in a list of files they stand in their order

    def test_it_is_a_valid_notebook(self, notebook):
        nbformat.validate(notebook)

    def test_a_question_stands_at_the_head_and_its_answer_at_the_end(self, path, notebook):
        first = notebook.cells[0]
        title, question, *_ = (part for part in first.source.split("\n\n") if not part.startswith("[!["))
        assert first.cell_type == "markdown" and title.startswith(f"# {render.number(path)}. ")
        assert re.match(r"\*\*Question: .*", question) and "?**" in first.source
        (end,) = [i for i, cell in enumerate(notebook.cells) if "## Predict, then run" in cell.source]
        assert "**Answer" in notebook.cells[end - 1].source

    def test_it_begins_as_render_writes_it(self, path, notebook):
        written = copy.deepcopy(notebook)
        render.open_with(written, path.name)
        assert [cell.source for cell in written.cells[:2]] == [cell.source for cell in notebook.cells[:2]]

    def test_it_was_run_from_top_to_bottom_and_its_outputs_are_kept(self, notebook):
        cells = code_cells(notebook)
        assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
        assert (
            sum(bool(cell.outputs) for cell in cells) > (len(cells) - 4) / 2
        )  # not of the first and exercises

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
                    assert (FOLDER / address).read_bytes().startswith((b"\x89PNG", b"<svg"))

    def test_nothing_is_loaded_from_a_network(self, notebook):
        loads = r"""<(?:script|link|img|iframe)[^>]*(?:src|href)=["']?(?:https?:)?//|!\[[^]]*\]\(https?:"""
        notebook.cells.pop(1)  # installs the package where it is not
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


def exercises(notebook):
    """The three of a notebook: (question, code cell, answer)."""
    cells = notebook.cells
    found = [i for i, cell in enumerate(cells) if "exercise" in cell.metadata.get("tags", [])]
    return [(cells[i - 1].source, cells[i], cells[i + 1].source) for i in found]


def numbers(text):
    """Those that a text holds, but of chapters and phases; .5 and 0.5 are one."""
    text = re.sub(r"\b(?:chapter|tutorial|Phase|layer) \d+", "", text)
    return {float(number) for number in re.findall(r"(?<![\w.])-?(?:\d+\.\d+|\.\d+|\d+)(?!\w)", text)}


def stale(words, shown):
    """Decimals and percentages of a text that no shown number rounds to."""
    shares, known = set(), set()
    for one, percent in re.findall(r"(\d*\.?\d+(?:e-?\d+)?)( ?%)?", shown):
        (shares if percent else known).add(float(one))
    known, shares = known | {one / 100 for one in shares}, shares | {100 * one for one in known}
    words = re.sub(r"`[^`]*`|\]\([^)]*\)|(?:arXiv|and)\s\d{4}\.\d{5}", "", words)
    return {
        text + percent
        for text, percent in re.findall(r"(?<![\w.])(\d*\.\d+|\d+(?= ?%))( ?%)?", words)
        for digits in [len(text.partition(".")[2])]
        if not any(round(one, digits) == float(text) for one in (shares if percent else known))
    }


ELSEWHERE = {1: {"0.90"}, 2: {"0.90", "0.40", "0.60"}}
"""Tutorial -> numbers of its text that it does not show: ID's threshold, gammas of replication.md."""


class TestText:
    def test_its_numbers_are_those_of_the_outputs_or_the_code(self, path, notebook):
        """A number that was typed goes stale with the next run; it may be rounded."""
        last = next(i for i, cell in enumerate(notebook.cells) if "## Predict, then run" in cell.source)
        shown = "\n".join(
            [cell.source for cell in code_cells(notebook)]
            + [output.text for output in outputs(notebook) if output.output_type == "stream"]
            + [
                data[kind]
                for data in displayed(notebook)
                for kind in ("text/plain", "text/html")
                if kind in data
            ]
        )
        if render.number(path) == 3:  # over seeds, as the pages of the probes have them
            shown += (ROOT / "research/probe_values.md").read_text(encoding="utf-8")
        words = [cell.source for cell in notebook.cells[:last] if cell.cell_type == "markdown"]
        assert stale("\n".join(words), shown) <= ELSEWHERE.get(render.number(path), set())

    def test_a_number_that_nothing_shows_is_found(self):
        assert stale("At .52 it is right in 70 % of 12.", "0.518 .. 0.7") == set()
        assert stale("At .53 it is right in 71 % of 12.", "0.518 .. 0.7") == {".53", "71 %"}

    def test_tutorial_4_repeats_no_number_of_its_model(self):
        """Its model differs a little from one processor to another."""
        cells = nbformat.read(TUTORIALS[3], as_version=4).cells
        (start,) = [i for i, cell in enumerate(cells) if "## A model between the phases" in cell.source]
        (end,) = [i for i, cell in enumerate(cells) if "## Predict, then run" in cell.source]
        words = " ".join(cell.source for cell in cells[start:end] if cell.cell_type == "markdown")
        assert set(re.findall(r"(?<![\w.])\d*\.\d+|\d+ ?%", words)) <= {"0.5"}  # gamma


class TestExercises:
    def test_three_stand_at_the_end_with_folded_answers(self, notebook):
        found = exercises(notebook)
        last = [cell.cell_type for cell in notebook.cells[-9:]]
        assert len(found) == 3 and last == ["markdown", "code", "markdown"] * 3
        for number, (question, cell, answer) in enumerate(found, start=1):
            assert f"**{number}.** " in question and "?" in question
            assert answer.startswith("<details><summary>Answer</summary>\n\n```\n")
            assert answer.endswith("\n\n</details>") and answer.count("```") == 2
            assert cell.outputs == []  # it would give the answer away

    def test_a_run_fails_where_an_answer_no_longer_fits(self, notebook):
        for _, cell, _ in exercises(notebook):
            assert any("assert " in line for line in cell.metadata.nbmake.post_cell_execute)

    def test_numbers_in_an_answer_are_what_the_cell_printed_or_was_asked(self, notebook):
        for question, cell, answer in exercises(notebook):
            _, printed, words = answer.split("```")
            assert numbers(words) <= numbers(printed) | numbers(question) | numbers(cell.source)


@pytest.fixture(scope="module")
def without_anchorlens(tmp_path_factory):
    """Python of a new environment that has everything the package needs, and not the package."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    here = Path(sysconfig.get_path("purelib"))
    there = next(folder.glob("lib/python*/site-packages"))
    (there / "rest.pth").write_text(str(here))  # .pth files in there, such as anchorlens' own, are not read
    for record in here.glob("*.dist-info"):  # what installers go by; without RECORD they remove nothing
        if not record.name.startswith("anchorlens"):
            (there / record.name).mkdir()
            shutil.copy(record / "METADATA", there / record.name)
    return folder / "bin/python"


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """The URL of a clone of this repository."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone of the repository")
    folder = tmp_path_factory.mktemp("clone")
    subprocess.run(["git", "clone", "--quiet", "--shared", "--no-checkout", ROOT, folder], check=True)
    return folder.as_uri()


def run_beginning(path, python, repository, folder, n_cells=1):
    """Run a tutorial's first code cells as they stand for a repository; what was printed."""
    notebook = nbformat.read(path, as_version=4)
    render.open_with(notebook, path.name, repository)
    sources = [cell.source for cell in code_cells(notebook)[:n_cells]]
    (folder / "cells.ipy").write_text("\n".join([*sources, "print('at', find_spec('anchorlens').origin)"]))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PIP_NO_INDEX": "1", "UV_OFFLINE": "1", "UV_NO_BUILD_ISOLATION": "1"}
    environment |= {"UV_CACHE_DIR": str(folder / "uv"), "IPYTHONDIR": str(folder / "ipython")}
    command = [str(python), "-m", "IPython", "--colors=NoColor", "cells.ipy"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return done.stdout + done.stderr


@pytest.mark.system
class TestFirstCell:
    def test_it_asks_for_the_url_while_there_is_none(self, without_anchorlens, tmp_path):
        said = run_beginning(TUTORIALS[0], without_anchorlens, "", tmp_path)
        assert "REPOSITORY must be a URL" in said
        assert "\nat " not in said

    def test_it_installs_from_a_repository_and_then_leaves_it_alone(
        self, without_anchorlens, clone, tmp_path
    ):
        said = run_beginning(TUTORIALS[0], without_anchorlens, clone, tmp_path)
        assert "+ anchorlens==" in said and f"\nat {without_anchorlens.parents[1]}" in said, said
        again = run_beginning(TUTORIALS[0], without_anchorlens, "", tmp_path)
        assert again.startswith("at ") and len(again.splitlines()) == 1

    def test_in_a_clone_it_takes_the_clone(self, without_anchorlens, tmp_path):
        uv = [
            sys.executable,
            "-m",
            "uv",
            "pip",
            "uninstall",
            "--python",
            str(without_anchorlens),
            "anchorlens",
        ]
        subprocess.run(uv, capture_output=True)  # if a test before this one has installed it
        subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, tmp_path / "clone"], check=True)
        said = run_beginning(TUTORIALS[0], without_anchorlens, "", tmp_path / "clone/tutorials")
        assert "+ anchorlens==" in said and f"\nat {without_anchorlens.parents[1]}" in said, said

    def test_tutorial_9_fetches_its_networks_where_it_stands_alone(self, clone, tmp_path):
        said = run_beginning(TUTORIALS[8], sys.executable, clone, tmp_path, n_cells=2)
        assert said.count("Checkpoint(U-Net") == 3, said


class TestBadge:
    @pytest.mark.parametrize("repository", ["", "https://codes.example/me/anchorlens"])
    def test_there_is_none_without_a_repository_that_the_host_can_read(self, path, notebook, repository):
        render.open_with(notebook, path.name, repository)
        assert "[![" not in notebook.cells[0].source

    def test_it_stands_once_below_the_title_and_leads_to_this_notebook(self, path, notebook):
        for _ in range(2):
            render.open_with(notebook, path.name, "https://github.com/me/anchorlens")
        (line,) = re.findall(
            r"\A# .*\n\n\[!\[Open in Colab\]\((.*)\)\]\((.*)\)\n\n\*\*Question", notebook.cells[0].source
        )
        assert (FOLDER / line[0]).is_file()
        assert line[1].endswith(f"/github/me/anchorlens/blob/main/tutorials/{path.name}")
        assert 'REPOSITORY = "https://github.com/me/anchorlens"' in notebook.cells[1].source


def stream(text, name="stdout"):
    return nbformat.v4.new_output("stream", name=name, text=text)


class TestRender:
    def test_what_an_exercise_prints_goes_into_its_answer(self):
        cell = nbformat.v4.new_code_cell("1", metadata={"tags": ["exercise"]}, outputs=[stream("new 2\n")])
        answer = nbformat.v4.new_markdown_cell("<details>\n\n```\nold 1\n```\n\nWords.")
        other = nbformat.v4.new_code_cell("2", outputs=[stream("3")])
        notebook = nbformat.v4.new_notebook(cells=[cell, answer, other])
        render.fold(notebook)
        assert answer.source == "<details>\n\n```\nnew 2\n```\n\nWords."
        assert cell.outputs == [] and other.outputs

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
        with pytest.raises(ValueError, match="tutorial must be one of 1, 2, .*, got 99"):
            render.tutorials(["99"])
