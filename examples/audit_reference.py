"""Is a group that breaks the rule found by comparing it with a reference run, or by asking earlier?

    python examples/audit_reference.py --seed 0 --out runs/reference                          # chosen on
    python examples/audit_reference.py --seed 1 2 --reference-seed 0 --out runs/reference     # reported

The rule of (1,2) and (2,1) is broken, as in figure 8B of arXiv 2501.08537, where such pairs are slower than
in a control run whose data obey. An auditor has no such control. The reference is trained on the same
questions, but each chain has the rule of another one, drawn at random for each seed, a chain and its mirror
together: all chains are as unruly as each other, and what is left is how long a chain takes for what it is
(equal anchors, say). Lateness against the reference is the fit step of a mapping over the median fit step
of its chain in the reference. With --control the same is done with the run that an auditor
does not have.

Every model is asked at every tenth of its first 400 steps of 1,000; a mapping is fit from where the
probability of its trained target stays at or above the threshold. With --out what is measured is kept. About
a minute for each model on a core of its own.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from anchorlens import AnchorTask, ModelConfig, TrainConfig
from anchorlens.extras.audit import Mappings, mappings_of
from anchorlens.extras.audit.lateness import Score, fit_steps, lateness, ranks, score
from anchorlens.extras.audit.watching import watch
from anchorlens.recipes.run_config import RunConfig

if TYPE_CHECKING:
    from jaxtyping import Float

BROKEN, CLEAN = AnchorTask(complexity=1), AnchorTask(complexity=0)
GAMMA, STEPS, WATCHED, EVERY, N_DRAWS = 0.8, 1000, 400, 10, 4
THRESHOLDS = (0.1, 0.2, 0.3, 0.5)


def permuted(task: AnchorTask, seed: int) -> AnchorTask:
    """The task with the rules of its trained chains exchanged: none keeps its own, mirrors stay together.

    Args:
        task: any task of two groups of mirrored chains or more; a group is a chain and its reverse.
        seed: of the permutation of groups, uniform among those that leave none in place.

    Raises:
        ValueError: a task with a single group.
    """
    chains = sorted(task.seen_pairs)
    groups = sorted({min(chain, chain[::-1]) for chain in chains})
    if len(groups) < 2:
        raise ValueError("task must train two groups of mirrored chains or more, got one")
    rng = np.random.default_rng(seed)
    order = np.arange(len(groups))
    while (order == np.arange(len(groups))).any():
        order = rng.permutation(len(groups))
    tables = {}
    for chain in chains:
        own = min(chain, chain[::-1])
        giver = groups[order[groups.index(own)]]
        giver = giver if chain == own or giver[::-1] not in chains else giver[::-1]
        asked = task.product([giver], task.keys, np.zeros_like(task.keys))
        tables[chain] = dict(zip(task.keys.tolist(), task.targets(asked).tolist(), strict=True))
    return dataclasses.replace(task, overrides=tables)


def watched(
    name: str, task: AnchorTask, seed: int, given: argparse.Namespace
) -> Float[np.ndarray, "evaluation mapping"]:
    """Probability of the trained target of every mapping along a run, read where it was measured before."""
    kept = None if given.out is None else given.out / f"{name}-seed{seed}.npy"
    if kept is not None and kept.exists():
        return np.load(kept, allow_pickle=False)
    model = ModelConfig.for_task(task, gamma=GAMMA, **json.loads(given.model))
    run = RunConfig(task, model, TrainConfig(steps=STEPS, seed=seed, n_samples=given.n_samples))
    right = watch([run], [mappings_of(task)], evaluation_steps(given), N_DRAWS, workers=1)[0]
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        np.save(kept, right)
    return right


def evaluation_steps(given: argparse.Namespace) -> range:
    """Steps at which a run is asked."""
    return range(EVERY, given.watched + 1, EVERY)


def over(
    mappings: Mappings, steps: Float[np.ndarray, " mapping"], other: Float[np.ndarray, " mapping"]
) -> Float[np.ndarray, " mapping"] | None:
    """The fit step of each mapping over the median fit step of its chain in another run.

    Infinite where a mapping is never fit (censored: it ranks last, as in `audit`). None where half of a chain
    is never fit in the other run: how much later a mapping is than that is unknown.
    """
    medians = np.array([np.median(other[rows]) for rows in mappings.rows_of])
    return steps / medians[mappings.group_of] if np.isfinite(medians).all() else None


def scores(
    mappings: Mappings, values: Sequence[Float[np.ndarray, " mapping"]]
) -> tuple[Score, Score, list[float | None]]:
    """Of the mean rank over the seeds: mappings, groups (by their medians); and of mappings by seed."""
    violates, groups = mappings.violates, mappings.group_violates
    assert violates is not None and groups is not None
    late = lateness(np.array(values))
    by_group = np.array([np.median(late[rows]) for rows in mappings.rows_of])
    none, no_group = np.zeros(len(late), dtype=bool), np.zeros(len(by_group), dtype=bool)
    by_seed = [score(ranks(each), none, violates).auc for each in values]
    return score(late, none, violates), score(by_group, no_group, groups), by_seed


def compared(given: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each threshold and comparison: `scores`, None where one cannot be compared; `never_fit`."""
    mappings = mappings_of(BROKEN)
    made = {"none": [watched("data", BROKEN, seed, given) for seed in given.seed]}
    drawn = given.seed if given.reference_seed is None else [given.reference_seed] * len(given.seed)
    made["reference"] = [watched("reference", permuted(BROKEN, seed), seed, given) for seed in drawn]
    if given.control:
        made["control"] = [watched("control", CLEAN, seed, given) for seed in given.seed]
    rows = []
    for threshold in THRESHOLDS:
        fits = {
            name: [fit_steps(right, evaluation_steps(given), threshold) for right in each]
            for name, each in made.items()
        }
        for name, others in fits.items():
            own = fits["none"]
            values = own if name == "none" else list(map(partial(over, mappings), own, others))
            row: dict[str, Any] = {"threshold": threshold, "compared with": name}
            row["never_fit"] = sum(int((~np.isfinite(each)).sum()) for each in others)
            known = [each for each in values if each is not None]
            row["scores"] = scores(mappings, known) if len(known) == len(values) else None
            rows.append(row)
    return rows


def main() -> None:
    """Read the command line, train what is missing, print the table."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--seed", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--reference-seed", type=int, help="one reference for all; left out, a seed's own")
    parser.add_argument("--control", action="store_true", help="compare with a clean control too")
    parser.add_argument("--watched", type=int, default=WATCHED, help="steps to train, of a schedule of 1,000")
    parser.add_argument("--n-samples", type=int, default=100_000)
    parser.add_argument("--model", default="{}", help="other fields of ModelConfig, as JSON")
    parser.add_argument("--out", type=Path, help="folder to keep the measurements in")
    given = parser.parse_args()
    columns = ["fit from", "compared with", "AUC", "by seed", "AUC of groups", "never fit there"]
    shown = Table(*columns, box=box.MARKDOWN)
    for row in compared(given):
        cells = ["-"] * 3
        if row["scores"] is not None:
            one, groups, by_seed = row["scores"]
            cells = [f"{one.auc:.3f} ± {one.auc_error:.3f}", " ".join(f"{auc:.3f}" for auc in by_seed)]
            cells.append(f"{groups.auc:.2f} ± {groups.auc_error:.2f}")
        shown.add_row(f"{row['threshold']:g}", row["compared with"], *cells, str(row["never_fit"]))
    Console(width=160).print(shown)


if __name__ == "__main__":
    main()
