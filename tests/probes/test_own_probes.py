"""Probes of one's own, from a file and from a notebook: in Python, on the command line, in the report."""

import dataclasses
import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import anchorlens_command
import numpy as np
import plotly.express as px
import plotly.graph_objects as go
import pytest
import torch
from html_page import Page
from known_probes import ATTENTION_BREADTH

import anchorlens
from anchorlens import (
    AnchorTask,
    Checkpoint,
    ModelConfig,
    TrainConfig,
    build_model,
    load_checkpoint,
)
from anchorlens import save_checkpoint as save
from anchorlens.configuration import documented, field_docs
from anchorlens.plots.side_by_side import side_by_side
from anchorlens.probes import (
    SHIPPED,
    ProbeResult,
    apply,
    compare,
    own_probes,
    registry,
    stable_rank,
    v_similarity,
    with_own,
)
from anchorlens.probes.from_file import what_went_wrong
from anchorlens.training.checkpoints import shipped

TINY = ModelConfig(n_layers=2, d_model=16, d_head=8, d_mlp=16)
TASK = AnchorTask()


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("own") / "my_probe.py"
    path.write_text(ATTENTION_BREADTH)
    return path


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    for gamma in (0.3, 0.8):
        config = dataclasses.replace(TINY, gamma=gamma)
        made = Checkpoint.from_model(build_model(config), config, TASK, train_config=TrainConfig())
        save(folder / f"{gamma}.pt", made)
    return [str(path) for path in sorted(folder.iterdir())]


call = functools.partial(anchorlens_command.call, code=None)


class TestFile:
    def test_its_probes_are_its_functions_that_say_so(self, file):
        """Neither what it imports, nor helpers, nor functions of another kind."""
        (probe,) = own_probes(file)
        assert probe.__name__ == "attention_breadth"
        assert [p.__name__ for p in with_own([file])] == [p.__name__ for p in (*SHIPPED, probe)]

    def test_it_measures(self, file):
        """A head that looks at one token alone has breadth 1, one that looks at nine alike 9."""
        (probe,) = own_probes(file)
        model = build_model(TINY)
        with torch.no_grad():
            model.blocks[1].attn.W_Q.zero_()  # every score the same
        result = apply(probe, model, TASK)
        assert result.numbers() == {"last_layer": pytest.approx(9, abs=1e-4)}
        assert 1 < result.breadth[0, 0] < 9
        assert repr(result) == "AttentionBreadth(the last position looks at 9.00 tokens)"

    def test_it_is_read_as_it_stands_now(self, tmp_path):
        path = tmp_path / "probe.py"
        path.write_text(ATTENTION_BREADTH)
        own_probes(path)
        path.write_text(ATTENTION_BREADTH.replace("def attention_breadth", "def breadth_of_attent"))
        assert own_probes(path)[0].__name__ == "breadth_of_attent"
        assert list(tmp_path.iterdir()) == [path]  # nothing is left beside it

    @pytest.mark.parametrize(
        ("name", "text", "message"),
        [
            ("no.py", None, r"got .*no.py: No such file or directory"),
            ("probe.txt", "", "in a Python file, got .*probe.txt"),
            (
                "probe.py",
                "x = 1",
                r"probe.py must define a probe.*without",
            ),
            (
                "probe.py",
                "\n\nfoo()",
                r"probe.py.*imported.*line 3.*NameError",
            ),
            ("probe.py", "x = 1\ndef f(:", "line 2 of probe.py: SyntaxError: invalid syntax$"),
            ("probe.py", "import sys\nsys.exit(3)", "line 2 of probe.py: SystemExit: 3"),
            ("probe.py", "x = 1\nraise KeyError", "line 2 of probe.py: KeyError$"),
        ],
    )
    def test_what_is_wrong_with_it_is_said(self, tmp_path, name, text, message):
        if text is not None:
            (tmp_path / name).write_text(text)
        before = set(sys.modules)
        with pytest.raises(ValueError, match=message):
            own_probes(tmp_path / name)
        assert not [name for name in set(sys.modules) - before if name.startswith("own_probes")]

    def test_a_name_is_taken_once(self, file, tmp_path):
        twin = tmp_path / "twin.py"
        twin.write_text(ATTENTION_BREADTH)
        with pytest.raises(ValueError, match=r"twin.py: .*attention_breadth.*my_p"):
            with_own([file, twin])
        twin.write_text(ATTENTION_BREADTH.replace("def attention_breadth", "def stable_rank"))
        with pytest.raises(ValueError, match=r"twin.py: .*stable_rank.*shipped"):
            with_own([twin])


