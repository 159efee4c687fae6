import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from anchorlens.files.checkpoint import load_checkpoint
from anchorlens.recipes.presets import preset
from anchorlens.recipes.run_config import RunConfig
from anchorlens.safe import CheckpointError
from anchorlens.tasks.two_anchor.task import AnchorTask
from anchorlens.training.run import train, train_many
from anchorlens.training.run_folder import RunFolder, read_log

ROOT = Path(__file__).parents[2]
TINY = {
    "n_layers": 1, "d_model": 16, "d_head": 8, "d_mlp": 16,
    "key_max": 40,  # few keys, so that evaluating is short
    "n_samples": 256, "batch_size": 64, "steps": 20, "warmup_steps": 5, "log_every": 5, "eval_every": 10,
    "device": "cpu",
}  # fmt: skip

FORMAT_OF_A_RUN = {"format": "anchorlens run", "format_version": 1}


def tiny(**fields):
    return preset("quick", **(TINY | fields))


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, all_questions):
    """Four runs of different shapes and tasks, one of which diverges, in two processes."""
    folder = tmp_path_factory.mktemp("many")
    shifted = AnchorTask(anchors={1: lambda x: x + 5, 2: 1, 3: -2, 4: -8})
    runs = [
        tiny(gamma=0.3),
        tiny(d_mlp=24, variant="postnorm", seed=1),
        tiny(lr=1e38),
        tiny()._replace(task=shifted),
    ]
    outs = [folder / f"{k}" for k in range(4)]
    return runs, outs, train_many(runs, outs=outs, workers=2)


class TestProcesses:
    def test_results_come_in_order_and_are_those_of_each_run_alone(self, trained):
        runs, _, results = trained
        assert [result.status for result in results] == ["finished", "finished", "diverged", "finished"]
        for run, result in zip(runs, results, strict=True):
            assert result.checkpoint.model_config == run.model_config and result.checkpoint.task == run.task
            if result.status == "finished":
                alone = train(*run._replace(train_config=replace(run.train_config, threads=1)))
                assert equal(alone.checkpoint.weights, result.checkpoint.weights)
                assert alone.behaviour.to_dict() == result.behaviour.to_dict()

    def test_each_has_its_folder(self, trained):
        _, outs, results = trained
        for out, result in zip(outs, results, strict=True):
            assert equal(load_checkpoint(out / "ckpt.pt").weights, result.checkpoint.weights)
            assert read_log(out / "log.jsonl") == list(result.log)

    def test_a_diverged_run_is_reported_among_the_others(self, trained):
        _, outs, results = trained
        assert "training diverged" in results[2].message and str(outs[2] / "ckpt.pt") in results[2].message
        assert [result.message for k, result in enumerate(results) if k != 2] == [None] * 3

    def test_a_damaged_state_is_named_from_another_process(self, tmp_path):
        (tmp_path / "1").mkdir()
        (tmp_path / "1/config.json").write_text(json.dumps(FORMAT_OF_A_RUN | tiny(seed=1).to_dict()))
        (tmp_path / "1/state.pt").write_bytes(b"PK\x03\x04 damaged")
        runs, outs = [tiny(), tiny(seed=1)], [tmp_path / "0", tmp_path / "1"]
        with pytest.raises(CheckpointError, match=r"1/state\.pt: .*complete.*truncated"):
            train_many(runs, outs=outs, resume=True, workers=2)

    def test_the_same_call_again_reads_what_has_ended(self, trained):
        runs, outs, results = trained
        before = [(out / "ckpt.pt").stat().st_mtime_ns for out in outs]
        again = train_many(runs, outs=outs, workers=1, resume=True)
        assert [(out / "ckpt.pt").stat().st_mtime_ns for out in outs] == before
        assert [r.status for r in again] == [r.status for r in results]
        assert [r.behaviour.to_dict() for r in again] == [r.behaviour.to_dict() for r in results]

    def test_one_after_another_gives_the_same(self, trained):
        runs, _, results = trained
        here = train_many(runs, workers=1)
        for a, b in zip(here, results, strict=True):
            assert a.status == b.status and equal(a.checkpoint.weights, b.checkpoint.weights)


KILLED = """
import json, sys
from pathlib import Path
from anchorlens import train_many
from anchorlens.recipes.run_config import RunConfig
runs = [RunConfig.from_dict(values) for values in json.loads(sys.argv[2])]
outs = [Path(sys.argv[1]) / str(k) for k in range(len(runs))]
print([result.status for result in train_many(runs, outs=outs, workers=2, resume=True)])
"""


