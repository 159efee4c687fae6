"""Choose and pack the models of `anchorlens benchmark`, score our own readings on them, write its page.

    python research/benchmark_checkpoints.py                # all three, one after the other
    python research/benchmark_checkpoints.py reference page # what changes where a reading does

    checkpoints   anchorlens/extras/benchmark/checkpoints.zip, from the zoo's table and archive (zoo.py)
    reference     anchorlens/extras/benchmark/reference.json: our readings, and WeightWatcher's alpha;
                  --only holdout measures one probe again and keeps what is stored of the others
    page          benchmark.md beside this file, from benchmark.md.jinja beside this file

The models are those of held-out runs alone, by a rule that uses no reading (`choose`). On one core the first
step takes ten minutes and the second twenty; WeightWatcher is in the extra `research`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd

from anchorlens.extras.benchmark import (
    Benchmark,
    BenchmarkModel,
    ReadingScore,
    reference,
    save_models,
    score_models,
    shipped_models,
)
from anchorlens.extras.benchmark.result import (
    ENDINGS,
    LEAST_TASKS,
    N_DRAWS,
    QUESTIONS,
    Ending,
    question_scores,
)
from anchorlens.extras.benchmark.shipped import CHECKPOINTS, REFERENCE
from anchorlens.files.checkpoint import Checkpoint, from_contents
from anchorlens.files.writing import atomic_write
from anchorlens.probes import holdout
from anchorlens.probes.any_model.holdout import Holdout
from anchorlens.safe import tensors_in
from anchorlens.tasks.shared.phases import CLEAR, FIT_THRESHOLD
from anchorlens.verdict import READINGS, take_readings
from calibration.numbers import at_end
from calibration.runs import GROUPS, runs
from calibration.tables import TITLES
from weightwatcher_alpha import weightwatcher_alpha
from zoo import ARCHIVE, TABLE

HELD_OUT = tuple(group for group in GROUPS if group.startswith(("held-out", "papers' task, held-out")))
"""Groups of the zoo that nothing was fit on, without those that go beyond the family."""
N_MODELS = 60
MOST_BYTES_OF_RUN = 640_000
"""Of a run's checkpoint in the archive: about 155,000 weights of 32 bits."""
MOST_BYTES = 12_000_000
"""Of the file that ships."""
SEED = 2501
"""Of the order in which runs of one kind and task come."""
STEPS = ("checkpoints", "reference", "page")
SCORED: Mapping[str, Callable[..., Any]] = {
    "readings": take_readings,
    "holdout": holdout,
    "weightwatcher_alpha": weightwatcher_alpha,
}
"""What is scored on the models, in this order."""
TEMPLATE = Path(__file__).parent / "benchmark.md.jinja"
PAGE = Path(__file__).with_name("benchmark.md")


def ending_of(regime: str, end: Mapping[str, Any]) -> Ending | None:
    """How a run ended, where that is clear.

    Args:
        regime: of its task.
        end: a row of the zoo's table, or what `at_end` gives.

    Returns:
        In `reasoning` its phase, None within two standard errors of a threshold that decides. In `conflict`
        its solution, None where it is not clear that the training data are fit.
    """
    if regime == "reasoning":
        return next((ending for ending in ENDINGS if str(end["clear_label"]).startswith(ending)), None)
    solution = end["solution"]
    if not isinstance(solution, str) or end["train"] - CLEAR * end["train_error"] < FIT_THRESHOLD:
        return None
    return "inferential solution" if solution == "inferential" else "another solution"


def label_of(regime: str, end: Mapping[str, Any]) -> str:
    """The same more closely: the phase with its commutativity, or the solution."""
    return str(end["clear_label"] if regime == "reasoning" else end["solution"])


