"""Train small modules of many classes, and keep what the probe holdout reads of each with eight seeds.

    python research/holdout_any_study.py [--minutes 60] [--half first] [--kind encoder] [--part 1/2]

Each half of the kinds (holdout/any_kinds.py) has a file in holdout/ with one line of JSON for each run. A run
that is in its file is not made again, so that the script goes on where it stopped, on any machine. Two
processes share the runs by `--part 1/2` and `--part 2/2`. The script prints names and seconds, and no result.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from anchorlens.probes.any_model.holdout import Holdout, holdout
from anchorlens.probes.shared.look_up import LookUp
from holdout.any_analysis import COSTS, TABLES, rows_of
from holdout.any_kinds import FIRST, KINDS, PLACES, SECOND, Prepared
from holdout.any_networks import Encoder, Recurrent, perceptron

HALVES = {"first": FIRST, "second": SECOND}
SEEDS, BATCH, EVERY, LEARNT_AT = 8, 256, 50, 0.97
KEPT = (
    "holdout_ratio", "ratio_at_40", "others", "chance", "related_ratio", "related_left_out", "look_up",
    "n_groups", "in_any_order", "lr", "dose",
)  # fmt: skip
"""What is kept of each seed."""


def runs(half: str) -> Iterator[tuple[str, int]]:
    """Kind and place of each run, one of each kind and then another of each."""
    for place, kind in itertools.product(range(PLACES), HALVES[half]):
        yield kind, place


def prepared(kind: str, place: int) -> Prepared:
    """The data, module and recipe of a run."""
    return KINDS[kind](place, np.random.default_rng([7105, list(KINDS).index(kind), place]))


def logits_of(module: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The logits [question, class] at the scored positions, and their targets."""
    logits = module(x)
    if logits.dim() == 3 and y.dim() == 1:
        logits = logits[:, -1]
    return (logits, y) if y.dim() == 1 else (logits[y >= 0], y[y >= 0])


@torch.no_grad()
def accuracy(module: nn.Module, x: Tensor, y: Tensor) -> float:
    """The accuracy over scored positions."""
    logits, wanted = logits_of(module, x, y)
    return float((logits.argmax(dim=-1) == wanted).double().mean())


