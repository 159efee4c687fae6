"""What stands in the page, read without a browser."""

import base64
import hashlib
import re
from dataclasses import replace

import pytest
from html_page import Page
from known_verdicts import EVIDENCE, HOSTILE, by_probes, whole_verdict

from anchorlens import AnchorTask, ModelConfig, build_model
from anchorlens.extras.arithmetic.task import AdditionTask
from anchorlens.probes import (
    PROBES,
    REPORT_PROBES,
    SHIPPED,
    activation_patching,
    attention_patterns,
    embedding_pca,
    q_condensation,
    stable_rank,
)
from anchorlens.show import write_report
from anchorlens.show.evidence import range_bar
from anchorlens.show.report.page import reading_rows
from anchorlens.show.report.panels import CARD
from anchorlens.show.tables import accuracies_table
from anchorlens.show.templating import environment
from anchorlens.show.words import CAPTIONS, caption_of
from anchorlens.tasks.shared.phases import LABELS
from anchorlens.verdict.readings import READINGS

SECTIONS = ["verdict", "evidence", "pictures", "behaviour", "training", "configuration"]


@pytest.fixture(scope="module", params=["one", "several"])
def page(request):
    return Page(request.getfixturevalue(request.param).read_text())


def test_names_of_models_keep_their_letters():
    behaviour = whole_verdict().behaviour
    shown = accuracies_table([behaviour, behaviour], ["phase1.pt", "a<b>.pt"])
    html = environment().get_template("tables.html").module.table(shown)
    assert re.findall(r'<th scope="col".*?>(.*?)</th>', html) == ["Metric", "phase1.pt", "a&lt;b&gt;.pt"]


class TestEveryPage:
    def test_is_in_order_and_every_id_stands_once(self, page):
        assert [identity for identity in page.ids() if identity in SECTIONS] == SECTIONS
        assert len(set(page.ids())) == len(page.ids())
        assert ("html", {"lang": "en"}) in page.elements
        headings = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
        assert headings.count(1) == 1
        assert all(after <= before + 1 for before, after in zip(headings, headings[1:], strict=False))

    def test_lets_only_its_own_scripts_run(self, page):
        policy = next(
            a["content"] for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy"
        )
        programs = [text for kind, text in page.scripts if kind is None]
        hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in programs]
        rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
        assert rules["default-src"] == rules["connect-src"] == "'none'"
        assert rules["script-src"] == " ".join(f"'sha256-{digest}'" for digest in hashes)

    def test_holds_each_library_once_and_loads_nothing(self, page):
        programs = [text for kind, text in page.scripts if kind is None]
        assert len(programs) == 2 and all(kind in (None, "application/json") for kind, _ in page.scripts)
        assert sum("plotly.js v" in text[:200] for text in programs) == 1
        for _, attributes in page.elements:
            assert not {"src", "srcset", "onload", "onerror", "onclick"} & attributes.keys()
            assert attributes.get("href", "#").startswith(("#", "data:"))

    def test_shows_every_probe_of_a_report_with_a_picture_or_the_reason_why_not(self, page):
        figures = {attributes["id"] for tag, attributes in page.elements if tag == "figure"}
        expected = {probe.__name__ for probe in REPORT_PROBES if probe in PROBES}
        assert figures >= expected | {"training_curve"}
        assert not figures & ({probe.__name__ for probe in SHIPPED} - expected)
        drawn = [attributes for _, attributes in page.elements if "data-figure" in attributes]
        assert len(drawn) == len(figures) and all(len(a["aria-label"]) > 20 for a in drawn)


def test_the_five_of_the_card_come_first_and_nothing_else_is_open(page):
    at = [(tag, attributes.get("id")) for tag, attributes in page.elements if tag in ("figure", "details")]
    n_open = [tag for tag, _ in at].index("details", 1)  # behind the other readings
    first = [identity for tag, identity in at[: n_open + 1] if tag == "figure"]
    assert first == list(CARD)
    assert not [a for tag, a in page.elements if tag == "details" and "open" in a]