def candidates(
    table: Path, archive: zipfile.ZipFile, groups: Sequence[str], incomplete: bool
) -> list[dict[str, Any]]:
    """The runs that qualify, in an order drawn once: rows of the zoo's table, with `ending` and `exactly`.

    Raises:
        ValueError: runs of these groups are missing, and it is not `incomplete`.
    """
    sizes = {entry.filename.removesuffix(".safetensors"): entry.file_size for entry in archive.infolist()}
    known: Any = pd.read_parquet(table).sort_values("name").to_dict("records")
    rows = [r for r in known if r["moment"] == 1 and r["group"] in groups and r["name"] in sizes]
    planned = {name for name, run in runs().items() if run.group in groups}
    if (n_missing := len(planned - {row["name"] for row in rows})) and not incomplete:
        asked = " ".join(f'--group "{group}"' for group in groups)
        raise ValueError(
            f"{n_missing} of {len(planned)} runs are missing; `python research/zoo.py {asked}` trains them "
            "(or take what there is: --incomplete)"
        )
    found = [
        {**row, "ending": ending, "exactly": label_of(row["regime"], row)}
        for row in rows
        if sizes[row["name"]] <= MOST_BYTES_OF_RUN and (ending := ending_of(row["regime"], row))
    ]
    return [found[k] for k in np.random.default_rng(SEED).permutation(len(found))]


def choose(
    rows: Sequence[Mapping[str, Any]], opened: Callable[[str], Checkpoint], n: int = N_MODELS
) -> Iterator[tuple[BenchmarkModel, Checkpoint]]:
    """The models, in the order in which they are asked.

    The five ways to end take turns. Within one the next run is of the label that was taken least often (Phase
    2 with and without commutativity, the solutions but the inferential one), then of the task that was taken
    least often for it, then least often at all, then the first in the order drawn. Its weights are rounded to
    16 bits and its answers measured again: where it no longer ends so, the next is taken. A way that has no
    more runs is passed over.

    Args:
        rows: as `candidates` gives them.
        opened: the checkpoint of a run.
        n: models.
    """
    left = {ending: [row for row in rows if row["ending"] == ending] for ending in ENDINGS}
    taken: Counter[Any] = Counter()
    n_taken = 0
    while any(left.values()) and n_taken < n:
        for ending in ENDINGS:
            while left[ending] and n_taken < n:
                row = min(left[ending], key=lambda row: _turn(row, taken))
                left[ending].remove(row)
                checkpoint = rounded(opened(row["name"]))
                end = at_end(checkpoint.evaluate())
                if ending_of(row["regime"], end) != ending:
                    continue
                about = {name: row[name] for name in ("name", "ending", "task", "kind", "regime")}
                measured = {name: end[name] for name in ("train", "id", "ood")}
                label = label_of(row["regime"], end)
                yield BenchmarkModel.from_dict({**about, "label": label, **measured}), checkpoint
                taken.update([row["exactly"], (ending, row["task"]), row["task"]])
                n_taken += 1
                break


def _turn(row: Mapping[str, Any], taken: Mapping[Any, int]) -> tuple[int, int, int]:
    return taken[row["exactly"]], taken[row["ending"], row["task"]], taken[row["task"]]


def rounded(checkpoint: Checkpoint) -> Checkpoint:
    """The same with weights rounded to 16 bits, still stored in 32: a zip packs the zeros that are left."""
    weights = {name: weight.half().float() for name, weight in checkpoint.weights.items()}
    return dataclasses.replace(checkpoint, weights=weights, metrics={})


def make_checkpoints(
    table: Path, archive: Path, out: Path, groups: Sequence[str] = HELD_OUT, *, incomplete: bool = False
) -> None:
    """Choose the models among the runs of the zoo, and pack them.

    Raises:
        ValueError: runs are missing, or the file would have more bytes than may ship.
    """
    for needed in (table, archive):
        if not needed.exists():
            raise ValueError(f"{needed} is not there; `python research/zoo.py` makes it")
    with zipfile.ZipFile(archive) as held:

        def opened(name: str) -> Checkpoint:
            member = f"{name}.safetensors"
            return from_contents(member, tensors_in(held.read(member)).values)

        models = list(choose(candidates(table, held, groups, incomplete), opened))
    with tempfile.TemporaryDirectory() as folder:
        packed = Path(folder) / out.name
        save_models(packed, models)
        n_bytes = packed.stat().st_size
        if n_bytes > MOST_BYTES:
            raise ValueError(
                f"the models may have {MOST_BYTES:,} bytes, got {n_bytes:,}; lower MOST_BYTES_OF_RUN"
            )
        with atomic_write(out) as file:
            file.write(packed.read_bytes())
    print(f"{out}: {len(models)} models, {n_bytes:,} bytes", flush=True)


