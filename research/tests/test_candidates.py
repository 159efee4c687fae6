"""`research/candidates.py`: what enters the fit is what helps on tasks that the fit has not seen."""

import numpy as np
import pandas as pd
import pytest

import candidates
from calibration.directions import DirectedReading
from calibration.runs import FITTED
from zoo import TABLE


@pytest.fixture
def rows(monkeypatch):
    """The last rows of runs of some twenty tasks that are fit on."""
    monkeypatch.setattr(candidates, "N_RESAMPLES", 300)
    table = pd.read_parquet(TABLE)
    some = table["group"].isin(FITTED) & (table["moment"] == 1) & (table["regime"] == "reasoning")
    tasks = sorted(table["task"][some].unique())[::2]
    return table[some & table["task"].isin(tasks)].reset_index(drop=True)


def reading(field):
    return DirectedReading("candidate", field, "of a test", directions={"composes": 1})


def test_what_tells_the_answer_enters_and_noise_does_not(rows):
    random = np.random.default_rng(0)
    rows["candidate.accuracy"] = rows["ood"] + 0.1 * random.standard_normal(len(rows))
    rows["candidate.noise"] = random.standard_normal(len(rows))
    some = candidates.KNOWN[:4]
    cheat, noise = (
        candidates.gain(rows, "composes", [reading(field)], some) for field in ("accuracy", "noise")
    )
    assert cheat.enters and cheat.after > 0.95 and 0 < cheat.low < cheat.after - cheat.before < cheat.high
    assert not noise.enters and noise.before == cheat.before


def doses(*of_each):
    """A table of survival: of each run (survival, updates) at the doses that were tried."""
    rows = []
    for tried in of_each:
        row = {}
        for dose, (value, updates) in zip((1, 1.5, 2.25), [*tried, *[(np.nan, np.nan)] * 3], strict=False):
            row |= {f"survival at {dose:g}.survival": value, f"survival at {dose:g}.mean_updates": updates}
        rows.append(row)
    return pd.DataFrame(rows)


def test_the_dose_is_the_first_after_which_the_others_take_long_enough():
    table = doses([(0.9, 50), (0.6, 150), (0.3, 300)], [(0.8, 130)], [(0.7, 40), (0.5, 90)], [])
    assert candidates.survival_at(table, 0).tolist()[:3] == [0.9, 0.8, 0.7]
    assert candidates.survival_at(table, 120).tolist()[:3] == [0.6, 0.8, 0.5]
    assert candidates.survival_at(table, 280).tolist()[:3] == [0.3, 0.8, 0.5]
    assert np.isnan(candidates.survival_at(table, 0)[3])


def test_updates_are_chosen_by_the_auc_within_tasks_and_of_equals_the_fewest():
    """At the first dose the tasks differ and the answers do not; at the second the answers do."""
    table = doses(*[[(0.5 + 0.4 * task, 50), (0.2 + 0.4 * yes, 130)] for task in (0, 1) for yes in (0, 1)])
    table["task"] = ["a", "a", "b", "b"]
    table["train"] = table["id"] = 1.0
    table["ood"] = [0.0, 1.0, 0.0, 1.0]
    least, aucs = candidates.chosen_updates(table)
    assert least == 80 and aucs == {0: 0.5, 80: 1, 120: 1, 160: 1, 200: 1, 280: 1}


def test_a_reading_that_enters_is_in_the_base_of_the_next(rows):
    random = np.random.default_rng(0)
    rows["candidate.accuracy"] = rows["ood"] + 0.1 * random.standard_normal(len(rows))
    rows["candidate.noise"] = random.standard_normal(len(rows))
    added = [reading("noise"), reading("accuracy"), reading("absent")]
    (first, gain), (second, then) = candidates.entering(rows, "composes", added, candidates.KNOWN[:4])
    assert (first.field, second.field) == ("accuracy", "noise") and gain.enters and not then.enters
    assert then.before == gain.after


def test_margins_enter_where_fewer_composing_models_are_called_phase_1(rows):
    random = np.random.default_rng(0)
    rows["relative.margin"] = rows["id"] + 0.05 * random.standard_normal(len(rows))
    rows["holdout.holdout_ratio"] = rows["id"]
    base = [one for one in candidates.KNOWN if one.measurement == "information_flow"]
    found = candidates.margins(rows, base)
    assert found.after >= found.before > 0.8 and found.wrong_after < found.wrong_before <= found.n
    assert found.enter
    rows["relative.margin"] = rows["holdout.holdout_ratio"] = random.standard_normal(len(rows))
    noise = candidates.margins(rows, base)
    assert noise.after < noise.before - candidates.MOST_LOST and not noise.enter
