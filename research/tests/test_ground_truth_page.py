"""ground_truth.md: its numbers are measured; and how a route is imposed."""

import dataclasses
import re

import numpy as np
import pytest
import torch

import circuits
import imposed_routes
import truth_page
from anchorlens import AnchorTask, build_model
from anchorlens.models.config import ModelConfig
from anchorlens.models.hooks import last_logits
from anchorlens.probes import PROBES
from shared.sentences import Stale, sentences_of

ALLOWED = (
    r"at least 0\.95|at most 0\.05|\(> 0\.05\)|above 0\.05|within 0\.05",  # the bounds
    r"gamma\s+0\.5",
    r"2[34]\d\d\.\d+",  # papers
)
RESULT = re.compile(r"\d*\.\d+|\d+ ?%|\b\d+ of \d+")
COMPILED, IMPOSED = truth_page.measured("compiled"), truth_page.measured("imposed")


def typed(template):
    """What looks like a result in the words of a template, outside of expressions, code and links."""
    for pattern in (
        r"```.*?```", r"\{\{.*?\}\}", r"\{%.*?%\}", r"\{#.*?#\}", r"`[^`]*`", r"\]\([^)]*\)", *ALLOWED
    ):  # fmt: skip
        template = re.sub(pattern, " ", template, flags=re.DOTALL)
    return RESULT.findall(template)


def test_the_page_is_what_its_template_gives():
    written = truth_page.written()
    assert truth_page.PAGE.read_text(encoding="utf-8") == written, (
        "run python research/ground_truth/truth_page.py"
    )


def test_no_result_is_written_by_hand():
    assert typed(truth_page.TEMPLATE.read_text(encoding="utf-8")) == []
    assert typed("it is 0.94 in 3 of 6, {{ x }} 71%") == ["0.94", "3 of 6", "71%"]


def test_every_probe_is_asked_and_says_what_it_cannot_see():
    names = [probe.__name__ for probe in PROBES]
    assert {row["probe"] for row in truth_page.EXPECTED["reading"]} == set(names)
    assert [name for name, text in truth_page.limitations() if len(text) < 30] == []


def test_every_circuit_was_asked_everything():
    columns = truth_page.EXPECTED["columns"]
    assert (
        list(COMPILED["compiled"]) == columns["compiled"]
        and list(COMPILED["at_the_end"]) == columns["at_the_end"]
    )
    assert sorted(IMPOSED["imposed"]) == sorted(
        f"{route}_{seed}" for route in columns["imposed"] for seed in (0, 1)
    )
    for group, found in (COMPILED | IMPOSED).items():
        for row, _ in truth_page.rows(group, found):
            assert len(row[group]) == len(columns[group]), row["name"]


def test_the_page_evidence_has_the_counts_of_the_causal_readings():
    evidence = (truth_page.PAGE.parents[2] / "docs/evidence.md").read_text(encoding="utf-8")
    said = r"(\d+ of \d+) causal readings on compiled circuits, (\d+ of \d+) on trained ones"
    ((compiled, imposed),) = re.findall(said, evidence)
    assert f"| six compiled circuits | {compiled} |" in truth_page.written()
    assert f"| 6 models with an imposed route | {imposed} |" in truth_page.written()


def test_a_sentence_that_the_numbers_do_not_bear_out_stops_the_page():
    so = sentences_of(truth_page.TEMPLATE)
    assert so(True, "it is") == "it is"
    with pytest.raises(Stale, match="'it is', which the numbers no longer say"):
        so(False, "it is")


def test_the_stored_models_are_small_and_are_those_that_were_measured():
    files = list(circuits.WEIGHTS.glob("*.safetensors"))
    assert {path.stem for path in files} == set(IMPOSED["imposed"])
    assert sum(path.stat().st_size for path in files) < 3_000_000
    for name in circuits.imposed_names():
        known = circuits.imposed(name)
        batch = known.task.sequences(known.task.trials("id"))
        right = last_logits(known.model, batch.tokens).argmax(dim=-1) == batch.targets
        assert abs(right.double().mean().item() - IMPOSED["imposed"][name]["answers"]["id"]) < 0.002


PLACES = {
    "inferential": (("xa", 1), ("b", 2)),
    "symmetric": (("x", 0), ("ab", None)),
    "gathered": (("xab", 2),),
}


class TestHowARouteIsImposed:
    questions = imposed_routes.Questions(AnchorTask(), 0)

    @pytest.mark.parametrize("route", imposed_routes.ROUTES)
    def test_the_answer_is_what_the_places_hold(self, route):
        rng, task = np.random.default_rng(3), AnchorTask()
        base, source, third = self.questions.batch(rng)
        taken, expected = imposed_routes.swaps(route, self.questions, base, source, rng)
        at = self.questions.at[base]
        assert torch.equal(at, self.questions.at[source]) and torch.equal(at, self.questions.at[third])
        for row, place in enumerate(at.tolist()):
            parts = {}
            for letters, offset in PLACES[route]:
                where = 8 if offset is None else place + offset
                of = self.questions.tokens[(base, source)[int(taken[row, where])][row]]
                parts |= {letter: int(of[place + "xab".index(letter)]) for letter in letters}
            pair = (parts["a"], parts["b"])
            trained = pair in task.seen_pairs
            assert int(expected[row]) == (task.target(parts["x"], pair) if trained else -100)

    def test_nothing_off_the_route_comes_from_the_source(self):
        rng = np.random.default_rng(3)
        base, source, _ = self.questions.batch(rng)
        taken, _ = imposed_routes.swaps("inferential", self.questions, base, source, rng)
        assert (taken == 1).sum(dim=1).max() == 1 and 0.6 < (taken == 2).any(dim=1).double().mean() < 0.9

    def test_its_last_layer_is_the_models(self):
        model = build_model(ModelConfig(d_vocab=110, **imposed_routes.HEADS))
        tokens = self.questions.tokens[:32]
        logits = imposed_routes.answered(model, model(tokens, stop_at_layer=1))
        assert torch.allclose(logits, model(tokens)[:, -1], atol=1e-5)

    def test_a_run_that_was_broken_off_goes_on_to_the_same_bits(self, tmp_path, monkeypatch):
        few = dataclasses.replace(imposed_routes.TRAIN, steps=4, batch_size=16, n_samples=200)
        monkeypatch.setattr(imposed_routes, "TRAIN", few)
        monkeypatch.setattr(imposed_routes, "SAVE_EVERY", 2)

        def broken(line):
            raise KeyboardInterrupt(line)

        whole, broken_off = tmp_path / "whole", tmp_path / "broken_off"
        for folder in (whole, broken_off):
            folder.mkdir()
        one, steps = imposed_routes.train("symmetric", 0, whole, show=lambda line: None)
        with pytest.raises(KeyboardInterrupt, match="step 2"):
            imposed_routes.train("symmetric", 0, broken_off, show=broken)
        other, _ = imposed_routes.train("symmetric", 0, broken_off, show=lambda line: None)
        assert steps == 4
        for name, value in one.named_parameters():
            assert torch.equal(value, dict(other.named_parameters())[name]), name
