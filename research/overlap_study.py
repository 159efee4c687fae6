"""Train models on rows that share their content, and compare what holdout reads of rows and of groups.

    python research/overlap_study.py [--minutes 60]

A run that is in the table is not made again. Each run is trained on data of `holdout/overlaps.py` until it
fits them (random labels), or for a fixed number of updates with weight decay (a rule), and asked new
sequences. `holdout` then leaves out tenths of the rows, as always, and tenths of the groups of
anchorlens/probes/shared/look_up.py.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from anchorlens import ModelConfig, build_model
from anchorlens.models.library import HookedTransformer
from anchorlens.probes.any_model.holdout import holdout
from anchorlens.probes.shared.look_up import LookUp
from holdout.overlaps import KINDS, Overlapping

FOLDER = Path(__file__).parent / "holdout"
TABLE = FOLDER / "overlaps.json"
SEEDS = 2
ENOUGH, UPDATES, COPIES = 0.985, 4000, 3


def trained(data: Overlapping, seed: int) -> HookedTransformer:
    """Train a model of one layer, with weight decay if the labels follow a rule."""
    n_tokens = int(max(part.max() for part in data[:4])) + 1
    n_pos = data.tokens.shape[1]
    model = build_model(
        ModelConfig(n_layers=1, d_model=64, n_heads=4, d_head=16, d_mlp=256, d_vocab=n_tokens, n_ctx=n_pos),
        seed=seed,
    )
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=2e-3, weight_decay=1.0 if data.follows_a_rule else 0.0
    )
    tokens, targets = torch.from_numpy(data.tokens), torch.from_numpy(data.targets)
    targets = (
        targets
        if targets.ndim == 2
        else torch.nn.functional.pad(targets[:, None], (n_pos - 1, 0), value=-100)
    )
    rng = torch.Generator().manual_seed(seed)
    for update in range(1, UPDATES + 1):
        rows = torch.randint(len(tokens), (256,), generator=rng)
        loss = torch.nn.functional.cross_entropy(model(tokens[rows]).flatten(0, 1), targets[rows].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        fits = not data.follows_a_rule and update % 100 == 0
        if fits and accuracy(model, data.tokens, data.targets) > ENOUGH:
            break
    return model.eval()


@torch.no_grad()
def accuracy(model: HookedTransformer, tokens: np.ndarray, targets: np.ndarray) -> float:
    """Accuracy over scored tokens."""
    answers = model(torch.from_numpy(tokens)).argmax(dim=-1).numpy()
    answers = answers if targets.ndim == 2 else answers[:, -1]
    return float((answers == targets)[targets != -100].mean())


def made(name: str, seed: int) -> dict[str, Any]:
    """Train a run of a kind, and read it."""
    began = time.process_time()
    data = KINDS[name](np.random.default_rng([7301, list(KINDS).index(name), seed]))
    _, first = np.unique(np.column_stack([data.tokens, data.targets]), axis=0, return_index=True)
    data = data._replace(tokens=data.tokens[first], targets=data.targets[first])
    model = trained(data, seed)
    row: dict[str, Any] = {
        "kind": name,
        "seed": seed,
        "rule": data.follows_a_rule,
        "n": len(data.tokens),
        "train": accuracy(model, data.tokens, data.targets),
        "new": accuracy(model, data.new_tokens, data.new_targets),
    }
    pair, look_up = (data.tokens, data.targets), LookUp(data.tokens, data.targets)
    rng = np.random.default_rng(seed)
    groups = look_up.groups(rng)
    try:
        of_rows = holdout(model, training_set=pair)
        tenths = groups.tenths(rng)
        of_groups = [
            holdout(model, training_set=pair, which=tenths == k, n_copies=1, seed=k) for k in range(COPIES)
        ]
    except ValueError as error:
        return {**row, "refused": str(error)}
    left_out = float(np.mean([one.left_out_accuracies[-1].mean() for one in of_groups]))
    others = float(np.mean([one.others for one in of_groups]))
    known = max(
        float(np.mean([way(tenths == k) for k in range(COPIES)]))
        for way in (look_up.accuracy, look_up.chance)
    )
    return row | {
        "holdout_ratio": of_rows.holdout_ratio,
        "n_groups": groups.n,
        "left_out": left_out,
        "others": others,
        "look_up": known,
        "ratio_of_groups": max(0.0, left_out - known) / (others - known) if others - known >= 0.1 else None,
        "seconds": round(time.process_time() - began, 1),
    }


def main() -> None:
    """Make the runs that are missing in the table, one line of it for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60, help="begin no run after this time")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = json.loads(TABLE.read_text()) if TABLE.exists() else []
    there, began = {(row["kind"], row["seed"]) for row in rows}, time.monotonic()
    for seed, name in ((seed, name) for seed in range(SEEDS) for name in KINDS):
        if (name, seed) in there or time.monotonic() - began > 60 * arguments.minutes:
            continue
        row = made(name, seed)
        rows.append({key: round(one, 4) if isinstance(one, float) else one for key, one in row.items()})
        TABLE.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
        print(json.dumps(rows[-1]), flush=True)


if __name__ == "__main__":
    main()
