"""docs/replication.md: its numbers are those of the figures' JSONs, and its verdicts follow from them."""

import json
import re
from types import SimpleNamespace

import pytest

import claims_c
import common
import j3_phases
import numerals
import page
import phases_grid
from readings import Reading, verdict
from sentences import Stale

ALLOWED = (
    r"gamma \.\d+",  # which cells are meant
    r"[Ww]eight decay (0 and \.1|\.01|\.1)\b",
    r"ID >= \.90|OOD > \.50|train accuracy below \.90|above \.9\b|above \.3\b",  # thresholds
    r"train(ed)? (first )?reaches \.999",
    r"\(3,? 4\)|\(4,? 3\)|\([xy]; [^)]+\)",
    r"90 % of the embedding's variance|95 % interval",
    r"checkpoints, which lie 1\.2 times apart",
    r"30 % of\s+all pairs",
    r"2\.5e-4\s+against our 1e-3",
    r"2[4-6]\d\d\.\d+",  # the papers
)
"""What may stand as a literal where results stand: settings and thresholds, by their context."""
RESULT = re.compile(r"\d*\.\d+|\d+ %|\b\d+ of \d+")


def without(text, *patterns):
    for pattern in patterns:
        text = re.sub(pattern, " ", text, flags=re.DOTALL)
    return text


def results(template):
    """What looks like a result in the Number and Verdict paragraphs of a template, outside of expressions."""
    found = []
    for section in re.split(r"^###? ", template, flags=re.MULTILINE)[1:]:
        text = without(section, r"```.*?```", r"\{\{.*?\}\}", r"\{%.*?%\}", r"\{#.*?#\}", r"`[^`]*`")
        for lead, paragraph in re.findall(
            r"\*\*(Number|Verdict)\.\*\*(.*?)(?=\*\*(?:Claim|Network|Number|Verdict)\b|\Z)", text, re.DOTALL
        ):
            words = without(paragraph, r"!?\[[^]]*\]\([^)]*\)", *ALLOWED)
            found += [f"{section.splitlines()[0]}, {lead}: {each}" for each in RESULT.findall(words)]
    return found


def test_the_page_is_what_its_template_gives():
    written = page.written()
    assert page.PAGE.read_text(encoding="utf-8") == written, "run python research/figures/page.py"


