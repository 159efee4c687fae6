"""`research/zoo.py`: what is held out has nothing of what is fit on, and the table only grows."""

import sys
import zipfile
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import zoo
from anchorlens import AnchorTask, ModelConfig, load_checkpoint
from anchorlens.training import checkpoints
from calibration.difficulty import difficulty
from calibration.family import COMMUTE, Draw, drawn
from calibration.numbers import further_numbers
from calibration.runs import AGAIN, FITTED, GROUPS, PAPERS, SECOND, runs

RUNS = runs()


def of_group(*groups):
    return [planned for planned in RUNS.values() if planned.group in groups]


FIRST_FITTED = ("fit", PAPERS)
HELD_OUT = tuple(group for group in (*GROUPS, *AGAIN) if group not in FITTED)


class TestFamily:
    @pytest.mark.parametrize("kind", COMMUTE)
    def test_tasks_are_what_they_are_said_to_be(self, kind):
        random = np.random.default_rng(0)
        for _ in range(20):
            _, task = drawn(Draw(kinds=(kind,)), random)
            assert task.commutes is COMMUTE[kind]
            trained = set(task.seen_pairs)
            assert all((a, a) in trained for a in task.anchors)  # every anchor is trained at both places
            mirrors = [pair[::-1] in task.ood_pairs for pair in task.ood_pairs]
            if task.in_conflict:
                assert set(task.trained_overrides) == {pair[::-1] for pair in task.ood_pairs}
                for pair in task.trained_overrides:  # the other order is answered otherwise
                    answers = [
                        task.target(key, pair) == task.inferential_target(key, pair) for key in task.keys
                    ]
                    assert np.mean(answers) < 0.1
            elif task.commutes:
                assert all(mirrors)  # else symmetry would answer

    def test_symmetry_answers_single_keys_alone_and_no_phase_3_rests_on_it(self):
        shares = {}
        for planned in of_group(*GROUPS, *AGAIN):
            task = planned.run.task
            if planned.task_name not in shares:
                one_each = np.arange(0, task.n_trials("ood"), len(task.positions))
                shares[planned.task_name] = task.answered_by_symmetry(
                    task.some_trials("ood", one_each)
                ).mean()
        found = {name: share for name, share in shares.items() if share}
        assert (len(shares), len(found)) == (110, 16)
        assert [name for name, share in found.items() if share > 0.05] == ["again: kind 4"]
        assert found["again: kind 4"] == pytest.approx(2 / 3)
        rows = pd.read_parquet(zoo.TABLE)
        rows = rows[(rows["moment"] == 1) & rows["task"].isin(found) & (rows["regime"] == "reasoning")]
        assert len(rows) == 23 and "Phase 3" not in set(rows["label"])
        share = rows["task"].map(found)  # all of these questions right, and none of them
        least, most = ((rows["ood"] - share) / (1 - share), rows["ood"] / (1 - share))
        assert list(rows["name"][(least <= 0.5) & (most > 0.5)]) == ["again: kind 028"]

    def test_the_ranges_are_those_that_were_planned(self):
        tasks = [planned.run.task for planned in RUNS.values() if not planned.group.startswith("papers")]
        assert {len(task.anchors) for task in tasks} == set(range(3, 9))
        assert {task.seq_len for task in tasks} <= set(range(6, 17))
        assert all(40 <= len(task.keys) <= 200 and 1 <= len(task.ood_pairs) <= 4 for task in tasks)


