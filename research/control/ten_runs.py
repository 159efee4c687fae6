"""`control` on ten Phase 2 runs that nothing was chosen by, beside training each anew at gamma .7.

    python research/control/ten_runs.py [--seeds 200:210] [--minutes 20] [--json FILE]

Each seed: `quick` at gamma .5 is trained, `control` has so many minutes of two cores, and the same seed is
trained anew at gamma .7. A run that is not in Phase 1 or 2 is no case: it is recorded and not controlled. A
seed that has ended is read from --out by the same command; a `control` that was interrupted begins again, so
that none has more time than the others. The JSON is written after each seed.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from anchorlens import TrainResult, control, preset, train_many
from anchorlens.extras.control import Attempt, Control
from anchorlens.files.checkpoint import library_versions
from anchorlens.files.writing import atomic_write

HERE = Path(__file__).parent
GAMMA, ANEW = 0.5, 0.7
RECIPE: dict[str, Any] = {"weight_decay": 0.01, "n_samples": 100_000}
"""Of the run that is controlled and of the one trained anew: those of `quick`."""


def case(seed: int, out: Path, minutes: float, fields: dict[str, Any]) -> dict[str, Any]:
    """One seed: the run, what control made of it, and training anew; read where it has ended before."""
    done = out / f"{seed}/case.json"
    if done.exists():
        return json.loads(done.read_text())
    runs = [preset("quick", seed=seed, gamma=gamma, **RECIPE | fields) for gamma in (GAMMA, ANEW)]
    folders = [out / f"{seed}/run", out / f"{seed}/anew"]
    before, anew = train_many(runs, outs=folders, resume=True, progress=False)
    found: dict[str, Any] = {"seed": seed, "before": of_run(before), "anew": of_run(anew)}
    if before.behaviour.phase.number in (1, 2):
        tries = out / f"{seed}/control"
        shutil.rmtree(tries, ignore_errors=True)
        found["control"] = of_control(control(folders[0], tries, minutes=minutes))
    with atomic_write(done) as file:
        file.write(json.dumps(found, allow_nan=False).encode())
    return found


def of_run(result: TrainResult) -> dict[str, Any]:
    """Phase, accuracies and minutes of a run."""
    minutes = result.log[-1]["seconds"] / 60 if result.log else None
    return {**result.behaviour.headline(), "minutes": minutes, "status": result.status}


def of_control(found: Control) -> dict[str, Any]:
    """What was tried, what is best, and what it cost."""
    best = found.best_attempt if found.best is not None else None
    return {
        "phase_before": found.before.phase.number,
        "phase_after": found.reached if best is not None else found.before.phase.number,
        "best": None if best is None else best.name,
        "ood": None if best is None or best.answers is None else best.answers.ood,
        "minutes": found.minutes,
        "budget": found.budget,
        "attempts": [of_attempt(attempt) for attempt in found.attempts],
    }


def of_attempt(attempt: Attempt) -> dict[str, Any]:
    """An attempt, with the accuracies that are reported and the one that chose."""
    values = attempt.to_dict()
    kept = ("name", "changes", "anew", "outcome", "steps", "minutes", "note")
    row = {name: values[name] for name in kept}
    if attempt.answers is not None and attempt.chosen_by is not None:
        one = attempt.answers
        row |= {"phase": one.phase.number, "train": one.train, "id": one.id, "ood": one.ood}
        row |= {"ood_that_chose": attempt.chosen_by.ood}
    return row


def totals(cases: list[dict[str, Any]]) -> dict[str, Any]:
    """How many were controlled, how many ended in Phase 3, and what that cost beside training anew."""
    controlled = [one for one in cases if "control" in one]
    in_3 = [one for one in controlled if one["control"]["phase_after"] == 3]
    cheap = [one for one in in_3 if not _is_anew(one["control"])]
    return {
        "cases": len(cases),
        "controlled": len(controlled),
        "taken_to_phase_3": len(in_3),
        "of_them_from_the_checkpoint": len(cheap),
        "anew_in_phase_3": sum(one["anew"]["phase"] == 3 for one in controlled),
        "minutes_of_control": sum(one["control"]["minutes"] for one in controlled),
        "minutes_of_training_anew": sum(one["anew"]["minutes"] or 0 for one in controlled),
    }


def _is_anew(found: dict[str, Any]) -> bool:
    return any(one["name"] == found["best"] and one["anew"] for one in found["attempts"])


def main() -> None:
    """Read the command line; train, control and write one seed after the other."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--seeds", default="200:210", help="first:end")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--out", type=Path, default=Path("runs/ten_runs"))
    parser.add_argument("--json", type=Path, default=HERE / "ten_runs.json")
    parser.add_argument("--fields", type=json.loads, default={}, help="other fields of the runs, as JSON")
    given = parser.parse_args()
    first, end = map(int, given.seeds.split(":"))
    cases = []
    for seed in range(first, end):
        cases.append(case(seed, given.out, given.minutes, given.fields))
        content = {
            "seeds": given.seeds,
            "minutes": given.minutes,
            "gamma": GAMMA,
            "anew": ANEW,
            "fields": RECIPE | given.fields,
            "versions": library_versions(),
            "totals": totals(cases),
            "cases": cases,
        }
        with atomic_write(given.json) as file:
            file.write((json.dumps(content, indent=1, allow_nan=False) + "\n").encode())
        print(f"seed {seed}: {json.dumps(content['totals'])}", flush=True)


if __name__ == "__main__":
    main()
