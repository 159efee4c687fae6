"""Probes along a run: which checkpoints, and the same numbers as the probe gives alone."""

import copy
import json

import anchorlens_command
import numpy as np
import pandas as pd
import pytest
import torch

from anchorlens import AnchorTask, ModelConfig, TrainConfig, build_model, load_checkpoint, probes, train
from anchorlens.probes import along, apply, q_condensation, stable_rank

CONFIG = ModelConfig(n_layers=2, d_model=16, d_head=8, d_mlp=16)
RECIPE = TrainConfig(steps=12, batch_size=16, n_samples=64, n_checkpoints=3, eval_every=6, log_every=6)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folder of a run -> what train gave."""
    out = tmp_path_factory.mktemp("runs") / "run"
    return {out: train(AnchorTask(), CONFIG, RECIPE, out=out, progress=False)}


def test_every_checkpoint_is_there_once_and_the_last_too(runs):
    out = next(iter(runs))
    steps = [row["step"] for row in along(out, stable_rank).rows]
    on_the_way = [load_checkpoint(path).step for path in sorted((out / "checkpoints").glob("*.pt"))]
    assert steps == sorted({*on_the_way, 12}) and steps[0] == 0 and len(steps) > 2


def test_the_numbers_are_those_of_the_probe_and_of_the_task(runs):
    out, result = next(iter(runs.items()))
    last = along(result, "stable_rank").rows[-1]
    checkpoint = load_checkpoint(out / "ckpt.pt")
    assert last["stable_rank.w_q"] == apply(stable_rank, checkpoint).w_q
    sampled = checkpoint.evaluate(**checkpoint.task.sampling)
    assert last["train"] == sampled.measure("train").value and last["ood"] == sampled.measure("ood").value


def test_options_reach_the_probe(runs):
    out = next(iter(runs))
    plain, second = (along(out, q_condensation, **options) for options in ({}, {"layer": 1}))
    assert plain.rows != second.rows and second.to_dict()["options"] == {"layer": 1}


def test_the_picture_has_a_row_for_each_reading_and_one_for_the_answers(runs):
    out = next(iter(runs))
    one = along(out, stable_rank).plot()
    assert [axis.title.text for axis in one.select_yaxes()] == ["w_q", "w_q_normalized", "answers"]
    assert [trace.name for trace in one.data] == [
        "stable_rank.w_q", "stable_rank.w_q_normalized", "train", "id", "ood",
    ]  # fmt: skip
    several = along(out, [stable_rank, q_condensation]).plot()
    assert len(list(several.select_yaxes())) == 3


def test_tables(runs, tmp_path):
    found = along(next(iter(runs)), stable_rank)
    frame = found.to_frame()
    found.table(tmp_path / "along.csv")
    pd.testing.assert_frame_equal(
        pd.read_csv(tmp_path / "along.csv", keep_default_na=False), frame, check_dtype=False
    )
    assert frame.columns[:3].tolist() == ["run", "seed", "step"]
    assert json.loads(json.dumps(found.to_dict()))["rows"] == list(found.rows)


@pytest.mark.needs()
def test_a_task_without_anchors(tmp_path):
    from anchorlens.extras.arithmetic.task import AdditionTask

    task = AdditionTask(largest=9, square_min=4, square_max=5, n_held_out=20)
    config = ModelConfig(n_layers=1, d_model=16, d_head=8, d_mlp=16, d_vocab=task.d_vocab)
    recipe = TrainConfig(**{**RECIPE.to_dict(), "n_samples": 32})
    train(task, config, recipe, out=tmp_path / "run", progress=False)
    found = along(tmp_path / "run", stable_rank)
    assert {"train", "id"} <= set(found.metrics)
    with pytest.raises(ValueError, match="step 0: task must be an AnchorTask"):
        along(tmp_path / "run", "mask_key_token")


class TestModelsWithSteps:
    def test_are_those_of_a_run(self, runs):
        """In memory, as checkpoints and as paths, in any order; the task in memory is given."""
        out = next(iter(runs))
        run = along(out, stable_rank)
        paths = [*sorted((out / "checkpoints").glob("*.pt")), out / "ckpt.pt"]
        by_step = {load_checkpoint(path).step: path for path in paths}
        models = {step: load_checkpoint(path).build_model() for step, path in by_step.items()}
        models = dict(reversed(models.items()))
        checkpoints = {step: load_checkpoint(path) for step, path in by_step.items()}
        for given, task in (
            (dict(reversed(models.items())), AnchorTask()),
            (checkpoints, None),
            (by_step, None),
        ):
            found = along(given, stable_rank, task=task)
            names = ["step", "stable_rank.w_q"]
            for row, expected in zip(found.rows, run.rows, strict=True):
                assert [row[name] for name in names] == [expected[name] for name in names]
                assert row["run"] == "model" and row["ood"] is not None
        assert [row["train"] for row in found.rows] == [row["train"] for row in run.rows]
        without = along(models, stable_rank)
        assert without.metrics == () and without.plot().data and "stable_rank.w_q" in repr(without)

    @pytest.mark.needs("importers")
    def test_bare_weights_take_config(self, tmp_path):
        model = build_model(CONFIG)
        torch.save(model.state_dict(), tmp_path / "w.pt")
        (row,) = along({7: tmp_path / "w.pt"}, stable_rank, config=CONFIG).rows
        assert row["stable_rank.w_q"] == apply(stable_rank, model).w_q and row["step"] == 7
        with pytest.raises(ValueError, match="must be the folder of a run with checkpoints"):
            along(tmp_path, stable_rank, config=CONFIG)

    def test_what_is_wrong_with_them_is_said(self):
        model = build_model(CONFIG)
        for given, words in (
            ({0: model, 5: model}, "different models, got a model twice. Keep copy.deepcopy"),
            ({"first": model}, "a step must be"),
            ({3: None}, "model must be a HookedTransformer"),
        ):
            with pytest.raises(ValueError, match=words):
                along(given, stable_rank)
        with pytest.raises(ValueError, match="step 3: "):
            along({3: model}, "stable_rank", layer=1)


X = torch.cartesian_prod(torch.arange(20), torch.arange(20))
Y = torch.randint(0, 20, (400,), generator=torch.Generator().manual_seed(1))
BUILD = "nn.Sequential(nn.Embedding(20, 32), nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 20))"


@pytest.fixture(scope="module")
def models():
    """A module at its start, and after it has fit random labels."""
    torch.manual_seed(0)
    model = eval(BUILD, {"nn": torch.nn})
    start, optimizer = copy.deepcopy(model), torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(150):
        torch.nn.functional.cross_entropy(model(X[:300]), Y[:300]).backward()
        optimizer.step()
        optimizer.zero_grad()
    return {0: start, 150: model}


class TestAnyModule:
    """A module that learns random labels by heart, at its start and after it has fit them."""

    FEW = {"training_set": (X[:300], Y[:300]), "held_out": (X[300:], Y[300:])}

    def test_a_checkpoint_that_does_not_fit_its_data_yet_is_a_row_with_a_reason(self, models):
        found = along(models, "holdout", **self.FEW, related=False, n_copies=1)
        start, end = found.rows
        assert start["holdout.holdout_ratio"] is None and "at least 0.9, got 0.0" in start["reason"]
        assert end["holdout.holdout_ratio"] <= 0.75 and end["reason"] is None
        assert found.metrics == ("train", "held_out") and end["train"] > 0.95 > 0.3 > end["held_out"]
        titles = [axis.title.text for axis in found.plot().select_yaxes()]
        assert titles == ["holdout_ratio", "answers"]

    def test_one_that_does_not_fit_is_no_end_even_alone(self, models):
        (row,) = along({0: models[0]}, "holdout", **self.FEW).rows
        assert "the training accuracy of the model must be" in row["reason"] and row["train"] < 0.2
        assert along({0: models[0]}, "holdout", **self.FEW).plot().data

    def test_same_weights_are_said(self, models):
        again = {**models, 300: copy.deepcopy(models[150])}
        with pytest.warns(UserWarning, match=r"1 of 3 checkpoints.*\(steps 300\)"):
            along(again, "holdout", **self.FEW, related=False, n_copies=1)

    def test_files_of_weights_with_the_function_that_builds_the_module(self, models, tmp_path):
        (tmp_path / "my_model.py").write_text(f"from torch import nn\n\ndef build():\n    return {BUILD}\n")
        torch.save({"model": models[150].state_dict()}, tmp_path / "150.pt")
        options = {**self.FEW, "related": False, "n_copies": 1}
        (row,) = along(
            {150: tmp_path / "150.pt"}, "holdout", model=f"{tmp_path / 'my_model.py'}:build", **options
        ).rows
        of_memory = along({150: models[150]}, "holdout", **options).rows[0]
        assert row == of_memory

    @pytest.fixture
    def folder(self, models, tmp_path):
        """A folder of files that are named by step, next to the function that builds the module."""
        (tmp_path / "my_model.py").write_text(f"from torch import nn\n\ndef build():\n    return {BUILD}\n")
        for name, part in (("train", slice(300)), ("test", slice(300, None))):
            np.savez(tmp_path / f"{name}.npz", x=X[part], y=Y[part])
        (tmp_path / "run").mkdir()
        for step, model in models.items():
            torch.save(model.state_dict(), tmp_path / f"run/seed1_step{step}.pt")
        return tmp_path

    def test_a_folder_of_weights_on_the_command_line(self, folder):
        options = {"training_set": "train.npz", "held_out": "test.npz", "related": False, "n_copies": 1}
        options |= {name: str(folder / options[name]) for name in ("training_set", "held_out")}
        build = ("--model", f"{folder / 'my_model.py'}:build", "--options", json.dumps(options))
        shown = anchorlens_command.call("probe", "holdout", folder / "run", "--along", "--json", *build)
        start, end = json.loads(shown.stdout)["rows"]
        assert (start["step"], end["step"]) == (0, 150) and "at least 0.9" in start["reason"]
        assert end["train"] > 0.95 > end["held_out"] and end["run"] == str(folder / "run")
        del options["held_out"]
        one = (folder / "run/seed1_step150.pt", *build[:3], json.dumps(options))
        assert "on left-out training data" in anchorlens_command.call("probe", "holdout", *one).stdout

    @pytest.mark.parametrize("names", [[], ["readme.txt"], ["a_5.pt", "b_5.pt"]])
    def test_a_folder_whose_files_name_no_steps(self, tmp_path, names):
        for name in names:
            (tmp_path / name).touch()
        with pytest.raises(ValueError, match="with different steps in the names"):
            along(tmp_path, "holdout", model="my_model.py:build")
        with pytest.raises(ValueError, match="config must be omitted with model"):
            along(tmp_path, "holdout", model="my_model.py:build", config={})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (({}, "stable_rank"), "run must be the folder of a run"),
        ((3, "stable_rank"), "run must be the folder of a run"),
        ((["a", "b"], "stable_rank"), "run must be the folder of a run"),
        (("nowhere", "stable_rank"), "nowhere must be the folder of a run"),
        (("nowhere", "stable_rang"), "stable_rang"),
        (("nowhere", []), "at least one probe, got none"),
    ],
)
def test_bad_input_gets_one_clear_error(arguments, words):
    with pytest.raises(ValueError, match=words):
        along(*arguments)


def test_a_folder_without_a_run_is_told_what_was_seen_and_why_it_was_not_taken(tmp_path):
    for name in ("notes.txt", "weights.onnx"):
        (tmp_path / name).write_text("")
    with pytest.raises(ValueError, match="no checkpoint among 'notes.txt', 'weights.onnx' \\(") as error:
        along(tmp_path, stable_rank)
    assert f"({tmp_path}" in str(error.value) and "a dict from steps to models" in str(error.value)


def test_options_of_several_probes_are_refused(runs):
    with pytest.raises(ValueError, match="options must be given for a single probe"):
        along(next(iter(runs)), [stable_rank, q_condensation], layer=1)
    with pytest.raises(ValueError, match="run must be the folder of a run"):
        memory = train(AnchorTask(), CONFIG, RECIPE, progress=False)
        probes.along(memory, stable_rank)


class TestCommand:
    def test_numbers_picture_and_table(self, runs, tmp_path):
        folder = str(next(iter(runs)))
        table, plot = tmp_path / "along.csv", tmp_path / "along.html"
        shown = anchorlens_command.call(
            "probe", "stable_rank", folder, "--along", "--table", table, "--plot", plot, "--json"
        )
        assert json.loads(shown.stdout)["rows"] == list(along(folder, stable_rank).rows)
        assert (
            len(pd.read_csv(table)) == len(json.loads(shown.stdout)["rows"]) and plot.stat().st_size > 10_000
        )

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("a", "b"), "Got unexpected extra argument"),
            (("a", "--table", "x.csv"), "--table must be given together with --along"),
            (("a", "--along", "--table", "x.txt"), "--table must end in .csv or .parquet"),
        ],
    )
    def test_misuse(self, arguments, words):
        shown = anchorlens_command.call("probe", "stable_rank", *arguments, code=2)
        assert words in " ".join(shown.stderr.split())
