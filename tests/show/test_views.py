"""What a notebook shows: every public result has a view, small, escaped, and without anything that runs."""

import dataclasses
import functools
import importlib
import inspect
import itertools
import math
import re
import sys
import typing
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import ClassVar

import numpy as np
import plotly.graph_objects as go
import pytest
from browser import Browser, needs_chromium
from few_questions import FEWEST, measured_quickly
from known_benchmarks import about
from known_cells import cell, sweep_of
from known_cures import CURE, IDLE
from known_cures import result as result_of_control
from known_verdicts import HOSTILE, LOG, TASK, bare_verdict, whole_verdict
from promised_names import promised_names
from torch import nn

import anchorlens
from anchorlens import (
    AnchorTask,
    Checkpoint,
    ModelConfig,
    TrainConfig,
    TrainResult,
    build_model,
    gamma_table,
    plots,
)
from anchorlens.configuration import settings
from anchorlens.extras.audit import Audit, ControlModel, mappings_of
from anchorlens.extras.benchmark import QUESTIONS, Benchmark, QuestionScore, ReadingScore
from anchorlens.extras.scan.task import ScanTask
from anchorlens.models.gamma import initial_weights
from anchorlens.plots.curves import LOSS, metric_styles
from anchorlens.probes.along_run import Along
from anchorlens.probes.any_model.holdout import UPDATES, Holdout
from anchorlens.probes.comparison import Comparison
from anchorlens.probes.registry import OF_MIXTURES, PROBES, apply
from anchorlens.probes.shared.contract import ProbeResult
from anchorlens.show.notebook.training import MOST_POINTS, small_curve
from anchorlens.show.templating import TEMPLATES
from anchorlens.tasks.shared.evaluation import Evaluation
from anchorlens.tasks.shared.measures import Accuracy
from anchorlens.tasks.two_anchor.evaluation import AnchorEvaluation, PairAccuracy
from anchorlens.verdict.verdict import TrajectoryPoint

MOST_BYTES = 20_000
TEXT = {
    "Accuracy",
    "Evidence",
    "Mappings",
    "LoadedModel",
    "PairAccuracy",
    "Phase",
    "Score",
    "ClassifiedModel",
}
TEXT |= {"TrajectoryPoint", "WidthTransfer", "BenchmarkModel", "BenchmarkQuestion", "QuestionScore"}
TEXT |= {"ControlModel", "ReadingScore", "AnchorBatch"}
TEXT |= {
    "AnchorTask",
    "AdditionTask",
    "ModularTask",
    "ScanTask",
    "CogsTask",
    "PrOntoQATask",
    "ConceptGraphsTask",
    "TextTask",
}
TEXT |= {"ModelConfig", "UNetConfig", "TrainConfig", "RunConfig"}
"""Public types whose one line of text says it all."""
NAMES = ("extras.audit", "extras.benchmark", "extras.sweep", "files.importers", "probes", "verdict")
PACKAGES = ("anchorlens", *(f"anchorlens.{name}" for name in NAMES))
TINY = ModelConfig(n_layers=1, d_model=16, d_head=8, d_mlp=16, gamma=0.5)
NAN = math.nan


