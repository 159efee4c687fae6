"""replication.md and the figures' pages: numbers are those of the JSONs, words follow by rule."""

import json
import re

import plotly.graph_objects as go
import pytest
from docutils import nodes
from docutils.core import publish_doctree
from myst_parser.docutils_ import Parser

import j3_phases
import page
from claims import effects, main_claims, side_claims_c
from claims.main_claims import Answer, Effect, word_of
from recount import stored
from shared import common, numerals, phases_grid
from shared.pages import stale
from shared.readings import Reading
from shared.sentences import Stale, sentences_of

MOST_BYTES = 12_000
"""Of the page with the table: one that a reader finishes."""
ALLOWED = (
    r"gamma 0\.\d+( and 0\.\d+)?|gammas below 0\.45",  # which cells are meant
    r"[Ww]eight decay (0 and 0\.1|0, 0\.01 and 0\.1|0\.01|0\.1)\b",
    r"ID >= 0\.90|OOD > 0\.50|train accuracy below 0\.90|above 0\.9\b|above 0\.3\b",  # thresholds
    r"ID accuracy of 0\.90|silhouette of at least 0\.25",
    r"p stays below 0\.05",
    r"at least 75% of the pairs of runs \(50% is chance\)",
    r"train(ed)?( accuracy)? (first )?reaches 0\.999",
    r"whose loss never falls to 0\.05|lies between 0\.80 and 1\.25",
    r"\(3,? 4\)|\(4,? 3\)|\([xy]; [^)]+\)",
    r"90% of the embedding's variance|95% interval",
    r"checkpoints, whose steps differ by a factor of 1\.2",
    r"30% of\s+all pairs",
    r"2\.5e-4,\s+which is lower than our 1e-3",
    r"2[4-6]\d\d\.\d+",  # the papers
)
"""What may stand as a literal where results stand: settings and thresholds, by their context."""
RESULT = re.compile(r"\d*\.\d+|\d+ ?%|\b\d+ of \d+")


def without(text, *patterns):
    for pattern in patterns:
        text = re.sub(pattern, " ", text, flags=re.DOTALL)
    return text


def results(template):
    """What looks like a result in a template, but for expressions, what the paper says, and networks."""
    text = without(template, r"```.*?```", r"\{\{.*?\}\}", r"\{%.*?%\}", r"\{#.*?#\}", r"`[^`]*`")
    text = without(text, r"\*\*(Claim|The papers?|Network|Scale)\.\*\*.*?\n\n", r"!?\[[^]]*\]\([^)]*\)")
    return RESULT.findall(without(text, *ALLOWED))


@pytest.fixture(scope="module")
def pages():
    return page.written()


def test_the_pages_are_what_their_templates_give(pages):
    assert stale(pages, page.FOLDER) == [], "run python research/figures/page.py"


def test_a_page_that_differs_or_that_no_template_gives_is_stale(pages):
    index = page.HERE / "replication.md"
    assert stale({**pages, index: "another"}, page.FOLDER) == [index]
    *others, last = pages
    assert stale({path: pages[path] for path in others}, page.FOLDER) == [last]


