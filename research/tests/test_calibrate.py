"""`research/calibrate.py`: the fit finds what is there and never turns a reading round; the tables count."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import calibrate
from anchorlens.tasks.shared.phases import LABELS
from anchorlens.verdict.calibration import Calibration, LogisticModel, calibration
from anchorlens.verdict.probe_verdict import likeliest_phase
from anchorlens.verdict.readings import COSTLY, READINGS
from calibration import fit, held_out, page, votes, weights
from calibration.curve import selective_curve
from calibration.directions import DIRECTED
from calibration.runs import FITTED, GROUPS, SECOND

ANSWERS = {  # train, ID, OOD, commutativity, symmetric
    LABELS[0]: (1.0, 0.3, 0.0, 0.2),
    LABELS[1]: (1.0, 1.0, 0.1, 0.1),
    LABELS[2]: (1.0, 1.0, 0.1, 0.9),
    LABELS[3]: (1.0, 1.0, 0.9, 0.9),
    "undecided": (0.3, 0.2, 0.1, 0.5),
}
SOLVED = {"inferential": (0.9, 0.0), "symmetric": (0.0, 0.9), "other": (0.1, 0.2)}
"""Solution -> OOD and symmetric accuracy."""
SAYS = {
    "generalises": "mask_key_token.silhouette_unordered",
    "composes": "fusion_similarity.centred_gap",
    "commutative": "gradient_sharing.order_blindness",
}
"""Question -> the column that answers it in the table made here."""


def table(n=120, seed=0, groups=("fit",)):
    """A table of the zoo in which one number answers each question, with noise, and the others nothing."""
    random = np.random.default_rng(seed)
    rows = []
    for k in range(n):
        conflict = k % 3 == 2
        label = list(ANSWERS)[k % len(ANSWERS)]
        train, id, ood, commutativity = ANSWERS[label]
        solution, symmetric = None, np.nan
        if conflict:
            solution = list(SOLVED)[k // 3 % 3]
            (ood, symmetric), train = SOLVED[solution], 1.0
        about = {"name": f"run-{k}", "group": groups[k % len(groups)], "task": f"task {k % 6}", "seed": k}
        about |= {"regime": "conflict" if conflict else "reasoning", "kind": "shifts", "commutes": k % 4 != 1}
        about |= {"n_anchors": 3 + k % 3, "n_keys": 40 + k % 7, "seq_len": 6 + k % 5, "n_unseen": 2}
        about |= {"gamma": 0.5, "weight_decay": 0.0, "lr": 2e-3, "n_samples": 4000}
        about |= {"variant": ("gpt2", "postnorm")[k % 2], "n_layers": 2 + k % 3, "n_heads": 1}
        about |= {"d_model": (64, 96)[k % 2], "label": label, "clear_label": label, "solution": solution}
        about |= {
            "train": train,
            "id": id,
            "ood": ood,
            "symmetric": symmetric,
            "commutativity": commutativity,
        }
        about |= {"id_error": 0.001, "ood_error": 0.001}
        for moment in (0.1, 0.25, 0.5, 1.0):
            numbers = {f"{one.measurement}.{one.field}": random.normal() for one in READINGS}
            numbers["training.margin"] = 5.0
            numbers[SAYS["generalises"]] = float(id >= 0.9) + 0.2 * random.normal()
            numbers[SAYS["composes"]] = float(ood > 0.5) + 0.2 * random.normal()
            alike = symmetric > 0.5 if conflict else commutativity >= 0.7
            numbers[SAYS["commutative"]] = float(alike) + 0.2 * random.normal()
            rows.append({**about, "moment": moment, "step": 1, "now": "undecided", **numbers})
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def rows():
    found = table(240)
    return found[(found["moment"] == 1) & (found["regime"] == "reasoning")].reset_index(drop=True)


@pytest.fixture(scope="module")
def solved():
    found = table(240)
    return found[(found["moment"] == 1) & (found["regime"] == "conflict")].reset_index(drop=True)


@pytest.fixture(scope="module")
def everything():
    """A table with groups that are held out, and what is fit on it."""
    zoo = table(480, groups=(*FITTED, *GROUPS, *SECOND))
    zoo.loc[~zoo["group"].isin(FITTED), "variant"] = "released"
    return zoo, calibrate.content(zoo)


class TestVote:
    def test_a_reading_that_says_the_contrary_has_no_vote(self):
        values, yes = pd.Series(np.arange(40.0)), np.arange(40) >= 20
        rising = votes.fit_vote(values, yes.astype(float), 1)
        assert rising["slope"] > 0 and rising["neutral"] == pytest.approx(19.5, abs=0.1)
        assert votes.fit_vote(values, yes.astype(float), -1) is None
        assert votes.fit_vote(-values, yes.astype(float), -1)["slope"] < 0
        either = [votes.fit_vote(one, yes.astype(float), 0)["slope"] for one in (values, -values)]
        assert either[0] > 0 > either[1]

    def test_the_neutral_value_is_where_the_odds_are_those_of_all(self):
        random = np.random.default_rng(0)
        yes = random.random(4000) < 0.2
        values = pd.Series(random.normal(size=4000) + 2.0 * yes)  # log-odds rise by 2 a unit, 0 at 1
        found = votes.fit_vote(values, yes.astype(float), 1)
        assert found["slope"] == pytest.approx(2, abs=0.2) and found["neutral"] == pytest.approx(1, abs=0.1)

    def test_missing_values_and_too_few_of_them_say_nothing(self):
        yes = np.r_[np.zeros(20), np.ones(20)]
        values = pd.Series(np.r_[np.arange(40.0)])
        vote = votes.fit_vote(values.where(values % 2 == 0), yes, 1)
        assert votes.said(vote, pd.Series([np.nan, 1e9])).tolist() == [
            0.0,
            pytest.approx(vote["slope"] * (vote["high"] - vote["neutral"])),
        ]
        assert votes.fit_vote(values.where(values > 35), yes, 1) is None
        assert votes.fit_vote(pd.Series(np.ones(40)), yes, 1) is None


class TestWeights:
    def test_the_accuracy_is_regressed_with_weights_that_are_never_negative(self):
        random = np.random.default_rng(0)
        says = random.normal(size=(500, 3))
        accuracies = 0.4 + says @ [0.2, 0.0, -0.1] + 0.01 * random.normal(size=500)
        intercept, found = weights.fit_accuracies(says + [5, 0, 0], accuracies, 0.3)
        assert found == pytest.approx([0.2, 0.0, 0.0], abs=0.02) and (found >= 0).all()
        assert intercept == pytest.approx(0.4 - 5 * found[0], abs=0.02)
        assert weights.fit_accuracies(says[:, :0], accuracies, 1.0)[0] == pytest.approx(accuracies.mean())

    def test_sure_where_the_accuracy_is_far_from_its_threshold(self):
        accuracies = np.linspace(0, 1, 200)
        random = np.random.default_rng(0)
        yes = (accuracies + 0.05 * random.normal(size=200) > 0.5).astype(float)
        offset, slope = weights.over_threshold(accuracies, yes)
        assert slope > 10 and -offset / slope == pytest.approx(0.5, abs=0.05)
        assert weights.over_threshold(1 - accuracies, yes)[1] == 0
        parted = weights.over_threshold(accuracies, (accuracies > 0.5).astype(float))
        assert np.isfinite(parted).all()


def strongest(answer):
    votes = answer["votes"]
    return max(votes, key=lambda one: votes[one]["weight"] * abs(votes[one]["slope"]))


class TestFit:
    def test_it_finds_what_answers_each_question(self, rows):
        content = fit.fit(rows, fit.of_trained(rows, fit.BY_PROBES), fit.OF_REGIME["reasoning"])
        for which, column in SAYS.items():
            assert strongest(content["questions"][which]) == column
            assert all(vote["weight"] >= 0 for vote in content["questions"][which]["votes"].values())
        model = LogisticModel.from_dict(json.loads(json.dumps(content)))
        said = held_out.verdicts(rows, {"reasoning": model})
        assert np.mean([one.right for one in said]) > 0.95

    def test_in_conflict_it_finds_the_solution(self, solved):
        content = fit.fit(solved, fit.of_trained(solved, fit.BY_PROBES), fit.OF_REGIME["conflict"])
        assert strongest(content["questions"]["inferential"]) == SAYS["composes"]
        assert strongest(content["questions"]["symmetric"]) == SAYS["commutative"]
        assert content["questions"]["mixed by position"]["votes"] == {}  # none of them is
        model = LogisticModel.from_dict(json.loads(json.dumps(content)))
        said = held_out.verdicts(solved, {"conflict": model})
        assert {one.truth for one in said} == set(SOLVED) and np.mean([one.right for one in said]) > 0.95

    def test_what_sees_unseen_pairs_has_ranges_and_no_vote(self, rows):
        content = fit.fit(rows, fit.of_trained(rows, fit.BY_PROBES), fit.OF_REGIME["reasoning"])
        seen = {r.name for r in READINGS if r.sees == "unseen pairs"}
        assert seen and seen <= set(content["ranges"])
        assert not any(seen & set(one["votes"]) for one in content["questions"].values())

    def test_a_question_is_asked_of_the_runs_that_it_is_about(self, rows):
        of = {which: fit.asked(rows, which) for which in fit.OF_REGIME["reasoning"]}
        labels = rows.apply(fit.label_of, axis=1)
        assert of["generalises"][0].sum() == (labels != "undecided").sum()
        assert of["composes"][0].sum() == labels.str.match("Phase [23]").sum()
        assert of["commutative"][0].sum() == labels.isin(LABELS[1:3]).sum()
        assert (labels == "Phase 2").sum() == (~rows["commutes"] & rows["label"].isin(LABELS[1:3])).sum() > 0

    def test_left_out_runs_are_judged_by_fits_without_their_task(self, rows):
        """A reading that gives away the answer of one task alone does not help that task."""
        cheating, column = rows.copy(), SAYS["composes"]
        cheating[column] = np.where(rows["task"] == "task 0", rows["ood"], 0.0)
        (reading,) = (r for r in DIRECTED if f"{r.measurement}.{r.field}" == column)
        of, _ = fit.asked(cheating, "composes")
        evidence = fit.of_trained(cheating, [reading])
        found = fit.left_out_numbers(cheating, evidence, "composes", cheating["task"].to_numpy())
        mine = of & (cheating["task"] == "task 0").to_numpy()
        assert mine.any() and all(np.ptp(one[mine]) < 1e-9 for one in found.values())


class TestDirections:
    def test_every_reading_has_a_direction(self):
        assert all(one.directions and set(one.directions.values()) <= {1, -1} for one in DIRECTED)

    def test_votes_of_the_shipped_fit_go_the_way_they_should(self):
        readings = {reading.name: reading for reading in DIRECTED}
        for model in (one.by_probes for one in calibration().regimes.values()):
            for which, answer in model.questions.items():
                for reading, vote in answer.votes.items():
                    assert vote.slope * readings[reading].sign(which) > 0


class TestCalibrate:
    def test_it_is_whole_and_fit_on_its_groups(self, everything):
        zoo, (content, left) = everything
        calibrated = Calibration.from_dict(json.loads(json.dumps(content)))
        n_fit = zoo[zoo["group"].isin(FITTED)]["name"].nunique()
        assert content["provenance"]["fit_on"].startswith(f"{n_fit} runs")
        for of in (of.range for of in calibrated.regimes.values()):
            assert of.known["variant"] == ["gpt2", "postnorm"] and of.distance({"variant": "released"}) == 1
        answers = calibrated.regimes["reasoning"].by_probes.questions.values()
        assert all(answer.widening >= 1.05 for answer in answers)
        assert {one.group for said in left.values() for one in said} == set(FITTED)

    def test_nothing_of_a_held_out_run_changes_the_fit(self, everything):
        zoo, (content, _) = everything
        assert calibrate.content(zoo[zoo["group"].isin(FITTED)])[0] == content

    def test_about_a_tenth_is_left_undecided_at_most(self, everything):
        _, (content, left) = everything
        for regime, said in left.items():
            least = content["regimes"][regime]["by_probes"]["least_probability"]
            sure = np.array([one.sure for one in said])
            assert least >= 0.5 and [one.is_named for one in said] == (sure >= least).tolist()
            assert np.mean(sure >= least) >= 0.85

    @pytest.mark.parametrize("opened", [True, False])
    def test_tables_and_the_curve_are_drawn(self, everything, tmp_path, opened, monkeypatch):
        monkeypatch.setattr(held_out, "N_RESAMPLES", 50)
        zoo, fitted = everything
        zoo = zoo if opened else zoo[zoo["group"].isin(FITTED)]
        said, found = calibrate.said_and_tables(zoo, *fitted)
        rows = {name: table.row_count for name, table in found.items()}
        assert rows["by the probes"] == (len({*FITTED, *GROUPS, *SECOND}) + 1 if opened else len(FITTED))
        assert rows["confusions"] == 3 and rows["readings"] == len(READINGS)
        assert rows["weights"] == len(fit.BY_PROBES)
        assert rows["runs"] == len(GROUPS) + len(SECOND) and rows["distances"] == 4
        text = (PAGE := Path(__file__).parents[1] / "calibration/calibration.md").read_text()
        (tmp_path / "page.md").write_text(text)
        page.update(tmp_path / "page.md", found)
        with pytest.raises(ValueError, match="must have the tables"):
            page.update(PAGE, {})
        new = (tmp_path / "page.md").read_text()
        assert new != text and page.markdown(found["confusions"]) in new
        page.update(tmp_path / "page.md", found)
        assert (tmp_path / "page.md").read_text() == new
        figure = selective_curve(said)
        assert [trace.name for trace in figure.data] == list(said) and figure.data[0].x[-1] == 1


def one(label, probabilities, least=0.5, **fields):
    given = dict(zip(LABELS, probabilities, strict=True))
    about = {"group": "held-out seeds", "task": "a", "borderline": False, "distance": 0.4} | fields
    return held_out.Said(**about, truth=label, probabilities=given, least=least)


@pytest.fixture(scope="module")
def second():
    """The runs of the second zoo that the fit in `reasoning` goes by, and those held out."""
    zoo = calibrate.both_zoos(pd.read_parquet(calibrate.TABLE), pd.read_parquet(calibrate.SECOND_TABLE))
    return zoo[zoo["regime"].eq("reasoning") & zoo["moment"].eq(1)].reset_index(drop=True)


def test_the_shipped_fit_goes_by_the_runs_that_were_trained_when_the_first_held_out_run_began(second):
    """A number of research/calibration/README.md; the held-out runs are those of the plan."""
    assert second["group"].isin(FITTED).sum() == 256
    held = second[~second["group"].isin(FITTED)]
    assert len(held) == 186 == sum(group.n for name, group in SECOND.items() if name not in FITTED)
    assert not set(held["task"]) & set(second[second["group"].isin(FITTED)]["task"]) - {"papers, reasoning"}
    composes = calibration().regimes["reasoning"].by_probes.questions["composes"].votes
    assert composes["survival.survival"].weight > 0
    assert not any(name.startswith("gradient_sharing") for name in composes)


@pytest.mark.parametrize("costly", [COSTLY, ()])
def test_a_model_that_composes_is_never_called_phase_1(second, costly):
    """Of all runs of the second zoo with ID from .90 and train from .90 to .97, fit on or held out."""
    some = second[second["train"].between(0.90, 0.97) & (second["id"] >= 0.9)]
    some = some[[fit.label_of(row) == LABELS[3] for _, row in some.iterrows()]].reset_index(drop=True)
    of_regime = calibration().regimes["reasoning"]
    by, spread = {"reasoning": of_regime.by_probes}, held_out.distances(some, of_regime.range)
    said = held_out.verdicts(some, by, spread, costly=costly)
    assert len(said) >= 5 and not any(one.ends[1] == one.sure for one in said)


def test_a_costly_probe_that_is_left_out_would_not_change_the_label(second):
    of_regime, n_left_out = calibration().regimes["reasoning"], 0
    models = held_out.models_of(second, {"reasoning": of_regime.by_probes})
    away = held_out.distances(second, of_regime.range)
    for model, distance, (_, row) in zip(models, away, fit.values_of(second).iterrows(), strict=True):
        values = fit.given(row)
        used = held_out.with_costly(values, probes := held_out.needed(model, values, distance))
        found = [model.probabilities(one, distance) for one in (values, used)]
        labels = {likeliest_phase(one, model.least_probability).label for one in found}
        assert len(labels) == 1
        n_left_out += len(probes) < len(COSTLY)
    assert n_left_out > 20


class TestCounts:
    def test_both_forms_of_phase_2_are_one_phase(self):
        said = one(LABELS[1], (0.1, 0.2, 0.4, 0.3))
        assert said.right and said.sure == pytest.approx(0.6) and said.commutative is True
        assert held_out.right_commutativity([said]).endswith("0 of 1")

    def test_what_is_not_named_is_not_counted(self):
        said = [one(LABELS[3], (0.1, 0.1, 0.1, 0.7)), one(LABELS[0], (0.3, 0.2, 0.2, 0.3), least=0.6)]
        assert [each.is_named for each in said] == [True, False]
        assert held_out.share_right(said).endswith("1 of 1")

    def test_calibration_error_by_hand(self):
        said = [one(LABELS[3], (0.05, 0.05, 0.05, 0.85))] * 8 + [one(LABELS[0], (0.05, 0.05, 0.05, 0.85))] * 2
        assert held_out.calibration_error(said).startswith("0.050 ")
        assert held_out.calibration_error([]) == "-"

    def test_the_surest_come_first(self):
        said = [one(LABELS[3], (0.3, 0.0, 0.0, 0.7)), one(LABELS[0], (0.0, 0.0, 0.1, 0.9))]
        assert held_out.selective(said) == [(0.5, 0.0, 1), (1.0, 0.5, 2)]

    def test_intervals(self):
        right, wrong = one(LABELS[3], (0, 0, 0, 1)), one(LABELS[0], (0, 0, 0, 1))
        by_task = [replace(said, task=str(k)) for k in range(10) for said in (right if k < 5 else wrong,) * 4]
        by_run = [replace(said, task=str(k)) for k, said in enumerate(by_task)]
        narrow, wide = (
            held_out.resampled(some, lambda s: np.mean([x.right for x in s])) for some in (by_run, by_task)
        )
        assert wide[1] - wide[0] > 1.5 * (narrow[1] - narrow[0])  # runs of one task are not independent
        assert held_out.share(by_task).startswith("50.0% (") and held_out.share([]) == "-"
