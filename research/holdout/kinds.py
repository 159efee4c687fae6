"""The kinds of task of the study: for each, all the sequences that a run's training data are drawn from."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch

from anchorlens import AnchorTask
from anchorlens.extras.arithmetic.task import AdditionTask
from anchorlens.extras.cogs.task import CogsTask
from anchorlens.extras.grokking.task import ModularTask
from anchorlens.extras.prontoqa.task import PrOntoQATask
from anchorlens.extras.scan.task import ScanTask
from anchorlens.extras.shared.words import EOS
from anchorlens.extras.text.task import TextTask
from anchorlens.tasks.shared.batch import IGNORE, TokenBatch

COGS_FOLDER = os.environ.get("COGS_FOLDER", "")
"""Folder of the published files of COGS; if empty, they are fetched once."""
MOST = 12_000
"""Sequences that are drawn from a task without end."""


class Pool(NamedTuple):
    """Distinct sequences with targets, in random order; a run is trained on some and asked the others."""

    name: str
    """The task."""
    batch: TokenBatch
    few: int
    """Sequences of a run that should memorise."""
    many: int
    """Sequences of a run that should learn the rule."""
    is_exception: np.ndarray | None = None
    """[sequence] Whether its target is random."""


def pooled(
    name: str, batch: TokenBatch, few: int, many: int, random: np.random.Generator, longest: int = 10**6
) -> Pool:
    """A pool of a task's sequences of at most `longest` tokens, with the tokens numbered from 0 on."""
    batch = batch.take(np.flatnonzero(batch.lengths.numpy() <= longest)).distinct()
    batch = batch.take(random.permutation(len(batch))[:MOST])
    tokens, targets = batch.tokens[:, : int(batch.lengths.max())], batch.targets
    targets = targets[:, : tokens.shape[1]] if targets.dim() == 2 else targets
    values = torch.cat([tokens.unique(), targets[targets != IGNORE]]).unique()
    numbered = torch.where(targets == IGNORE, IGNORE, torch.searchsorted(values, targets.contiguous()))
    batch = TokenBatch(torch.searchsorted(values, tokens.contiguous()), numbered)
    return Pool(name, batch, min(few, len(batch) // 3), min(many, int(0.85 * len(batch))))


def shifts(k: int, random: np.random.Generator) -> Pool:
    """Two anchors that shift a key."""
    steps = [(5, 1, -2, -8), (7, 3, -4), (2, 9, -6, 4)][k % 3]
    task = AnchorTask(
        anchors=dict(enumerate(steps, 1)), key_min=30, key_max=54, seq_len=5, unseen_pairs=[(1, 3), (3, 1)]
    )
    name = "shifts " + " ".join(map(str, steps))
    return pooled(name, task.training_set(40_000, k), 300, 6000, random)


def tables(k: int, random: np.random.Generator) -> Pool:
    """Two anchors that permute the keys: affine functions mod 23, or tables."""
    keys, n_keys = np.arange(30, 53), 23
    if k % 2:
        values = [(factor * np.arange(n_keys) + 5 * factor) % n_keys for factor in (2, 5, 7)]
    else:
        values = [random.permutation(n_keys) for _ in range(3)]
    anchors = {
        a: dict(zip(keys.tolist(), (30 + one).tolist(), strict=True)) for a, one in enumerate(values, 1)
    }
    task = AnchorTask(anchors=anchors, key_min=30, key_max=52, seq_len=5, unseen_pairs=[(1, 3), (3, 1)])
    return pooled(("permutations", "affine")[k % 2], task.training_set(40_000, k), 300, 6000, random)


def modular(operations: tuple[Any, ...]) -> Callable[[int, np.random.Generator], Pool]:
    """Operations modulo a prime."""

    def pool(k: int, random: np.random.Generator) -> Pool:
        operation, p = operations[k % len(operations)], (29, 31, 23)[k // 2 % 3]
        task = ModularTask(modulus=p, operation=operation)
        batch = task.sequences(task.pairs)
        return pooled(f"{operation} mod {p}", batch, int(0.4 * p**2), int(0.85 * p**2), random)

    return pool


def addition(k: int, random: np.random.Generator) -> Pool:
    """Sums with carries, digit by digit."""
    mode = ("reversed", "digits")[k % 4 == 3]
    task = AdditionTask(mode=mode, largest=49, square_min=20, square_max=21, n_held_out=1)
    return pooled(f"addition, {mode}", task.sequences(task.sums("train")), 400, 2200, random)


def scan(k: int, random: np.random.Generator) -> Pool:
    """Commands of SCAN of few actions."""
    task = ScanTask(split="simple", n_held_out=1, bos=False)
    return pooled("SCAN", task.training_set(20_000, k), 300, 1500, random, longest=15)


def cogs(k: int, random: np.random.Generator) -> Pool:
    """Short sentences of COGS."""
    task = CogsTask(data=COGS_FOLDER, bos=False)
    return pooled("COGS", task.training_set(10_000, k), 250, 1500, random, longest=24)


def prontoqa(k: int, random: np.random.Generator) -> Pool:
    """Short questions of PrOntoQA of one step; the end mark is not asked."""
    task = PrOntoQATask(ontology="official", most_hops=1, n_test=10, bos=False)
    batch = task.training_set(8000, k)
    labels = torch.where(batch.targets == EOS, IGNORE, batch.targets)
    return pooled("PrOntoQA, official", TokenBatch(batch.tokens, labels), 250, 1700, random, longest=42)


def text(k: int, random: np.random.Generator) -> Pool:
    """Windows of 24 bytes, the last 8 of which are asked: English prose, or numbers that are counted."""
    if k % 2 == 0:
        return _windows("text, English", TextTask(corpus="text", seq_len=24), k, random)
    starts = random.integers(10, 80, 4000).tolist()
    lines = [" ".join(str(n + more) for more in range(20)) for n in starts]
    with TemporaryDirectory() as folder:
        for part in range(3):
            Path(folder, f"{part}.txt").write_text("\n".join(lines[part::3]), encoding="utf-8")
        return _windows("text, counting", TextTask(data=folder, seq_len=24), k, random)


def _windows(name: str, task: TextTask, k: int, random: np.random.Generator) -> Pool:
    windows = task.training_set(5000, k)
    batch = windows.take(np.arange(len(windows)))
    targets = batch.targets.clone()
    targets[:, :-8] = IGNORE
    return pooled(name, TokenBatch(batch.tokens, targets), 250, 4000, random)


def sequences(k: int, random: np.random.Generator) -> Pool:
    """Copy, reverse, sort, and parity so far, of five symbols."""
    name = ("copy", "reverse", "sort", "parity")[k % 4]
    n_symbols, n = (2, 11) if name == "parity" else (8, 5)
    asked = random.integers(0, n_symbols, (MOST, n))
    answers = {
        "copy": asked,
        "reverse": asked[:, ::-1],
        "sort": np.sort(asked, axis=1),
        "parity": np.cumsum(asked, axis=1) % 2,
    }[name]
    tokens = np.hstack([asked, np.full((MOST, 1), n_symbols), answers[:, :-1]])
    targets = np.full_like(tokens, IGNORE)
    targets[:, n:] = answers
    return pooled(
        name, TokenBatch(torch.from_numpy(tokens), torch.from_numpy(targets.copy())), 300, 4000, random
    )


def random_labels(k: int, random: np.random.Generator) -> Pool:
    """Three random tokens with a random answer out of 2, 5, 20."""
    n_answers = (20, 5, 2)[k % 3]
    tokens = torch.from_numpy(random.integers(0, 20, (2000, 3)))
    targets = torch.from_numpy(random.integers(0, n_answers, 2000))
    return pooled(f"{n_answers} random answers", TokenBatch(tokens, targets), 250, 450, random)


def exceptions(k: int, random: np.random.Generator) -> Pool:
    """A rule of two tokens, with a random answer in 5 or 10 % of the sequences."""
    triples = np.array(list(itertools.product(range(20), repeat=3)))
    answers = (triples[:, 0] + 3 * (triples[:, 1] % 2)) % 20
    is_exception = random.random(len(triples)) < (0.05, 0.1)[k % 2]
    other = (answers + random.integers(1, 20, len(triples))) % 20
    order = random.permutation(len(triples))
    batch = TokenBatch(
        torch.from_numpy(triples[order]), torch.from_numpy(np.where(is_exception, other, answers)[order])
    )
    return Pool(f"{(5, 10)[k % 2]} % exceptions", batch, 1200, 1600, is_exception[order])


def experts(k: int, random: np.random.Generator) -> Pool:
    """Tasks of other kinds, for mixtures of experts."""
    of = (shifts, modular(("add",)), sequences, tables)[k % 4]
    return of(k // 4, random)


KINDS: Mapping[str, Callable[[int, np.random.Generator], Pool]] = {
    "shifts": shifts,
    "modular, add and subtract": modular(("add", "subtract")),
    "addition": addition,
    "SCAN": scan,
    "random labels": random_labels,
    "exceptions": exceptions,
    "tables": tables,
    "modular, other": modular(("multiply", "x2xyy2")),
    "COGS": cogs,
    "PrOntoQA": prontoqa,
    "text": text,
    "sequences": sequences,
    "mixtures of experts": experts,
}
FIRST_HALF = tuple(KINDS)[:6]
"""The kinds that fix the thresholds; the others are opened once, at the end."""
RUNS_OF_A_KIND = 20
LONG: Mapping[str, int] = {"SCAN": 900, "COGS": 500, "PrOntoQA": 600, "text": 600}
"""Kinds of longer sequences -> most updates of a run. After the first round they have every fourth run."""
SHAPES: Mapping[int, Mapping[str, int]] = {
    2: {"n_layers": 8, "d_model": 32, "d_head": 16, "d_mlp": 64},
    3: {"n_layers": 1, "d_model": 512, "d_head": 64, "d_mlp": 512},
    6: {"n_heads": 32, "d_model": 64, "d_head": 4},
    7: {"n_heads": 16, "d_model": 64, "d_head": 8, "n_layers": 4},
}
"""Run of a kind -> what the model of every third kind has instead of what is drawn."""


class Planned(NamedTuple):
    """A run of the study."""

    kind: str
    place: int
    """0..16 among the runs of its kind."""
    is_many: bool
    model: dict[str, Any]
    recipe: dict[str, Any]


def runs() -> Iterator[tuple[str, Planned]]:
    """Every run by its name: one of each kind, then another of each."""
    for place, kind in itertools.product(range(RUNS_OF_A_KIND), KINDS):
        if kind in LONG and place % 4 and (place != 1 or kind == "COGS"):
            continue
        index = list(KINDS).index(kind)
        random = np.random.default_rng([5901, index, place])
        is_many = bool((place + place // 4) % 2)
        gammas = (0.5, 0.6, 0.7) if is_many and kind != "exceptions" else (0.3, 0.4)
        decays = (0.1, 0.3, 1.0) if is_many and kind != "exceptions" else (0.0, 0.0, 0.01)
        width = int(random.choice([32, 48, 64]))
        model = {
            "variant": str(random.choice(["gpt2", "gpt2", "postnorm", "plain"])),
            "n_layers": int(random.choice([1, 2])),
            "n_heads": int(random.choice([4, 8])),
            "d_model": width,
            "d_head": width // 4,
            "d_mlp": 2 * width,
            "gamma": float(random.choice(gammas)),
        }
        if place > 1:
            model |= {"n_layers": 1, "d_model": 32, "d_head": 8, "d_mlp": 64}
        if kind == "mixtures of experts":
            model |= {"num_experts": 4, "experts_per_token": int(random.choice([1, 2]))}
        elif (place + index) % 3 == 0:
            model |= SHAPES.get(place, {})
        recipe = {
            "seed": place,
            "lr": 1e-3 if model["d_model"] == 512 or model["n_layers"] == 8 else 3e-3,
            "weight_decay": float(random.choice(decays)),
            "steps": 300 if place in (2, 3, 4, 9) else LONG.get(kind, 1000),
            "stop_at_loss": 0.2 if place in (4, 9) else 0.01 if place > 1 else 0.004 if is_many else 0.02,
        }
        if place in (2, 3) and recipe["lr"] == 3e-3:
            recipe["steps"] = 1000
        yield f"{kind} {place:02d}", Planned(kind, place, is_many, model, recipe)
