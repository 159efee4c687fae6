"""A task of one's own that fails is one error that names the task and what is wrong."""

import json

import pytest
import torch
from anchorlens_command import call

from anchorlens import evaluate, load_checkpoint, train
from anchorlens.extras.text.task import TextTask
from anchorlens.models.config import ModelConfig
from anchorlens.recipes.train_config import TrainConfig
from anchorlens.tasks import own_tasks, registry
from anchorlens.tasks.shared.task_errors import evaluated

FILE = '''
import sys
from dataclasses import dataclass

import numpy as np
import torch

from anchorlens.tasks.shared.measures import Accuracy
from anchorlens.tasks.shared.base import TaskConfig
from anchorlens.tasks.shared.batch import TokenBatch
from anchorlens.tasks.shared.measures import Metric


@dataclass(frozen=True)
class Faulty(TaskConfig):
    """Says the first token again."""

    kind = "faulty"
    metrics = (Metric("score", "score", "Score", "tokens", logged_as="score"),)
    d_vocab = 8
    seq_len = 3

    fault: str = "none"
    """What is wrong with it."""

    def training_set(self, n, seed):
        if self.fault == "exits at once":
            sys.exit(0)
        tokens = torch.as_tensor(np.random.default_rng(seed).integers(0, 8, (n, 3)))
        return TokenBatch(tokens, tokens[:, 0])

    def evaluate(self, model, *, training_set=None, seed=0, quick=False):
        value, error, options = 0.5, 0.1, {}
        if self.fault == "raises":
            raise KeyError("no such row")
        if self.fault == "exits":
            sys.exit(0)
        if self.fault == "nan":
            value = float("nan")
        if self.fault == "nan at the end" and not quick:
            value = float("nan")
        if self.fault == "odd error":
            error = float("inf")
        if self.fault == "tensor":
            value = torch.ones(2)
        if self.fault == "numpy" :
            value = np.float32(0.5)
        if self.fault == "options":
            options = {"width": object()}
        if self.fault == "nothing":
            return None
        return self.evaluation({"score": Accuracy(value, error, 8)}, options=options)
'''
SMALL = "--n-layers=1 --d-model=16 --d-head=8 --d-mlp=16 --n-samples=64 --batch-size=64 --steps=2"
MUST_RUN = "the task faulty must run without an error, got "
MUST_BE_FINITE = "the metric score of the task faulty must be a finite number, got "


@pytest.fixture(autouse=True)
def nothing_registered(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("own") / "faulty.py"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("raises", f"{MUST_RUN}KeyError: 'no such row' (line 35 of faulty.py)"),
        ("exits", f"{MUST_RUN}sys.exit(0), which would end the program (line 37 of faulty.py)"),
        ("exits at once", f"{MUST_RUN}sys.exit(0)"),
        ("nan", f"{MUST_BE_FINITE}nan"),
        ("nan at the end", f"{MUST_BE_FINITE}nan"),
        ("odd error", f"{MUST_BE_FINITE}inf"),
        ("tensor", f"{MUST_BE_FINITE}tensor"),
        ("options", "of the task faulty must be JSON-ready"),
        ("nothing", f"{MUST_RUN}AttributeError: 'NoneType' object"),
    ],
)
def test_train_says_what_is_wrong(fault, says, file, tmp_path):
    own = ["--tasks", file, "--task", "faulty", "--fault", fault]
    done = call("train", *own, *SMALL.split(), "--out", tmp_path / "run", code=2)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("anchorlens: ")]
    assert says in line and "Traceback" not in done.stderr and not done.stdout
    assert not (tmp_path / "run" / "ckpt.pt").exists()


def test_numbers_of_numpy_are_numbers(file, tmp_path):
    (task,) = own_tasks(file)
    shape = {"n_layers": 1, "d_model": 16, "d_head": 8, "d_mlp": 16}
    config, recipe = ModelConfig.for_task(task(), **shape), TrainConfig(n_samples=64, batch_size=64, steps=2)
    train(task(fault="numpy"), config, recipe, out=tmp_path / "run")
    assert json.loads((tmp_path / "run/log.jsonl").read_text().splitlines()[-1])["score"] == 0.5
    checkpoint = load_checkpoint(tmp_path / "run")
    with pytest.raises(ValueError, match=r"evaluate of .*faulty.*got None"):
        evaluate(checkpoint.build_model(), task(fault="nothing"))
    with pytest.raises(ValueError, match=r"faulty.*KeyError.*line 35 of faulty.py"):
        evaluate(checkpoint.build_model(), task(fault="raises"))


def test_errors_of_memory_and_of_the_disk_are_passed_on(file):
    (task,) = own_tasks(file)

    class Full(task):
        def evaluate(self, model, **options):
            raise self.error

    for error in (OSError(28, "No space left on device"), MemoryError(), KeyboardInterrupt()):
        Full.error = error
        with pytest.raises(type(error)):
            evaluated(Full(), None)


def test_what_is_not_finite_in_a_shipped_task_is_not_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("ANCHORLENS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "a.txt").write_text("".join(f"line {k} of a text\n" for k in range(2000)))
    task = TextTask(data=str(tmp_path / "a.txt"), seq_len=32)
    found = evaluated(task, lambda tokens: torch.full((*tokens.shape, 256), float("nan")), max_asked=2)
    assert not found.finite and found.measure("validation_bits") is None
    assert json.dumps(found.to_dict(), allow_nan=False)


def test_wherever_its_code_ends_the_program_the_command_has_failed(tmp_path):
    path = tmp_path / "leaving.py"
    path.write_text(FILE.replace("    seq_len = 3\n", "    seq_len = property(lambda self: sys.exit(0))\n"))
    done = call("train", "--tasks", path, "--task", "faulty", *SMALL.split(), "--dry-run", code=1)
    assert done.stderr.startswith(f"anchorlens: {path}: line 21 must not end the program, got sys.exit(0)")
    assert done.stderr.count("\n") == 1 and not done.stdout
