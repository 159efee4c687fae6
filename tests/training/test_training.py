import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import forked
import numpy as np
import pytest
import torch
from torch.utils import deterministic as torch_deterministic

import anchorlens
from anchorlens.engine.engines import Stack
from anchorlens.engine.numerics import numeric_settings
from anchorlens.files import container
from anchorlens.files.checkpoint import load_checkpoint, training_set
from anchorlens.models.config import ModelConfig
from anchorlens.models.gamma import init_table
from anchorlens.models.hooked import build_model
from anchorlens.recipes.run_config import RunConfig
from anchorlens.recipes.train_config import TrainConfig
from anchorlens.safe import CheckpointError
from anchorlens.tasks.two_anchor.task import AnchorTask
from anchorlens.training.loop import TrainingDiverged
from anchorlens.training.run import train
from anchorlens.training.run_folder import RunFolder, read_log

ROOT = Path(__file__).parents[2]
TASK = AnchorTask(key_max=40)  # few keys, so that evaluating is short
TINY = ModelConfig(n_layers=1, d_model=16, d_head=8, d_mlp=16, gamma=0.5)
SHORT = TrainConfig(
    n_samples=256,
    batch_size=64,
    steps=20,
    warmup_steps=5,
    log_every=5,
    eval_every=10,
    threads=1,
    device="cpu",
)


def config(**changes):
    values = SHORT.to_dict() | changes
    return TrainConfig.from_dict(values)


def stack(model=TINY, recipe=SHORT, data=None):
    """A stack of one member."""
    data = training_set(TASK, recipe) if data is None else data
    return Stack([RunConfig(TASK, model, recipe)], [data], torch.device("cpu"))


def weights_of(path):
    return load_checkpoint(path).weights


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def without_time(log):
    return [{key: value for key, value in line.items() if key != "seconds"} for line in log]