@pytest.mark.needs()
def test_the_probe_of_tutorial_6_has_30_lines_and_is_one(tmp_path):
    (path,) = (Path(__file__).parents[2] / "tutorials").glob("06_*.ipynb")
    cells = ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"]]
    (text,) = [source.split("\n", 1)[1] for source in cells if source.startswith("%%writefile")]
    assert len(text.splitlines()) <= 30
    (tmp_path / "my_probe.py").write_text(text)
    assert [probe.__name__ for probe in own_probes(tmp_path / "my_probe.py")] == ["attention_breadth"]


def measured(shown=None, says="hello", **options):
    """A probe whose result shows and says what a test wants it to."""

    @dataclasses.dataclass(frozen=True)
    class Mine(ProbeResult):
        probe: ClassVar[str] = "mine"
        value: object = 1.0

        def headline(self):
            return says

        def plot(self):
            return go.Figure(go.Bar(x=[1], y=[2])) if shown is None else shown()

    def mine(model, task):
        return Mine(**options)

    return mine


class TestResult:
    def test_repr_is_one_line_whatever_dataclass_would_write(self):
        assert repr(measured(value=np.eye(3))(None, None)) == "Mine(hello)"

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (torch.tensor([1.0, float("nan")]), [1.0, None]),
            (np.float32("nan"), None),
            ({"a": (np.int64(3), True, "text")}, {"a": [3, True, "text"]}),
        ],
    )
    def test_fields_are_data(self, value, expected):
        content = measured(value=value)(None, None).to_dict()
        assert json.loads(json.dumps(content, allow_nan=False))["value"] == expected

    def test_what_is_no_data_is_refused(self):
        with pytest.raises(ValueError, match=r"value of Mine must be numbers.*got set"):
            measured(value={1})(None, None).to_dict()
        with pytest.raises(ValueError, match=r"keys are equal as text, \[1, '1'\]"):
            measured(value={1: 0.5, "1": 0.7})(None, None).to_dict()

    def test_a_number_and_a_mapping_are_results_as_in_a_benchmark(self, tmp_path):
        path = tmp_path / "numbers.py"
        path.write_text(
            "def width(model) -> float:\n    return model.cfg.d_model\n\n\n"
            "def both(model, task) -> dict[str, float]:\n"
            "    return {'layers': model.cfg.n_layers, 'nothing': float('nan')}\n"
        )
        width, both = (apply(probe, build_model(TINY), TASK) for probe in own_probes(path))
        assert width.numbers() == {"width": 16.0} and repr(width) == "Numbers(width 16)"
        assert both.numbers() == {"layers": 2.0, "nothing": None}
        assert both.to_dict()["values"] == both.numbers() and both.probe == "both"
        assert list(width.plot().data[0].x) == [16.0] and "width" in width._repr_html_()

    def test_a_result_of_another_type_is_refused(self):
        def gives_a_text(model):
            return "wide"

        with pytest.raises(ValueError, match="gives_a_text must be a number.* got 'wide'"):
            apply(gives_a_text, build_model(TINY), TASK)
        with pytest.raises(ValueError, match="must return one or more readings"):
            apply(lambda model: {}, build_model(TINY), TASK)

    def test_the_folder_lists_the_probes_and_knows_what_was_meant(self):
        assert dir(anchorlens.probes) == sorted(probe.__name__ for probe in SHIPPED)
        assert {"fourier", "expert_use"} <= set(dir(anchorlens.probes))
        with pytest.raises(AttributeError, match="Did you mean 'stable_rank'?"):
            getattr(anchorlens.probes, "stabel_rank")  # noqa: B009

    def test_a_result_without_a_name_is_told_which(self):
        @dataclasses.dataclass(frozen=True)
        class Nameless(ProbeResult):
            def headline(self):
                return ""

            def plot(self):
                return go.Figure()

        def nameless(model) -> Nameless:
            return Nameless()

        with pytest.raises(ValueError, match='Write probe = "nameless" into the class'):
            apply(nameless, build_model(TINY), TASK)

    def test_model_and_task_are_given_by_name(self):
        def backwards(task, model):
            return measured(value=task.seq_len + model.cfg.n_layers)(None, None)

        def of_another_name(net):
            return measured(value=net.cfg.n_layers)(None, None)

        assert apply(backwards, build_model(TINY), TASK).value == 11
        assert apply(of_another_name, build_model(TINY), TASK).value == 2

    def test_one_that_alters_the_model_or_its_start_gives_an_error_and_no_later_reading_changes(self):
        def vandal(model, task):
            model.blocks[0].attn.W_Q.data[:] = 1  # of rank one
            return measured()(model, task)

        def vandal_of_the_start(model, initial):
            return vandal(initial, None)

        model, start = build_model(TINY), build_model(TINY, seed=1)
        before = stable_rank(model).w_q, stable_rank(start).w_q
        with pytest.raises(ValueError, match=r"vandal must not.*blocks.0.attn.W_Q"):
            apply(vandal, model, TASK)
        with pytest.raises(ValueError, match="vandal_of_the_start must not change the model"):
            apply(vandal_of_the_start, model, initial=start)
        assert (stable_rank(model).w_q, stable_rank(start).w_q) == before

    def test_an_error_of_ones_own_says_its_line_and_a_refusal_of_ours_none(self, tmp_path):
        path = tmp_path / "fails.py"
        path.write_text(ATTENTION_BREADTH.replace("    tokens = task", "    {}[3]\n    tokens = task"))
        (probe,) = own_probes(path)
        line = path.read_text().splitlines().index("    {}[3]") + 1
        with pytest.raises(KeyError) as caught:
            apply(probe, build_model(TINY), TASK)
        assert what_went_wrong(caught.value, probe) == f"KeyError: 3 (line {line} of fails.py)"
        assert what_went_wrong(ValueError("no such layer"), stable_rank) == "no such layer"


