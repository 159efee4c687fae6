"""Pictures in a notebook: executed in a real kernel, shown by a real browser without a network."""

import copy
import re
from pathlib import Path

import nbformat
import plotly.io as pio
import pytest
from browser import Browser, needs_chromium
from nbclient import NotebookClient

from anchorlens import ModelConfig, build_model
from anchorlens.plots import picture
from anchorlens.probes import PROBES, REPORT_PROBES, stable_rank

START = """
import sys

sys.path.append({!r})
from few_questions import measured_quickly
from sklearn.manifold import TSNE

from anchorlens import AnchorTask, Checkpoint, ModelConfig, TrainConfig, build_model, probes

TSNE.__init__.__kwdefaults__["max_iter"] = 250  # nobody looks at the points
quickly = measured_quickly()
quickly.__enter__()  # of copies the curves are drawn, whatever they learn
small, task = ModelConfig(n_layers=2, d_model=16, d_head=8, d_mlp=16, gamma=0.5), AnchorTask()
models = [
    Checkpoint.from_model(build_model(small, seed=seed), small, task, train_config=TrainConfig(seed=seed))
    for seed in (0, 1)
]
"""
PICTURE = """
checkpoint = models[{}]
model = checkpoint.build_model()
probes.{}(checkpoint).plot()
"""
PATTERNS = "probes.attention_patterns(models[{}].build_model(), checkpoint.task)"
LARGEST = 4_000_000
"""Bytes of a notebook that shows every probe."""


def cells():
    """Every probe but those of mixtures, the first on two models, and the page of heads of both."""
    names = [probe.__name__ for probe in REPORT_PROBES if probe in PROBES]
    asked = [(0, names[0]), (1, names[0]), *((0, name) for name in names[1:])]
    pictures = [PICTURE.format(*each) for each in asked]
    return [START.format(str(Path(__file__).parents[1])), *pictures, *map(PATTERNS.format, (0, 1))]


def held(cell):
    """The libraries that a cell's output holds."""
    html = cell.outputs[-1]["data"]["text/html"]
    return set(re.findall(r"if \(!window\.(\w+)\) \(async", html))


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """The notebook, and its cells 1 and 2 when they have run once more."""
    folder = tmp_path_factory.mktemp("notebook")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells()])
    client = NotebookClient(notebook, timeout=180, resources={"metadata": {"path": folder}})
    with client.setup_kernel():
        for index, cell in enumerate(notebook.cells):
            client.execute_cell(cell, index)
        again = [client.execute_cell(copy.deepcopy(notebook.cells[index]), index) for index in (1, 2)]
    assert not [out for cell in notebook.cells for out in cell.outputs if out.output_type == "stream"]
    return notebook, again


def external(html):
    """Addresses that a page would load something from."""
    return re.findall(r"""<(?:script|link|img|iframe)[^>]*(?:src|href)=["']?(https?:[^"' >]+)""", html)