class TestLearning:
    def test_fits_a_small_training_set(self):
        """Sixty-four sequences and a model large enough to know them by heart."""
        model = ModelConfig(n_layers=1, d_model=64, d_head=32, d_mlp=128, gamma=0.5)
        recipe = config(n_samples=64, batch_size=64, steps=150, lr=3e-3, eval_every=150)
        result = train(model_config=model, train_config=recipe)
        assert result.behaviour.train.value == 1.0
        assert result.behaviour.phase.number == 1
        assert result.log[-1]["loss"] < 0.1 < 4.0 < result.log[0]["loss"]

    def test_the_model_is_a_hooked_transformer_made_once(self):
        result = train(TASK, TINY, SHORT)
        assert type(result.model).__name__ == "HookedTransformer" and not result.model.training
        assert result.model is result.model

    def test_the_loss_is_cross_entropy_at_the_last_position(self):
        task = AnchorTask()
        model = build_model(TINY, seed=0)
        data = task.sample(64, seed=0)
        expected = torch.nn.functional.cross_entropy(model(data.tokens)[:, -1], data.targets).item()
        (update,) = stack(recipe=config(n_samples=64), data=data).advance(1)
        assert update.loss == pytest.approx(expected, rel=1e-6)

    def test_one_update_by_hand(self):
        """AdamW's first step moves each weight by lr * (sign of its gradient) and decays it by lr * wd."""
        task, recipe = (
            AnchorTask(),
            config(n_samples=64, lr=1e-2, weight_decay=0.5, warmup_steps=0, eps=1e-30, dtype="float64"),
        )
        model = build_model(TINY, seed=0, dtype="float64")
        data = task.sample(64, seed=0)
        before = model.W_in.detach().clone()
        loss = torch.nn.functional.cross_entropy(model(data.tokens)[:, -1], data.targets)
        gradient = torch.autograd.grad(loss, model.blocks[0].mlp.W_in)[0]
        one = stack(recipe=recipe, data=data)
        lr = one.advance(1)[0].lr
        expected = before[0] * (1 - lr * 0.5) - lr * gradient.sign()
        assert torch.allclose(one.layout.views(one._rows)["blocks.0.mlp.W_in"][0], expected, atol=1e-9)

    def test_clipping_bounds_the_gradient_and_reports_it_unclipped(self):
        """Adam's first moment after one step is (1 - beta1) times the gradient it was given."""
        norms = {}
        for clip in (0, 1e-3):
            one = stack(recipe=config(n_samples=64, clip_norm=clip), data=AnchorTask().sample(64))
            (update,) = one.advance(1)
            moments = [value for name, value in one.state(0).items() if name.startswith("exp_avg.")]
            given = torch.stack([moment.norm() for moment in moments]).norm().item() / (1 - 0.9)
            assert given == pytest.approx(clip or update.grad_norm, rel=1e-3)
            norms[clip] = update.grad_norm
        assert norms[0] == norms[1e-3] > 1e-3

    def test_frozen_biases_of_postnorm_stay_zero(self):
        model = ModelConfig(variant="postnorm", n_layers=1, d_model=16, d_head=8, d_mlp=16)
        weights = train(model_config=model, train_config=config(weight_decay=1.0)).checkpoint.weights
        assert all((weights[f"blocks.0.{name}"] == 0).all() for name in ("attn.b_Q", "attn.b_O", "mlp.b_in"))
        assert (weights["unembed.b_U"] != 0).any()

    def test_gamma_changes_the_weights_and_not_the_data(self):
        tiny = {"n_layers": 1, "d_model": 16, "d_head": 8, "d_mlp": 16}
        stacks = [stack(ModelConfig(gamma=gamma, **tiny), config(seed=4)) for gamma in (0.3, 0.8)]
        table = init_table(stacks[0].runs[0].model_config)
        for name, small in table.items():
            ratio = init_table(stacks[1].runs[0].model_config)[name].scale / small.scale
            weights = [s.layout.views(s._rows)[name] for s in stacks]
            assert torch.allclose(weights[0] * ratio, weights[1], rtol=1e-5)
        batches = [[s._order[0, i].tolist() for i in range(4)] for s in stacks if s.advance(1)]
        assert batches[0] == batches[1] and torch.equal(stacks[0]._table_rows, stacks[1]._table_rows)
        first = batches[0]
        stacks[0].advance(5)  # into the second epoch of four batches
        second = [stacks[0]._order[0, i].tolist() for i in range(4)]
        assert first != second
        assert sorted(sum(first, [])) == sorted(sum(second, [])) == list(range(256))

    def test_epochs_and_steps_are_the_same_run(self):
        a = train(TASK, TINY, config(steps=None, epochs=2, warmup_steps=4))
        b = train(TASK, TINY, config(steps=8, warmup_steps=4))
        assert equal(a.checkpoint.weights, b.checkpoint.weights)

    def test_float64(self):
        result = train(TASK, TINY, config(dtype="float64", steps=3))
        assert result.model.W_E.dtype == torch.float64

    @pytest.mark.gpu
    def test_on_a_gpu_as_on_the_cpu(self):
        gpu, cpu = (train(TASK, TINY, config(device=d, dtype="float64")) for d in ("cuda", "cpu"))
        assert gpu.model.W_E.is_cuda
        assert torch.allclose(
            gpu.checkpoint.weights["embed.W_E"], cpu.checkpoint.weights["embed.W_E"], atol=1e-6
        )