class TestSideBySide:
    def test_a_figure_that_says_nothing_of_its_size_or_title(self, checkpoints):
        figure = compare([load_checkpoint(path) for path in checkpoints], measured()).plot()
        assert figure.layout.title.text == "Mine" and figure.layout.width >= 1200
        assert figure.layout.template.layout.plot_bgcolor == "white"
        assert not any(trace.showlegend for trace in figure.data)  # nothing has a name

    def test_a_look_of_your_own_stays(self, checkpoints):
        look = {"template": "ggplot2", "title": "My title"}
        shown = measured(lambda: go.Figure(go.Bar(x=[1], y=[2])).update_layout(**look))
        figure = compare([load_checkpoint(checkpoints[0])], shown).plot()
        assert figure.layout.title.text == "My title"

    def test_a_colour_scale_of_plotly_express_goes_with_its_figure(self, checkpoints):
        shown = measured(lambda: px.imshow(np.eye(2), color_continuous_scale="Blues", zmin=0, zmax=3))
        figure = compare([load_checkpoint(path) for path in checkpoints], shown).plot()
        assert figure.layout.coloraxis.cmax == 3
        assert {trace.coloraxis for trace in figure.data} == {"coloraxis"}

    def test_heatmaps_without_a_range_get_one_for_all(self):
        """A colour bar stands for all of them; a range that was given stays, and the figures do too."""
        size = {"width": 600, "height": 400, "title": "heatmaps"}
        figures = [go.Figure(go.Heatmap(z=[[a, b]]), size) for a, b in ((1, 2), (np.nan, 9))]
        joined = side_by_side(figures, ["a", "b"])
        assert [(trace.zmin, trace.zmax) for trace in joined.data] == [(1, 9), (1, 9)]
        assert figures[0].data[0].zmin is None
        given = side_by_side([figures[0], go.Figure(go.Heatmap(z=[[5]], zmin=-1, zmax=1), size)], ["a", "b"])
        assert [(trace.zmin, trace.zmax) for trace in given.data] == [(1, 5), (-1, 1)]

    def test_words_on_an_axis_are_each_figures_own_and_numbers_shared(self):
        """Also where a figure says something of one of its axes alone."""
        size = {"width": 600, "height": 400, "title": "bars", "yaxis": {"title": {"text": "tokens"}}}
        figures = [go.Figure(go.Bar(x=names, y=[1] * len(names)), size) for names in (["a"], ["a", "b"])]
        joined = side_by_side(figures, ["left", "right"])
        assert joined.layout.xaxis2.matches is None and joined.layout.yaxis2.matches == "y"
        assert joined.layout.xaxis.domain[1] < joined.layout.xaxis2.domain[0]

    def test_what_is_no_figure_is_refused(self, checkpoints):
        with pytest.raises(ValueError, match=r"plot\(\) must be a plotly Figure"):
            compare([load_checkpoint(checkpoints[0])], measured(list)).plot()


