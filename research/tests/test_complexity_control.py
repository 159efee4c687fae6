"""The figures k1 to k8: claims and verdicts by rule, arms that can be trained, the page of what came out."""

import argparse
import importlib
import json
import re
import tomllib

import pytest

import control_page
import k1_windows
import k1_windows_tasks
import k5_mixture
import k6_retrieval
from anchorlens import preset
from anchorlens.recipes.schedule import learning_rate, weight_decay
from shared import common, control_arms
from shared.control_arms import (
    CLAIMS,
    SETTING,
    best_by_others,
    chosen_by_others,
    claims_of,
    judged,
    over_seeds,
)

FIGURES = ("k1_windows", "k2_rescaling", "k3_parts", "k4_penalty", "k7_optimizers", "k8_condensation")
"""Those whose arms are a function without arguments."""
LISTED = tomllib.loads(CLAIMS.read_text(encoding="utf-8"))


def made_up(arms, seeds=(0, 1, 2), **fields):
    """A row for each arm and seed; OOD grows with the arm's place and the seed."""
    row = {"train": 1.0, "id": 1.0, "weight_norm": 1.0, "commutativity": 1.0, "label": "Phase 3", **fields}
    return [
        {**row, "arm": arm, "seed": seed, "ood": place / len(arms) + seed / 100, "weight_norm": -place}
        for place, arm in enumerate(arms)
        for seed in seeds
    ]


@pytest.fixture
def given(tmp_path, monkeypatch):
    """A figure's command line that trains nothing: its rows are made up."""

    def of(module):
        monkeypatch.setattr(module, "measured", lambda given, arms, **_: made_up(list(arms)))
        monkeypatch.setattr("sys.argv", [module.__name__, "--out", str(tmp_path), "--suffix", ".html"])
        original = common.options

        def with_network(*args, **kwargs):
            parser = original(*args, **kwargs)
            parser.set_defaults(network={})
            return parser

        monkeypatch.setattr(control_arms, "options", with_network)
        return tmp_path

    return of


class TestClaims:
    def test_each_has_its_fields_and_one_bound(self):
        for name, claim in LISTED.items():
            bounds = {"at_least", "at_most", "within"} & claim.keys()
            assert len(bounds) == 1, name
            assert set(claim) - bounds == {"figure", "claim", "source", "number"}, name

    @pytest.mark.parametrize("figure", FIGURES)
    def test_a_figure_answers_all_of_its_claims(self, figure, given):
        module = importlib.import_module(figure)
        out = given(module)
        module.main()
        found = json.loads((out / f"{figure}.json").read_text())
        assert set(found["claims"]) == set(claims_of(figure))
        assert all(len(one["values"]) == 3 for one in found["claims"].values())
        assert (out / f"{figure}.html").exists()

    @pytest.mark.parametrize(
        ("bound", "values", "verdict"),
        [
            ({"at_least": 0.1}, [0.2, 0.21, 0.22], "confirmed"),
            ({"at_least": 0.1}, [0.0, 0.01, 0.02], "refuted"),
            ({"at_least": 0.1}, [0.05, 0.1, 0.15], "undecided"),
            ({"at_most": -1}, [-3, -3, -2], "confirmed"),
            ({"within": 0.05}, [0.01, -0.01, 0.0], "confirmed"),
            ({"within": 0.05}, [0.5, 0.51, 0.49], "refuted"),
            ({"within": 0.05}, [0.0, 0.1, -0.1], "undecided"),
            ({"at_least": 0.1}, [0.5], "not tested"),
        ],
    )
    def test_the_verdict_is_where_the_whole_interval_lies(self, bound, values, verdict):
        assert judged(bound, dict(enumerate(values))).verdict == verdict

    def test_the_best_arm_of_a_seed_is_chosen_by_the_others(self):
        rows = made_up(["a", "b"], seeds=(0, 1))
        for row in rows:
            row["ood"] = {("a", 0): 0.9, ("b", 0): 0.2, ("a", 1): 0.1, ("b", 1): 0.6}[row["arm"], row["seed"]]
        chosen = best_by_others(rows, ["a", "b"])
        assert {seed: row["arm"] for seed, row in chosen.items()} == {0: "b", 1: "a"}

    def test_a_number_that_is_large_by_noise_does_not_choose_itself(self):
        """Each seed has its rise at another place: none that the other seeds chose is one."""
        rows = [
            {"arm": f"{arm}", "seed": seed, "ood": float(arm == seed)}
            for arm in range(3)
            for seed in range(3)
        ]
        options = {f"{arm}": lambda of, arm=arm: of(f"{arm}")["ood"] for arm in range(3)}
        assert chosen_by_others(rows, options) == {0: 0.0, 1: 0.0, 2: 0.0}

    def test_an_arm_that_has_not_fit_its_data_is_not_chosen(self):
        rows = made_up(["a", "b"])
        for row in rows:
            row["train"] = 0.5 if row["arm"] == "b" else 1.0
        assert {row["arm"] for row in best_by_others(rows, ["a", "b"], fit_alone=True).values()} == {"a"}

    def test_a_seed_without_a_number_is_left_out(self):
        found = over_seeds(made_up(["a"]), lambda of: None if of("a")["seed"] == 1 else 1.0)
        assert found == {0: 1.0, 2: 1.0}