class TestRuns:
    def test_are_the_same_each_time_and_as_many_as_are_asked(self):
        groups = {**GROUPS, **AGAIN, **SECOND}
        assert runs() == RUNS and len(RUNS) == sum(group.n for group in groups.values())
        assert sum(not planned.group.startswith("papers") for planned in RUNS.values()) >= 500

    def test_what_is_fit_on_comes_first(self):
        asked = [planned for planned in RUNS.values() if not planned.run.task.in_conflict]
        fitted = [planned.group in FITTED for planned in asked]
        assert fitted == sorted(fitted, reverse=True)
        in_conflict = [planned.run.task.in_conflict for planned in RUNS.values()]
        assert in_conflict == sorted(in_conflict)  # which the second fit does not ask

    def test_what_is_held_out_differs_from_what_is_fit_on(self):
        """Of the first zoo from what is fit on in `conflict`, of the second from that in `reasoning`."""
        fit, others = of_group(*FIRST_FITTED), of_group(*HELD_OUT)
        seeds = [{planned.run.train_config.seed for planned in some} for some in (fit, others)]
        assert seeds[0].isdisjoint(seeds[1]) and sum(map(len, seeds)) == len(of_group(*GROUPS, *AGAIN))
        tasks = [planned.run.task for planned in fit]
        for planned in of_group("held-out tasks", "held-out kind", "held-out anchors", *AGAIN):
            assert planned.run.task not in tasks
        assert {planned.kind for planned in of_group("held-out kind")} == {"affine"}
        assert "affine" not in {planned.kind for planned in fit}
        assert {len(planned.run.task.anchors) for planned in of_group("held-out anchors")} == {7, 8}
        assert max(len(task.anchors) for task in tasks) < 7
        fit, others = of_group(*FITTED), of_group(*(name for name in SECOND if name not in FITTED))
        of_fit, of_others = ({planned.run.train_config.seed for planned in some} for some in (fit, others))
        assert of_fit.isdisjoint(of_others) and len(of_others) == len(others)
        new = [planned for planned in others if planned.group != "second, held-out: papers"]
        assert not any(planned.run.task in [one.run.task for one in fit] for planned in new)

    @pytest.mark.parametrize(
        ("group", "part", "name", "value"),
        [
            ("beyond: depth", "model_config", "n_layers", 8),
            ("beyond: width", "model_config", "d_model", 512),
            ("beyond: learning rate", "train_config", "lr", 1e-4),
        ],
    )
    def test_what_is_beyond(self, group, part, name, value):
        assert {getattr(getattr(planned.run, part), name) for planned in of_group(group)} == {value}
        assert value not in {getattr(getattr(planned.run, part), name) for planned in of_group(*FIRST_FITTED)}

    def test_what_the_second_zoo_adds(self):
        """Held-out tasks and seeds are others than those that are fit on, except the papers' task."""
        fit = of_group(*FITTED)
        held_out = of_group(*(name for name in SECOND if "held-out" in name))
        papers = of_group(PAPERS)[0].run.task
        tasks = [planned.run.task for planned in fit]
        assert all(planned.run.task == papers or planned.run.task not in tasks for planned in held_out)
        seeds = [{planned.run.train_config.seed for planned in some} for some in (fit, held_out)]
        assert seeds[0].isdisjoint(seeds[1]) and sum(map(len, seeds)) == len(fit) + len(held_out)
        assert len({planned.task_name for planned in (*fit, *held_out)}) >= 80
        assert {planned.run.model_config.variant for planned in held_out} == {"gpt2", "postnorm", "released"}
        assert {planned.kind for planned in fit} == set(COMMUTE)


class TestTable:
    @pytest.fixture
    def small(self, monkeypatch):
        planned = of_group(PAPERS)[0]
        recipe = replace(
            planned.run.train_config, steps=20, n_samples=64, batch_size=4, warmup_steps=2,
            eval_every=20,
        )  # fmt: skip
        shape = ModelConfig(n_layers=2, d_model=8, d_head=4, d_mlp=8)
        small = replace(planned, run=planned.run._replace(train_config=recipe, model_config=shape))
        monkeypatch.setattr(zoo, "runs", lambda: {"papers' task 000": small})

    def test_a_run_is_trained_once_and_measured_at_its_end(self, small, tmp_path, monkeypatch, capsys):
        table, archive = tmp_path / "zoo.parquet", tmp_path / "cache/zoo.zip"
        arguments = ["zoo.py", "--table", str(table), "--archive", str(archive), "--workers", "1"]
        monkeypatch.setattr(sys, "argv", arguments)
        zoo.main()
        found = pd.read_parquet(table)
        assert found["moment"].tolist() == [1] and set(found["group"]) == {PAPERS}
        assert found["label"].str.startswith("undecided").all() and found["step"].tolist() == [20]
        assert found["interchange.accuracy"].notna().all() and found["information_flow.margin"].notna().all()
        assert found["gradient_sharing.mlp_sharing"].notna().all()
        assert zipfile.ZipFile(archive).namelist() == ["papers' task 000.safetensors"]
        zoo.main()
        assert "1 of 1 runs are in the table" in capsys.readouterr().out and len(pd.read_parquet(table)) == 1

    def test_a_run_that_fails_is_named_and_stops_no_other(self, small, monkeypatch):
        planned = zoo.runs()["papers' task 000"]
        broken = replace(planned, run=planned.run._replace(model_config=None, task=AnchorTask()))
        said = zoo.work("broken", broken)
        assert isinstance(said, str) and said.startswith("broken: Traceback")


def test_further_numbers_of_a_run_with_a_phase(monkeypatch):
    """The margins of a model that memorised: above 0 on its training sequences, below it on fresh ones."""
    checkpoint = load_checkpoint(checkpoints.shipped()[0])
    found = further_numbers(checkpoint, "Phase 1")
    assert found["training.margin"] > 0 > found["fresh.margin"] and found["training.accuracy"] > 0.95
    assert found["holdout.holdout_ratio"] < 0.7 and not any(name.startswith("survival") for name in found)


def test_difficulty_by_hand():
    """Of the papers' task (3, 4): 3 stands first beside 1, 2, 3, and 4 stands second beside 1, 2, 4."""
    assert difficulty(AnchorTask()) == {"difficulty.support": 3, "difficulty.distance": 3}
