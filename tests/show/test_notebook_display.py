"""Pictures in a notebook: executed in a real kernel, shown by a real browser without a network."""

import re

import nbformat
import plotly.io as pio
import pytest
from browser import needs_chromium, shown_by_chromium
from nbclient import NotebookClient

from anchorlens import ModelConfig, build_model
from anchorlens.figures import picture
from anchorlens.probes import stable_rank

CELL = """
from anchorlens import AnchorTask, ModelConfig, build_model, probes

model, task = build_model(ModelConfig(gamma=0.5)), AnchorTask()
tokens = [35, 63, 40, 1, 2, 38, 42, 36, 62]
probes.information_flow(model, task, tokens).plot()
"""
PATTERNS = "probes.attention_patterns(model, task, tokens)"


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """What the two cells display, one mime bundle each."""
    folder = tmp_path_factory.mktemp("notebook")
    cells = [nbformat.v4.new_code_cell(CELL), nbformat.v4.new_code_cell(PATTERNS)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=180, resources={"metadata": {"path": folder}}).execute()
    bundles = [[out for out in cell.outputs if "data" in out] for cell in notebook.cells]
    assert not [out for cell in notebook.cells for out in cell.outputs if out.output_type == "stream"]
    return [displayed[-1]["data"] for displayed in bundles]


def external(html):
    """Addresses that a page would load something from."""
    return re.findall(r"""<(?:script|link|img|iframe)[^>]*(?:src|href)=["']?(https?:[^"' >]+)""", html)


@pytest.mark.filterwarnings("ignore")  # of the notebook client itself, not of the cells
class TestDisplay:
    def test_a_figure_is_there_for_vs_code_and_jupyter(self, outputs):
        figure, _ = outputs
        assert "application/vnd.plotly.v1+json" in figure  # VS Code, JupyterLab
        assert "Plotly.newPlot" in figure["text/html"]  # notebooks saved as HTML
        assert not external(figure["text/html"])

    def test_plotly_js_is_put_into_one_cell_where_the_front_end_names_cells(self, monkeypatch):
        monkeypatch.setattr(picture.Picture, "_cell_with_library", None)
        held = []
        for cell in ("a", "b", "a", None):
            monkeypatch.setattr(picture, "_running_cell", lambda cell=cell: cell)
            html = stable_rank(build_model(ModelConfig())).plot()._bundle()["text/html"]
            assert "Plotly.newPlot" in html
            held.append(len(html) > 1_000_000)
        assert held == [True, False, True, True]

    def test_a_renderer_of_your_own_choice_is_respected(self, monkeypatch, capsys):
        shown = []
        monkeypatch.setattr(pio, "show", lambda figure, *args, **kwargs: shown.append((args, kwargs)))
        figure = stable_rank(build_model(ModelConfig())).plot()
        monkeypatch.setattr(pio.renderers, "default", "json")
        figure.show()
        figure.show("browser")
        figure._ipython_display_()
        assert shown == [((), {}), (("browser",), {}), ((), {})] and not capsys.readouterr().out

    def test_attention_patterns_are_their_page(self, outputs):
        _, patterns = outputs
        assert "CircuitsVis.render" in patterns["text/html"] and not external(patterns["text/html"])

    @needs_chromium
    def test_a_browser_without_a_network_draws_both(self, outputs, tmp_path):
        for data, drawn in zip(outputs, ("main-svg", "layer 1, head 0"), strict=True):
            shown = shown_by_chromium(data["text/html"], tmp_path)
            assert drawn in re.sub(r"<script.*?</script>", "", shown, flags=re.S)

    @needs_chromium
    @pytest.mark.slow
    def test_a_picture_waits_for_plotly_js_that_stands_below_it(self, tmp_path, monkeypatch):
        monkeypatch.setattr(picture.Picture, "_cell_with_library", None)
        figure = stable_rank(build_model(ModelConfig())).plot()
        html = {}
        for cell in ("below", "above"):  # run in this order
            monkeypatch.setattr(picture, "_running_cell", lambda cell=cell: cell)
            html[cell] = figure._bundle()["text/html"]
        shown = shown_by_chromium(html["above"] + html["below"], tmp_path)
        body = re.sub(r"<(script|style).*?</\1>", "", shown, flags=re.S)
        assert len(html["above"]) < 100_000 and body.count('class="plot-container') == 2
