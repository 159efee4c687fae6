"""Train runs of many kinds of task, and keep what the probe holdout reads of each in one table.

    python research/holdout_study.py [--minutes 60]

A run that is in the table is not made again. A run is trained on some sequences of its kind and asked others
that it never saw: how far its accuracy on these is above chance, relative to its training data, is the truth
(`learnt`: .9 or more, `memorised`: .3 or less). COGS is read from the folder that COGS_FOLDER names.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from anchorlens import ModelConfig, TrainConfig, load_checkpoint, train
from anchorlens.models.library import HookedTransformer
from anchorlens.probes.any_model.holdout import holdout
from anchorlens.probes.shared.look_up import LookUp
from anchorlens.tasks.shared.base import Task, TaskConfig
from anchorlens.tasks.shared.batch import IGNORE, TokenBatch
from anchorlens.tasks.shared.evaluator import Evaluator
from anchorlens.tasks.shared.measures import Metric
from anchorlens.training import checkpoints
from holdout.kinds import KINDS, Planned, runs

TABLE = Path(__file__).parent / "holdout/runs.json"
BATCH = 64
MOST_ASKED = 1000
READ = (
    "related_ratio",
    "related_left_out",
    "look_up",
    "n_groups",
    "holdout_ratio",
    "ratio_at_80",
    "ratio_at_40",
    "ratio_at_20",
    "others",
    "chance",
    "dose",
)


def task_of(data: TokenBatch, n_tokens: int) -> Task:
    """A task that trains these sequences."""

    @dataclass(frozen=True)
    class Given(TaskConfig):
        """Sequences that are given."""

        kind = "given"
        metrics = (Metric("train", "train", "Train accuracy", "sequences that are given"),)
        d_vocab = n_tokens
        seq_len = data.tokens.shape[1]

        def training_set(self, n: int, seed: int) -> TokenBatch:
            return data

        def evaluate(
            self, model: Any, *, training_set: Any = None, seed: int = 0, quick: bool = False
        ) -> Any:
            asked = data.take(np.arange(min(len(data), 16)))
            return self.evaluation({"train": Evaluator(model, self).accuracy(asked)}, seed=seed)

    return Given()


def chance_after(data: TokenBatch, n_trained: int) -> float:
    """Accuracy on new sequences of the most frequent target after the last token of the trained ones."""
    return LookUp(data.tokens.numpy(), data.targets.numpy()).chance(np.arange(len(data)) >= n_trained)


def accuracy(model: HookedTransformer, task: Task, data: TokenBatch) -> tuple[float, float]:
    """Accuracy over scored tokens, and over whole sequences."""
    data = data.take(np.arange(min(len(data), MOST_ASKED)))
    right = Evaluator(model, task).right_by_position(data)
    targets = data.targets if data.targets.dim() == 2 else data.targets[:, None]
    is_scored = (targets != IGNORE).numpy()[:, -right.shape[1] :]
    return float(right[is_scored].mean()), float(right.all(axis=1).mean())


def made(planned: Planned) -> list[dict[str, Any]]:
    """Train a run and read it: one row, or one of its exceptions and one of the others."""
    began = time.process_time()
    random = np.random.default_rng([5902, list(KINDS).index(planned.kind), planned.place])
    pool = KINDS[planned.kind](planned.place, random)
    n = pool.many if planned.is_many else pool.few
    data, fresh = pool.batch.take(np.arange(n)), pool.batch.take(np.arange(n, len(pool.batch)))
    n_tokens = int(max(pool.batch.tokens.max(), pool.batch.targets.max())) + 1
    task = task_of(data, n_tokens)
    model_config = ModelConfig(**planned.model, d_vocab=n_tokens, n_ctx=data.tokens.shape[1])
    recipe = TrainConfig(
        **planned.recipe, n_samples=n, batch_size=BATCH, warmup_steps=20, eval_every=10**6, log_every=10,
        device="cpu",
    )  # fmt: skip
    result = train(task, model_config, recipe, progress=False)
    model, trained_in = result.model, time.process_time() - began
    about = {
        "kind": planned.kind,
        "task": pool.name,
        "n": n,
        **planned.model,
        **planned.recipe,
        "last_step": result.checkpoint.step,
        "train_seconds": round(trained_in, 1),
    }
    parts = {"": (None, np.ones(n, bool), np.ones(len(fresh), bool))}
    if pool.is_exception is not None:
        of_data, of_fresh = pool.is_exception[:n], pool.is_exception[n:]
        some = ~of_data & (np.arange(n) % 10 == 3)
        parts = {"exceptions": (of_data, of_data, of_fresh), "the rest": (some, ~of_data, ~of_fresh)}
    rows = []
    for part, (which, of_data, of_fresh) in parts.items():
        mine, new = data.take(np.flatnonzero(of_data)), fresh.take(np.flatnonzero(of_fresh))
        (at_train, _), (at_fresh, whole) = accuracy(model, task, mine), accuracy(model, task, new)
        both = TokenBatch(torch.cat([mine.tokens, new.tokens]), torch.cat([mine.targets, new.targets]))
        chance = chance_after(both, len(mine))
        row = {**about, "part": part, "train": at_train, "fresh": at_fresh, "fresh_whole": whole}
        row |= {"fresh_chance": chance}
        began = time.process_time()
        try:
            found = holdout(model, training_set=(data.tokens, data.targets), which=which)
        except ValueError as error:
            row["refused"] = str(error)
        else:
            row |= {name: getattr(found, name) for name in READ} | {"probe_lr": found.lr}
        row["probe_seconds"] = round(time.process_time() - began, 1)
        rows.append(row)
    return rows


def shipped(path: Path) -> dict[str, Any]:
    """A row of a shipped model, which is asked its training sequences with other noise."""
    checkpoint = load_checkpoint(path)
    model, task, trained = checkpoint.build_model(), checkpoint.task, checkpoint.training_set().distinct()
    assert checkpoint.train_config is not None
    fresh = task.training_set(MOST_ASKED, checkpoint.train_config.seed + 1)
    both = TokenBatch(torch.cat([trained.tokens, fresh.tokens]), torch.cat([trained.targets, fresh.targets]))
    (at_train, _), (at_fresh, whole) = accuracy(model, task, trained), accuracy(model, task, fresh)
    found = holdout(model, training_set=(trained.tokens, trained.targets))
    config = checkpoint.model_config
    return {
        "kind": "shifts",
        "task": "shipped",
        "n": len(trained),
        **{name: getattr(config, name) for name in ("variant", "n_layers", "n_heads", "d_model", "gamma")},
        "part": "",
        "train": at_train,
        "fresh": at_fresh,
        "fresh_whole": whole,
        "fresh_chance": chance_after(both, len(trained)),
        **{name: getattr(found, name) for name in READ},
        "probe_lr": found.lr,
    }


def main() -> None:
    """Read the command line, make the runs that are missing."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no run after these")
    given = parser.parse_args()
    torch.set_num_threads(1)
    ends = time.monotonic() + 60 * given.minutes
    table = json.loads(given.table.read_text("utf-8")) if given.table.exists() else []
    there = {row["name"] for row in table}
    models = {f"shipped {path.stem}": path for path in checkpoints.shipped()}
    for name, one in {**models, **dict(runs())}.items():
        if name in there or time.monotonic() > ends:
            continue
        found = made(one) if isinstance(one, Planned) else [shipped(one)]
        table += [{"name": name, **_rounded(row)} for row in found]
        lines = ",\n".join(json.dumps(row) for row in table)
        partial = given.table.with_suffix(".partial")
        partial.write_text(f"[\n{lines}\n]\n", "utf-8")
        partial.replace(given.table)
        print(name, flush=True)


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in row.items()}


if __name__ == "__main__":
    main()
