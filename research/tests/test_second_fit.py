"""`research/second_fit.py`: the second fit goes by its own runs and readings, beside the one that ships."""

import json

import numpy as np
import pandas as pd
import pytest

import second_fit
from anchorlens.tasks.shared.phases import LABELS
from anchorlens.verdict.calibration import Calibration, calibration
from calibration import held_out, page
from calibration.runs import SECOND, SECOND_FITTED
from zoo import SECOND_TABLE

NEW = [name for name in SECOND if name not in SECOND_FITTED]


@pytest.fixture(scope="module")
def stored():
    return Calibration.from_dict(json.loads(second_fit.STORED.read_text()))


@pytest.fixture(scope="module")
def table():
    return pd.read_parquet(SECOND_TABLE)


def test_the_rules_of_the_plan_decide_what_speaks_for_what():
    probes = {one.name: one for one in second_fit.SECOND_WAYS["by_probes"]}
    assert probes["information_flow.relative_margin"].sign("generalises") == 1
    assert (
        probes["holdout.holdout_ratio"].sign("generalises")
        == probes["survival.survival"].sign("composes")
        == 1
    )
    assert probes["information_flow.margin"].sign("generalises") == 0
    gradients = [one for one in probes.values() if one.measurement == "gradient_sharing"]
    assert len(gradients) == 4 and not any(one.sign("composes") for one in gradients)
    assert not any(one.sees == "unseen pairs" for one in probes.values())


def test_the_stored_fit_goes_by_the_runs_that_are_fit_on(stored, table):
    rows = second_fit.rows_of(table, SECOND_FITTED)
    assert stored.provenance["fit_on"] == f"{len(rows)} runs of {rows['task'].nunique()} tasks"
    assert not set(rows["group"]) & set(NEW) and stored.known["d_model"] == [48, 128]
    votes = stored.regimes["reasoning"].by_probes.questions
    assert "information_flow.margin" not in votes["generalises"].votes
    assert votes["composes"].votes["survival.survival"].weight > 0


def test_a_model_that_composes_is_never_called_phase_1(stored, table):
    """Of all runs of the second zoo with train .90 to .97; the calibration that ships calls some so."""
    rows = second_fit.rows_of(table, [*SECOND_FITTED, *NEW])
    assert second_fit.composing_as_phase_1(stored, rows) == []
    without_rule = second_fit.composing_as_phase_1(calibration(), rows)  # which leaves them undecided
    assert len(without_rule) > 0


def made_up(n, groups):
    """Runs whose survival says whether they compose, and whose relative margin whether they generalise."""
    random = np.random.default_rng(0)
    rows = []
    for k in range(n):
        id, ood = ((0.3, 0.0), (1.0, 0.1), (1.0, 0.9))[k % 3]
        row = {"name": str(k), "group": groups[k % len(groups)], "task": f"task {k % 7}", "kind": "shifts"}
        row |= {"regime": "reasoning", "commutes": False, "variant": "gpt2", "gamma": 0.5, "lr": 2e-3}
        row |= {"n_layers": 2, "n_heads": 1, "d_model": 64, "n_anchors": 4, "n_keys": 80, "seq_len": 9}
        row |= {"n_unseen": 2, "weight_decay": 0.0, "n_samples": 4000, "train": 1.0, "id": id, "ood": ood}
        row |= {"id_error": 0.001, "ood_error": 0.001, "commutativity": 0.1, "solution": None}
        row |= {"information_flow.margin": 8 * id + random.normal(), "training.margin": 8.0}
        row |= {"survival at 1.survival": ood + 0.1 * random.normal(), "survival at 1.mean_updates": 200}
        row |= {
            f"survival at {dose}.{name}": np.nan
            for dose in ("1.5", "2.25")
            for name in ("survival", "mean_updates")
        }
        rows.append(row)
    return pd.DataFrame(rows)


def test_tables_compare_both_fits_on_the_same_runs():
    zoo = made_up(210, [*SECOND_FITTED, *NEW])
    fitted, asked = (second_fit.rows_of(zoo, groups) for groups in (SECOND_FITTED, NEW))
    content, left = second_fit.second_fit(fitted)
    found = second_fit.found_tables(fitted, asked, content, left)
    assert found["groups"].row_count == len(NEW) + 1 and found["confusions"].row_count == 3
    of_all = page.markdown(found["groups"]).splitlines()[-1]
    assert of_all.startswith("| all held out") and "100.0% (100% to 100%), 90 of 90" in of_all
    aims = page.markdown(found["aims"])
    assert f"{len(asked)} of {len(asked)}" in aims  # undecided or not
    assert "papers' task: AUC of Phase 3 against 2" in aims and " points (" in aims
    assert set(second_fit.weights_table(content).columns[0]._cells) == {
        "information_flow.relative_margin", "survival.survival",
    }  # fmt: skip


def test_an_advantage_is_a_difference_of_shares_of_the_same_runs():
    def said(sure_of):
        probabilities = dict.fromkeys(LABELS, 0.0) | {sure_of: 1.0}
        return held_out.Said("fit", "a", LABELS[3], False, 0.4, probabilities, 0.5)

    right, wrong = said(LABELS[3]), said(LABELS[0])
    new, old = [right, said(LABELS[3]), right, wrong], [right, wrong, wrong, wrong]
    assert second_fit.advantage([said(LABELS[3]) for _ in range(4)], old).startswith("75.0 points")
    assert second_fit.assigned(new) == "75.0%, 3 of 4" and len(second_fit.surest([right] * 10)) == 9
