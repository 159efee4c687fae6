"""Probes of one's own in the report: hostile ones, and those that fail, lose nothing of it."""

import dataclasses
from typing import ClassVar

import plotly.graph_objects as go
import pytest
from html_page import Page
from known_verdicts import HOSTILE, bare_verdict

from anchorlens.probes import ProbeResult
from anchorlens.show import write_report


@dataclasses.dataclass(frozen=True)
class Mine(ProbeResult):
    probe: ClassVar[str] = "mine"
    says: object = "fine"
    shown: object = None

    def headline(self):
        return self.says

    def plot(self):
        return go.Figure(go.Bar(x=[1], y=[2])) if self.shown is None else self.shown()


def verdict(model):
    """Its name is that of a section of the page. And a second sentence."""
    return Mine()


def training_curve(model):
    return Mine(says=3.5)


def hostile(model):
    return Mine(
        says=HOSTILE, shown=lambda: go.Figure(go.Bar(x=[HOSTILE], y=[1])).update_layout(title=HOSTILE)
    )


hostile.__doc__ = HOSTILE


def raises(model):
    """Raises."""
    raise IndexError(f"list index out of range {HOSTILE}")


def gives_a_dict(model):
    return {}


def draws_no_figure(model):
    return Mine(shown=list)


def draws_what_is_no_data(model):
    return Mine(shown=lambda: go.Figure(go.Bar(x=[1], y=[1], customdata=[object()])))


def draws_a_pie(model):
    return Mine(says="a pie", shown=lambda: go.Figure(go.Pie(labels=["a"], values=[1])))


def fails_on_one_layer(model):
    return Mine(says=f"{1 / (model.cfg.n_layers - 1):.0f} of them")


def zeroes_the_weights(model):
    model.W_E.data.zero_()
    return Mine()


ALL = (
    zeroes_the_weights,
    verdict,
    training_curve,
    hostile,
    raises,
    gives_a_dict,
    draws_no_figure,
    draws_what_is_no_data,
    draws_a_pie,
    fails_on_one_layer,
)


@pytest.fixture(scope="module", params=[1, 2])
def page(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("own") / "report.html"
    verdicts = [bare_verdict(f"model {i}") for i in range(request.param)]
    write_report(verdicts, path, probes=(*ALL, "stable_rank"))
    return Page(path.read_text())


def test_the_page_is_whole(page):
    assert len(set(page.ids())) == len(page.ids())
    figures = [attributes["id"] for tag, attributes in page.elements if tag == "figure"]
    own = [f"own-{probe.__name__}" for probe in ALL]
    assert figures == [*own, "stable_rank", "answers-0", "training_curve"]
    assert {"verdict", "configuration"} <= set(page.ids())


def test_heading_and_reading_come_from_name_and_docstring(page):
    text = " ".join("".join(page.texts).split())
    assert "Its name is that of a section of the page." in text and "a second sentence" not in text
    assert "This probe has no docstring; its first sentence would be shown here." in text
    assert "Draws what is no data" in page.texts and "3.5" in text


def test_strings_stay_strings(page):
    text = "".join(page.texts)
    assert text.count(HOSTILE) >= 3
    assert not [tag for tag, _ in page.elements if tag in ("img", "iframe", "object")]
    assert not [text for kind, text in page.scripts if kind is None and text.startswith("alert")]


def test_what_goes_wrong_is_said_in_its_place(page):
    text = " ".join("".join(page.texts).split())
    assert "it failed with IndexError: list index out of range" in text
    assert "of test_own_probes_in_page.py)" in text
    assert "gives_a_dict must return one or more readings" in text
    assert "plot() must be a plotly Figure, got list" in text
    assert (
        "it failed with TypeError: Type is not JSON serializable" in text or "not JSON serializable" in text
    )
    assert "it failed with ZeroDivisionError" in text
    assert "zeroes_the_weights must not change the model" in text
    drawn = {attributes.get("data-figure") for _, attributes in page.elements} - {None}
    several = "Verdict" in text and "2 models side by side" in text
    expected = {"figure-own-verdict", "figure-own-training_curve", "figure-own-hostile"}
    expected |= {"figure-stable_rank", "figure-answers-0"}
    assert drawn == (expected if several else expected | {"figure-own-draws_a_pie"})
    assert ("a pie (these pictures cannot stand side by side: " in text) == several


@pytest.mark.parametrize(
    ("probes", "message"),
    [
        (
            "stable_rank",
            r"probes must be a list.*got str",
        ),
        (verdict, "probes must be a list of probes, got function"),
        ([3], r"probe must be a function.*got 3"),
        (["stable_ranks"], "probe must be one of"),
        ([verdict, verdict], r"name of its own.*got <function verdict"),
    ],
)
def test_what_is_no_probe_is_refused_before_anything_is_written(probes, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        bare_verdict().report(tmp_path / "report.html", probes=probes)
    assert not list(tmp_path.iterdir())


def test_a_shipped_probe_that_fails_loses_nothing_either(tmp_path, monkeypatch):
    """A model whose cfg lies: a shipped probe meets an error that is no ValueError."""
    given = bare_verdict()
    monkeypatch.setattr(given.subject.model.cfg, "n_layers", "two")
    given.report(tmp_path / "report.html", probes=["attention_patterns", "stable_rank"])
    text = " ".join("".join(Page((tmp_path / "report.html").read_text()).texts).split())
    assert "No picture: it failed with TypeError: " in text and "Stable rank" in text
