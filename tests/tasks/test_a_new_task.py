"""A toy task, one registered class, goes the whole way; so does one with its own loss."""

import dataclasses
import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from anchorlens import classify, load_checkpoint, register_task, train
from anchorlens.configuration import documented, number
from anchorlens.engine.engines import FunctionalEngine
from anchorlens.extras.sweep import grid, open_sweep, sweep
from anchorlens.extras.sweep.diagram.page import write_diagram
from anchorlens.extras.sweep.terminal import print_sweep
from anchorlens.models.config import ModelConfig
from anchorlens.recipes.run_config import RunConfig
from anchorlens.recipes.train_config import TrainConfig
from anchorlens.tasks import registry
from anchorlens.tasks.shared.base import TaskConfig
from anchorlens.tasks.shared.batch import IGNORE, TokenBatch
from anchorlens.tasks.shared.evaluation import Evaluation
from anchorlens.tasks.shared.evaluator import Evaluator
from anchorlens.tasks.shared.measures import Accuracy, Metric
from anchorlens.training.plan import count_cost, training_plan

SMALL = {"n_layers": 1, "n_heads": 2, "d_model": 16, "d_head": 8, "d_mlp": 16}
RECIPE = {"n_samples": 200, "batch_size": 50, "steps": 40, "warmup_steps": 5, "lr": 1e-2, "eval_every": 10}


@documented
@dataclass(frozen=True)
class CopyTask(TaskConfig):
    """Say the first token again, twice."""

    kind = "copy"
    metrics = (
        Metric("train", "train", "Train accuracy", "tokens that were trained", logged_as="train_accuracy"),
        Metric(
            "id",
            "ID",
            "ID accuracy",
            "tokens held out",
            logged_as="id_accuracy",
        ),
        Metric("ood", "OOD", "OOD accuracy", "none is", logged_as="ood_accuracy"),
        Metric(
            "copied",
            "copied",
            "Copied share",
            "tokens said again at all",
            logged_as="copied_share",
        ),
    )

    n_words: int = number(8, minimum=2)
    """Tokens there are."""

    @property
    def d_vocab(self):
        return self.n_words + 1

    @property
    def seq_len(self):
        return 3

    def _batch(self, words):
        words = torch.as_tensor(words, dtype=torch.int64)
        tokens = torch.stack([words, torch.full_like(words, self.n_words), words], dim=1)
        return TokenBatch(tokens, torch.stack([torch.full_like(words, IGNORE), words, words], dim=1))

    def training_set(self, n, seed):
        return self._batch(np.random.default_rng(seed).integers(0, self.n_words - 1, n))

    def evaluate(self, model, *, training_set=None, seed=0, quick=False):
        evaluator = Evaluator(model, self, 64)
        trained, held_out = self._batch(range(self.n_words - 1)), self._batch([self.n_words - 1])
        right = [evaluator.right(batch) for batch in (trained, held_out)]
        train, id = (Accuracy.of_some(one, of=len(one)) for one in right)
        measures = {"train": train, "id": id, "ood": None, "copied": train}
        return Evaluation(self.kind, self.metrics, measures, evaluator.finite, {"seed": seed, "task": "copy"})

    def describe(self):
        return f"Say one of {self.n_words} tokens twice.\nHeld out: the last."


@dataclass(frozen=True)
class SquaredTask(CopyTask):
    """The same with a loss of its own: squared distance of the probabilities to the answer, with noise."""

    kind = "squared"

    def loss(self, model, batch, generator):
        scored = batch.targets != IGNORE
        probabilities = model(batch.tokens).softmax(dim=-1)[scored]
        wanted = torch.nn.functional.one_hot(batch.targets[scored], probabilities.shape[-1])
        noise = torch.from_numpy(generator.normal(0, 0.01, wanted.shape)).to(probabilities)
        return ((probabilities - wanted + noise) ** 2).sum(dim=-1).mean()