class TestCommandLine:
    def test_a_probe_of_a_file_is_like_one_of_ours(self, file, checkpoints, tmp_path):
        listed = call("probe", "--list", "--probes", file).stdout.splitlines()
        assert len(listed) == len(SHIPPED) + 1
        assert listed[-1] == "attention_breadth    Each cell is how many tokens a head looks at."
        name = ("probe", "attention_breadth", checkpoints[0], "--probes", file)
        assert call(*name).stdout.startswith("AttentionBreadth(the last position looks at ")
        page = tmp_path / "p.html"
        drawn = call(*name, "--json", "--plot", page, "--options", '{"n_sequences": 5}')
        content = json.loads(drawn.stdout)
        assert content["probe"] == "attention_breadth" and np.shape(content["breadth"]) == (2, 1)
        assert 'data-figure="figure"' in page.read_text()

    @pytest.mark.needs()
    def test_the_report_shows_it_behind_ours(self, file, checkpoints, tmp_path, monkeypatch):
        few = (stable_rank, v_similarity)  # all would take longer
        monkeypatch.setattr(registry, "SHIPPED", few)
        out = tmp_path / "report.html"
        done = call("classify", checkpoints[0], "--report", out, "--probes", file)
        assert done.exit_code == 0, done.output
        page = Page(out.read_text())
        figures = [attributes["id"] for tag, attributes in page.elements if tag == "figure"]
        assert figures[:3] == ["v_similarity", "own-attention_breadth", "stable_rank"]  # first, and folded
        text = " ".join("".join(page.texts).split())
        assert "Attention breadth the last position looks at" in text
        assert "Each cell is how many tokens a head looks at." in text and "1 = one alone" not in text
        assert any(a.get("data-figure") == "figure-own-attention_breadth" for _, a in page.elements)

    @pytest.mark.needs()
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("probe", "attention_breadth", "CKPT"), "probe must be one of"),
            (
                ("probe", "attention_bread", "CKPT", "--probes", "FILE"),
                ", training_regime, holdout, ",  # and those of our products
            ),
            (
                ("probe", "attention_bread", "CKPT", "--probes", "FILE"),
                ", attention_breadth, got",
            ),
            (("classify", "CKPT", "--probes", "FILE"), "--probes must be given together with --report"),
            (
                ("classify", "CKPT", "--report", "OUT", "--probes", "no.py"),
                "no.py: No such file or directory",
            ),
            (
                (
                    "probe",
                    "attention_breadth",
                    "CKPT",
                    "--probes",
                    "FILE",
                    "--options",
                    '{"n_sequences": "x"}',
                ),
                "(line ",
            ),
        ],
    )
    def test_mistakes_are_one_line(self, arguments, message, file, checkpoints, tmp_path):
        places = {"CKPT": checkpoints[0], "FILE": file, "OUT": tmp_path / "report.html"}
        done = call(*(places.get(argument, argument) for argument in arguments))
        assert done.exit_code == 2 and message in done.stderr, done.stderr
        assert len(done.stderr.strip().splitlines()) == 1 and not done.stdout
        assert not list(tmp_path.iterdir())

    def test_an_exception_is_one_line_that_says_where(self, checkpoints, tmp_path):
        file = tmp_path / "broken.py"
        file.write_text(
            "from anchorlens.probes import ProbeResult\n\n\n"
            "def broken(model) -> ProbeResult:\n    return model.blocks[7]\n"
        )
        done = call("probe", "broken", checkpoints[0], "--probes", file)
        assert done.exit_code == 2 and not done.stdout
        (line,) = done.stderr.strip().splitlines()
        assert "IndexError" in line and line.endswith("(line 5 of broken.py)")

    @pytest.mark.parametrize("command", ["probe", "classify"])
    def test_one_that_ends_the_program_is_one_line_and_the_report_has_the_others(
        self, command, checkpoints, tmp_path, monkeypatch
    ):
        file = tmp_path / "leaving.py"
        file.write_text(
            "import sys\nfrom anchorlens.probes import ProbeResult\n\n\n"
            "def leaving(model) -> ProbeResult:\n    sys.exit(0)\n"
        )
        says = "leaving must return a result, got sys.exit(0). Remove this call (line 6 of leaving.py)"
        if command == "probe":
            done = call("probe", "leaving", checkpoints[0], "--probes", file)
            assert done.exit_code == 2 and done.stderr.strip().endswith(says) and not done.stdout
            return
        page = tmp_path / "report.html"
        monkeypatch.setattr("anchorlens.probes.REPORT_PROBES", (stable_rank,))
        done = call("classify", checkpoints[0], "--probes", file, "--report", page)
        assert done.exit_code == 0 and "leaving must return a result, got sys.exit(0)" in page.read_text()

    @pytest.mark.needs("importers")
    def test_it_measures_checkpoints_of_other_kinds_too(self, file, tmp_path):
        """A bare state dict with its configuration, as classify reads it."""
        torch.save(build_model(TINY).state_dict(), tmp_path / "theirs.pt")
        sizes = "[model]\nvariant = 'gpt2'\nact_fn = 'gelu'\nd_mlp = 16\n"
        (tmp_path / "theirs.toml").write_text(sizes)
        done = call(
            "probe", "attention_breadth", tmp_path / "theirs.pt", "--config", tmp_path / "theirs.toml",
            "--probes", file,
        )  # fmt: skip
        assert done.exit_code == 0 and "AttentionBreadth(" in done.stdout, done.output


