"""Train runs of the second zoo again, and measure what holds out pairs, with several seeds.

    python research/pair_groups.py [--minutes 60] [--part 1/2]
    python research/pair_groups.py --report [--held-out]

The plan is calibration/pair_groups.md. A run that is in the table is not made again. The script prints
names and seconds, and no result, until it is asked for the report.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.metrics import roc_auc_score

from anchorlens import Checkpoint, train
from anchorlens.probes import holdout, survival
from anchorlens.probes.two_anchor.survival import LOST, groups_to_leave_out
from anchorlens.verdict.calibration import calibration
from anchorlens.verdict.probe_verdict import likeliest_phase
from anchorlens.verdict.readings import CHEAP
from calibration.directions import DirectedReading
from calibration.fit import BY_PROBES, values_of
from calibration.fit import given as of_run
from calibration.numbers import about_run, at_end
from calibration.runs import FITTED, Planned, runs
from candidates import gain
from zoo import SECOND_TABLE

TABLE = Path(__file__).parent / "calibration/pair_groups.jsonl"
SEEDS, N_GROUPS, N_COPIES, N_SEQUENCES = (0, 1), 4, 2, 6_000
N_RESAMPLES = 2000
READINGS = ("groups", "survival", "sum")
COMPOSES = "Phase 3"
GROUPS = DirectedReading(
    "pair_groups", "groups", "accuracy of pairs left out of training", directions={"composes": 1}
)


def groups_held_out(checkpoint: Checkpoint, seed: int) -> list[float]:
    """The accuracy on each group of pairs that further training leaves out, over that on the others.

    Args:
        checkpoint: the last one of a run, whose training data are drawn again.
        seed: of the sequences, the batches and the test inputs.

    Returns:
        One value from 0 to 1 for each group, at most four; none for a task without groups.

    Raises:
        ValueError: If the model does not fit its training data.
    """
    task, data = checkpoint.task, checkpoint.training_set()
    some = data.take(np.random.default_rng(seed).permutation(len(data))[:N_SEQUENCES])
    pairs, found = np.sort(some.trials.pairs, axis=1), []
    for anchors in groups_to_leave_out(task, N_GROUPS):
        found_of_group = holdout(
            checkpoint.build_model(),
            training_set=(some.tokens, some.targets),
            which=(pairs == np.array(anchors)).all(axis=1),
            n_copies=N_COPIES,
            seed=seed,
        )
        left_out, others = found_of_group.left_out_accuracies[-1], found_of_group.other_accuracies[-1]
        found.append(float(np.minimum(1, left_out / np.maximum(LOST, others)).mean()))
    return found


def made(name: str, planned: Planned) -> dict[str, Any]:
    """Train a run, and measure it if it ends in Phase 2 or 3."""
    began = time.process_time()
    result = train(*planned.run, progress=False)
    row = {"name": name, **about_run(planned), **at_end(result.behaviour)}
    row["train_seconds"] = time.process_time() - began
    if not str(row["label"]).startswith(("Phase 2", COMPOSES)):
        return row
    checkpoint = result.checkpoint
    for seed in SEEDS:
        began = time.process_time()
        try:
            row[f"groups {seed}"] = groups_held_out(checkpoint, seed)
        except ValueError as error:
            row["refused"] = str(error)
        row[f"groups_seconds {seed}"] = time.process_time() - began
        began = time.process_time()
        found = survival(checkpoint.build_model(), checkpoint.task, seed=seed)
        row |= {f"survival {seed}": found.survival, f"noise {seed}": found.noise}
        row[f"survival_seconds {seed}"] = time.process_time() - began
    return row


def planned_runs() -> dict[str, Planned]:
    """The runs that ended in Phase 2 or 3 when the second zoo was made, those that are fit on first."""
    table = pd.read_parquet(SECOND_TABLE)
    composes_or_not = table["label"].str.startswith(("Phase 2", COMPOSES))
    names = set(table["name"][composes_or_not & (table["regime"] == "reasoning")])
    return {name: planned for name, planned in runs().items() if name in names}


def rows_of(table: Path) -> list[dict[str, Any]]:
    """What was measured; none without a table."""
    return [json.loads(line) for line in table.read_text("utf-8").splitlines()] if table.exists() else []


def measured(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """One row for each run that has both readings: their means over seeds, and the values of each seed."""
    found = []
    for row in rows:
        groups = [np.mean(row[f"groups {seed}"]) for seed in SEEDS if row.get(f"groups {seed}")]
        survived = [row[f"survival {seed}"] for seed in SEEDS if row.get(f"survival {seed}") is not None]
        if len(groups) == len(survived) == len(SEEDS):
            about = {name: row[name] for name in ("name", "task", "group", "label", "ood")}
            means = {"groups": np.mean(groups), "survival": np.mean(survived)}
            seeds = {f"groups {k}": groups[k] for k in SEEDS} | {f"survival {k}": survived[k] for k in SEEDS}
            found.append(about | means | {"sum": means["groups"] + means["survival"]} | seeds)
    return pd.DataFrame(found)


def auc_with_interval(rows: pd.DataFrame, reading: str) -> tuple[float, float, float]:
    """The AUC of Phase 3 against Phase 2, and its 95 % interval with tasks drawn with replacement."""
    yes, values = (rows["label"] == COMPOSES).to_numpy(), rows[reading].to_numpy()
    tasks = rows["task"].to_numpy()
    members = [np.flatnonzero(tasks == task) for task in np.unique(tasks)]
    random, drawn = np.random.default_rng(0), []
    for _ in range(N_RESAMPLES):
        some = np.concatenate([members[k] for k in random.integers(0, len(members), len(members))])
        if 0 < yes[some].sum() < len(some):
            drawn.append(roc_auc_score(yes[some], values[some]))
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(roc_auc_score(yes, values)), float(low), float(high)


def report(rows: pd.DataFrame) -> None:
    """Print the table of the plan."""
    composes = (rows["label"] == COMPOSES).to_numpy()
    print(f"{len(rows)} runs of {len(set(rows['task']))} tasks, {int(composes.sum())} in Phase 3")
    for reading in READINGS:
        auc, low, high = auc_with_interval(rows, reading)
        values = rows[reading].to_numpy(dtype=float)
        medians = [float(np.median(values[of])) for of in (composes, ~composes)]
        line = f"{reading}: AUC {auc:.3f} [{low:.3f}, {high:.3f}]; medians {medians[0]:.2f}, {medians[1]:.2f}"
        if reading != "sum":
            each = rows[[f"{reading} {seed}" for seed in SEEDS]].to_numpy(dtype=float)
            spread = float(np.sqrt(each.var(axis=1, ddof=1).mean())) / abs(medians[0] - medians[1])
            line += f"; between seeds {spread:.2f} of their distance"
        print(line)
    both = rows[["groups", "survival"]].to_numpy(dtype=float)
    print(f"correlation {np.corrcoef(both.T)[0, 1]:.2f}")


def of_both(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of the second zoo with what was measured, if training again led to the same phase."""
    table = pd.read_parquet(SECOND_TABLE)
    ends = table[(table["moment"] == 1) & (table["regime"] == "reasoning")]
    both = ends.merge(rows, on="name", suffixes=("", " again"))
    is_same = both["label"].str[:7] == both["label again"].str[:7]
    return both.loc[is_same].reset_index(drop=True)


