"""`research/benchmark_checkpoints.py`: which models are chosen, how they are packed, and its page."""

import dataclasses
import json
import sys
import zipfile

import numpy as np
import pandas as pd
import pytest
import torch
from known_benchmarks import TINY, ending_number, known_models

import benchmark_checkpoints as command
from anchorlens import AnchorTask, Checkpoint, TrainConfig, build_model, save_checkpoint
from anchorlens.extras.benchmark import Benchmark, score_models, shipped, shipped_models
from anchorlens.extras.benchmark.result import ENDINGS
from calibration.runs import FITTED, GROUPS


def end(label="Phase 3", solution=None, train=1.0, train_error=0.01):
    values = {"train": train, "train_error": train_error, "id": 1.0, "ood": 1.0}
    return {"clear_label": label, "solution": solution, **values}


class TestEnding:
    @pytest.mark.parametrize(
        ("label", "ending"),
        [
            ("Phase 1", "Phase 1"),
            ("Phase 2", "Phase 2"),
            ("Phase 2 with commutativity", "Phase 2"),
            ("Phase 3", "Phase 3"),
            ("undecided: borderline", None),
            ("undecided: underfit", None),
        ],
    )
    def test_in_reasoning_it_is_the_clear_phase(self, label, ending):
        assert command.ending_of("reasoning", end(label)) == ending

    @pytest.mark.parametrize(
        ("solution", "train", "ending"),
        [
            ("inferential", 1.0, "inferential solution"),
            ("symmetric", 1.0, "another solution"),
            ("other", 0.93, "another solution"),
            ("inferential", 0.91, None),  # .91 - 2 * .01 is below .9
            (None, 1.0, None),
            (float("nan"), 1.0, None),
        ],
    )
    def test_in_conflict_it_is_the_solution_where_the_data_are_fit(self, solution, train, ending):
        assert command.ending_of("conflict", end("undecided: borderline", solution, train)) == ending


def test_only_held_out_groups_are_asked():
    assert set(command.HELD_OUT) == set(GROUPS) - set(FITTED) - {g for g in GROUPS if g.startswith("beyond")}


def row(name, ending, task, exactly=None):
    regime = "conflict" if "solution" in ending else "reasoning"
    about = {"name": name, "ending": ending, "task": task, "kind": "shifts", "regime": regime}
    return {**about, "exactly": exactly or ending}


@pytest.fixture
def as_planned(monkeypatch):
    """Models answer as their rows say, but for those called `turns`; opened checkpoints are listed."""
    tiny = Checkpoint.from_model(build_model(TINY), TINY, AnchorTask())
    asked = []

    def opened(name):
        asked.append(name)
        return tiny

    def at_end(_):
        ending = next(one for one in ENDINGS if asked[-1].startswith(one))
        solution = "inferential" if ending == "inferential solution" else "symmetric"
        return end("undecided: borderline" if "turns" in asked[-1] else ending, solution)

    monkeypatch.setattr(Checkpoint, "evaluate", lambda self: None)
    monkeypatch.setattr(command, "at_end", at_end)
    return opened


class TestChoice:
    def test_endings_and_tasks_take_turns(self, as_planned):
        rows = [row(f"{e} {t} {k}", e, t) for e in ENDINGS for t in "ab" for k in range(3)]
        found = [about for about, _ in command.choose(rows, as_planned, 20)]
        assert [about.ending for about in found] == list(ENDINGS) * 4
        for ending in ENDINGS:
            tasks = [about.task for about in found if about.ending == ending]
            assert sorted(tasks) == ["a", "a", "b", "b"]
        assert len({about.name for about in found}) == 20

    def test_labels_take_turns_before_tasks(self, as_planned):
        rows = [row(f"Phase 2 {k}", "Phase 2", f"task {k}", "without") for k in range(5)]
        rows += [row("Phase 2 w", "Phase 2", "task 0", "with")]
        chosen = [about.name for about, _ in command.choose(rows, as_planned, 2)]
        assert chosen == ["Phase 2 0", "Phase 2 w"]

    def test_one_that_rounding_turns_is_passed_over_and_what_is_wanting_too(self, as_planned):
        rows = [row("Phase 1 turns", "Phase 1", "a"), row("Phase 1 stays", "Phase 1", "b")]
        rows += [row(f"Phase 3 {k}", "Phase 3", "a") for k in range(3)]
        found = [about.name for about, _ in command.choose(rows, as_planned)]
        assert found == ["Phase 1 stays", "Phase 3 0", "Phase 3 1", "Phase 3 2"]