def test_readings_of_several_models_are_rows_of_one_table():
    """Each model's first reading before any second one; the others in the order of the probes."""
    names = [reading.name for reading in READINGS[:9]]

    def of_model(order):
        voting = [replace(EVIDENCE[0], reading=names[k], vote="Phase 3") for k in order]
        silent = [
            replace(EVIDENCE[2], reading=name) for name in names if name not in [names[k] for k in order]
        ]
        return [*voting, *reversed(silent)]

    moved, others = reading_rows([of_model([8, 1, 2, 3, 4]), of_model([5, 8, 0])])
    assert [row.reading for row in moved] == [names[k] for k in (8, 5, 1, 2, 0, 3)]
    assert [row.reading for row in others] == [names[k] for k in (4, 6, 7)]
    assert [one.reading for one in moved[0].evidence] == [names[8]] * 2
    assert reading_rows([of_model([]), []])[1][0].evidence[1] is None


def test_what_stands_in_each_model_stands_once(several):
    html = several.read_text()
    assert html.count("The phases by definition") == 1
    assert html.count("<caption>Model</caption>") == html.count("<caption>Task</caption>") == 1


def test_every_probe_has_three_or_four_short_sentences_on_how_to_read_it():
    others = {"training_curve", "training_without_phases"}
    others |= {"embedding_pca_of_tokens", "activation_patching_of_tokens"}
    assert {probe.__name__ for probe in SHIPPED} | others == set(CAPTIONS)
    for caption in CAPTIONS.values():
        sentences = caption.how_to_read.removesuffix(".").split(". ")
        assert caption.how_to_read.endswith(".") and len(sentences) in (3, 4)
        assert max(len(sentence.split()) for sentence in sentences) <= 25


def test_strings_stay_strings(several):
    page = Page(several.read_text())
    text = "".join(page.texts)
    assert text.count(HOSTILE) > 10 and "49" not in re.findall(r"&(\d+)", text)
    assert not [tag for tag, _ in page.elements if tag in ("img", "iframe", "object")]
    assert not [text for kind, text in page.scripts if kind is None and text.startswith("alert")]


def test_a_report_of_several_says_once_what_is_measured_and_what_was_not(several, one):
    for path in (several, one):
        text = path.read_text()
        assert text.count('id="definition"') == (
            "pair-map" in re.sub(r"<style.*?</style>", "", text, flags=re.S)
        )
        assert text.count("Not measured:") <= 1


def test_what_is_not_there_is_said(several):
    text = " ".join("".join(Page(several.read_text()).texts).split())
    for words in (
        "a model: no probabilities: not finite: no reading could be taken",
        "the run's log (log.jsonl) was not found next to the checkpoint",
        "must get the model at the start of its run",
        "no picture: ",
        "not known",
    ):
        assert words in text
    assert "nan" not in re.findall(r"\w+", text)


def test_a_page_is_written_whole_or_not_at_all(tmp_path):
    with pytest.raises(ValueError, match="list of at least one Verdict"):
        write_report([], tmp_path / "report.html")
    with pytest.raises(ValueError, match="got 'verdict'"):
        write_report("verdict", tmp_path / "report.html")
    assert not list(tmp_path.iterdir())


class TestRangeBar:
    def test_places_value_and_ranges_on_one_scale(self):
        bar = range_bar(EVIDENCE[0])  # -.05 .. .7, value .63
        assert bar.value == pytest.approx(100 * 0.68 / 0.75, abs=0.05)
        assert list(bar.bands) == list(LABELS)
        assert bar.bands["Phase 1"][0] == 0 and sum(bar.bands["Phase 3"]) == pytest.approx(100)
        assert bar.words.startswith("value 0.63; Phase 1 -0.05 to 0.02; Phase 2 without")

    @pytest.mark.parametrize("reading", EVIDENCE[2:])
    def test_without_a_number_there_is_no_mark(self, reading):
        assert range_bar(reading).value is None and range_bar(reading).words.startswith("no value")