class Html(HTMLParser):
    """The elements and texts of a piece of HTML."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.open, self.text = [], [], ""
        self.feed(html)
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in ("br", "wbr"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        if "style" not in self.open:
            self.text += text


def behaviour(train=1.0, held_out=0.98, ood=0.1, commutativity=0.9, *, pairs=None, deviations=None):
    """A Behaviour of these accuracies."""

    def accuracy(value):
        return None if value is None else Accuracy(value, 0.001, 1000)

    if pairs is None:
        pairs = [
            PairAccuracy(p, "ood" if p in TASK.ood_pairs else "id", Accuracy(0.5, 0.0, 9)) for p in TASK.pairs
        ]
    measures = {"train": train, "id": held_out, "ood": ood, "symmetric": None, "commutativity": commutativity}
    return AnchorEvaluation(
        kind="two_anchor",
        metrics=TASK.metrics,
        measures={name: accuracy(value) for name, value in measures.items()},
        train_fresh=accuracy(train),
        pairs=tuple(pairs),
        deviations={"ood": {0: 0.1, -3: 0.9}} if deviations is None else deviations,
        finite=not math.isnan(train),
        options={},
        best_constant=accuracy(0.0125),
    )


def along_of(name):
    """A run of two checkpoints, with a reading of this name."""
    rows = [{"run": name, "seed": 0, "step": step, "id": 0.5, name: NAN} for step in (0, 9)]
    return Along(tuple(rows), ("id",), (name,), {})


def benchmarked(name="mine"):
    """A benchmark of one reading, which failed on one model."""
    scores = dict.fromkeys(QUESTIONS, QuestionScore(0.8, 0.6, 0.9, 2, 3, 1))
    reading = ReadingScore(name, scores, {"a": 1.0, "b": None})
    models = tuple(about(model, "Phase 1", "task") for model in "ab")
    return Benchmark(name, (reading,), models, {"b": name})


def checkpoint(model=TINY, **fields):
    return Checkpoint(model, AnchorTask(), initial_weights(model, 0), **fields)


def result(log=LOG, **fields):
    of = checkpoint(
        train_config=TrainConfig(steps=1000), step=1000, metrics={"loss": 0.1, "status": "finished"}
    )
    return TrainResult(of, behaviour(), log, **({"status": "finished", "out": None} | fields))


@dataclass(frozen=True, eq=False, repr=False)
class OwnProbe(ProbeResult):
    """A result of one's own."""

    probe: ClassVar[str] = "own"
    readings: ClassVar[tuple[str, ...]] = ("number", "missing")
    number: float
    """A number with `<code>` in it."""
    missing: float | None = None
    """Nothing."""
    words: str = "words"
    """Text."""
    array: np.ndarray = dataclasses.field(default_factory=lambda: np.full((2, 3), NAN))
    """[2, 3] Nothing."""

    def headline(self):
        return f"{self.words}: {self.number:.2f}"

    def plot(self):
        return go.Figure()


def audit(*, n_late=3, name="task"):
    mappings = dataclasses.replace(mappings_of(AnchorTask(complexity=1)), name=name)
    moments = tuple(range(10, 110, 10))
    steps = np.where(np.arange(len(mappings)) % 2, 20.0, 30.0)
    steps[:n_late] = math.inf
    right = (np.array(moments)[None, :, None] >= steps[None, None, :]).astype(np.float32)
    return Audit(mappings, right, moments, (0,), 4, ModelConfig(gamma=0.8), TrainConfig())


def grid_of_cells(n_gammas=11, out="sweeps/a"):
    places = itertools.product((0.0, 0.1, 1.0), range(n_gammas), range(3))
    signs = itertools.cycle(("1", "2", "2c", "3", "underfit", "failed", None))
    return sweep_of(
        [cell(next(signs), gamma=0.1 + 0.05 * i, weight_decay=w, seed=s) for w, i, s in places], out
    )


def long_chains():
    """A behaviour in 4,096 chains of length 3."""
    task = AnchorTask(
        anchors={a: (lambda x, a=a: (x + a) % 50 + 50) for a in range(16)}, chain_length=3, seq_len=40
    )
    pairs = [PairAccuracy(pair, "id", Accuracy(0.5, 0.0, 9)) for pair in task.pairs]
    return behaviour(pairs=pairs)


HOLDOUT = Holdout(
    updates=np.array(UPDATES),
    left_out_accuracies=np.full((len(UPDATES), 3), 0.5),
    other_accuracies=np.full((len(UPDATES), 3), 0.9),
    ratios=np.full((len(UPDATES), 3), NAN),
    holdout_ratio=None, ratio_at_80=0.5, ratio_at_40=0.6, ratio_at_20=0.7, others=0.9, chance=0.1,
    related_ratio=None, related_left_out=0.5, look_up=0.2, n_groups=400, in_any_order=False, dose=5.0,
    learnt_from=0.84, n_distinct=400, n_left_out=40, lr=2e-3, weight_decay=5.0, batch_size=128,
    n_sequences=256, seed=0,
)  # fmt: skip


@functools.cache
def probe_results():
    model = whole_verdict().subject.model
    mixture = build_model(ModelConfig(d_model=16, d_head=8, d_mlp=16, num_experts=2))
    of_mixtures = [apply(probe, mixture, TASK) for probe in OF_MIXTURES]
    with measured_quickly():
        found = [apply(p, model, TASK, initial=model, **FEWEST.get(p.__name__, {})) for p in PROBES]
    return found + of_mixtures + [HOLDOUT]