@dataclass(frozen=True)
class FewAnswersTask(CopyTask):
    """The same, whose answers have a vocabulary of their own: one less than the tokens."""

    kind = "few_answers"

    @property
    def d_vocab_out(self):
        return self.n_words


@pytest.fixture(autouse=True)
def entered(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    register_task(CopyTask)
    register_task(SquaredTask)
    register_task(FewAnswersTask)


def run_of(task, **recipe):
    return RunConfig(task, ModelConfig.for_task(task, **SMALL), TrainConfig(**{**RECIPE, **recipe}))


@pytest.mark.gpu
def test_a_loss_of_its_own_on_a_gpu():
    recipe = {"dtype": "float64", "eval_every": 40}
    gpu, cpu = (train(*run_of(SquaredTask(), device=d, **recipe), progress=False) for d in ("cuda", "cpu"))
    assert gpu.log[-1]["loss"] == pytest.approx(cpu.log[-1]["loss"], rel=1e-6)
    weights = cpu.checkpoint.weights
    assert all(torch.allclose(w, weights[name], atol=1e-6) for name, w in gpu.checkpoint.weights.items())
    assert training_plan([run_of(SquaredTask(), device="cuda")], seconds=0.01).seconds > 0


def test_answers_of_a_vocabulary_of_their_own(tmp_path):
    run = run_of(FewAnswersTask(), steps=120)
    model = dataclasses.replace(run.model_config, variant="plain", d_vocab=9, d_vocab_out=8, gamma=0.5)
    result = train(run.task, model, run.train_config, out=tmp_path / "run", progress=False)
    assert result.behaviour.measure("train").value == 1.0
    checkpoint = load_checkpoint(tmp_path / "run" / "ckpt.pt")
    assert checkpoint.model_config.d_vocab_out == 8 and checkpoint.build_model().W_U.shape == (16, 8)
    assert checkpoint.evaluate().to_dict() == result.behaviour.to_dict()
    with pytest.raises(ValueError, match=r"d_vocab_out.*at least 9.*got 8"):
        train(CopyTask(), model, run.train_config, progress=False)


@pytest.mark.parametrize("task", [CopyTask(), SquaredTask()], ids=lambda task: task.kind)
class TestEveryWay:
    def test_it_trains_stores_and_answers(self, task, tmp_path):
        result = train(*run_of(task, steps=120), out=tmp_path / "run", progress=False)
        assert result.behaviour.measure("train").value == 1.0
        assert {"train_accuracy", "copied_share"} <= set(result.log[-1]) and result.log[-1][
            "ood_accuracy"
        ] is None
        loaded = load_checkpoint(tmp_path / "run" / "ckpt.pt")
        assert loaded.task == task and loaded.evaluate().to_dict() == result.behaviour.to_dict()
        config = json.loads((tmp_path / "run" / "config.json").read_text())
        assert config["task"] == {"kind": task.kind, "n_words": 8}
        assert [trace.name for trace in result.plot().data] == ["train", "ID", "OOD", "copied", "loss"]
        assert "copied" in result._repr_html_()

    def test_a_killed_run_goes_on_to_the_same_bits(self, task, tmp_path):
        whole = train(*run_of(task), out=tmp_path / "whole", progress=False)

        class Killed(KeyboardInterrupt):
            pass

        def measure(self, model, training_set, *, seed=0, counted=[]):  # noqa: B006
            counted.append(1)
            if len(counted) == 3:
                raise Killed
            return CopyTask.measure(self, model, training_set, seed=seed)

        dying = type("Dying", (type(task),), {"measure": measure})
        with pytest.raises(Killed):
            run = run_of(task, state_every_seconds=0)
            train(dying(), run.model_config, run.train_config, out=tmp_path / "killed", progress=False)
        assert (tmp_path / "killed" / "state.pt").exists()
        run = run_of(task)
        again = train(*run, out=tmp_path / "killed", resume=True, progress=False)
        for name, weight in whole.checkpoint.weights.items():
            assert torch.equal(weight, again.checkpoint.weights[name]), name

    def test_it_is_swept_and_drawn(self, task, tmp_path, capsys, monkeypatch):
        monkeypatch.setenv("COLUMNS", "200")
        runs = grid(
            {"task": {"kind": task.kind}, "model": SMALL, "train": RECIPE},
            {"gamma": (0.4, 0.6), "seed": (0, 1)},
        )
        result = sweep(runs, tmp_path / "sweep", engine="serial", progress=False)
        assert result.counts == {"finished": 4}
        again = open_sweep(tmp_path / "sweep")
        assert [cell.row() for cell in again] == [cell.row() for cell in result]
        assert {cell.fields["kind"] for cell in again} == {task.kind}
        assert all(0 <= cell.numbers["copied"] <= 1 and cell.numbers["ood"] is None for cell in again)
        print_sweep(again, cells=True)
        assert "copied" in capsys.readouterr().out
        write_diagram(again, tmp_path / "diagram.html", progress=False)
        page = (tmp_path / "diagram.html").read_text()
        assert "Copied share" in page and "tokens said again at all" in page
        assert "Commutativity" not in page

    def test_it_is_classified_and_reported(self, task, tmp_path):
        result = train(*run_of(task), progress=False)
        verdict = classify(result)
        assert (
            verdict.by_probes.phase.cause == "no readings"
            and "probe verdict is undecided" in verdict.explanation
        )
        verdict.report(tmp_path / "report.html")
        page = (tmp_path / "report.html").read_text()
        assert "Say one of 8 tokens twice" in page and "copied" in page

    def test_its_cost_is_known_before(self, task):
        cost = count_cost(run_of(task))
        assert cost.parameters > 0 and cost.flops > 0 and cost.activation_bytes > 0
        assert training_plan([run_of(task)], seconds=0.05).seconds > 0


def test_a_loss_of_its_own_goes_to_the_functional_engine(monkeypatch):
    seen = []
    whole = FunctionalEngine._loss
    monkeypatch.setattr(FunctionalEngine, "_loss", lambda self, rows: seen.append(1) or whole(self, rows))
    train(*run_of(CopyTask(), steps=2), progress=False)
    assert not seen
    train(*run_of(SquaredTask(), steps=2), progress=False)
    assert len(seen) == 2


def test_two_models_of_one_engine_are_as_each_alone():
    """The noise of a loss is a function of the run's seed and the step, not of who trains beside it."""
    runs = [run_of(SquaredTask(), seed=seed, dtype="float64") for seed in (0, 1)]
    data = [run.task.training_set(200, seed) for seed, run in enumerate(runs)]
    both = FunctionalEngine(runs, data, torch.device("cpu"))
    both.advance(7)
    for k, run in enumerate(runs):
        alone = FunctionalEngine([run], [data[k]], torch.device("cpu"))
        alone.advance(7)
        for name, weight in alone.weights(0).items():  # rounding may differ, noise of a seed is far larger
            torch.testing.assert_close(weight, both.weights(k)[name], rtol=0, atol=1e-10, msg=name)


def test_the_plain_gradient_is_that_of_the_loss():
    run = run_of(SquaredTask(), dtype="float64", clip_norm=0.0)
    engine = FunctionalEngine([run], [run.task.training_set(200, 0)], torch.device("cpu"))
    leaf = engine.leaves[0]
    (grad,) = torch.autograd.grad(engine.first_loss(), [leaf])
    with torch.no_grad():
        place = tuple(0 for _ in leaf.shape)
        values = []
        for step in (1e-6, -1e-6):
            leaf[place] += step
            values.append(float(engine.first_loss()))
            leaf[place] -= step
    assert grad[place] == pytest.approx((values[0] - values[1]) / 2e-6, abs=1e-6)


def test_a_toy_is_a_config_like_others():
    assert dataclasses.replace(CopyTask(), n_words=5).d_vocab == 6
    with pytest.raises(ValueError, match="n_words must be an integer >= 2, got 1"):
        CopyTask(n_words=1)