def evidence_row(evidence):
    """The row of a reading, by the macro of the pages."""
    return str(environment().get_template("parts.html").module.evidence_row(evidence))


class TestEvidenceRow:
    def test_holds_the_reading_its_drawing_and_the_colour_of_its_vote(self):
        kinds = [name for name, _ in Page(evidence_row(EVIDENCE[0])).elements]
        n_bands = len(EVIDENCE[0].ranges)
        assert kinds.count("td") == 4 and kinds.count("svg") == 1 + 3
        assert kinds.count("rect") == n_bands + 3 and "path" in kinds

    def test_odds_are_raised_and_lowered(self):
        text = "".join(Page(evidence_row(EVIDENCE[0])).texts)
        assert "3: ×8.2" in text and "2 (not comm.): ÷3.3" in text and "1: ÷1.6" in text
        assert "2 with:" not in text  # its odds stay
        assert "none" in "".join(Page(evidence_row(EVIDENCE[2])).texts)

    def test_foreign_texts_stay_texts(self):
        one = replace(EVIDENCE[0], meaning=HOSTILE, reading=HOSTILE, vote=HOSTILE)
        allowed = {name for name, _ in Page(evidence_row(EVIDENCE[0])).elements}
        html = evidence_row(one)
        assert {name for name, _ in Page(html).elements} <= allowed
        assert html.replace("\n", "").isprintable()


class TestNotebookView:
    def test_is_small_and_needs_nothing(self):
        html = whole_verdict()._repr_html_()
        page = Page(html)
        assert len(html) < 30_000 and not page.scripts
        assert "&" not in html.split("</style>")[0]  # a style sheet is no text to escape
        assert not [a for _, a in page.elements if {"src", "href"} & a.keys()]
        text = "".join(page.texts)
        assert "undecided: underfit" in text and "Phase 3" in text and "94.0%" in text
        assert all(evidence.reading in text for evidence in EVIDENCE) and "nan" not in text

    def test_strings_stay_strings(self):
        verdict = whole_verdict(HOSTILE)
        assert HOSTILE in "".join(Page(verdict._repr_html_()).texts)
        assert by_probes().phase.label in verdict._repr_html_()


def test_a_picture_without_shifts_or_anchors_has_a_caption_without_them():
    """Addition has no shifts; its embedding is that of the tokens that it uses, not of the vocabulary."""
    model = build_model(ModelConfig(n_layers=1, d_model=16, d_head=8, d_mlp=16))
    task = AdditionTask(largest=9, square_min=4, square_max=5, n_held_out=20)
    foreign, own = embedding_pca(model, task), embedding_pca(model, AnchorTask())
    assert len(foreign.tokens) == task.d_vocab < model.cfg.d_vocab
    assert f"all {task.d_vocab} tokens of the task" in repr(foreign)
    assert "arrows" in caption_of("embedding_pca", own).how_to_read
    assert "arrows" not in caption_of("embedding_pca", foreign).how_to_read
    sequences = {"tokens": [5, 0, 2, 7], "corrupted": [5, 0, 1, 7], "targets": [8, 9]}
    for result in (
        *(probe(model, task) for probe in (embedding_pca, stable_rank, q_condensation)),
        attention_patterns(model, tokens=[5, 0, 2, 7]),
        activation_patching(model, **sequences),
    ):
        text = caption_of(result.probe, result).how_to_read
        assert not any(word in text for word in ("anchor", "key", "shift", "g(x"))
    assert "anchor" in caption_of("activation_patching", activation_patching(model, AnchorTask())).how_to_read
    assert "darker" not in caption_of("attention_patterns").how_to_read  # on a dark page more is lighter