@pytest.fixture(scope="module")
def views():
    """Name -> something that a notebook may show."""
    verdict, long_behaviour = whole_verdict(), long_chains()
    found = {type(one).__name__: one for one in probe_results()}
    del found[
        "AttentionPatterns"
    ]  # the page of circuitsvis, which tests/show/test_notebook_display.py looks at
    return {
        **found,
        "AnchorEvaluation": behaviour(),
        "Evaluation": Evaluation("scan", ScanTask.metrics, {"train": Accuracy(0.9, 0.01, 100)}, True),
        "behaviour in long chains": long_behaviour,
        "behaviour without numbers": behaviour(NAN, NAN, None, None, pairs=[], deviations={}),
        "TrainResult": result(),
        "a run without a log": result(()),
        "a run of one line": result(({"step": 1, "loss": 3.0},)),
        "a diverged run": result(
            tuple({"step": s, "loss": NAN, "train_accuracy": NAN} for s in (1, 2, 3)),
            status="diverged",
            message="training diverged: loss is nan at step 3",
        ),
        "Checkpoint": checkpoint(
            train_config=TrainConfig(steps=9), metrics={"loss": NAN, "ood_accuracy": None}
        ),
        "a foreign checkpoint": checkpoint(versions={}),
        "OwnProbe": OwnProbe(NAN),
        "Comparison": Comparison(("a", "b"), (OwnProbe(0.5), OwnProbe(NAN))),
        "many": Comparison(tuple(map(str, range(200))), (OwnProbe(0.5),) * 200),
        "Along": along_of("gamma 0.5"),
        "Benchmark": benchmarked(),
        "GammaTable": gamma_table(build_model(TINY), 0.7),
        "a model of many layers": gamma_table(nn.Sequential(*(nn.Linear(8, 8) for _ in range(200)))),
        "Control": result_of_control((IDLE, 2, 2, 1.0), (CURE, 3, 3, 2.0)),
        "Verdict": verdict,
        "a bare verdict": bare_verdict(),
        "ProbeVerdict": verdict.by_probes,
        "SweepResult": grid_of_cells(40),
        "one cell": sweep_of([cell("3")]),
        "no cell": sweep_of([]),
        "many maps": sweep_of(
            [
                cell("1", gamma=gamma, lr=lr, d_model=width, d_mlp=neurons)
                for gamma, lr, width, neurons in itertools.product((0.3, 0.5), (1e-3, 1e-2), (32, 64), (8, 9))
            ]
        ),
        "Cell": cell("2c"),
        "a missing cell": cell(),
        "a failed cell": cell("failed", error="RuntimeError: no", details="Traceback ..."),
        "Audit": audit(),
        "an audit of nothing": audit(n_late=1000),
    }  # fmt: skip


@pytest.fixture(scope="module")
def html(views):
    return {name: one._repr_html_() for name, one in views.items()}


def public_types():
    """Classes that are public names, or that public functions return."""
    found = {}
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in promised_names(package):
            value = getattr(module, name)
            classes = [value]
            if inspect.isfunction(value) and value.__annotations__:
                returned = re.findall(r"\w+", str(value.__annotations__["return"]))
                classes = [getattr(sys.modules[value.__module__], word, None) for word in returned]
            found |= {one.__name__: one for one in classes if inspect.isclass(one)}
    found |= {type(one).__name__: type(one) for one in probe_results()}
    return {
        name: one
        for name, one in found.items()
        if one.__module__.startswith("anchorlens")
        and not issubclass(one, Exception)
        and one is not ProbeResult
    }


def test_every_public_type_has_a_view_or_a_line_of_text():
    types = public_types()
    named = {
        "AnchorTask",
        "RunConfig",
        "AnchorEvaluation",
        "SweepResult",
        "Audit",
        "VSimilarity",
        "TrajectoryPoint",
    }
    assert named <= set(types)
    without = {name for name, one in types.items() if not hasattr(one, "_repr_html_")}
    assert without <= TEXT, f"no view: {sorted(without - TEXT)}"


def test_every_type_with_a_view_is_looked_at(views):
    shown = {type(one).__name__ for one in views.values()}
    wanted = {name for name, one in public_types().items() if hasattr(one, "_repr_html_")}
    assert wanted - shown == {"AttentionPatterns"}


def test_a_line_of_text_is_short():
    verdict = whole_verdict()
    points = [TrajectoryPoint(100, 0.1, NAN, 0.4, None, "undecided: underfit"), *verdict.trajectory]
    others = [
        verdict.subject,
        verdict.by_probes,
        audit().mappings,
        ControlModel(np.ones(3, dtype=bool), np.ones((2, 3))),
        cell("3"),
        AnchorTask().sample(9),
    ]
    assert all(len(repr(one)) < 200 and "\n" not in repr(one) for one in [*points, *others])
    assert repr(points[0]) == (
        "TrajectoryPoint(step 100, 10.0% of the run: undecided: underfit; train nan, ID 0.40)"
    )


