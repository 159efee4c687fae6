"""`research/zoo.py`: what is held out has nothing of what is fit on, and the table only grows."""

import sys

import numpy as np
import pandas as pd
import pytest

import zoo
from anchorlens import ModelConfig
from anchorlens.runs.schedule import trajectory_steps
from calibration.runs import GROUPS, MOMENTS, runs


def flat(run):
    """Every field of model and training."""
    return {**run.model_config.to_dict(), **run.train_config.to_dict()}


def of_group(name):
    return [run for key, run in runs().items() if key.startswith(name)]


class TestRuns:
    def test_are_the_same_each_time_and_as_many_as_are_asked(self):
        assert runs() == runs() and len(runs()) == sum(group.n for group in GROUPS.values()) >= 600

    def test_what_is_held_out_differs_from_what_is_fit_on(self):
        fit, others = of_group("fit"), [run for key, run in runs().items() if not key.startswith("fit")]
        assert {run.train_config.seed for run in fit}.isdisjoint(run.train_config.seed for run in others)
        held_out = [("d_model", {96, 192}), ("n_layers", {5}), ("variant", {"released"}), ("lr", {1e-3})]
        for name, values in held_out:
            assert values.isdisjoint(flat(run)[name] for run in fit)
            assert sum(flat(run)[name] in values for run in others) >= 70

    def test_every_moment_has_a_checkpoint(self):
        for run in list(runs().values())[:50]:
            steps = np.array(trajectory_steps(run.train_config)) / run.train_config.total_steps
            for moment in MOMENTS:
                assert abs(steps - moment).min() <= 0.12 * moment


class TestTable:
    @pytest.fixture
    def small(self, monkeypatch):
        run = next(iter(runs().values()))
        train = type(run.train_config)(
            steps=20, n_samples=64, batch_size=4, n_checkpoints=9, warmup_steps=2, eval_every=20
        )
        run = run._replace(
            train_config=train, model_config=ModelConfig(n_layers=2, d_model=8, d_head=4, d_mlp=8)
        )
        monkeypatch.setattr(zoo, "runs", lambda: {"held-out-seeds-000": run})

    def test_a_run_is_trained_once_and_has_a_row_for_each_moment(self, small, tmp_path, monkeypatch, capsys):
        table = tmp_path / "zoo.parquet"
        monkeypatch.setattr(
            sys,
            "argv",
            ["zoo.py", "--out", str(tmp_path / "runs"), "--table", str(table), "--engine", "serial"],
        )
        zoo.main()
        found = pd.read_parquet(table)
        assert found["moment"].tolist() == list(MOMENTS) and set(found["group"]) == {"held-out seeds"}
        assert found["label"].str.startswith("undecided").all() and found["step"].iloc[-1] == 20
        assert found["interchange.accuracy"].notna().tolist() == [False] * 3 + [True]
        assert found["information_flow.margin"].notna().all()
        zoo.main()
        assert "1 of 1 runs are in the table" in capsys.readouterr().out and len(pd.read_parquet(table)) == 4