def labels(rows: pd.DataFrame) -> None:
    """Print in how many runs the verdict has the same label with each seed of `survival`.

    The other readings are those of the second zoo's training of the same run.
    """
    fitted, same, both = calibration().regimes["reasoning"].by_probes, 0, of_both(rows)
    for run, (_, values) in zip(both.to_dict("records"), values_of(both).iterrows(), strict=True):
        model = fitted if run["commutes"] else fitted.without_commutativity()
        found = [
            model.probabilities({**of_run(values), "survival.survival": run[f"survival {seed}"]})
            for seed in SEEDS
        ]
        same += len({likeliest_phase(one, model.least_probability).number for one in found}) == 1
    print(f"the same phase with each seed of survival: {same} of {len(both)}")


def admission(rows: pd.DataFrame) -> None:
    """Print what the reading adds to *composes*, from fits without a run's task, as in the second zoo.

    The other readings are those of the second zoo's training of the same run.
    """
    both = of_both(rows).rename(columns={"groups": GROUPS.name})
    default = [one for one in BY_PROBES if one.measurement in CHEAP]
    print(f"{len(both)} of these runs have the same phase as in the second zoo. Added to")
    for what, base in (("the cheap readings", default), ("all readings", BY_PROBES)):
        base = [one for one in base if one.sign("composes")]
        found = gain(both, "composes", (GROUPS,), base)
        print(
            f"{what}: AUC {found.before:.3f} -> {found.after:.3f}, difference [{found.low:+.3f}, "
            f"{found.high:+.3f}], enters: {found.enters}"
        )


def main() -> None:
    """Read the command line, make the runs that are missing or report."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no run after these")
    parser.add_argument("--part", default="1/1", help="the share of the runs, for example 1/2")
    parser.add_argument("--report", action="store_true", help="print the numbers of the plan")
    parser.add_argument("--held-out", action="store_true", help="with --report: of the held-out groups")
    given = parser.parse_args()
    if given.report:
        rows = measured(rows_of(TABLE))
        is_fitted = rows["group"].isin(FITTED)
        report(rows.loc[~is_fitted if given.held_out else is_fitted])
        labels(rows.loc[~is_fitted if given.held_out else is_fitted])
        if not given.held_out:
            admission(rows.loc[is_fitted])
        return
    torch.set_num_threads(1)
    part, n_parts = map(int, given.part.split("/"))
    ends = time.monotonic() + 60 * given.minutes
    there = {row["name"] for row in rows_of(TABLE)}
    for number, (name, planned) in enumerate(planned_runs().items()):
        if number % n_parts != part - 1 or name in there or time.monotonic() > ends:
            continue
        began, row = time.process_time(), made(name, planned)
        with TABLE.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, default=float) + "\n")
        print(f"{name}: {time.process_time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
