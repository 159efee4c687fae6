"""The figures g1 to g3: curves of a run in numbers, their claims by rule, and the page of what came out."""

import importlib
import tomllib

import pytest

import grokking_page
from anchorlens import train
from shared import common, grokking
from shared.control_arms import GROKKING_CLAIMS, claims_of
from shared.grokking import before_generalising, curves, difference, outcome, passed_for_good, wait

LISTED = tomllib.loads(GROKKING_CLAIMS.read_text(encoding="utf-8"))
POINTS = [
    # step, train, held out, mirrored, unmirrored
    [0, 0.0, 0.0, 0.0, 0.0],
    [100, 1.0, 0.3, 0.6, 0.1],
    [200, 1.0, 0.45, 0.8, 0.2],
    [300, 1.0, 0.55, 0.9, 0.3],
    [400, 0.85, 0.95, 1.0, 0.9],
    [500, 1.0, 0.95, 1.0, 0.9],
]


def row(points=POINTS, **fields):
    fits, generalises = (passed_for_good(points, name) for name in ("train", "id"))
    return {"curves": points, "fits_at": fits, "generalises_at": generalises, **fields}


def test_an_accuracy_passes_for_good_from_the_last_time_on():
    assert passed_for_good(POINTS, "train") == 500 and passed_for_good(POINTS, "id") == 400
    assert passed_for_good(POINTS[:-2], "id") is None


def test_the_difference_is_taken_before_half_of_the_held_out_pairs_are_right():
    assert before_generalising(row())[0] == 200 and difference(row()) == pytest.approx(0.6)
    plateau = POINTS[:2]
    assert before_generalising(row(plateau))[0] == 100 and difference(row(plateau)) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("fits", "generalises", "named", "waited"),
    [
        (None, None, "confusion", 2000),
        (100, None, "memorisation", 2000),
        (100, 1099, "comprehension", 999),
        (100, 1100, "grokking", 1000),
        (300, 200, "comprehension", 0),
    ],
)
def test_the_four_outcomes(fits, generalises, named, waited):
    run = {"curves": [[0], [2000]], "fits_at": fits, "generalises_at": generalises}
    assert outcome(run) == named and wait(run) == waited


def test_curves_are_those_of_the_log():
    g1_mirror = importlib.import_module("g1_mirror")
    given = common.options("", preset="grokking-quick").parse_args([])
    fields = {**g1_mirror.arms()["divide"], "steps": 3, "eval_every": 1, "log_every": 1, "modulus": 7}
    fields |= {"n_samples": 21, "batch_size": 21, "d_vocab": 8, "d_vocab_out": 7}
    run = common.runs(given, {}, **fields)[0]
    result = train(*run)
    points = curves(result)["curves"]
    assert [point[0] for point in points] == [1, 2, 3]
    last = result.behaviour.headline()
    assert points[-1][1:] == pytest.approx([last[name] for name in grokking.CURVES])


@pytest.mark.parametrize("figure", ["g1_mirror", "g2_gamma", "g3_decay_gamma"])
def test_a_figure_answers_all_of_its_claims(figure, tmp_path, monkeypatch):
    module = importlib.import_module(figure)

    def made_up(given, arms, **_):
        vars(given)["network"] = {}
        more = {"d_model": 64, "lr": 1e-3, "id": 0.95, "train": 1.0}
        return [
            row(gamma=float(arms[arm].get("gamma", 0.5)), arm=arm, seed=seed, **more)
            | {"generalises_at": 2000 - 100 * place}
            for place, arm in enumerate(arms)
            for seed in (1, 2, 3)
        ]

    monkeypatch.setattr(module, "measured", made_up)
    monkeypatch.setattr("sys.argv", [figure, "--out", str(tmp_path), "--suffix", ".html"])
    module.main()
    assert claims_of(figure) and (tmp_path / f"{figure}.json").exists()


class TestPage:
    def test_it_is_what_its_template_gives(self):
        assert grokking_page.PAGE.read_text("utf-8") == grokking_page.written(), (
            "run python research/figures/grokking_page.py"
        )

    def test_a_claim_that_was_not_asked_says_so(self):
        page = grokking_page.written({})
        assert page.count("**not tested**") == len(LISTED) and "**confirmed**" not in page

    def test_each_claim_has_its_fields_and_one_bound(self):
        for name, claim in LISTED.items():
            bounds = {"at_least", "at_most", "within"} & claim.keys()
            assert len(bounds) == 1, name
            assert set(claim) - bounds == {"figure", "claim", "source", "number"}, name