@pytest.mark.parametrize("template", sorted(page.TEMPLATES.glob("*.jinja")), ids=lambda path: path.name)
def test_no_result_is_written_by_hand(template):
    assert results(template.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("words", ["a mean of 0.94", "in 71% of pairs", "3 of 3 seeds", "ranks of 7.9"])
def test_a_result_that_is_written_by_hand_is_found(words):
    assert results(f"# A\n\nAt gamma 0.8 it is so, {words}.\n")
    assert results(f"# A\n\n**Results.** {{{{ x }}}}\n\n**Interpretation.** So it is: {words}.\n")
    assert not results(f"# A\n\n**The paper.** {words}\n\n")


def test_the_page_with_the_table_is_one_that_a_reader_finishes(pages):
    text = pages[page.HERE / "replication.md"]
    assert len(text.encode()) < MOST_BYTES
    before, by_claim = text.split("\n## Claim by claim\n")
    assert "| figure |" in by_claim
    for figure in main_claims.read():  # each claim stands under one outcome
        assert before.count(f"({page.label(figure)})") == 1


def test_no_page_says_partly(pages):
    for path, text in pages.items():
        assert not re.search(r"\bpartly\b", text, re.IGNORECASE), path.name


def rows(text):
    """The cells of the table's rows, by the name of the figure's page."""
    found = re.findall(r"^\| \[[^]]+\]\(replication/(\w+)\.md\) \|(.*)\|$", text, re.MULTILINE)
    return {name: [cell.strip() for cell in re.split(r"(?<!\\)\|", cells)] for name, cells in found}


def test_every_row_has_the_word_of_its_rule(pages):
    found = rows(pages[page.HERE / "replication.md"])
    claims = main_claims.read()
    assert list(found) == [claim.page for claim in claims.values()]
    for figure, claim in claims.items():
        word = page.outcome(figure).word
        assert word in main_claims.WORDS
        assert f"*{word}*" in found[claim.page]
        assert f"**Outcome.** *{word.capitalize()}*" in pages[page.HERE / f"replication/{claim.page}.md"]


def test_every_picture_is_there_and_is_a_picture_for_the_site(pages):
    asked = {"myst_enable_extensions": ["html_image"], "myst_suppress_warnings": ["myst"], "report_level": 5}
    for path, text in pages.items():
        body = text.split("```{toctree}")[0]
        tree = publish_doctree(body, parser=Parser(), settings_overrides=asked)
        images = [node["uri"] for node in tree.findall(nodes.image)]
        assert len(images) == body.count("<img ") + body.count("![")
        assert all((path.parent / image).exists() for image in images), path.name


@pytest.mark.parametrize("numbers", page.networks("j3_phases"), ids=page.variant)
def test_the_phases_in_a_json_are_those_of_its_cells(numbers):
    cells = list(map(stored, numbers["phases"]["cells"]))
    assert common.plain(j3_phases.measure_phases(cells)) == numbers["phases"]


@pytest.mark.parametrize("numbers", page.networks("j10_condensation"), ids=page.variant)
@pytest.mark.parametrize("name", ["q_condensation.mean_abs_cosine", "q_condensation.n_groups"])
def test_the_orders_in_a_json_are_those_of_its_cells(numbers, name):
    found = common.plain(phases_grid.along_both(list(map(stored, numbers["cells"])), name))
    assert found == {axis: numbers[name][axis] for axis in found}


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
def test_every_side_claim_is_asked_of_seeds_that_were_run(figure):
    for numbers in page.networks(main_claims.read()[figure].data):
        for reading in page.CLAIMS[figure](numbers):
            assert set(reading.by_seed) <= set(map(str, numbers["network"]["seed"])), reading.says


@pytest.mark.parametrize("figure", list(main_claims.read()))
def test_every_effect_is_of_seeds_that_were_run(figure):
    for numbers in page.networks(main_claims.read()[figure].data):
        effect = effects.EFFECTS[figure](numbers)
        seeds = set(map(str, numbers["network"]["seed"]))
        assert set(effect.by_seed) <= seeds
        assert all(set(by_seed) <= seeds for _, by_seed in effect.shown)


def test_the_command_of_another_network_is_that_of_its_json(monkeypatch):
    own, other = (
        page.Numbers(preset="scan"),
        page.Numbers(preset="quick", seed=[0, 1], set={"variant": ["postnorm"], "lr": [4e-4]}),
    )
    other.suffix = "_postnorm"
    monkeypatch.setattr(page, "networks", lambda name: [own, other])
    assert page.others("c2_gamma_depth") == (
        "\npython research/figures/c2_gamma_depth.py --seed 0 1 --set variant=postnorm lr=0.0004 "
        "--tag postnorm --suffix .png --out docs/images/figures"
    )
    other["options"] = {"gamma": [0.8, 0.5], "both_orders": True, "equal_id": False, "mode": "reversed"}
    assert " --gamma 0.8 0.5 --both-orders --mode reversed --seed 0 1 " in page.others("c2_gamma_depth")
    other.update(preset="scan", set={})  # a script of one preset has no option for it
    assert page.others("c2_gamma_depth").startswith("\npython research/figures/c2_gamma_depth.py --gamma 0.8")
    assert "--set" not in page.others("c2_gamma_depth")
    other["preset"] = "paper-scan"
    assert ".py --preset paper-scan --gamma 0.8" in page.others("c2_gamma_depth")


def test_what_is_counted_anew_keeps_the_options_that_its_numbers_came_from(tmp_path):
    parser = common.options("")
    parser.add_argument("--gamma", type=float, nargs="+", default=[0.4, 0.5])
    asked = parser.parse_args(["--gamma", "0.8", "--out", str(tmp_path), "--suffix", ".html"])
    asked.network = {"gamma": [0.8]}
    common.write(asked, "figure", go.Figure(), {"x": 1})
    anew = parser.parse_args(["--out", str(tmp_path)])
    common.taken_up(anew, tmp_path / "figure.json")
    before = (tmp_path / "figure.json").read_text()
    common.write(anew, "figure", go.Figure(), {"x": 1})
    assert json.loads(before)["options"] == {"gamma": [0.8]}
    assert (tmp_path / "figure.json").read_text() == before


def test_a_sentence_that_the_numbers_do_not_bear_out_stops_the_page():
    so = sentences_of(page.TEMPLATES / "c2.md.jinja")
    assert so(True, "it is") == "it is"
    with pytest.raises(Stale, match="'it is', which the numbers no longer say"):
        so(False, "it is")


CLAIM = main_claims.read()["C2"]  # dead zone 0.1, size 0.5, asked of `postnorm`


def answer(*by_seed, variant="postnorm", d_model=128, n_samples=100_000, holds=True, claim=CLAIM):
    effect = Effect({str(seed): value for seed, value in enumerate(by_seed)}, [], holds)
    network = {"variant": [variant], "d_model": [d_model], "n_samples": [n_samples]}
    return Answer({"network": network}, effect, word_of(effect, claim))


def word(*answers, claim=CLAIM):
    return main_claims.outcome(claim, answers).word


class TestWords:
    def test_of_one_network(self):
        assert word(answer(0.5, 0.9)) == "replicated"
        assert word(answer(0.49, 0.9)) == "right direction"
        assert word(answer(0.1, 0.9)) == "not replicated"  # one seed within the dead zone
        assert word(answer(-0.9, 0.9)) == "not replicated"
        assert word(answer(0.9, None)) == "not reached"  # one seed is not a result
        assert word(answer(0.9, None, 0.9)) == "replicated"

    def test_what_replicated_wants_beside_the_size(self):
        assert word(answer(0.9, 0.9, holds=False)) == "right direction"

    def test_another_architecture_says_nothing(self):
        assert word(answer(0.9, 0.9, variant="gpt2")) == "not tested"
        assert word(answer(0.9, 0.9, variant="gpt2"), answer(0.2, 0.2)) == "right direction"

    def test_too_few_sequences_say_nothing(self):
        claim = main_claims.read()["J3A"]
        own = {"variant": "released", "claim": claim}
        assert word(answer(0.9, 0.9, n_samples=5000, **own), claim=claim) == "not tested"
        assert word(answer(0.9, 0.9, **own), claim=claim) == "replicated"

    def test_of_several_widths_the_widest_that_reaches_the_state(self):
        narrow, wide = answer(0.9, 0.9), answer(0.0, 0.0, d_model=400)
        assert word(narrow, wide) == word(wide, narrow) == "not replicated"
        assert word(narrow, answer(None, 0.9, d_model=400)) == "replicated"
        assert word(answer(None, 0.9, d_model=400)) == "not reached"

    def test_of_equal_widths_the_one_that_saw_the_most_sequences(self):
        part, whole = answer(0.9, 0.9), answer(0.2, 0.2)
        part.numbers["network"].update(total_steps=[20_000], batch_size=[512])
        whole.numbers["network"].update(total_steps=[92_190], batch_size=[2048])
        assert word(part, whole) == word(whole, part) == "right direction"
        assert word(whole, answer(0.0, 0.0, d_model=400)) == "not replicated"

    def test_of_several_corpora_the_worst_and_without_the_state_not_asked(self):
        claim = main_claims.read()["J7A"]  # sizes and protocol are ours; dead zone 0.02, size 0.1
        ours = {"variant": "gpt2", "claim": claim}
        assert word(answer(0.9, 0.9, **ours), answer(0.05, 0.9, **ours), claim=claim) == "right direction"
        assert word(answer(0.9, 0.9, **ours), answer(None, None, **ours), claim=claim) == "replicated"
        assert word(answer(None, None, **ours), claim=claim) == "not tested"

    def test_a_figure_that_turns_round_has_another(self):
        claim = main_claims.read()["C7"]
        (numbers,) = [each for each in page.networks(claim.data) if each.suffix == "_postnorm"]
        components = numbers["components"]
        turned = dict(zip(components, reversed(components.values()), strict=True))
        assert word_of(effects.eigenvalues(numbers), claim) == "right direction"
        assert word_of(effects.eigenvalues({**numbers, "components": turned}), claim) == "not replicated"


def test_each_solution_is_asked_at_its_own_best_rate():
    shares = {  # (gamma, rate) -> symmetric, inferential, train
        (0.5, 1): (0.6, 0.1, 1.0),
        (0.5, 2): (0.9, 0.0, 1.0),
        (0.8, 1): (0.0, 0.7, 1.0),
        (0.8, 2): (0.3, 0.9, 0.5),  # has not fit its data
    }
    runs = [
        {"gamma": gamma, "depth": 2, "seed": 0, "lr": rate, "symmetric": s, "inferential": i, "train": train}
        for (gamma, rate), (s, i, train) in shares.items()
    ]
    found = effects.solutions({"network": {"seed": [0]}, "runs": runs})
    assert found.by_seed == {"0": pytest.approx(0.6)}  # the smaller of .9 - 0 and .7 - .1


@pytest.mark.parametrize(("factor", "alike"), [(1.03, True), (1.05, False)])  # to the sixth: 1.19 and 1.34
def test_the_time_of_a_large_initialisation_is_held_against_a_bound(factor, alike):
    runs = [
        {"panel": panel, "line": "2 layers", "complexity": k, "seed": 0, "epochs": f**k, "trained_epochs": 9}
        for panel, f in (("gamma 0.8", 1.1), ("gamma 0.5", factor))
        for k in range(7)
    ]
    found = effects.times({"network": {"seed": [0]}, "runs": runs})
    assert found.by_seed["0"] == pytest.approx(1.1**6 - factor**6, abs=1e-4)
    assert found.holds is alike


def test_the_table_of_readings_by_hand(monkeypatch):
    found = [Reading("x", {"0": [True, False], "1": []}), Reading("|cosine|", {"0": [True], "1": [False]})]
    monkeypatch.setitem(page.CLAIMS, "X", lambda numbers: found)
    assert page.rule(page.Numbers(), "X") == (
        "| side claim | seed 0 | seed 1 |\n|---|---|---|\n| x | 1 of 2 | - |\n| \\|cosine\\| | yes | no |"
    )


def test_four_seeds_have_an_interval_and_three_stand_one_by_one():
    assert numerals.each({"0": 0.1, "1": None, "2": 0.3}) == "0.10 - 0.30"
    # 1, 2, 3, 4: mean 2.5, standard deviation 1.291, t of .975 at 3 degrees 3.182: 2.5 +- 3.182 * 1.291 / 2
    assert numerals.each([1, 2, 3, 4]) == "2.50 [0.45, 4.55]"


@pytest.mark.parametrize(
    ("symmetric_share", "route", "expected"),
    [(0.9, "symmetric", 1.0), (0.9, "inferential", -1.0), (0.4, "symmetric", None)],
)
def test_a_run_is_asked_for_the_route_of_its_solution(symmetric_share, route, expected):
    """A run has a solution if most of its answers are of it."""
    scores = {name: {"gamma 0.6": {"0": float(name == route)}} for name in ("inferential", "symmetric")}
    numbers = {
        "network": {"seed": [0]},
        "answers": {"gamma 0.6": {"0": {"symmetric": symmetric_share, "inferential": 0.1}}},
        "readings": {
            "information_flow": {f"{name}_route": by_gamma for name, by_gamma in scores.items()},
            "first_layer_tsne": {"silhouette_unordered": {"gamma 0.6": {"0": 0.5}}},
        },
    }
    assert effects.routes(numbers).by_seed == {"0": expected}
    (gathers,) = side_claims_c.routes(numbers)
    assert gathers.by_seed == {"0": []}  # with no inferential run to compare with
