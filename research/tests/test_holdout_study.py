"""The study of holdout: its truths, bounds and scores on numbers made up, its runs, and its page."""

import json

import numpy as np
import pytest

import holdout_page
import holdout_study
from holdout import analysis
from holdout.kinds import FIRST_HALF, KINDS, Planned, runs


def row(ratio, fresh, kind="shifts", train=1.0, chance=0.0, task="a"):
    of_run = {"name": f"{kind} 00", "part": "", "n_layers": 1, "d_model": 32, "n_heads": 4, "others": 0.9}
    measured = {"train": train, "fresh": fresh, "fresh_chance": chance, "holdout_ratio": ratio}
    return {**of_run, **measured, "kind": kind, "task": task}


def test_the_truth_is_counted_from_chance():
    assert analysis.truth(row(1, 0.96, chance=0.5)) == "learnt"
    assert analysis.truth(row(1, 0.64, chance=0.5)) == "memorised"
    assert analysis.truth(row(1, 0.65)) == "between"
    assert analysis.truth(row(1, 0.9, train=0.89)) == "not fit"
    assert analysis.truth(row(1, 0.9, train=0.95, chance=0.9)) == "close to chance"


def test_bounds_lie_between_runs_that_memorised_and_that_learnt():
    rows = [row(0.4, 0.1), row(0.61, 0.2), row(0.91, 1.0), row(0.99, 1.0)]
    low, high = analysis.bounds(rows)
    assert 0.61 < low < high < 0.91
    assert low - 0.61 == pytest.approx(0.91 - high, abs=0.02)


def test_a_run_that_reads_wrongly_costs_what_it_should():
    rows = [row(0.3, 0.1, task=str(k)) for k in range(10)] + [row(0.95, 1.0, task=str(k)) for k in range(10)]
    assert analysis.score(rows).auc[0] == 1 and analysis.score(rows).right_of_named[0] == 1
    wrong = analysis.score([*rows, row(0.99, 0.0), row(None, 1.0)])
    assert wrong.n == 22 and wrong.right_of_named[0] == pytest.approx(20 / 21)
    assert wrong.between[0] == pytest.approx(1 / 22) and wrong.auc[0] < 1


def test_halves_share_no_kind_and_every_run_is_drawn_again():
    assert len(KINDS) >= 8 and set(FIRST_HALF) < set(KINDS)
    planned = dict(runs())
    assert planned == dict(runs()) and len(planned) >= 200


@pytest.mark.parametrize("kind", ["shifts", "tables", "addition", "exceptions", "sequences"])
def test_pools_hold_no_sequence_twice(kind):
    pool = KINDS[kind](1, np.random.default_rng(0))
    rows = pool.batch.tokens.tolist()
    assert len(set(map(tuple, rows))) == len(rows) > pool.many > pool.few >= 200


def test_a_run_gives_a_row_that_the_page_can_show():
    """Copies of five symbols, which a run learns in few updates."""
    model = {"n_layers": 1, "n_heads": 4, "d_model": 32, "d_head": 8, "d_mlp": 64, "gamma": 0.5}
    recipe = {"seed": 0, "lr": 3e-3, "weight_decay": 0.1, "steps": 150, "stop_at_loss": 0.02}
    (made,) = holdout_study.made(Planned("sequences", 0, True, model, recipe))
    assert made["train"] > 0.9 and made["fresh"] > 0.9 and made["holdout_ratio"] > 0.85
    assert made["lr"] == 3e-3 and json.dumps(made)


class TestPage:
    def test_it_is_what_the_table_says(self):
        assert holdout_page.PAGE.read_text("utf-8") == holdout_page.written(), (
            "run python research/holdout_page.py"
        )

    def test_another_table_gives_another_page(self):
        rows = [dict(row) for row in analysis.rows_of()]
        flipped = next(row for row in analysis.decided(rows) if row.get("holdout_ratio"))
        flipped["holdout_ratio"] = 1 - flipped["holdout_ratio"]
        assert holdout_page.written(rows) != holdout_page.written()