class TestEveryView:
    def test_is_small_whole_and_runs_nothing(self, html):
        for name, text in html.items():
            shown = Html(text)
            assert len(text.encode()) < MOST_BYTES, f"{name}: {len(text.encode()):,} bytes"
            tags = {tag for tag, _ in shown.elements}
            assert not tags & {"script", "link", "img", "iframe", "object", "a", "input"}, name
            attributes = {key for _, each in shown.elements for key in each}
            assert not [key for key in attributes if key.startswith("on") or key in ("src", "href")], name
            assert "url(" not in text and "@import" not in text, name

    def test_writes_none_where_there_is_no_number(self, html):
        for name, text in html.items():
            words = re.findall(r"\w+", Html(text).text.replace("loss is nan at step 3", ""))
            allowed = name in ("OwnProbe", "Comparison")  # their headlines are their own
            assert allowed or not {"nan", "inf"} & set(words), name
            assert ">None<" not in text.replace("<code>None</code>", ""), name  # a text may name None

    def test_is_cheap(self, views):
        """Nothing is trained, asked of a model or built."""
        one = views["TrainResult"]
        assert "model" not in vars(one)

    @needs_chromium
    @pytest.mark.parametrize("dark", [False, True])
    def test_takes_the_colours_of_the_page_and_fits_into_it(self, html, tmp_path, dark):
        ink, paper = ("rgb(221, 221, 221)", "#111") if dark else ("rgb(34, 34, 34)", "#fff")
        page = tmp_path / "page.html"
        style = f"<body style='color: {ink}; background: {paper}; margin: 8px'>"
        page.write_text(style + "".join(html.values()), encoding="utf-8")
        with Browser(tmp_path / "profile") as browser:
            browser.open(page, width=640, dark=dark)
            assert browser.complaints() == []
            wide = "[...document.querySelectorAll('.anchorlens')].filter((e) => e.scrollWidth > 624)"
            assert browser.evaluate(f"{wide}.map((e) => e.querySelector('.al-title').textContent)") == []
            told = "[...document.querySelectorAll('.al-title, td.al-number')]"
            colours = browser.evaluate(f"[...new Set({told}.map((e) => getComputedStyle(e).color))]")
            assert colours == [ink]


class TestStringsStayStrings:
    @pytest.fixture
    def hostile(self):
        probe = OwnProbe(1.0, words=HOSTILE)
        failed = cell("failed", error=HOSTILE, details=HOSTILE)
        return {
            "run": result(out=Path(HOSTILE), message=HOSTILE, status="diverged"),
            "checkpoint": checkpoint(metrics={HOSTILE: HOSTILE}, versions={HOSTILE: HOSTILE}),
            "probe": probe,
            "comparison": Comparison((HOSTILE,), (probe,)),
            "along": along_of(HOSTILE),
            "benchmark": benchmarked(HOSTILE),
            "sweep": sweep_of([failed, cell("1", seed=1)], HOSTILE),
            "cell": failed,
            "audit": audit(name=HOSTILE),
            "verdict": whole_verdict(HOSTILE),
        }

    def test_markup_is_shown_as_it_is(self, hostile):
        for name, one in hostile.items():
            shown = Html(one._repr_html_())
            assert HOSTILE in shown.text, name
            assert not [tag for tag, _ in shown.elements if tag in ("script", "img")], name

    def test_what_is_no_text_can_be_sent(self):
        """A file's name may hold bytes that are no text; a kernel sends UTF-8."""
        assert result(out=Path("run\ud800"))._repr_html_().encode()
        assert sweep_of([cell("1")], "sweep\udcff")._repr_html_().encode()

    def test_code_in_the_words_of_a_field(self):
        shown = Html(OwnProbe(1.0)._repr_html_())
        assert ("code", {}) in shown.elements and "A number with <code> in it." in shown.text


class TestConfigurations:
    @pytest.mark.parametrize(
        "config", [ModelConfig(), TrainConfig(), AnchorTask(), AnchorTask(anchors={1: 5, 2: 1, 3: -2, 4: -8})]
    )
    def test_the_defaults_are_not_marked(self, config):
        rows = settings(config)
        assert [row.name for row in rows] == list(type(config).__dataclass_fields__)
        assert not [row for row in rows if row.changed] and all(row.meaning for row in rows)

    def test_what_differs_is_marked_with_the_default_beside_it(self):
        config = TrainConfig(steps=100, lr=2e-3)
        assert [(r.name, r.value, r.default) for r in settings(config) if r.changed] == [
            ("steps", 100, None),
            ("lr", 2e-3, 1e-3),
        ]