@pytest.mark.filterwarnings("ignore")  # of the notebook client itself, not of the cells
class TestDisplay:
    def test_a_notebook_of_every_probe_is_small(self, executed):
        assert len(nbformat.writes(executed[0])) < LARGEST

    def test_one_cell_holds_each_library_and_holds_it_again_when_it_runs_again(self, executed):
        notebook, (first, second) = executed
        holders = [held(cell) for cell in notebook.cells[1:]]
        assert holders[0] == {"Plotly"} and holders[-2] == {"CircuitsVis"}
        assert not any(holders[1:-2]) and not holders[-1]
        assert held(first) == {"Plotly"} and not held(second)

    def test_a_figure_is_there_for_vs_code_and_jupyter(self, executed):
        for cell in executed[0].cells[1:]:
            data = cell.outputs[-1]["data"]
            if ".plot()" not in cell.source:  # the heads, by circuitsvis
                assert "CircuitsVis.render" in data["text/html"]
            else:
                assert "application/vnd.plotly.v1+json" in data  # VS Code, JupyterLab
                assert "Plotly.newPlot" in data["text/html"]  # notebooks saved as HTML
            assert not external(data["text/html"])

    @pytest.mark.parametrize("library", ["Plotly", "CircuitsVis"])
    def test_the_cell_is_known_by_its_id_where_the_front_end_tells_it(self, monkeypatch, library):
        monkeypatch.setattr(pio.renderers, "default", "plotly_mimetype")
        monkeypatch.setattr(picture, "_HOLDERS", {})
        held = []
        for cell in ("a", "b", "a", None):
            monkeypatch.setattr(picture, "_running_cell", lambda cell=cell: cell)
            held.append(len(picture.drawn_by(library, "draw(place)")) > 400_000)
        assert held == [True, False, True, True]
        monkeypatch.setattr(picture, "_running_cell", lambda: "b")
        assert len(picture.drawn_by(library, "draw(place)", alone=True)) > 400_000

    @pytest.mark.parametrize(
        ("renderer", "variable", "shares"),
        [
            ("plotly_mimetype", None, True),  # JupyterLab, Jupyter Notebook, nbconvert
            ("plotly_mimetype+notebook", None, True),
            ("vscode", None, True),
            ("colab", None, False),
            ("databricks", None, False),
            ("kaggle", None, False),
            ("browser", None, False),
            ("plotly_mimetype+notebook", "COLAB_RELEASE_TAG", False),  # which plotly may not know
            ("plotly_mimetype", "DATABRICKS_RUNTIME_VERSION", False),
            ("plotly_mimetype", "KAGGLE_KERNEL_RUN_TYPE", False),
        ],
    )
    def test_each_output_holds_the_library_unless_outputs_surely_share_a_window(
        self, monkeypatch, renderer, variable, shares
    ):
        monkeypatch.setattr(pio.renderers, "default", renderer)
        monkeypatch.setattr(picture, "_HOLDERS", {})
        if variable is not None:
            monkeypatch.setenv(variable, "1")
        held = []
        for cell in ("a", "b"):
            monkeypatch.setattr(picture, "_running_cell", lambda cell=cell: cell)
            held.append("DecompressionStream" in picture.drawn_by("CircuitsVis", "draw(place)"))
        assert held == [True, not shares]

    def test_a_page_that_runs_no_scripts_shows_what_to_do(self):
        html = picture.drawn_by("CircuitsVis", "draw(place)")
        without_scripts = re.sub("<script>.*?</script>", "", html, flags=re.DOTALL)
        assert "this page runs no scripts. Trust the notebook" in " ".join(without_scripts.split())

    def test_a_renderer_of_your_own_choice_is_respected(self, monkeypatch, capsys):
        shown = []
        monkeypatch.setattr(pio, "show", lambda figure, *args, **kwargs: shown.append((args, kwargs)))
        figure = stable_rank(build_model(ModelConfig())).plot()
        monkeypatch.setattr(pio.renderers, "default", "json")
        figure.show()
        figure.show("browser")
        figure._ipython_display_()
        assert shown == [((), {}), (("browser",), {}), ((), {})] and not capsys.readouterr().out

    @needs_chromium
    @pytest.mark.parametrize("backwards", [False, True], ids=["as it was run", "the other way round"])
    def test_a_browser_without_a_network_draws_every_picture_of_the_saved_page(
        self, executed, tmp_path, backwards
    ):
        """The other way round every picture waits for a library that stands below it."""
        pieces = [cell.outputs[-1]["data"]["text/html"] for cell in executed[0].cells[1:]]
        page = tmp_path / "page.html"
        page.write_text("<html><body>" + "".join(pieces[::-1] if backwards else pieces) + "</body></html>")
        with Browser(tmp_path / "profile") as browser:
            browser.open(page)
            n_figures = len(pieces) - 2
            browser.wait(f"document.querySelectorAll('.plot-container').length === {n_figures}")
            browser.wait("document.querySelectorAll('canvas').length > 1")
            assert "waits for" not in browser.evaluate("document.body.innerText")
            assert not browser.complaints()

    @needs_chromium
    def test_without_the_cell_that_holds_the_library_the_page_says_so_and_what_to_do(
        self, executed, tmp_path
    ):
        page = tmp_path / "page.html"
        page.write_text(executed[0].cells[2].outputs[-1]["data"]["text/html"])
        with Browser(tmp_path / "profile") as browser:
            browser.open(page)
            browser.wait("document.body.innerText.includes('waits for Plotly')")
            assert "restart the kernel and run all cells" in browser.evaluate("document.body.innerText")