def trained(run: Prepared, seed: int) -> tuple[nn.Module, int]:
    """Train the module of a run, and count its updates."""
    torch.manual_seed(seed)
    module = run.module()
    x, y, new_x, new_y = (torch.from_numpy(one) for one in (run.x, run.y, run.new_x, run.new_y))
    asked = slice(0, len(new_x) // 2)
    optimizer = torch.optim.AdamW(
        module.parameters(), lr=run.lr, weight_decay=run.weight_decay, betas=(0.9, 0.98)
    )
    last, losses, update = run.n_updates, [], 0
    for update in range(1, run.n_updates + 1):
        rows = torch.randint(len(x), (BATCH,))
        loss = nn.functional.cross_entropy(*logits_of(module, x[rows], y[rows]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if update % EVERY:
            continue
        if run.beyond is None and torch.stack(losses[-20:]).mean() < run.stop:
            break
        if run.beyond and last == run.n_updates:
            module.eval()
            if accuracy(module, new_x[asked], new_y[asked]) >= LEARNT_AT:
                last = int(run.beyond * update)
            module.train()
        if update >= last:
            break
    return module.eval(), update


def seed_of(found: Holdout) -> dict[str, Any]:
    """What is kept of the probe with one seed: numbers, and the ratio of each copy."""
    copies = [None if np.isnan(one) else float(one) for one in found.ratios[-1]]
    return {name: getattr(found, name) for name in KEPT} | {"copies": copies}


def made(kind: str, place: int) -> dict[str, Any]:
    """Train a run, and measure its truth and what the probe reads."""
    began = time.process_time()
    run = prepared(kind, place)
    module, n_updates = trained(run, 1000 * list(KINDS).index(kind) + place)
    judged = slice(len(run.new_x) // 2 if run.beyond else 0, None)
    new_x, new_y = run.new_x[judged], run.new_y[judged]
    look_up = LookUp(np.concatenate([run.x, new_x]), np.concatenate([run.y, new_y]))
    is_fresh = np.arange(len(run.x) + len(new_x)) >= len(run.x)
    row: dict[str, Any] = {
        "kind": kind,
        "place": place,
        "task": run.task,
        "n": len(run.x),
        "n_weights": sum(one.numel() for one in module.parameters()),
        "updates": n_updates,
        "train": accuracy(module, *map(torch.from_numpy, (run.x, run.y))),
        "fresh": accuracy(module, *map(torch.from_numpy, (new_x, new_y))),
        "fresh_chance": look_up.chance(is_fresh),
        "fresh_look_up": look_up.accuracy(is_fresh),
        "train_seconds": time.process_time() - began,
    }
    began, seeds = time.process_time(), []
    try:
        for seed in range(SEEDS):
            seeds.append(seed_of(holdout(module, training_set=(run.x, run.y), seed=seed)))  # type: ignore[arg-type]
    except ValueError as error:
        row["refused"] = str(error)
    return row | {"probe_seconds": (time.process_time() - began) / SEEDS, "seeds": seeds}


LARGE: Mapping[str, tuple[str, Callable[[], nn.Module]]] = {
    "MLP": ("MLP, digits", lambda: perceptron(64, 2700, 10)),
    "encoder": ("encoder", lambda: Encoder(14, 4, 14, width=140)),
    "GRU": ("GRU and LSTM", lambda: Recurrent(14, 14, width=240)),
}
"""Modules of about 200,000 weights, and the kind whose random labels they memorise."""


def costs() -> list[dict[str, Any]]:
    """Measure how long the probe takes on modules of about 200,000 weights."""
    found = []
    for name, (kind, module) in LARGE.items():
        run = prepared(kind, 0)._replace(module=module, lr=1e-3)
        made, _ = trained(run, 0)
        began = time.process_time()
        holdout(made, training_set=(run.x, run.y))  # type: ignore[arg-type]
        seconds = time.process_time() - began
        n_weights = sum(one.numel() for one in made.parameters())
        found.append({"module": name, "n_weights": n_weights, "n": len(run.x), "seconds": round(seconds, 1)})
    return found


def _rounded(value: object) -> object:
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return round(value, 4) if isinstance(value, float) else value


def main() -> None:
    """Read the command line, make the runs that are missing."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no run after these")
    parser.add_argument("--half", choices=list(HALVES), action="append", help="default: both, one by one")
    parser.add_argument("--kind", choices=list(KINDS), action="append", help="default: every kind")
    parser.add_argument("--costs", action="store_true", help="measure times alone, into any_costs.json")
    parser.add_argument("--part", default="1/1", help="the share of the runs, for example 1/2")
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.backends.cuda.enable_flash_sdp(False)  # on the CPU too, where it is slow for few positions
    if given.costs:
        COSTS.write_text(json.dumps(costs(), indent=1) + "\n", "utf-8")
        return
    part, n_parts = map(int, given.part.split("/"))
    ends = time.monotonic() + 60 * given.minutes
    for half in given.half or HALVES:
        there = {(row["kind"], row["place"]) for row in rows_of(TABLES[half])}
        for number, (kind, place) in enumerate(runs(half)):
            is_mine = number % n_parts == part - 1 and kind in (given.kind or KINDS)
            if not is_mine or (kind, place) in there or time.monotonic() > ends:
                continue
            row = _rounded(made(kind, place))
            with TABLES[half].open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{kind} {place}: {row['train_seconds']:.1f} s, {row['probe_seconds']:.2f} s", flush=True)  # type: ignore[index]


if __name__ == "__main__":
    main()