def test_rounded_weights_are_those_of_16_bits_in_32():
    checkpoint = Checkpoint.from_model(build_model(TINY), TINY, AnchorTask(), metrics={"loss": 1.0})
    rounded = command.rounded(checkpoint)
    assert not rounded.metrics
    for name, weight in rounded.weights.items():
        assert weight.dtype == torch.float32 and torch.equal(weight.half().float(), weight)
        assert torch.allclose(weight, checkpoint.weights[name], rtol=1e-3, atol=1e-7)


@pytest.fixture
def zoo(tmp_path, monkeypatch):
    """A zoo of four runs: one small and clear, one too large, one unclear, one that was fit on."""
    task = AnchorTask(key_max=40, seq_len=5)
    planned = {}
    table, archive = [], tmp_path / "zoo.zip"
    for name, group, label, width in (
        ("small", "held-out tasks", "Phase 1", 8),
        ("large", "held-out tasks", "Phase 1", 256),
        ("unclear", "held-out tasks", "undecided: borderline", 8),
        ("fit", "fit", "Phase 1", 8),
    ):
        config = dataclasses.replace(TINY.for_task(task), n_layers=2, d_model=width, d_head=4, d_mlp=8)
        made = Checkpoint.from_model(
            build_model(config), config, task, train_config=TrainConfig(n_samples=64, batch_size=8)
        )
        save_checkpoint(tmp_path / "one.safetensors", made)
        with zipfile.ZipFile(archive, "a") as file:
            file.write(tmp_path / "one.safetensors", f"{name}.safetensors")
        about = {"name": name, "group": group, "task": "t", "kind": "shifts", "regime": "reasoning"}
        table.append({**about, "moment": 1.0, **end(label), "solution": None})
        planned[name] = dataclasses.make_dataclass("Run", ["group"])(group)
    pd.DataFrame(table).to_parquet(tmp_path / "zoo.parquet")
    monkeypatch.setattr(command, "runs", lambda: planned)
    monkeypatch.setattr(command, "MOST_BYTES_OF_RUN", 40_000)
    monkeypatch.setattr(command, "at_end", lambda behaviour: end("Phase 1"))
    return tmp_path


class TestFile:
    def make(self, zoo, **options):
        groups = ("held-out tasks",)
        command.make_checkpoints(zoo / "zoo.parquet", zoo / "zoo.zip", zoo / "out.zip", groups, **options)

    def test_it_holds_those_that_qualify(self, zoo, capsys):
        self.make(zoo)
        ((about, checkpoint),) = shipped_models(path=zoo / "out.zip")
        assert (about.name, about.ending, about.label, about.ood) == ("small", "Phase 1", "Phase 1", 1.0)
        assert all(torch.equal(weight.half().float(), weight) for weight in checkpoint.weights.values())
        assert "1 models, " in capsys.readouterr().out

    def test_missing_runs_are_named_with_the_command_that_trains_them(self, zoo, monkeypatch):
        planned = {**command.runs(), "more": next(iter(command.runs().values()))}
        monkeypatch.setattr(command, "runs", lambda: planned)
        with pytest.raises(ValueError, match=r'1 of 4 runs are missing.*"held-out tasks"'):
            self.make(zoo)
        self.make(zoo, incomplete=True)
        (zoo / "zoo.parquet").unlink()
        with pytest.raises(ValueError, match=r"zoo.parquet is not there.*zoo.py"):
            self.make(zoo)

    def test_one_that_is_too_large_is_not_written(self, zoo, monkeypatch):
        monkeypatch.setattr(command, "MOST_BYTES", 1000)
        with pytest.raises(ValueError, match="the models may have 1,000 bytes, got"):
            self.make(zoo)
        assert not (zoo / "out.zip").exists()