class TestTraining:
    def test_points_of_the_small_curve(self):
        log = [
            {"step": 0, "loss": 10.0, "train_accuracy": 0.0},
            {"step": 50, "loss": 1.0, "train_accuracy": NAN},
            {"step": 100, "loss": 0.1, "train_accuracy": 1.0, "ood_accuracy": 0.5},
        ]
        lines = small_curve(log)
        points = {line.name: line.points for line in lines}
        # 420 by 120 pixels, 2 free above and below; the loss is logarithmic; one point is no line
        assert points == {"train": "0,118 420,2", "loss": "0,2 210,60 420,118"}
        assert "(10 to 0.1, logarithmic)" in lines[1].scale

    def test_a_long_log_stays_small(self):
        lines = small_curve([{"step": s, "loss": 1 / s, "id_accuracy": s / 9999} for s in range(1, 10_000)])
        assert len(lines) == 2
        for line in lines:
            points = line.points.split()
            assert len(points) <= MOST_POINTS and points[-1].startswith("420,")

    @pytest.mark.parametrize("log", [(), ({"step": 1, "loss": 1.0},), ({"step": 1}, {"step": 1})])
    def test_no_curve_without_two_steps(self, log):
        assert small_curve(log) == []

    def test_both_curves_and_the_style_have_the_same_colours(self):
        style = (TEMPLATES / "view.css").read_text()
        colours = {title: look["line"]["color"] for title, look in metric_styles(LOG).values()}
        for name in ("ID", "OOD"):
            assert f"--al-{name.lower()}: {colours[name]};" in style
        drawn = {line.name: line.colour for line in small_curve(LOG)}
        assert drawn == colours | {"loss": LOSS}
        assert (plots.BLUE, plots.ORANGE) == ("#0072B2", "#D55E00")

    def test_plot_is_the_training_curve(self):
        figure = result().plot()
        drawn = {trace.name: (tuple(trace.x), tuple(trace.y)) for trace in typing.cast("tuple", figure.data)}
        assert list(drawn) == ["train", "ID", "OOD", "loss"]
        measured = [line for line in LOG if "ood_accuracy" in line]
        assert drawn["OOD"] == tuple(
            tuple(line[name] for line in measured) for name in ("step", "ood_accuracy")
        )
        assert len(drawn["loss"][0]) == len(LOG)
        assert len(result(()).plot().data) == 4  # a run without a log has an empty picture

    def test_how_it_ended_is_said(self):
        text = Html(result(status="stopped early", message="why & how")._repr_html_()).text
        assert "stopped early at step 1,000 of 1,000" in text and "why & how" in text


class TestSweep:
    def test_the_map_has_a_sign_a_seed_in_the_order_of_the_terminal(self):
        cells = [cell(sign, gamma=0.3, seed=seed) for seed, sign in enumerate(("1", "2c", "underfit", None))]
        html = sweep_of([*cells, cell("3", gamma=0.5)])._repr_html_()
        assert re.findall(r"<td>(.*?)</td>", html) == ["1c?.", "3"]

    def test_failures_say_why(self):
        text = Html(
            sweep_of([cell("failed", error="RuntimeError: no"), cell("1", seed=1)])._repr_html_()
        ).text
        assert "failed: RuntimeError: no" in text and "1 failed" in text


def test_a_class_without_a_source_has_a_view_without_meanings():
    """One that was written in a notebook, for example."""
    scope = {"ProbeResult": ProbeResult, "dataclass": dataclass, "go": go, "ClassVar": ClassVar}
    exec(
        "@dataclass(frozen=True, eq=False, repr=False)\n"
        "class Typed(ProbeResult):\n"
        "    probe: ClassVar[str] = 'typed'\n"
        "    readings: ClassVar[tuple] = ('number',)\n"
        "    number: float\n"
        "    def headline(self): return 'it is'\n"
        "    def plot(self): return go.Figure()\n",
        scope,
    )
    typed: typing.Any = scope["Typed"]
    assert "it is" in Html(typed(0.25)._repr_html_()).text


def test_the_package_ships_its_templates():
    assert {"view.html", "view.css", "tables.html"} <= {path.name for path in TEMPLATES.iterdir()}
    assert Path(anchorlens.__file__).parent in TEMPLATES.parents