class TestArms:
    @pytest.mark.parametrize("figure", FIGURES)
    def test_every_arm_is_a_run_of_its_own(self, figure):
        arms = importlib.import_module(figure).arms()
        given = argparse.Namespace(set=[], preset="quick", seed=[0])
        runs = [run for fields in arms.values() for run in common.runs(given, {}, **{**SETTING, **fields})]
        assert len(set(control_arms.cell_ids(runs))) == len(arms)

    @pytest.mark.parametrize("task", k1_windows_tasks.SETTINGS)
    def test_windows_on_other_tasks(self, task):
        setting = k1_windows_tasks.SETTINGS[task]
        given = argparse.Namespace(set=[], preset=setting.preset, seed=[0])
        arms = k1_windows_tasks.arms(setting)
        runs = [run for f in arms.values() for run in common.runs(given, {}, **{**setting.fields, **f})]
        assert len(set(control_arms.cell_ids(runs))) == len(arms)
        assert runs[0].task.kind == task

    def test_what_is_measured_of_a_run(self, tmp_path):
        given = argparse.Namespace(set=[], preset="quick", seed=[0], sweep=tmp_path)
        setting = {**SETTING, "steps": 3, "n_samples": 300, "batch_size": 100, "d_model": 16, "d_mlp": 16}
        readings = ("stable_rank.w_q", "q_condensation.mean_abs_cosine")
        (row,) = control_arms.measured(given, {"a": {"gamma": 0.5}}, readings=readings, setting=setting)
        assert row["arm"] == "a" and row["seed"] == 0 and row["label"].startswith("undecided")
        assert all(row[name] > 0 for name in (*readings, "weight_norm"))


class TestMixture:
    @pytest.fixture
    def rows(self, tmp_path):
        """Some arms, hardly trained."""
        given = argparse.Namespace(set=[], preset="quick", seed=[0], sweep=tmp_path)
        setting = {**SETTING, "steps": 2, "n_samples": 300, "batch_size": 100, "n_layers": 1}
        arms = {name: fields for name, fields in k5_mixture.arms(0.8).items() if name[-3:] in ("0.8", "0.3")}
        return control_arms.measured(given, arms, setting=setting, also=k5_mixture.of_its_task)

    def test_mixtures_and_dense_models_have_as_many_parameters(self, rows):
        counts = {row["n_parameters"] for row in rows}
        assert len(counts) == 2 and max(counts) < 1.01 * min(counts)

    def test_what_is_asked_of_a_mixture(self, rows):
        assert {"experts 0.5 0.8", "experts 0.8 0.8", "dense 0.8", "dense 0.3"} == {r["arm"] for r in rows}
        for row in rows:
            assert all(0 <= row[name] <= 1 for name in ("train", "ood", "broken", "exceptions", "rules"))
        row = next(row for row in rows if row["arm"] == k5_mixture.ASKED)
        assert set(row["expert_use"]["kinds"]) == {"rules", "broken", "exceptions", "unseen"}
        assert -1 <= k5_mixture.split(row) <= 1
        assert k5_mixture.picture(rows).data

    def test_against_the_dense_model_that_is_best_in_the_other_seeds(self):
        accuracies = {"dense 0.3": (0.2, 0.9), "dense 0.5": (0.1, 0.1), "dense 0.8": (0.6, 0.3)}
        accuracies |= {"dense 0.9": (0.0, 0.0), k5_mixture.ASKED: (0.7, 0.7)}
        rows = [
            {"arm": arm, "seed": seed, "ood": values[seed], "exceptions": 1.0}
            for arm, values in accuracies.items()
            for seed in (0, 1)
        ]
        found = k5_mixture.against_dense(rows)  # seed 0 is held against .3, seed 1 against .8
        assert found == pytest.approx({0: 0.7 - 0.2, 1: 0.7 - 0.3})