NOTEBOOK = """
from __future__ import annotations
import dataclasses, sys
from typing import ClassVar
import plotly.graph_objects as go
from anchorlens import AnchorTask, ModelConfig, build_model, classify
from anchorlens.configuration import documented
from anchorlens.probes import SHIPPED, ProbeResult, apply

@documented
@dataclasses.dataclass(frozen=True)
class Layers(ProbeResult):
    probe: ClassVar[str] = "layers"
    n: int
    def headline(self): return f"{self.n} layers"
    def plot(self): return go.Figure(go.Bar(x=[0], y=[self.n]))

def layers(model) -> Layers:
    '''Its bar is as high as the model is deep.'''
    return Layers(model.cfg.n_layers)

model = build_model(ModelConfig(n_layers=2, d_model=16, d_head=8, d_mlp=16))
assert apply(layers, model, AnchorTask()).to_dict()["n"] == 2
classify(model).report(sys.argv[1], probes=["stable_rank", layers])
"""


@pytest.mark.slow
def test_a_class_whose_source_python_does_not_find(tmp_path):
    """As in a notebook's cell: module `__main__`, no file."""
    out = tmp_path / "report.html"
    subprocess.run([sys.executable, "-", str(out)], input=NOTEBOOK.encode(), check=True)
    page = Page(out.read_text())
    figures = [attributes["id"] for tag, attributes in page.elements if tag == "figure"]
    assert figures == ["own-layers", "stable_rank", "answers-0", "training_curve"]  # your own comes first
    assert "Its bar is as high as the model is deep." in page.texts


def test_no_source_is_no_documentation():
    namespace = {"__name__": "nowhere", "documented": documented}
    exec("@documented\nclass Bare:\n    x: int\n", namespace)
    assert field_docs(namespace["Bare"]) == {} and namespace["Bare"].__doc__ is None


def test_the_shipped_checkpoints_take_one(file):
    """Positive and control: the model that composes looks at one token at the end, a random one at many."""
    (probe,) = own_probes(file)
    by_name = {path.stem: load_checkpoint(path) for path in shipped()}
    phase3 = by_name["phase3"]
    composed = apply(probe, phase3.build_model(), phase3.task).last_layer
    random = apply(probe, phase3.initial_model(), phase3.task).last_layer
    assert composed == pytest.approx(1, abs=0.1) and random > 5


class Careless(ProbeResult):
    probe: ClassVar[str] = "careless"

    def headline(self):
        return ""

    def plot(self):
        return go.Figure()


class TestTheTaskAndGlobalHooks:
    """A probe of one's own gets a copy of the task, and hooks of every module are taken off."""

    def test_a_task_is_a_copy(self):
        task, given = AnchorTask(), []
        keys = task.keys.copy()

        def careless(model, task):
            given.append(task)
            task.keys[:] = 0
            return Careless()

        apply(careless, build_model(TINY), task)
        assert given[0] == task and given[0] is not task and (task.keys == keys).all()

    def test_hooks_of_every_module_are_taken_off(self):
        def careless(model):
            torch.nn.modules.module.register_module_forward_hook(lambda module, given, out: out)
            return Careless()

        apply(careless, build_model(TINY))
        assert not torch.nn.modules.module._global_forward_hooks