class TestFolder:
    def test_log_and_checkpoints(self, tmp_path):
        result = train(TASK, TINY, config(n_checkpoints=3), out=tmp_path / "run")
        log = read_log(tmp_path / "run/log.jsonl")
        assert log == list(result.log)
        assert [line["step"] for line in log] == [5, 10, 15, 20]
        always = {"step", "loss", "lr", "grad_norm", "weight_norm", "seconds"}
        accuracies = {"train_accuracy", "id_accuracy", "ood_accuracy"}
        assert [set(line) for line in log] == [always, always | accuracies] * 2
        names = sorted(path.name for path in (tmp_path / "run/checkpoints").iterdir())
        assert names == [f"step_{step:08d}.pt" for step in (0, 1, 4, 20)]
        assert {path.name for path in (tmp_path / "run").iterdir()} == {
            ".lock",
            "checkpoints",
            "ckpt.pt",
            "config.json",
            "log.jsonl",
        }
        final = load_checkpoint(tmp_path / "run/ckpt.pt")
        assert final.step == 20 and final.metrics["status"] == "finished"
        assert final.metrics["id"] == result.behaviour.id.value
        assert equal(final.weights, weights_of(tmp_path / "run/checkpoints/step_00000020.pt"))
        start = load_checkpoint(tmp_path / "run/checkpoints/step_00000000.pt")
        assert equal(start.weights, dict(build_model(TINY, seed=0).named_parameters()))

    def test_the_training_set_comes_back_from_the_checkpoint(self, tmp_path):
        """Also with anchors whose names sort differently as text and as numbers."""
        task = AnchorTask(anchors={9: 5, 10: 1, 11: -2, 12: -8})
        trained = train(task, TINY, SHORT, out=tmp_path)
        loaded = load_checkpoint(tmp_path / "ckpt.pt")
        assert (loaded.training_set().tokens == training_set(task, SHORT).tokens).all()
        assert train(out=tmp_path, resume=True).behaviour.to_dict() == trained.behaviour.to_dict()

    def test_nothing_is_written_without_a_folder(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        result = train(TASK, TINY, SHORT)
        assert result.out is None and not list(tmp_path.iterdir())

    def test_the_same_run_twice_is_the_same_bits(self, tmp_path):
        a, b = (train(TASK, TINY, SHORT, out=tmp_path / name) for name in "ab")
        assert equal(a.checkpoint.weights, b.checkpoint.weights)
        assert without_time(a.log) == without_time(b.log)

    def test_the_same_bits_with_two_threads(self):
        """At the size of the quick preset, where the threads share the gradient of the embedding."""

        def trained():
            with numeric_settings(torch.device("cpu"), 2):
                one = stack(ModelConfig(), TrainConfig(n_samples=512, steps=3))
                one.advance(3)
            return one.weights(0)

        first = trained()
        assert all(equal(first, trained()) for _ in range(2))

    def test_a_used_folder_is_not_overwritten(self, tmp_path):
        train(TASK, TINY, SHORT, out=tmp_path)
        before = (tmp_path / "ckpt.pt").read_bytes()
        with pytest.raises(
            ValueError,
            match=r"must not contain a run.*with resume",
        ):
            train(TASK, TINY, SHORT, out=tmp_path)
        with pytest.raises(ValueError, match=r"train.lr of a resumed run must stay 0.001, got 0.1"):
            train(TASK, TINY, config(lr=0.1), out=tmp_path, resume=True)
        assert (tmp_path / "ckpt.pt").read_bytes() == before

    def test_a_folder_with_other_files_is_left_alone(self, tmp_path):
        (tmp_path / "thesis.tex").write_text("precious")
        with pytest.raises(ValueError, match=r"folder with 'thesis.tex' and no run"):
            train(TASK, TINY, SHORT, out=tmp_path)
        with pytest.raises(ValueError, match="out must be the path of a folder, got the file"):
            train(TASK, TINY, SHORT, out=tmp_path / "thesis.tex")
        assert {path.name for path in tmp_path.iterdir()} == {"thesis.tex"}

    def test_two_runs_cannot_share_a_folder(self, tmp_path):
        folder = RunFolder(tmp_path, RunConfig(TASK, TINY, SHORT), resume=False)
        folder.begin()
        try:
            with pytest.raises(ValueError, match="is in use by another run"):
                train(TASK, TINY, SHORT, out=tmp_path, resume=True)
        finally:
            folder.close()
        assert train(out=tmp_path, resume=True).status == "finished"


class TestEnding:
    def test_early_stop(self, tmp_path):
        recipe = config(
            n_samples=64, steps=2000, lr=3e-3, log_every=50, eval_every=50, early_stop_evaluations=2
        )
        model = ModelConfig(n_layers=1, d_model=64, d_head=32, d_mlp=128)
        result = train(model_config=model, train_config=recipe, out=tmp_path)
        assert result.status == "stopped early" and result.checkpoint.step < 1000
        assert result.log[-1]["train_accuracy"] == 1.0
        assert load_checkpoint(tmp_path / "ckpt.pt").metrics["status"] == "stopped early"

    def test_a_diverging_run_ends_and_keeps_the_last_good_weights(self, tmp_path):
        recipe = config(lr=1e38, steps=50, warmup_steps=10, n_checkpoints=0)
        with pytest.raises(TrainingDiverged) as error:
            train(TASK, TINY, recipe, out=tmp_path)
        message = str(error.value)
        assert "training diverged" in message and "smaller lr" in message and str(tmp_path) in message
        good = load_checkpoint(tmp_path / "ckpt.pt")
        assert good.metrics["status"] == "diverged"
        assert all(weight.isfinite().all() for weight in good.weights.values())
        data = good.training_set()
        assert good.build_model()(data.tokens).isfinite().all()
        with pytest.raises(TrainingDiverged, match="start again in another folder"):
            train(out=tmp_path, resume=True)

    @pytest.mark.filterwarnings("ignore:gamma is below 0")
    @pytest.mark.parametrize("gamma", [0.5, -9.0])
    def test_a_run_that_diverges_at_once_says_so_and_keeps_what_it_began_from(self, tmp_path, gamma):
        """gamma -9: the first loss is infinite; lr 1e38 without warm-up: the first update is."""
        model = ModelConfig(n_layers=1, d_model=16, d_head=8, d_mlp=16, gamma=gamma)
        recipe = config(lr=1e38, warmup_steps=0, n_checkpoints=0, log_every=1)
        with pytest.raises(TrainingDiverged, match=r"step 0\) are in"):
            train(model_config=model, train_config=recipe, out=tmp_path)
        assert load_checkpoint(tmp_path / "ckpt.pt").metrics["status"] == "diverged"

    def test_the_weight_norm_is_exact_for_huge_weights(self):
        one = stack()
        (norm,) = one.weight_norms()
        with torch.no_grad():
            one._rows.mul_(1e30)  # the square of it overflows float32
        assert one.weight_norms() == pytest.approx([norm * 1e30], rel=1e-5)

    def test_resuming_a_finished_run_measures_it_again(self, tmp_path):
        a = train(TASK, TINY, SHORT, out=tmp_path)
        b = train(out=tmp_path, resume=True)
        assert equal(a.checkpoint.weights, b.checkpoint.weights)
        assert a.behaviour.to_dict() == b.behaviour.to_dict()
        assert list(a.log) == list(b.log)

    def test_the_callers_settings_come_back(self):
        threads, state = torch.get_num_threads(), torch.get_rng_state()
        numpy_state = np.random.get_state()[1].tolist()
        tiny = torch.tensor(1e-310, dtype=torch.float64)
        with numeric_settings(torch.device("cpu"), 1):
            assert (tiny * 1).item() == 0.0 and torch.get_num_threads() == 1
        with pytest.raises(RuntimeError, match="inside"), numeric_settings(torch.device("cpu"), 1):
            raise RuntimeError("inside")
        train(TASK, TINY, SHORT)
        assert (tiny * 1).item() == 1e-310
        assert torch.get_num_threads() == threads
        assert not torch.are_deterministic_algorithms_enabled()
        assert torch_deterministic.fill_uninitialized_memory
        assert torch.equal(torch.get_rng_state(), state)
        assert np.random.get_state()[1].tolist() == numpy_state


class TestPrecision:
    """What CUDA may round, which the settings decide on every machine and then put back."""

    @staticmethod
    def allowed():
        cuda, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
        return cuda.allow_tf32, cudnn.allow_tf32, cuda.allow_bf16_reduced_precision_reduction

    @pytest.mark.parametrize("tf32", [False, True])
    def test_products_convolutions_and_sums(self, tf32):
        before = self.allowed()
        with numeric_settings(torch.device("cpu"), tf32=tf32):
            assert self.allowed() == (tf32, tf32, False)
        assert self.allowed() == before

    @pytest.mark.parametrize("owner", ["cuda.matmul", "cudnn.conv"])
    def test_a_caller_may_have_used_torchs_newer_switches(self, owner):
        try:
            switch = attrgetter(owner)(torch.backends)
            before = switch.fp32_precision
        except AttributeError:
            pytest.skip("this torch has the older switches alone")
        switch.fp32_precision = "ieee" if "conv" in owner else "tf32"
        try:
            chosen = switch.fp32_precision
            with numeric_settings(torch.device("cpu")):
                assert self.allowed() == (False, False, False)
            assert switch.fp32_precision == chosen
            assert train(TASK, TINY, config(steps=2)).status == "finished"
        finally:
            switch.fp32_precision = before
        assert self.allowed() == (False, True, True)


class TestTheCallersModes:
    """Whatever the caller has switched on or off, training is the same, and the modes come back."""

    @pytest.mark.parametrize(
        "mode", [torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", dtype=torch.bfloat16)]
    )
    def test_gradients_and_autocast(self, mode):
        expected = train(TASK, TINY, SHORT).checkpoint.weights
        with mode():
            result = train(TASK, TINY, SHORT)
            grad_mode, autocast = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
        assert equal(result.checkpoint.weights, expected)
        with mode():
            assert (grad_mode, autocast) == (torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"))

    def test_threads_that_train_at_the_same_time(self):
        """They come in and go out in any order; the settings of the process outlive none of them."""
        with ThreadPoolExecutor(3) as pool:
            recipes = [config(steps=steps) for steps in (5, 40, 15, 30, 10)]
            results = list(pool.map(lambda recipe: train(TASK, TINY, recipe), recipes))
        assert [result.checkpoint.step for result in results] == [5, 40, 15, 30, 10]
        assert equal(results[0].checkpoint.weights, train(TASK, TINY, config(steps=5)).checkpoint.weights)
        assert not torch.are_deterministic_algorithms_enabled()
        assert torch_deterministic.fill_uninitialized_memory
        assert torch.get_float32_matmul_precision() == "highest"

    def test_settings_within_others_that_disagree_are_refused(self):
        cpu = torch.device("cpu")
        with numeric_settings(cpu, 1):
            with numeric_settings(cpu, 2):  # threads are each run's own
                pass
            with pytest.raises(ValueError, match=r"the CPU and TF32 .*with the CPU"):
                numeric_settings(cpu, 1, tf32=True).__enter__()
            with pytest.raises(ValueError, match=r"CUDA and float32 .*with the CPU"):
                numeric_settings(torch.device("cuda"), 1).__enter__()
        with numeric_settings(cpu, 1, tf32=True):
            assert torch.get_float32_matmul_precision() == "high"
        assert torch.get_float32_matmul_precision() == "highest"
        assert not torch.are_deterministic_algorithms_enabled()

    def test_a_beta_of_zero_may_be_written_without_a_point(self):
        assert train(TASK, TINY, config(beta1=0, steps=2)).status == "finished"


RUN = """
import sys
from anchorlens import AnchorTask, ModelConfig, TrainConfig, load_checkpoint, train
import json
spec = json.loads(sys.argv[2])
run = AnchorTask(**spec["task"]), ModelConfig(**spec["model"]), TrainConfig(**spec["train"])
result = train(*run, out=sys.argv[1], resume=True, progress=False)
assert load_checkpoint(sys.argv[1] + "/ckpt.pt").step == result.checkpoint.step
assert "transformer_lens" not in sys.modules, "training or loading has imported it, which takes seconds"
"""


TO_THE_END = config(
    steps=150, n_samples=640, log_every=4, eval_every=50, n_checkpoints=6, state_every_seconds=0.02
)
RESUMED = {"task": {"key_max": TASK.key_max}, "model": TINY.to_dict(), "train": TO_THE_END.to_dict()}


def start(out, spec, begin=forked.Popen):
    """A training process of its own, which begins or continues the run in `out`; as a rule it is killed."""
    command = [sys.executable, "-c", RUN, str(out), json.dumps(spec)]
    return begin(command, cwd=ROOT, stderr=subprocess.PIPE)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "run"
    train(TASK, TINY, TO_THE_END, out=out)
    return out


class TestResume:
    """Real processes, killed with SIGKILL at random moments, then resumed to the end."""

    @pytest.mark.parametrize(("seed", "n_kills"), [(1, 1), pytest.param(2, 3, marks=pytest.mark.slow)])
    def test_bit_equal_whatever_the_moment_of_the_kill(self, tmp_path, uninterrupted, seed, n_kills):
        rng = random.Random(seed)
        n_lines = len(read_log(uninterrupted / "log.jsonl"))
        out, kills, log = tmp_path / "run", 0, tmp_path / "run/log.jsonl"
        for line in sorted(rng.sample(range(5, n_lines - 10), n_kills)):
            process = start(out, RESUMED)
            while process.poll() is None and not (log.exists() and log.read_bytes().count(b"\n") >= line):
                time.sleep(0.002)
            time.sleep(0.05 * rng.random())
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
                kills += 1
            process.communicate()
            kept = self.saved(out)
        assert kills >= 1, "no process lived long enough to be killed"
        process = start(out, RESUMED, begin=subprocess.Popen)
        assert process.communicate()[1] == b"" and process.returncode == 0
        assert equal(weights_of(out / "ckpt.pt"), weights_of(uninterrupted / "ckpt.pt"))
        logs = [without_time(read_log(folder / "log.jsonl")) for folder in (out, uninterrupted)]
        assert logs[0] == logs[1]
        # it went on from where it was: the lines up to the saved state are the very ones, times and all
        assert kept and read_log(log)[: len(kept)] == kept
        for path in (uninterrupted / "checkpoints").iterdir():
            assert equal(weights_of(out / "checkpoints" / path.name), weights_of(path))
        assert {p.name for p in out.iterdir()} == {p.name for p in uninterrupted.iterdir()}

    def test_a_mixture_of_experts_goes_on_to_the_same_bits_after_a_kill(self, tmp_path):
        mixture = replace(TINY, num_experts=2, gamma_experts="0.3 0.8")
        train(TASK, mixture, TO_THE_END, out=tmp_path / "whole")
        out, log = tmp_path / "run", tmp_path / "run/log.jsonl"
        process = start(out, {**RESUMED, "model": mixture.to_dict()})
        while process.poll() is None and not (log.exists() and log.read_bytes().count(b"\n") >= 12):
            time.sleep(0.002)
        process.kill()
        process.communicate()
        assert not (out / "ckpt.pt").exists(), "it ended before it was killed"
        with pytest.raises(ValueError, match=r"model.num_experts .*stay 2, got None"):
            train(TASK, TINY, TO_THE_END, out=out, resume=True)
        resumed = train(TASK, mixture, TO_THE_END, out=out, resume=True).checkpoint
        assert equal(weights_of(out / "ckpt.pt"), weights_of(tmp_path / "whole/ckpt.pt"))
        first = load_checkpoint(sorted((out / "checkpoints").iterdir())[0])
        assert first.step == 0 and equal(first.weights, dict(resumed.initial_model().named_parameters()))

    @staticmethod
    def saved(out):
        """The log lines up to the step of the state that is saved."""
        state = out / "state.pt"
        step = container.read(state)[0]["step"] if state.exists() else 0
        return [line for line in read_log(out / "log.jsonl") if line["step"] <= step]

    def test_the_state_is_saved_by_the_clock_however_rare_the_log_is(self, tmp_path):
        """A run that logs and evaluates at its end alone is killed, and goes on from where it was."""
        rare = config(
            steps=200_000, log_every=10**6, eval_every=10**6, n_checkpoints=0, state_every_seconds=0.1
        )
        process = start(tmp_path / "run", {**RESUMED, "train": rare.to_dict()})
        state = tmp_path / "run/state.pt"
        while not state.exists():
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
        process.communicate()
        assert 0 < container.read(state)[0]["step"] < 200_000

    def test_the_state_is_what_decides(self):
        """Restored, a stack goes on to the same bits; with one moment of Adam lost, to others."""

        def advanced(stop, state=None):
            new = stack()
            if state is not None:
                new.restore(3, [state])
            new.advance(stop)
            return new

        state = advanced(3).state(0)
        whole, resumed = advanced(6).weights(0), advanced(6, state)
        assert resumed.step == 6 and equal(resumed.weights(0), whole)
        lost = {**state, "exp_avg.unembed.W_U": torch.zeros_like(state["exp_avg.unembed.W_U"])}
        assert not equal(advanced(6, lost).weights(0), whole)
        with pytest.raises(ValueError, match="the saved state must belong to this model"):
            advanced(6, {**state, "more": torch.zeros(1)})

    def test_the_state_of_another_run_is_refused(self, tmp_path):
        for name, seed in (("a", 0), ("b", 1)):
            one = stack(recipe=config(seed=seed))
            folder = RunFolder(tmp_path / name, one.runs[0], resume=False)
            folder.begin()
            one.advance(1)
            folder.save_state(1, 1, one.state(0))
            folder.close()
        (tmp_path / "a/state.pt").replace(tmp_path / "b/state.pt")
        with pytest.raises(CheckpointError, match=r"state.pt: the state must belong to this run"):
            train(out=tmp_path / "b", resume=True)

    def test_killed_before_anything_was_saved(self, tmp_path, uninterrupted):
        """A half-made folder of any age is no obstacle."""
        (tmp_path / "log.jsonl").write_text('{"step": 3, "lo')
        config_text = json.loads((uninterrupted / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps(config_text))
        (tmp_path / ".state.pt.abc.tmp").write_bytes(b"half")
        result = train(out=tmp_path, resume=True)
        assert equal(result.checkpoint.weights, weights_of(uninterrupted / "ckpt.pt"))
        assert not list(tmp_path.glob(".*.tmp"))

    def test_a_damaged_state_is_refused_and_kept(self, tmp_path, uninterrupted):
        (tmp_path / "config.json").write_bytes((uninterrupted / "config.json").read_bytes())
        (tmp_path / "state.pt").write_bytes(b"PK\x03\x04 damaged")
        with pytest.raises(CheckpointError, match=r"state.pt: .*complete.*truncated"):
            train(out=tmp_path, resume=True)
        assert (tmp_path / "state.pt").read_bytes() == b"PK\x03\x04 damaged"

    def test_a_damaged_configuration_is_refused(self, tmp_path):
        (tmp_path / "config.json").write_text("{")
        with pytest.raises(CheckpointError, match=r"config.json: is not the configuration of a run"):
            train(out=tmp_path, resume=True)

    @pytest.mark.slow
    def test_early_stop_decides_the_same_after_a_resume(self, tmp_path):
        """The patience is counted from the log, which survives a kill."""
        recipe = config(
            n_samples=64,
            steps=2000,
            lr=3e-3,
            log_every=50,
            eval_every=50,
            early_stop_evaluations=2,
            state_every_seconds=0,
        )
        model = ModelConfig(n_layers=1, d_model=64, d_head=32, d_mlp=128)
        whole = train(model_config=model, train_config=recipe, out=tmp_path / "whole")
        process = start(tmp_path / "cut", {"task": {}, "model": model.to_dict(), "train": recipe.to_dict()})
        log = tmp_path / "cut/log.jsonl"
        while not (log.exists() and len(read_log(log)) >= len(whole.log) - 2):
            assert process.poll() is None
            time.sleep(0.002)
        process.kill()
        process.communicate()
        resumed = train(out=tmp_path / "cut", resume=True)
        assert (resumed.status, resumed.checkpoint.step) == ("stopped early", whole.checkpoint.step)

    def test_other_threads_are_said(self, tmp_path):
        folder = RunFolder(tmp_path, RunConfig(TASK, TINY, SHORT), resume=False)
        one = stack()
        one.advance(1)
        folder.begin()
        folder.save_state(one.step, 5, one.state(0))
        folder.close()
        with pytest.warns(UserWarning, match="resuming with 1 threads a run begun with 5"):
            assert train(out=tmp_path, resume=True).checkpoint.step == 20


def test_bad_devices_say_what_is_wrong():
    with pytest.raises(ValueError, match=r"device must be .*got 'gpu'"):
        train(TASK, TINY, config(device="gpu"))
    with pytest.raises(ValueError, match=r"device must be .*got 'meta'"):
        train(TASK, TINY, config(device="meta"))
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="torch found 1 cpu, 0 cuda, 0 mps. Use auto or cpu"):
            train(TASK, TINY, config(device="cuda"))


def test_a_model_too_small_for_the_task_is_refused():
    with pytest.raises(ValueError, match="d_vocab must be at least 311 for the task, got 201"):
        train(AnchorTask(key_max=300), TINY, SHORT)


def test_the_way_from_train_to_the_first_gradient_is_short(monkeypatch):
    """The package's own functions on the stack are counted, with `train` and the check of its arguments."""
    package, gradients, ways = Path(anchorlens.__file__).parent, torch.autograd.grad, []

    def gradient(*arguments, **options):
        frames = traceback.extract_stack()
        ways.append([frame.name for frame in frames if package in Path(frame.filename).parents])
        return gradients(*arguments, **options)

    monkeypatch.setattr(torch.autograd, "grad", gradient)
    train(TASK, TINY, config(steps=1, warmup_steps=0))
    assert len(ways[0]) <= 8 and "train" in ways[0], ways[0]
