"""Probes along a run: which checkpoints, and the same numbers as the probe gives alone."""

import json

import anchorlens_command
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