def test_no_result_is_written_by_hand():
    assert results(page.TEMPLATE.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("words", ["a mean of .94", "in 71 % of pairs", "3 of 3 seeds", "ranks of 7.9"])
def test_a_result_that_is_written_by_hand_is_found(words):
    assert results(f"## A\n\n**Number.** At gamma .8 it is so, {words}.\n")
    assert results(f"## A\n\n**Number.** {{{{ x }}}}\n\n**Verdict.** Partly: {words}.\n")
    assert not results(f"## A\n\n**Claim.** {words}\n")


def stored(cell):
    """A cell of a JSON, as the scripts take it."""
    return SimpleNamespace(
        id=cell["cell"], fields=cell, numbers=cell, phase=cell.get("phase"), status=cell["status"]
    )


@pytest.mark.parametrize("numbers", page.networks("j3_phases"), ids=page.variant)
def test_the_phases_in_a_json_are_those_of_its_cells(numbers):
    cells = list(map(stored, numbers["phases"]["cells"]))
    assert common._plain(j3_phases.measure_phases(cells)) == numbers["phases"]


@pytest.mark.parametrize("numbers", page.networks("j10_condensation"), ids=page.variant)
@pytest.mark.parametrize("name", ["q_condensation.mean_abs_cosine", "q_condensation.n_groups"])
def test_the_orders_in_a_json_are_those_of_its_cells(numbers, name):
    cells = list(map(stored, numbers["cells"]))
    for axis in ("gamma", "weight_decay"):
        found = phases_grid.along(cells, axis, lambda cell: cell.numbers[name])
        assert common._plain(found) == numbers[name][f"along_{axis}"]


def test_a_network_more_is_found_by_its_name(tmp_path):
    for name in ("c2_gamma_depth", "c2_gamma_depth_postnorm", "c2_gamma_depths"):
        (tmp_path / f"{name}.json").write_text(json.dumps({"network": {"variant": ["gpt2"]}, "own": name}))
    found = page.networks("c2_gamma_depth", tmp_path)
    assert [(each.suffix, each["own"]) for each in found] == [
        ("", "c2_gamma_depth"),
        ("_postnorm", "c2_gamma_depth_postnorm"),
    ]
    assert page.variant(found[1]) == "postnorm"
    with pytest.raises(FileNotFoundError, match=r"must hold nothing\.json"):
        page.networks("nothing", tmp_path)


@pytest.mark.parametrize("figure", list(page.CLAIMS))
def test_every_claim_is_asked_of_seeds_that_were_run(figure):
    for numbers in page.networks(page.CLAIMS[figure][0]):
        found = page.readings(figure, numbers)
        # another network may have no run of either solution, and the page then says that it was not asked
        assert verdict(found) != "not asked" or numbers.suffix
        for reading in found:
            assert set(reading.by_seed) <= set(map(str, numbers["network"]["seed"])), reading.says


def test_the_command_of_another_network_is_that_of_its_json(monkeypatch):
    own, other = (
        page.Numbers(),
        page.Numbers(preset="quick", seed=[0, 1], set={"variant": ["postnorm"], "lr": [4e-4]}),
    )
    other.suffix = "_postnorm"
    monkeypatch.setattr(page, "networks", lambda name: [own, other])
    assert page.others("c2_gamma_depth") == (
        "\npython research/figures/c2_gamma_depth.py --seed 0 1 --set variant=postnorm lr=0.0004 "
        "--tag postnorm --suffix .png --out docs/images/figures"
    )


def test_a_sentence_that_the_numbers_do_not_bear_out_stops_the_page():
    assert page.so(True, "it is") == "it is"
    with pytest.raises(Stale, match="'it is', which the numbers no longer say"):
        page.so(False, "it is")


class TestVerdict:
    def test_all_none_and_some(self):
        yes, no = Reading("a", {"0": [True], "1": [True, True]}), Reading("b", {"0": [False], "1": []})
        assert [verdict(found) for found in ([yes], [no], [yes, no], [])] == [
            "replicated",
            "not",
            "partly",
            "not asked",
        ]

    def test_part_of_the_range_in_one_seed_is_partly(self):
        assert verdict([Reading("a", {"0": [True, True], "1": [True, False]})]) == "partly"

    def test_a_figure_that_turns_round_is_another_verdict(self):
        name, claim = page.CLAIMS["C7"]
        (numbers,) = [each for each in page.networks(name) if not each.suffix]
        assert verdict(claim(numbers)) == "replicated"
        components = numbers["components"]
        turned = dict(zip(components, reversed(components.values()), strict=True))
        assert verdict(claim({**numbers, "components": turned})) == "not"

    def test_weight_decay_out_of_order_is_not_hidden_by_gamma(self):
        name, claim = page.CLAIMS["J5C"]
        numbers = dict(page.networks(name)[0])
        rank = numbers["stable_rank"]

        def all_falling(share):
            return {**rank, "along_weight_decay": {seed: {"rising_share": share} for seed in "012"}}

        assert verdict(claim({**numbers, "stable_rank": all_falling(0.25)})) == "replicated"
        assert verdict(claim({**numbers, "stable_rank": all_falling(0.32)})) == "partly"


def test_the_table_of_readings_by_hand(monkeypatch):
    found = [Reading("x", {"0": [True, False], "1": []}), Reading("|cosine|", {"0": [True], "1": [False]})]
    monkeypatch.setitem(page.CLAIMS, "X", ("x", lambda numbers: found))
    assert page.rule(page.Numbers(), "X") == (
        "| what the paper says | seed 0 | seed 1 |\n|---|---|---|\n"
        "| x | 1 of 2 | - |\n| \\|cosine\\| | yes | no |"
    )


def test_four_seeds_have_an_interval_and_three_stand_one_by_one():
    assert numerals.each({"0": 0.1, "1": None, "2": 0.3}) == ".10 - .30"
    # 1, 2, 3, 4: mean 2.5, standard deviation 1.291, t of .975 at 3 degrees 3.182: 2.5 +- 3.182 * 1.291 / 2
    assert numerals.each([1, 2, 3, 4]) == "2.50 [.45, 4.55]"


@pytest.mark.parametrize(
    ("symmetric_share", "route", "expected"),
    [(0.9, "symmetric", [True]), (0.9, "inferential", [False]), (0.4, "symmetric", [])],
)
def test_a_seed_with_one_solution_is_asked_for_its_route(symmetric_share, route, expected):
    """By itself a run counts if most of its answers are of that solution."""
    scores = {name: {"gamma 0.6": {"0": float(name == route)}} for name in ("inferential", "symmetric")}
    numbers = {
        "answers": {"gamma 0.6": {"0": {"symmetric": symmetric_share, "inferential": 0.1}}},
        "readings": {
            "information_flow": {f"{name}_route": by_gamma for name, by_gamma in scores.items()},
            "first_layer_tsne": {"silhouette_unordered": {"gamma 0.6": {"0": 0.5}}},
        },
    }
    own, gathers = claims_c.routes(numbers)
    assert own.by_seed == {"0": expected}
    assert gathers.by_seed == {"0": []}  # with no inferential run to compare with