def make_reference(
    models: Sequence[tuple[BenchmarkModel, Checkpoint]], out: Path, only: Sequence[str] = tuple(SCORED)
) -> None:
    """Score what stands in `SCORED` on the models, as one result.

    Args:
        models: as `shipped_models` returns them.
        out: the file; of what is not measured now, its values are kept and scored again.
        only: names in `SCORED` that are measured now.

    Raises:
        ValueError: `out` does not have these models.
    """
    kept: tuple[ReadingScore, ...] = ()
    failures: dict[str, str] = {}
    if set(only) != set(SCORED):
        stored = Benchmark.from_json(out.read_bytes())
        asked = tuple(about for about, _ in models)
        if stored.models != asked:
            raise ValueError(f"{out} must have the models of the benchmark; leave out --only")
        kept = tuple(
            ReadingScore(reading.name, question_scores(asked, reading.values), reading.values)
            for reading in stored.readings
        )
        failures = dict(stored.failures)
    measured = {name: score_models(SCORED[name], models) for name in only}
    found = {reading.name: reading for one in measured.values() for reading in one.readings}
    readings = {reading.name: reading for reading in kept} | found
    for name, one in measured.items():
        failures |= {model: f"{name}: {why}" for model, why in one.failures.items()}
    both = Benchmark("reference", tuple(readings.values()), tuple(about for about, _ in models), failures)
    with atomic_write(out) as file:
        file.write((json.dumps(both.to_dict(), indent=1) + "\n").encode())
    print(f"{out}: {len(both.readings)} readings", flush=True)


def page(measured: Benchmark | None) -> str:
    """research/benchmark.md; without numbers as long as nothing is measured."""
    sees = {reading.name: reading.sees for reading in READINGS} | {"weightwatcher_alpha": "weights"}
    sees |= {f"holdout.{reading}": "training data" for reading in Holdout.readings}
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    models = () if measured is None else measured.models
    counts = Counter((model.ending, model.kind) for model in models)
    readings = [] if measured is None else sorted(measured.readings, key=lambda reading: -reading.telling)
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        questions=QUESTIONS,
        endings=ENDINGS,
        kinds=sorted({model.kind for model in models}),
        counts=counts,
        models=models,
        n_tasks=len({model.task for model in models}),
        readings=readings,
        failures={} if measured is None else measured.failures,
        sees=sees,
        n_models=N_MODELS,
        n_draws=N_DRAWS,
        least_tasks=LEAST_TASKS,
        groups=[TITLES.get(group, group) for group in HELD_OUT],
    )


def main() -> None:
    """Read the command line, and take the steps that it names."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("step", nargs="*", help=f"{', '.join(STEPS)}; all if left out")
    parser.add_argument("--table", type=Path, default=TABLE, help="of the zoo")
    parser.add_argument("--archive", type=Path, default=ARCHIVE, help="of the zoo's last checkpoints")
    parser.add_argument("--only", choices=SCORED, action="append", help="of the step reference")
    parser.add_argument("--incomplete", action="store_true", help="choose although held-out runs are missing")
    given = parser.parse_args()
    steps = given.step or STEPS
    if unknown := set(steps) - set(STEPS):
        parser.error(f"a step must be one of {', '.join(STEPS)}, got {', '.join(sorted(unknown))}")
    try:
        if "checkpoints" in steps:
            make_checkpoints(given.table, given.archive, CHECKPOINTS, incomplete=given.incomplete)
        if "reference" in steps:
            make_reference(shipped_models(), REFERENCE, given.only or tuple(SCORED))
        if "page" in steps:
            PAGE.write_text(page(reference()), encoding="utf-8")
            print(PAGE)
    except ValueError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")


if __name__ == "__main__":
    main()
