"""The one-page summary: what stands on it, how it is written, and what it refuses."""

import re
import sys
from xml.etree import ElementTree

import anchorlens_command
import numpy as np
import pytest
from known_verdicts import bare_verdict, whole_verdict
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from anchorlens import ModelConfig, ScanTask, build_model, classify
from anchorlens.extras.summary import panels
from anchorlens.extras.summary.page import write_summary
from anchorlens.plots import CATEGORIES, COSINE, ORANGE
from anchorlens.probes import information_flow, mask_key_token, stable_rank, v_similarity
from anchorlens.training import checkpoints

TITLES = ("Answers", *(title for title, _ in panels.PANELS.values()))


@pytest.fixture(scope="module")
def verdict():
    """A verdict with everything there is; its probes have measured."""
    made = whole_verdict("runs/a$b/<ckpt>.pt")
    made.subject.measure(mask_key_token)
    return made


@pytest.fixture(scope="module")
def svg(verdict, tmp_path_factory):
    path = tmp_path_factory.mktemp("summary") / "s.svg"
    verdict.summary(path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def bare():
    """A verdict with as little as there can be."""
    return bare_verdict()


@pytest.fixture
def axes():
    return Figure().add_subplot()


def texts(svg):
    """What is written, in order; text that was drawn as shapes is not among it."""
    found = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    return ["".join(element.itertext()) for element in found]


def joined(svg):
    return " ".join(" ".join(texts(svg)).split())


class TestPage:
    def test_it_names_the_model_the_verdicts_and_every_panel_with_its_headline(self, verdict, svg):
        written = joined(svg)
        assert "runs/a$b/<ckpt>.pt" in written and "gamma 0.5, seed 0" in written
        assert "By behaviour ● undecided" in written and "By the probes ● Phase 3" in written
        assert verdict.by_probes.in_words() in written and "The model is small." in written
        assert [text for text in texts(svg) if text in TITLES] == list(TITLES)
        headline = verdict.subject.measure(v_similarity).headline()
        assert headline in written

    def test_it_loads_nothing_and_is_an_upright_a4_page(self, svg):
        root = ElementTree.fromstring(svg)
        assert not re.search(rb"(href|src)=\"(?!#|data:)", svg) and b"<style" in svg
        assert (root.get("width"), root.get("height")) == ("595.44pt", "841.68pt")  # 8.27 x 11.69 inches

    def test_equal_verdicts_give_equal_bytes(self, verdict, svg, tmp_path):
        verdict.summary(tmp_path / "again.svg")
        assert (tmp_path / "again.svg").read_bytes() == svg

    def test_a_pdf_has_a_page_for_each_and_its_text_with_its_font(self, bare, tmp_path):
        content = []
        for path in (tmp_path / "a.pdf", tmp_path / "b.pdf"):
            write_summary([bare, bare], path)
            content.append(path.read_bytes())
        assert content[0] == content[1]
        content = content[0]
        assert content.startswith(b"%PDF-") and len(re.findall(rb"/Type /Page\b", content)) == 2
        assert b"/FontFile2" in content and b"/Type3" not in content  # TrueType, no glyphs as drawings

    def test_a_png_is_one(self, verdict, tmp_path):
        verdict.summary(tmp_path / "s.png")
        assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")

    def test_what_a_model_cannot_be_asked_is_said_in_its_panel(self, bare, tmp_path):
        """One layer: neither a route nor values that have seen the key."""
        bare.summary(tmp_path / "s.svg")
        written = joined((tmp_path / "s.svg").read_bytes())
        assert written.count("Not shown: ") == 2
        assert "Information flow Not shown: " in written
        assert "Values at the first anchor Not shown: " in written

    def test_another_task_gets_its_answers_and_its_weights(self, tmp_path):
        task = ScanTask()
        config = ModelConfig(d_model=16, d_head=8, d_mlp=16, d_vocab=task.d_vocab, n_ctx=task.seq_len)
        classify(build_model(config), task).summary(tmp_path / "s.svg")
        written = joined((tmp_path / "s.svg").read_bytes())
        assert written.count("Not shown: ") == 3
        assert "The measured accuracies, with standard errors" in written
        assert "mean |cosine|" in written and "stable_rank.w_q_normalized" in written

    def test_what_was_measured_for_it_is_not_measured_again(self, verdict):
        assert verdict.subject.measure(stable_rank) is verdict.subject.measure(stable_rank)


class TestPanels:
    def test_answers_are_the_accuracies_of_the_pairs_with_the_unseen_boxed(self, verdict, axes):
        panels.answers(axes, verdict.behaviour)
        pairs = verdict.behaviour.by_pair()
        assert [text.get_text() for text in axes.texts] == [
            f"{pairs[a, b].accuracy.value:.2f}" for a in (1, 2, 3, 4) for b in (1, 2, 3, 4)
        ]
        boxes = [box for box in axes.patches if to_hex(box.get_edgecolor()) == ORANGE.lower()]
        assert {box.get_xy() for box in boxes} == {(2.5, 1.5), (1.5, 2.5)}  # (3, 4) and (4, 3)

    def test_values_box_the_cells_of_equal_g(self, verdict, axes):
        result = verdict.subject.measure(v_similarity)
        panels.v_similarity(axes, result)
        first, second = (result.results[result.anchors.tolist().index(a)] for a in result.pairs[0])
        assert len(axes.patches) == (first[:, None] == second[None]).sum() > 0
        shown = axes.collections[0].get_array().reshape(result.centred_cosines[0].shape)
        assert np.array_equal(shown, result.centred_cosines[0])

    def test_flow_draws_the_tokens_at_every_layer_and_says_the_answer(self, verdict, axes):
        result = verdict.subject.measure(information_flow)
        panels.information_flow(axes, result)
        tokens = [str(token) for token in result.tokens for _ in range(3)]
        *written, answer = [text.get_text() for text in axes.texts]
        assert written == tokens and answer.startswith(f"answer {result.answer}")

    def test_t_sne_has_a_colour_for_a_pair_and_its_mirror(self, verdict, axes):
        result = verdict.subject.measure(mask_key_token)
        panels.mask_key_token(axes, result)
        colours = [to_hex(points.get_edgecolor()[0]).upper() for points in axes.collections]
        assert colours == [colour.upper() for colour in CATEGORIES[:6] for _ in range(2)]
        drawn = np.concatenate([points.get_offsets() for points in axes.collections])
        assert np.array_equal(drawn, result.points[np.argsort(result.labels, kind="stable")])

    def test_a_scale_is_plotly_s(self):
        colours = panels._colours(COSINE)
        assert [to_hex(colours(place)) for place in (0.0, 1.0)] == ["#053061", "#67001f"]  # blue -1, red 1
        assert min(colours(0.5)[:3]) > 0.95


class TestRefused:
    def test_another_suffix_or_several_models_for_one_page(self, verdict, tmp_path):
        with pytest.raises(ValueError, match=r"summary.*end in \.pdf.*got 's.html'"):
            verdict.summary(tmp_path / "s.html")
        with pytest.raises(ValueError, match=r"\.pdf for several models.*'s.svg'"):
            write_summary([verdict, verdict], tmp_path / "s.svg")
        with pytest.raises(ValueError, match="list of at least one Verdict"):
            write_summary([], tmp_path / "s.pdf")
        assert not list(tmp_path.iterdir())

    def test_without_matplotlib_it_names_the_extra(self, verdict, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(
            ValueError,
            match=r"matplotlib must be installed.*export",
        ):
            verdict.summary(tmp_path / "s.pdf")
        assert not list(tmp_path.iterdir())

    def test_the_command_refuses_before_any_work_and_writes_a_page_for_each(self, tmp_path):
        phase1, *_, phase3 = checkpoints.shipped()
        several = anchorlens_command.call("classify", phase1, phase3, "--summary", tmp_path / "s.png", code=2)
        assert "--summary must end in .pdf for several models" in several.stderr and not several.stdout
        done = anchorlens_command.call("classify", phase1, "--summary", tmp_path / "s.svg")
        assert f"the summary is in {tmp_path / 's.svg'}" in " ".join(done.stderr.split())
        assert "By behaviour ● Phase 1" in joined((tmp_path / "s.svg").read_bytes())
        assert [path.name for path in tmp_path.iterdir()] == ["s.svg"]
