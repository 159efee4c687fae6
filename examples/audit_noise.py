"""Does a small initialisation find noise? Three datasets with a known truth, audited at two gammas.

python examples/audit_noise.py --gamma 0.8 0.4 --seed 1 2 [--out runs/audit] [--json numbers.json]

One symmetric group that follows a wrong rule of its own; 5 % of single mappings with random targets; a clean
dataset, in which nothing should be flagged. A model for each seed; the large initialisation is the control.
With --out every audit is kept and not made again. About 40 s of one core for each model.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from anchorlens import AnchorTask, ModelConfig, TrainConfig
from anchorlens.extras.audit import audit, corrupted
from anchorlens.extras.audit.lateness import score

DATASETS = {
    "one broken group": AnchorTask(complexity=1),
    "5 % of mappings": corrupted(AnchorTask(), 0.05, seed=1),
    "clean": AnchorTask(),
}
"""Name -> task; what its overrides change violates the rule."""


def audited(name: str, gamma: float, given: argparse.Namespace) -> dict[str, Any]:
    """What `Audit.to_dict` gives for a dataset at a gamma, read from the folder where it is there."""
    out = None
    if given.out is not None:
        seeds = "-".join(map(str, given.seed))
        out = given.out / f"{name.replace(' ', '-').replace('%', 'percent')}-gamma{gamma:g}-seeds{seeds}"
        if (out / "audit.json").exists():
            return json.loads((out / "audit.json").read_text())
    task = DATASETS[name]
    model = ModelConfig.for_task(task, gamma=gamma, **json.loads(given.model))
    config = TrainConfig(steps=given.steps, n_samples=given.n_samples)
    return audit(
        task, model_config=model, train_config=config, seeds=given.seed, workers=given.workers, out=out
    ).to_dict()


def mirrored(found: Mapping[str, Any]) -> str:
    """Flags that are wrong, and how many of those are the mirror of a mapping that violates."""
    odd = _violating(found)
    wrong = [row for row in found["mappings"] if row["flagged"] and not row["violates"]]
    return f"{len(wrong)} ({sum((row['a2'], row['a1'], row['key']) in odd for row in wrong)})"


def auc_of_couples(found: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Two AUCs: of pairs (a, b), a != b, for "it or its mirror violates"; and of pairs (a, a) as they are."""
    odd = _violating(found)
    aucs = []
    for twins in (True, False):
        rows = [row for row in found["mappings"] if (row["a1"] != row["a2"]) == twins]
        late = np.array([row["lateness"] for row in rows])
        flags = np.array([row["flagged"] for row in rows])
        couples = [{(row["a1"], row["a2"], row["key"]), (row["a2"], row["a1"], row["key"])} for row in rows]
        aucs.append(score(late, flags, np.array([bool(couple & odd) for couple in couples])).auc)
    return aucs[0], aucs[1]


def _violating(found: Mapping[str, Any]) -> set[tuple[int, int, int]]:
    return {(row["a1"], row["a2"], row["key"]) for row in found["mappings"] if row["violates"]}


def table(results: Mapping[tuple[str, float], Mapping[str, Any]]) -> Table:
    """A row for each dataset and gamma."""
    columns = ["dataset", "gamma", "violate", "AUC", "AUC by seed", "flagged", "precision", "recall"]
    columns += [
        "wrong flags (mirrors)",
        "AUC it or mirror, (a, b)",
        "AUC (a, a)",
        "never fit",
        "AUC of groups",
    ]
    shown = Table(*columns, box=box.MARKDOWN)
    for (name, gamma), found in results.items():
        one, groups = found["score"], found["group_score"]
        shown.add_row(
            name,
            f"{gamma:g}",
            f"{one['n_violating']} of {one['n']}",
            _with_error(one),
            " ".join(_number(auc) for auc in found["auc_by_seed"]),
            str(one["n_flagged"]) if any(limit is not None for limit in found["fences"]) else "cannot tell",
            _number(one["precision"]),
            _number(one["recall"]),
            mirrored(found),
            *(_number(auc) for auc in auc_of_couples(found)),
            str(found["n_never_fit"]),
            _with_error(groups),
        )
    return shown


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _with_error(score: Mapping[str, Any]) -> str:
    return "-" if score["auc"] is None else f"{score['auc']:.3f} ± {score['auc_error']:.3f}"


def main() -> None:
    """Read the command line, audit what is missing, print the table."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--gamma", type=float, nargs="+", default=[0.8, 0.4])
    parser.add_argument("--seed", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--n-samples", type=int, default=100_000)
    parser.add_argument("--model", default="{}", help="other fields of ModelConfig, as JSON")
    parser.add_argument("--workers", type=int, help="processes; one per core if left out")
    parser.add_argument("--out", type=Path, help="folder to keep the audits in")
    parser.add_argument("--json", type=Path, help="file for the numbers")
    given = parser.parse_args()
    started, results = time.perf_counter(), {}
    for gamma in given.gamma:
        for name in DATASETS:
            results[name, gamma] = audited(name, gamma, given)
    console = Console(width=220)
    console.print(table(results))
    console.print(
        f"{len(results)} audits of {len(given.seed)} models in {time.perf_counter() - started:.0f} s"
    )
    if given.json:
        rows = [
            {"dataset": name, "gamma": gamma, **{k: v for k, v in found.items() if k != "mappings"}}
            for (name, gamma), found in results.items()
        ]
        given.json.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
