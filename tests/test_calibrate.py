"""`examples/calibrate.py`: nothing held out is fit on, the fit finds what is there, the tables count."""

import sys
from pathlib import Path

import numpy as np
import pytest

from anchorlens import train_many
from anchorlens.verdict import LABELS, READINGS
from anchorlens.verdict.calibration import LogisticModel

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from calibration import fit, held_out  # noqa: E402
from calibration.zoo import MOMENTS, STEPS, measure, zoo  # noqa: E402

NAMES = [reading.name for reading in READINGS]


def row(label, seed, group="fit", noise=0.0, **changes):
    """A run whose first reading is the number of its label."""
    number = LABELS.index(label) if label in LABELS else 0.0
    values = dict.fromkeys(NAMES, 0.0)
    values |= {name: float(np.sin(seed + 7 * i + 13 * number)) for i, name in enumerate(NAMES)}
    values[NAMES[0]] = number + noise
    return {
        "name": f"{group}-{seed}",
        "group": group,
        "seed": seed,
        "behaviour": {"label": label},
        "borderline": label,
        "readings": values,
        "early": {str(m): {"readings": values, "now": "undecided: underfit"} for m in MOMENTS},
    } | changes


@pytest.fixture(autouse=True)
def few_strengths(monkeypatch):
    """The same choice among fewer regularisations."""
    monkeypatch.setattr(fit, "STRENGTHS", (0.1, 1.0, 10.0))
    monkeypatch.setattr(fit, "COARSE_STRENGTHS", (1.0,))


@pytest.fixture(scope="module")
def rows():
    return [row(label, seed, noise=0.05 * (seed % 3)) for label in LABELS for seed in range(4)]


class TestZoo:
    def test_what_is_held_out_is_never_fit_on(self):
        runs = zoo()
        fitted = [run for name, run in runs.items() if name.startswith("fit-")]
        others = [run for name, run in runs.items() if not name.startswith("fit-")]
        assert len(others) >= 200
        assert {r.train.seed for r in fitted}.isdisjoint(r.train.seed for r in others)
        assert {r.model.d_model for r in fitted} == {64, 128}
        assert {96, 192} <= {r.model.d_model for r in others}
        assert "postnorm" not in {r.model.variant for r in fitted}
        assert {"gpt2", "released", "postnorm"} == {r.model.variant for r in others}

    def test_it_covers_what_it_says_and_is_the_same_each_time(self):
        runs = zoo()
        assert runs == zoo()
        assert {r.model.n_layers for r in runs.values()} == {2, 3, 4}
        assert {r.model.n_heads for r in runs.values()} == {1, 2, 4}
        assert {r.task.regime for r in runs.values()} == {"reasoning", "conflict"}
        for fraction, step in MOMENTS.items():
            assert step / STEPS == pytest.approx(fraction, rel=0.03)

    def test_a_run_is_measured_at_its_end_and_on_its_way(self, tmp_path, monkeypatch):
        moments = {0.05: 1, 0.2: 4}
        monkeypatch.setitem(measure.__globals__, "MOMENTS", moments)
        run = next(iter(zoo().values()))
        small = run._replace(train=type(run.train)(steps=20, n_samples=64, batch_size=4, n_checkpoints=3))
        model = type(run.model)(n_layers=2, d_model=8, d_head=4, d_mlp=8)
        train_many([small._replace(model=model)], outs=[tmp_path / "fit-000"], workers=1)
        measured = measure(tmp_path / "fit-000")
        assert measured["group"] == "fit" and set(measured["readings"]) == set(NAMES)
        assert set(measured["early"]) == {str(moment) for moment in moments}
        assert measured["behaviour"]["label"].startswith("undecided")


class TestFit:
    def test_a_reading_that_tells_all_is_found(self, rows):
        model = LogisticModel.from_dict(fit.fit_final(rows))
        found = held_out.verdicts(rows, model)
        assert held_out.agreement(found, held_out.same_label) == (16, 16)
        assert np.abs(model.coefficients[:, 0]).max() == np.abs(model.coefficients).max()

    def test_labels_that_are_shuffled_leave_it_undecided(self, rows):
        random = np.random.default_rng(0)
        shuffled = [
            {**each, "behaviour": {"label": str(random.choice(LABELS))}, "seed": i % 4}
            for i, each in enumerate(rows * 6)
        ]
        others = [{**each, "behaviour": {"label": str(random.choice(LABELS))}} for each in rows * 6]
        model = LogisticModel.from_dict(fit.fit_final(shuffled))
        _, n = held_out.agreement(held_out.verdicts(others, model), held_out.same_label)
        assert n <= len(others) / 10  # it is sure of hardly any; in the test above it names all 16

    def test_undertrained_runs_are_not_fit_on_and_stay_undecided(self, rows):
        underfit = row("undecided: underfit: x", 0)
        assert fit.fit_final([*rows, underfit]) == fit.fit_final(rows)
        model = LogisticModel.from_dict(fit.fit_final(rows))
        (found,) = held_out.verdicts([underfit], model)
        assert found["mechanism"] == "undecided"

    def test_an_early_verdict_may_expect_no_phase(self, rows):
        underfit = [row("undecided: underfit", seed, noise=9.0) for seed in range(4)]
        fitted = fit.fit_early([*rows, *underfit])
        assert set(fitted) == {str(moment) for moment in MOMENTS}
        assert set(fitted["0.1"]["labels"]) == {*LABELS, "undecided"}

    def test_a_reading_left_out_is_not_used(self, rows):
        assert NAMES[0] not in fit.fit_final(rows, without=[NAMES[0]])["readings"]


class TestTables:
    def test_agreement_counts_phases_that_both_name(self):
        found = [
            {"behaviour": a, "mechanism": b}
            for a, b in [
                (LABELS[0], LABELS[0]),
                (LABELS[1], LABELS[2]),  # both Phase 2
                (LABELS[3], LABELS[1]),
                (LABELS[3], "undecided"),
                ("undecided: underfit", LABELS[3]),
            ]
        ]
        assert held_out.agreement(found, held_out.same_phase) == (2, 3)
        assert held_out.agreement(found, held_out.same_label) == (1, 3)

    def test_the_calibration_error_by_hand(self):
        # two bins: sure .95 and right half the time; sure .55 and always right
        found = [
            {"behaviour": LABELS[0], "mechanism": LABELS[0 if right else 3], "probability": p}
            for p, right in [(0.95, True), (0.95, False), (0.55, True), (0.55, True)]
        ]
        assert held_out.calibration_error(found).startswith("0.450 (")  # (|.95 - .5| + |.55 - 1|) / 2

    @pytest.mark.slow
    def test_every_table_is_drawn(self, rows, monkeypatch):
        two = {name: held_out.ABLATIONS[name] for name in ("none", "both")}
        monkeypatch.setattr(held_out, "ABLATIONS", two)
        held = [row(label, 7, group="held-out-seeds") for label in LABELS]
        everything = [*rows, *held]
        model = LogisticModel.from_dict(fit.fit_final(rows))
        early = {m: LogisticModel.from_dict(f) for m, f in fit.fit_early(everything).items()}
        found = held_out.verdicts(everything, model)
        assert held_out.accuracy_table(found).row_count == len(held_out.GROUPS)
        assert held_out.confusion_table(found).row_count == len(LABELS)
        assert held_out.ablation_table(everything).row_count == len(two)
        table = held_out.early_table(everything, early)
        assert list(table.columns[1].cells) == ["4"] * len(MOMENTS)
        assert list(table.columns[3].cells)[0].startswith("0.0%")  # underfit now, a phase in the end
