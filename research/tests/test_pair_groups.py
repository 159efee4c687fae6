"""Pairs held out of further training: what is held out, the runs, and the report on known numbers."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import candidates
import pair_groups
from anchorlens import load_checkpoint
from anchorlens.probes.two_anchor.survival import groups_to_leave_out
from anchorlens.training import checkpoints
from calibration.runs import FITTED


def test_each_group_is_held_out_in_any_order_and_its_accuracy_is_divided_by_that_of_the_others(monkeypatch):
    checkpoint = load_checkpoint(checkpoints.shipped()[3])
    called = []

    def held(model, *, training_set, which, n_copies, seed):
        pairs = {tuple(sorted(row[row <= 4].tolist())) for row in training_set[0][which]}
        called.append((pairs, len(which), n_copies, seed))
        return SimpleNamespace(
            left_out_accuracies=np.array([[1.0, 1.0], [0.4, 0.1]]),
            other_accuracies=np.array([[1.0, 1.0], [0.8, 0.2]]),
        )

    monkeypatch.setattr(pair_groups, "holdout", held)
    found = pair_groups.groups_held_out(checkpoint, seed=5)
    assert found == [pytest.approx((0.4 / 0.8 + 0.1 / 0.3) / 2)] * 4
    assert [pairs for pairs, *_ in called] == [{one} for one in groups_to_leave_out(checkpoint.task, 4)]
    assert {tuple(rest) for _, *rest in called} == {(6_000, 2, 5)}


def test_the_runs_that_the_verdict_is_fit_on_come_first():
    is_fitted = [planned.group in FITTED for planned in pair_groups.planned_runs().values()]
    n = sum(is_fitted)
    assert (n, len(is_fitted) - n) == (160, 155) and all(is_fitted[:n])


def rows(n=40):
    """Runs of four tasks whose survival tells Phase 3 from 2, and whose groups do not."""
    random = np.random.default_rng(0)
    for k in range(n):
        composes = k % 2 == 0
        noise = random.normal(size=4).tolist()
        yield {
            "name": str(k),
            "task": f"task {k % 4 // 2}",
            "group": "fit",
            "label": "Phase 3" if composes else "Phase 2 with commutativity",
            "ood": 0.9 * composes,
            "survival 0": composes + 0.1 * noise[0],
            "survival 1": composes + 0.1 * noise[1],
            "groups 0": [0.5 + 0.1 * noise[2]] * 4,
            "groups 1": [0.5 + 0.1 * noise[3]] * 4,
        }


def test_the_report_has_what_the_plan_names(monkeypatch, capsys):
    monkeypatch.setattr(pair_groups, "N_RESAMPLES", 50)
    known = [*rows(), {**next(rows()), "label": "Phase 1", "groups 0": None}]
    measured = pair_groups.measured(known)
    assert len(measured) == 40
    assert pair_groups.auc_with_interval(measured, "survival") == (1.0, 1.0, 1.0)
    assert 0.2 < pair_groups.auc_with_interval(measured, "groups")[0] < 0.8
    pair_groups.report(measured)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "40 runs of 2 tasks, 20 in Phase 3"
    assert "survival: AUC 1.000 [1.000, 1.000]; medians 1." in lines[2] and lines[-1].startswith(
        "correlation"
    )
    spread = float(lines[2].split("between seeds ")[1].split()[0])
    assert 0.06 < spread < 0.14  # 0.1 of a distance of 1


@pytest.mark.parametrize("tells", [True, False])
def test_a_reading_enters_if_it_tells_the_phases_of_other_tasks(monkeypatch, capsys, tells):
    monkeypatch.setattr(candidates, "N_RESAMPLES", 100)
    runs = pd.read_parquet(pair_groups.SECOND_TABLE)
    runs = runs[runs["group"].isin(FITTED) & runs["label"].str.contains("Phase [23]")]
    runs = runs[runs["task"].isin([*runs["task"].value_counts()[:3].index])][["name", "label"]]
    noise = np.random.default_rng(0).normal(size=len(runs))
    composes = runs["label"] == "Phase 3"
    pair_groups.admission(runs.assign(groups=tells * composes + 0.1 * noise))
    said = capsys.readouterr().out
    assert (
        said.startswith(f"{len(runs)} of these runs have the same phase")
        and said.count(f"enters: {tells}") == 2
    )
    other = np.where(tells, composes, ~composes).astype(float)
    pair_groups.labels(runs.assign(**{"survival 0": composes.astype(float), "survival 1": other}))
    same, n = map(int, capsys.readouterr().out.split(": ")[1].split(" of "))
    assert n == len(runs) and (same == n) == tells