@pytest.mark.slow
def test_a_killed_worker_is_said_and_the_runs_continue(tmp_path):
    """No `if __name__ == "__main__"` in the script; SIGKILL to one of its workers; the same command again."""
    import json

    runs = [tiny(steps=600, seed=seed, state_every_seconds=0.2).to_dict() for seed in range(4)]
    script = tmp_path / "script.py"
    script.write_text(KILLED)
    command = [sys.executable, str(script), str(tmp_path / "runs"), json.dumps(runs)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    begun = tmp_path / "runs/0/state.pt"
    while not begun.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    os.kill(worker_of(process.pid), signal.SIGKILL)
    _, errors = process.communicate()
    assert process.returncode == 1
    assert "got a process that was killed" in errors and "continue with resume" in errors
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert again.stdout.strip() == str(["finished"] * 4)
    assert all((tmp_path / f"runs/{k}/ckpt.pt").exists() for k in range(4))


@pytest.mark.slow
@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_the_process_that_started_them(tmp_path, kill):
    """And the same command goes on at once: no folder stays locked."""
    import json

    runs = [tiny(steps=60_000, seed=seed, state_every_seconds=0.05).to_dict() for seed in range(2)]
    script = tmp_path / "script.py"
    script.write_text(KILLED)
    command = [sys.executable, str(script), str(tmp_path / "runs"), json.dumps(runs)]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # which `make test-slow &` ignores
    )
    while not all((tmp_path / f"runs/{k}/state.pt").exists() for k in range(2)):
        assert process.poll() is None
        time.sleep(0.01)
    worker = worker_of(process.pid)
    process.send_signal(kill)
    process.wait()
    patience = time.monotonic() + 20
    while Path(f"/proc/{worker}").exists():
        assert time.monotonic() < patience, "the worker goes on without the process that started it"
        time.sleep(0.05)
    for k in range(2):
        RunFolder(tmp_path / f"runs/{k}", RunConfig.from_dict(runs[k]), resume=True).close()


def worker_of(pid):
    """A child process that trains."""
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            if "popen_loky" in Path(f"/proc/{child}/cmdline").read_text():
                return int(child)
    raise AssertionError("no worker")


def test_a_stack_in_folders_resumes_members_from_their_own_steps(tmp_path):
    """Members that were saved at different steps go on and meet the run that was never interrupted."""
    from anchorlens.engine.engines import Stack
    from anchorlens.files.checkpoint import training_set
    from anchorlens.training.run import train_together

    runs = [tiny(gamma=gamma, seed=seed) for seed, gamma in enumerate((0.4, 0.6, 0.8))]
    for k, (run, step) in enumerate(zip(runs, (0, 10, 10), strict=True)):
        if step:
            stack = Stack([run], [training_set(run.task, run.train_config)], torch.device("cpu"))
            stack.advance(step)
            folder = RunFolder(tmp_path / str(k), run, resume=False)
            folder.begin()
            folder.save_state(step, torch.get_num_threads(), stack.state(0))
            folder.close()
    paths = [tmp_path / str(k) for k in range(3)]
    results = train_together(runs, paths, resume=True)
    assert [result.status for result in results] == ["finished"] * 3
    for run, result in zip(runs, results, strict=True):
        alone = train(*run).checkpoint.weights
        for name, weight in result.checkpoint.weights.items():
            if not name.endswith("b_K"):  # rounding alone moves it
                assert torch.allclose(weight, alone[name], atol=1e-4), name


class TestArguments:
    def test_folders_are_one_for_each_run(self, tmp_path):
        for outs in ([tmp_path], str(tmp_path)):
            with pytest.raises(ValueError, match="outs must be a list of 2 different folders"):
                train_many([tiny(), tiny(seed=1)], outs=outs)
        with pytest.raises(ValueError, match="different folders"):
            train_many([tiny(), tiny(seed=1)], outs=[tmp_path / "a", tmp_path / "b/../a"])

    def test_a_folder_that_cannot_be_used_is_said_before_anything_is_trained(self, tmp_path):
        (tmp_path / "b").mkdir()
        (tmp_path / "b/thesis.tex").write_text("precious")
        for workers in (1, 2):
            with pytest.raises(ValueError, match="with 'thesis.tex' and no run"):
                train_many([tiny(), tiny(seed=1)], outs=[tmp_path / "a", tmp_path / "b"], workers=workers)
        assert not (tmp_path / "a/config.json").exists()

    def test_some_may_have_no_folder_and_outs_may_be_any_iterable(self, tmp_path):
        results = train_many([tiny(), tiny()], outs=iter([None, tmp_path / "b"]), workers=1)
        assert [result.out for result in results] == [None, tmp_path / "b"]

    def test_runs_are_runs(self):
        with pytest.raises(ValueError, match="runs must be a list of RunConfigs"):
            train_many(tiny())
        with pytest.raises(ValueError, match=r"a list of RunConfigs.*got 3"):
            train_many([tiny(), 3])

    @pytest.mark.slow
    def test_in_a_daemonic_process_there_are_no_others(self):
        """Such a process, one of multiprocessing.Pool's for example, may have no children."""
        code = """
import multiprocessing
from anchorlens import preset, train_many
def statuses(_):
    tiny = dict(n_layers=1, d_model=16, d_head=8, d_mlp=16, n_samples=256, batch_size=64, steps=2)
    return [result.status for result in train_many([preset("quick", seed=s, **tiny) for s in (0, 1)])]
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.map(statuses, [0]) == [["finished", "finished"]]
"""
        subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)

    def test_workers(self):
        with pytest.raises(ValueError, match="workers must be an integer >= 1 and <= 1024, got 0"):
            train_many([tiny()], workers=0)

    def test_no_runs_are_no_results(self):
        assert train_many([]) == []

    def test_tf32_needs_a_gpu(self):
        with pytest.raises(ValueError, match="must be CUDA for matmul 'tf32'"):
            train_many([tiny(matmul="tf32")])

    def test_precision_goes_with_float32(self):
        with pytest.raises(ValueError, match="dtype must be 'float32' for matmul"):
            tiny(matmul="bf16", dtype="float64")

    def test_bf16_trains_to_other_digits(self):
        exact, rounded = train_many([tiny(), tiny(matmul="bf16")], workers=1)
        assert rounded.status == "finished"
        assert not equal(exact.checkpoint.weights, rounded.checkpoint.weights)
        assert rounded.log[0]["loss"] == pytest.approx(exact.log[0]["loss"], rel=0.02)