class TestPage:
    def test_it_is_what_the_command_writes(self):
        assert command.PAGE.read_text() == command.page(shipped.reference())

    def test_it_has_a_row_for_every_reading_and_kind(self, monkeypatch, tmp_path):
        models = known_models()

        def weightwatcher_alpha(model, task):
            return ending_number(model, task)

        def readings(model, task):
            return {"stable_rank.w_q_normalized": 1.0}

        monkeypatch.setattr(
            command, "SCORED", {"readings": readings, "weightwatcher_alpha": weightwatcher_alpha}
        )
        command.make_reference(models, tmp_path / "reference.json", ("readings", "weightwatcher_alpha"))
        monkeypatch.setattr(shipped, "REFERENCE", tmp_path / "reference.json")
        page = command.page(shipped.reference())
        assert "| `weightwatcher_alpha` | weights | 0.00 (0.00 to 0.00) | 1.00 (1.00 to 1.00) | 1.00" in page
        assert "| `stable_rank.w_q_normalized` | weights | 0.50 (0.50 to 0.50) |" in page
        assert "| Phase 1 | 3 | 3 |" in page and "15 models of 3 tasks: fewer than 60 runs qualified." in page

    def test_a_probe_is_measured_again_and_the_others_are_kept(self, monkeypatch, tmp_path):
        models, out = known_models(), tmp_path / "reference.json"
        scored = {"one": lambda model, task: {"one": 1.0}, "other": ending_number}
        monkeypatch.setattr(command, "SCORED", scored)
        command.make_reference(models, out, ("one", "other"))
        scored["one"] = lambda model, task: {"one": ending_number(model, task)}
        command.make_reference(models, out, ("one",))
        found = {
            reading.name: reading.scores["composes"].auc
            for reading in Benchmark.from_json(out.read_bytes()).readings
        }
        assert found == {"one": 1, "ending_number": 1}
        with pytest.raises(ValueError, match=r"have the models of the benchmark.*--only"):
            command.make_reference(models[:-1], out, ("one",))

    def test_steps_are_checked(self, monkeypatch, capsys):
        monkeypatch.setattr(sys, "argv", ["benchmark_checkpoints.py", "pages"])
        with pytest.raises(SystemExit):
            command.main()
        assert "reference, page, got pages" in capsys.readouterr().err


def test_the_shipped_models_are_held_out_and_not_too_large():
    if not shipped.CHECKPOINTS.exists():
        pytest.skip("python research/benchmark_checkpoints.py has not been run")
    models = shipped_models()
    planned = command.runs()
    assert shipped.CHECKPOINTS.stat().st_size <= command.MOST_BYTES and len(models) <= command.N_MODELS
    for about, checkpoint in models:
        run = planned[about.name]
        assert run.group in command.HELD_OUT and run.task_name == about.task
        # runs of the first zoo were measured on the way too
        recipe = dataclasses.replace(checkpoint.train_config, n_checkpoints=0)
        assert recipe == run.run.train_config and checkpoint.task == run.run.task
        assert all(torch.equal(weight.half().float(), weight) for weight in checkpoint.weights.values())
    assert {about.ending for about, _ in models} == set(ENDINGS)
    values = score_models(lambda model: model.cfg.d_model, models).readings[0].values
    assert np.isin(list(values.values()), [48, 64, 96]).all()
    ours = shipped.reference()
    if ours is not None:
        assert [about.to_dict() for about, _ in models] == [about.to_dict() for about in ours.models]
        assert json.dumps(ours.to_dict())


class TestAlpha:
    def test_a_matrix_of_independent_numbers_has_a_light_tail(self):
        """And one whose singular values fall as a power law has their exponent: k^-1 has a density x^-2."""
        pytest.importorskip("weightwatcher", reason="the extra [research] is not installed")
        from weightwatcher_alpha import weightwatcher_alpha

        model = build_model(dataclasses.replace(TINY, d_model=64, d_head=32, d_mlp=64))
        random = weightwatcher_alpha(model)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() >= 2:
                    flat = parameter.reshape(-1, parameter.shape[-1])
                    u, s, v = torch.linalg.svd(flat, full_matrices=False)
                    parameter.copy_((u * torch.arange(1.0, len(s) + 1) ** -0.5 @ v).reshape(parameter.shape))
        assert weightwatcher_alpha(model) < random
        assert all(not parameter.grad_fn for parameter in model.parameters())