def test_a_run_alone_and_with_a_memory(tmp_path):
    given = argparse.Namespace(set=[], preset="quick", seed=[0], sweep=tmp_path)
    setting = {**SETTING, "steps": 2, "n_samples": 300, "batch_size": 100, "n_layers": 1}
    names = [k6_retrieval.arm(0.8, 20), k6_retrieval.arm(0.5, 20), k6_retrieval.arm(0.8, 0)]
    arms = {name: k6_retrieval.arms()[name] for name in names}
    rows = control_arms.measured(given, arms, setting=setting, also=k6_retrieval.alone_and_with_retrieval)
    with_one, large, none = rows
    assert "retrieval" not in large and 0 <= large["exceptions"] <= 1
    assert 0 <= with_one["retrieval"]["exceptions"] <= 1
    assert set(with_one["retrieval"]["looked_up"]) == {"rules", "exceptions", "unseen"}
    assert none["exceptions"] is None and none["rules"] == none["id"]
    figure = k6_retrieval.draw(rows)
    assert sum(trace.mode == "lines" for trace in figure.data) == 9


def test_windows_of_equal_dose_take_away_what_the_first_does():
    arms = k1_windows.arms()

    def taken(name):
        recipe = preset("quick", **{**SETTING, **arms[name]}).train_config
        return sum(learning_rate(recipe, step) * weight_decay(recipe, step) for step in range(recipe.steps))

    first = taken(k1_windows.dosed(0))
    for onset in k1_windows.DOSED:
        assert taken(k1_windows.dosed(onset)) == pytest.approx(first, rel=1e-3)
        assert taken(k1_windows.arm(0.5, onset)) != pytest.approx(first, rel=0.05)


def test_versions_are_those_of_every_machine():
    def trained_with(torch):
        return argparse.Namespace(checkpoint=argparse.Namespace(versions={"torch": torch, "numpy": "2"}))

    several = [trained_with(version) for version in ("2.13", "2.11", "2.13")]
    assert control_arms.versions_of(several) == {"torch": "2.11, 2.13", "numpy": "2"}


def test_a_network_has_numbers_before_schedules():
    wanted = [preset("quick", weight_decay=decay) for decay in ("0 0:0.25=1", 1.0, 0.01)]
    assert common.network(wanted)["weight_decay"] == [0.01, 1.0, "0 0:0.25=1"]


class TestPage:
    def test_it_is_what_its_template_gives(self):
        assert control_page.PAGE.read_text("utf-8") == control_page.written(), (
            "run python research/figures/control_page.py"
        )

    def test_a_claim_that_was_not_asked_says_so(self):
        page = control_page.written({})
        assert page.count("**not tested**") == len(LISTED) and "**confirmed**" not in page

    def test_no_result_is_written_by_hand(self):
        text = control_page.TEMPLATE.read_text("utf-8")
        text = re.sub(r"\{\{.*?\}\}|\{%.*?%\}|`[^`]*`|\(.*?\)|arXiv [\d.]+|95%", " ", text, flags=re.DOTALL)
        assert re.findall(r"(?<![Gg]amma )(?<!decay )(?<!\d)\d*\.\d+|\d+ of \d+|\d ?%", text) == []

    def test_of_ten_runs_it_says_what_is_there(self, monkeypatch, tmp_path):
        monkeypatch.setattr(control_page, "TEN_RUNS", tmp_path / "none.json")
        assert "*This was not run*" in control_page.written({})
        behaviour = {"label": "Phase 3", "ood": 0.75, "minutes": 2.0}
        tried = {"best": None, "phase_after": 2, "ood": None, "minutes": 3.0, "attempts": [{"minutes": 1.0}]}
        content = {
            "minutes": 20.0,
            "totals": {
                **dict.fromkeys(("cases", "controlled", "taken_to_phase_3"), 2),
                **dict.fromkeys(("of_them_from_the_checkpoint", "anew_in_phase_3"), 1),
                **{"minutes_of_control": 3.0, "minutes_of_training_anew": 2.0},
            },
            "cases": [
                {"seed": 200, "before": behaviour, "anew": behaviour, "control": tried},
                {"seed": 201, "before": behaviour, "anew": behaviour},
            ],
        }
        (tmp_path / "ten.json").write_text(json.dumps(content))
        monkeypatch.setattr(control_page, "TEN_RUNS", tmp_path / "ten.json")
        page = control_page.written({})
        assert "| 200 | Phase 3 | 0.75 | 1 | nothing | Phase 2 | - | 3.0 |" in page
        assert "| 201 | Phase 3 | 0.75 | - | - | - | - | - |" in page
