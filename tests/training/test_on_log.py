"""What `on_log` is told, in which process, and what becomes of a run whose `on_log` raises."""

import threading
from dataclasses import replace

import pytest
import torch

from anchorlens.recipes.presets import preset
from anchorlens.training.loop import OnLogError
from anchorlens.training.run import train, train_many, train_together
from anchorlens.training.run_folder import read_log

TINY = {
    "n_layers": 1, "d_model": 16, "d_head": 8, "d_mlp": 16,
    "key_max": 40,  # few keys, so that evaluating is short
    "n_samples": 256, "batch_size": 64, "steps": 20, "warmup_steps": 5, "log_every": 5, "eval_every": 10,
    "device": "cpu", "threads": 1,
}  # fmt: skip
STEPS = [5, 10, 15, 20]
RUNS = [preset("quick", **TINY, seed=seed) for seed in range(3)]


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def without_time(lines):
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


class Raising:
    """Keeps lines, and raises when it is told a step of a run."""

    def __init__(self, step, run=None):
        self.at, self.lines, self.threads = (run, step), [], set()

    def log(self, line):
        self.lines.append(line)
        self.threads.add(threading.current_thread())
        if (line.get("run"), line["step"]) == self.at:
            raise KeyError("the disk of somebody")


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Each run alone, with nobody told, and its folder."""
    outs = [tmp_path_factory.mktemp("plain") / f"{k}" for k in range(3)]
    return [train(*run, out=out) for run, out in zip(RUNS, outs, strict=True)], outs


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    lines, out = [], tmp_path_factory.mktemp("told") / "run"

    def on_log(line):
        lines.append(dict(line))
        line.clear()  # it is the callback's own

    return train(*RUNS[0], out=out, on_log=on_log), lines, out


class TestOneRun:
    def test_it_is_told_every_line_of_the_log_and_the_epoch(self, told):
        result, lines, out = told
        epochs = [line.pop("epoch") for line in map(dict, lines)]
        assert epochs == [1.25, 2.5, 3.75, 5.0]  # of 256 / 64 = 4 steps
        logged = [{name: value for name, value in line.items() if name != "epoch"} for line in lines]
        assert logged == read_log(out / "log.jsonl") == list(result.log)
        assert [line["step"] for line in logged] == STEPS
        assert [line["step"] for line in logged if "ood_accuracy" in line] == [10, 20]

    def test_what_it_sets_does_not_reach_the_training(self, plain):
        def on_log(line):
            torch.set_grad_enabled(False)
            torch.set_default_dtype(torch.float64)

        result = train(*RUNS[0], on_log=on_log)
        assert torch.is_grad_enabled() and torch.get_default_dtype() == torch.float32
        assert equal(result.checkpoint.weights, plain[0][0].checkpoint.weights)

    def test_all_values_are_plain_numbers(self, told):
        assert {type(value) for line in told[1] for value in line.values()} == {int, float}

    def test_the_weights_have_the_same_bits_as_without(self, told, plain):
        assert equal(told[0].checkpoint.weights, plain[0][0].checkpoint.weights)
        assert without_time(told[0].log) == without_time(plain[0][0].log)

    def test_what_raises_ends_it_with_its_state_saved_and_resume_goes_on(self, tmp_path, plain):
        logger = Raising(10)
        message = (
            r"on_log raised KeyError at step 10: 'the disk of somebody'. The error is in "
            r"on_log.*continues with resume"
        )
        with pytest.raises(OnLogError, match=message) as caught:
            train(*RUNS[0], out=tmp_path / "run", on_log=logger)
        assert isinstance(caught.value.__cause__, KeyError)
        assert (tmp_path / "run/state.pt").exists() and not (tmp_path / "run/ckpt.pt").exists()
        result = train(out=tmp_path / "run", resume=True, on_log=logger.lines.append)
        assert [line["step"] for line in logger.lines] == STEPS  # each once
        assert equal(result.checkpoint.weights, plain[0][0].checkpoint.weights)
        assert without_time(result.log) == without_time(plain[0][0].log)
        train(out=tmp_path / "run", resume=True, on_log=logger)  # has ended: nothing is told
        assert len(logger.lines) == 4

    def test_without_a_folder_it_is_the_same_error(self):
        with pytest.raises(OnLogError, match=r"step 5: .*A run with a folder \(out\) has saved"):
            train(*RUNS[0], on_log=Raising(5))

    def test_ctrl_c_in_it_is_ctrl_c_and_the_state_is_saved(self, tmp_path):
        def interrupted(line):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train(*RUNS[0], out=tmp_path / "run", on_log=interrupted)
        assert (tmp_path / "run/state.pt").exists()

    def test_what_takes_no_lines_is_refused_before_anything_is_written(self, tmp_path):
        for call in (lambda out: train(*RUNS[0], out=out, on_log=3),
                     lambda out: train_many(RUNS[:2], outs=[out, None], on_log=3)):  # fmt: skip
            with pytest.raises(ValueError, match=r"on_log must be a function.*got 3"):
                call(tmp_path / "run")
        assert not (tmp_path / "run").exists()


class TestManyRuns:
    @pytest.mark.parametrize("workers", [1, 2])
    def test_each_line_says_of_which_run_it_is_and_comes_in_this_thread(self, workers, plain):
        logger = Raising(None)
        results = train_many(RUNS, workers=workers, on_log=logger, progress=False)
        assert logger.threads == {threading.current_thread()}
        for place, (result, alone) in enumerate(zip(results, plain[0], strict=True)):
            lines = [line for line in logger.lines if line["run"] == place]
            dropped = ("run", "epoch")
            lines = [{name: value for name, value in line.items() if name not in dropped} for line in lines]
            assert lines == list(result.log)
            assert without_time(lines) == without_time(alone.log)
            assert equal(result.checkpoint.weights, alone.checkpoint.weights)

    @pytest.mark.parametrize("workers", [1, 2])
    def test_what_raises_ends_all_and_the_same_call_goes_on(self, workers, tmp_path, plain):
        outs = [tmp_path / f"{k}" for k in range(3)]
        logger = Raising(10, run=1)
        with pytest.raises(OnLogError, match=r"KeyError at step 10 of run 1: ") as at:
            train_many(RUNS, outs=outs, workers=workers, on_log=logger)
        assert isinstance(at.value.__cause__, KeyError)
        assert (outs[1] / "state.pt").exists()
        for out in outs:  # those beside it may have ended before, or not have begun
            assert any((out / name).exists() for name in ("state.pt", "ckpt.pt")) or not read_log(
                out / "log.jsonl"
            )
        results = train_many(RUNS, outs=outs, workers=1, resume=True, on_log=logger.lines.append)
        for result, alone in zip(results, plain[0], strict=True):
            assert equal(result.checkpoint.weights, alone.checkpoint.weights)
            assert without_time(result.log) == without_time(alone.log)
        assert [line["step"] for line in logger.lines if line["run"] == 1] == STEPS

    def test_in_one_stack_the_logs_of_all_are_whole_and_all_states_are_saved(self, tmp_path):
        runs = [run._replace(train_config=replace(run.train_config, n_checkpoints=0)) for run in RUNS[:2]]
        outs = [tmp_path / f"{k}" for k in range(2)]

        def show(done, text, lines):
            assert [place for place, _ in lines] in ([], [0, 1])
            if done == 2 * 10:
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            train_together(runs, outs, show, resume=False)
        for out in outs:
            assert [line["step"] for line in read_log(out / "log.jsonl")] == [5, 10]
            assert train(out=out, resume=True).status == "finished"
