"""Runs and sweeps of an earlier version: they load, go on, draw, and nothing in them is trained again."""

import json
import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from quick_tsne import quick_tsne
from sweeping import finished

from anchorlens import classify, load_checkpoint, train
from anchorlens.cli import app
from anchorlens.models.stacked import linear
from anchorlens.runs.identity import execution_fields, recipe
from anchorlens.sweep import grid, open_sweep, sweep
from anchorlens.sweep.cells import cell_id
from anchorlens.training.folder import read_log, stored_run

BEFORE = Path(__file__).parents[1] / "data/before_rooms"
SIZES = {"n_layers": 1, "d_model": 16, "d_head": 8, "d_mlp": 16, "n_samples": 512, "batch_size": 64}
SIZES |= {"eval_every": 50, "log_every": 10, "warmup_steps": 5, "threads": 1, "steps": 60, "n_checkpoints": 0}
AXES = {"gamma": "0.4,0.8", "seed": "0,1"}


@pytest.fixture
def copied(tmp_path):
    """The sweep, where it may be written."""
    shutil.copytree(BEFORE / "sweep", tmp_path / "sweep")
    return tmp_path / "sweep"


def weights_of(path):
    return load_checkpoint(path).weights


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture(scope="module", autouse=True)
def products_of_before():
    """By oneDNN on every processor, as when these runs were made."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear, "_mkl_on_intel", lambda: False)
        yield


@pytest.fixture(scope="module")
def expected():
    """The weights of the finished run, by this machine: another one may differ from it in the last digits."""
    here = train(*stored_run(BEFORE / "finished")).checkpoint.weights
    there = weights_of(BEFORE / "finished/ckpt.pt")
    # no attention pattern depends on the biases of the keys: their gradient is what rounding leaves
    read = [name for name in here if not name.endswith("b_K")]
    assert all(torch.allclose(here[name], there[name], atol=1e-3) for name in read)
    return here if equal(here, there) else None


class TestASweep:
    def test_opens_under_its_old_ids(self):
        result = open_sweep(BEFORE / "sweep")
        assert repr(result).endswith("gamma (2) x seed (2); 4 finished)")
        for cell in result:
            assert cell.path == BEFORE / "sweep/cells" / cell.id and cell.id != cell_id(cell.run)
            assert cell.content["id"] == cell.id and cell.log()[-1]["step"] == 60

    @pytest.mark.parametrize("execution", [{}, {"threads": 2, "log_every": 7}, {"device": "cpu"}])
    def test_is_not_trained_again(self, copied, execution):
        before, listed = finished(copied), (copied / "sweep.json").read_bytes()
        result = sweep(grid("quick", AXES, **(SIZES | execution)), copied, engine="serial")
        assert result.counts == {"finished": 4} and list(result.axes) == ["gamma", "seed"]
        assert finished(copied) == before and (copied / "sweep.json").read_bytes() == listed

    def test_the_same_command_trains_nothing(self, copied):
        """And the plan says so beforehand."""
        from typer.testing import CliRunner

        before = finished(copied)
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in (SIZES | AXES).items()]
        command = ["sweep", *flags, "--engine", "serial", "--out", str(copied)]
        for more, said in ((["--dry-run"], "4 of them are in"), ([], "4 finished")):
            done = CliRunner().invoke(app, [*command, *more])
            assert done.exit_code == 0 and said in " ".join(done.stdout.split())
        assert finished(copied) == before

    def test_is_extended_by_cells_with_new_ids(self, copied):
        before = finished(copied)
        result = sweep(grid("quick", {"gamma": "0.8,0.6", "seed": 0}, **SIZES), copied, engine="serial")
        assert before.items() <= finished(copied).items() and len(finished(copied)) == 5
        old, new = result
        assert old.id in before and new.id == cell_id(new.run)
        again = open_sweep(copied)
        assert [cell.id for cell in again] == [*(cell.id for cell in open_sweep(BEFORE / "sweep")), new.id]
        assert again.counts == {"finished": 5}

    def test_a_killed_cell_of_it_goes_on(self, copied):
        """Its folder as a kill leaves it, with a state at step 10 that says whose it is as it did then."""
        from anchorlens.files import container
        from anchorlens.runs.identity import state_id_of_before
        from anchorlens.training.folder import STATE_FORMAT
        from anchorlens.training.stack import Stack

        cell = open_sweep(copied).cells[0]
        unfinished = copied / "unfinished" / cell.id
        unfinished.parent.mkdir()
        cell.path.rename(unfinished)
        whole = train(*cell.run).checkpoint.weights
        logged = read_log(unfinished / "log.jsonl")[0]
        for name in ("ckpt.pt", "cell.json"):
            (unfinished / name).unlink()
        stack = Stack([cell.run], [_training_set(cell.run)], torch.device("cpu"))
        with _one_thread():
            stack.advance(10)
        header = {"format": STATE_FORMAT, "format_version": 1, "step": 10, "threads": 1}
        header["run"] = state_id_of_before(stored_run(unfinished))
        container.write(unfinished / "state.pt", header, stack.state(0))
        runs = grid("quick", AXES, **(SIZES | {"state_every_seconds": 5.0, "eval_every": 30}))
        assert sweep(runs, copied, engine="serial").counts == {"finished": 4}
        ended = open_sweep(copied).cells[0]
        assert ended.id == cell.id and equal(weights_of(ended.path / "ckpt.pt"), whole)
        assert ended.log()[0] == logged  # seconds and all: it went on from there

    def test_a_failed_cell_of_it_stays_failed(self, copied):
        cell = open_sweep(copied).cells[2]
        shutil.rmtree(cell.path)
        failure = {"format": "anchorlens failed cell", "format_version": 1, "id": cell.id}
        (copied / "failed").mkdir()
        path = copied / "failed" / f"{cell.id}.json"
        path.write_text(json.dumps({**failure, "error": "no luck", "details": None}))
        runs = grid("quick", AXES, **SIZES)
        assert sweep(runs, copied, engine="serial").counts == {"finished": 3, "failed": 1}
        assert sweep(runs, copied, engine="serial", retry_failed=True).counts == {"finished": 4}
        assert not path.exists() and open_sweep(copied).counts == {"finished": 4}

    def test_draws(self, copied, tmp_path):
        open_sweep(copied).diagram(tmp_path / "diagram.html")
        first, *others = open_sweep(copied)
        for cell in others:  # its report is that of every cell
            shutil.rmtree(cell.path)
        with quick_tsne():
            open_sweep(copied).diagram(tmp_path / "reports.html", reports=True)
        assert all((tmp_path / f"{name}.html").stat().st_size > 10_000 for name in ("diagram", "reports"))
        (report,) = (tmp_path / "reports-reports").iterdir()
        assert first.id in report.name and report.stat().st_size > 10_000


class TestARun:
    def test_loads_and_is_reported(self, tmp_path):
        verdict = classify(BEFORE / "finished")
        with quick_tsne():
            verdict.report(tmp_path / "report.html")
        assert "<html" in (tmp_path / "report.html").read_text()[:500]
        copy = shutil.copytree(BEFORE / "finished", tmp_path / "finished")
        result = train(out=copy, resume=True)
        assert result.status == "finished" and result.checkpoint.step == 400
        assert equal(result.checkpoint.weights, weights_of(BEFORE / "finished/ckpt.pt"))

    @pytest.mark.parametrize(
        "execution",
        [{}, pytest.param({"log_every": 25, "eval_every": 200, "n_checkpoints": 3}, marks=pytest.mark.slow)],
    )
    def test_killed_goes_on_to_the_same_bits(self, tmp_path, execution, expected):
        copy = shutil.copytree(BEFORE / "killed", tmp_path / "killed")
        run = stored_run(copy)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = train(*run._replace(train=replace(run.train, **execution)), out=copy, resume=True)
        kept = [line for line in read_log(BEFORE / "killed/log.jsonl") if line in result.log]
        assert kept, "it began anew"
        if expected is None:
            pytest.skip("this machine computes other digits than the one on which the run was killed")
        assert equal(result.checkpoint.weights, expected)

    def test_another_recipe_is_refused(self, tmp_path):
        copy = shutil.copytree(BEFORE / "killed", tmp_path / "killed")
        run = stored_run(copy)
        for name, value in (("lr", 2e-3), ("matmul", "bf16"), ("stop_at_loss", 0.1)):
            other = run._replace(train=replace(run.train, **{name: value}))
            with pytest.raises(ValueError, match=f"train.{name} was .* and is now"):
                train(*other, out=copy, resume=True)


def test_what_is_recorded_decides_where_a_run_may_end_by_it():
    run = grid("quick", {})[0]
    assert "log_every" not in recipe(run)["train"] and "lr" in recipe(run)["train"]
    assert {"log_every", "eval_every"} <= execution_fields(run.train)
    by_accuracy = replace(run.train, early_stop_evaluations=3)
    assert {"log_every", "eval_every"} & execution_fields(by_accuracy) == {"log_every"}
    by_loss = replace(run.train, stop_at_loss=0.1)
    assert not {"log_every", "eval_every"} & execution_fields(by_loss)


def _training_set(run):
    from anchorlens.files.checkpoint import training_set

    return training_set(run.task, run.train)


def _one_thread():
    from anchorlens.training.numerics import numeric_settings

    return numeric_settings(torch.device("cpu"), 1)
