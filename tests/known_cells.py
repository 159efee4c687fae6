"""Cells of a sweep made by hand, with numbers that the tests know."""

import json
from pathlib import Path

from anchorlens.extras.sweep.cells import Cell, CellContent, SweepResult
from anchorlens.recipes.presets import preset
from anchorlens.tasks.shared.data_checks import Overlap
from anchorlens.tasks.shared.measures import Accuracy
from anchorlens.tasks.shared.phases import LABELS, Phase
from anchorlens.tasks.two_anchor.evaluation import METRICS, AnchorEvaluation, PairAccuracy
from anchorlens.verdict.verdict import ClassifiedModel, Evidence, ProbeVerdict, Verdict

ANSWERS = {
    "1": (1.0, 0.02, 0.01, 0.3),
    "2": (1.0, 0.98, 0.1, 0.4),
    "2c": (1.0, 0.99, 0.05, 0.9),
    "3": (1.0, 1.0, 0.8, 0.9),
    "underfit": (0.3, 0.1, 0.0, 0.5),
}
"""Outcome -> train, ID, OOD, commutativity."""
SIGNS = dict(zip(("1", "2", "2c", "3"), LABELS, strict=True))
VERSIONS = {"python": "3.11.7", "anchorlens": "0.1.0", "torch": "2.6.0"}


def accuracy(value):
    return None if value is None else Accuracy(value, 0.001, 1000)


def by_probes(sign, reading="v_similarity.centred_gap"):
    """A verdict by the probes sure of one phase; of none for `underfit`."""
    label = SIGNS.get(sign)
    ranges = {name: (0.2 * i, 0.2 * i + 0.3) for i, name in enumerate(LABELS)}
    evidence = Evidence(
        reading,
        "v_similarity",
        "values say g(x; a)",
        0.63,
        ranges,
        label,
        2.1,
        {label: 2.1} if label else {},
        sees="trained pairs",
    )
    if label is None:
        return ProbeVerdict(Phase.undecided("underfit", "train longer"), None, (evidence,))
    phase = Phase(int(sign[0]), {"2": False, "2c": True}.get(sign), "the readings lie where its do")
    return ProbeVerdict(phase, {name: 0.94 if name == label else 0.02 for name in LABELS}, (evidence,))


def verdict(sign, *, inside=None, symmetric=None, explanation="Both say it."):
    """A verdict that came to this."""
    train, held_out, ood, commutativity = ANSWERS[sign]
    measures = {"train": train, "id": held_out, "ood": ood, "symmetric": symmetric}
    return of_measures(
        {**measures, "commutativity": commutativity}, by_probes(inside or sign), explanation=explanation
    )


def of_measures(measures, inner, *, positions=(), explanation="Both say it."):
    """A verdict with these measures, and by the probes this one."""
    ood = measures["ood"]
    behaviour = AnchorEvaluation(
        kind="two_anchor",
        metrics=METRICS,
        measures={name: accuracy(value) for name, value in measures.items()},
        finite=True,
        train_fresh=accuracy(measures["train"]),
        pairs=(PairAccuracy((3, 4), "ood", accuracy(ood)),),
        deviations={"ood": {0: ood, -3: 1 - ood}},
        positions=positions,
        best_constant=accuracy(0.0125),
        held_out="the pair (3, 4)",
        overlap=Overlap(1000, {"id": 0, "ood": 0}),
    )
    named = None not in (behaviour.phase.number, inner.phase.number)
    return Verdict(
        phase=behaviour.phase,
        by_probes=inner,
        behaviour=behaviour,
        agreement=behaviour.phase.number == inner.phase.number if named else None,
        explanation=explanation,
        warnings=(),
        subject=ClassifiedModel("known", kind="anchorlens", step=1000, versions=VERSIONS),
    )


def cell(sign=None, *, rank=8.5, path="cells/one", error=None, details=None, verdict_options=None, **fields):
    """A cell that came to this: a phase's sign, `underfit`, `failed`, `diverged`; None: not trained."""
    run = preset("quick", **fields)
    if sign in (None, "failed"):
        return Cell(run, sign or "missing", error=error, details=details)
    found = verdict("underfit" if sign == "diverged" else sign, **(verdict_options or {}))
    return done(
        run,
        found,
        path=path,
        status="diverged" if sign == "diverged" else "finished",
        error=error,
        probes={"stable_rank.w_q": rank, "stable_rank.w_q_normalized": 0.4},
    )


def done(run, verdict, *, path="cells/one", status="finished", error=None, probes=None):
    """A cell with this verdict."""
    passed_at = {"train": 200, "id": 400, "ood": 600 if verdict.phase.number == 3 else None}
    content = CellContent(
        status=status,
        error=error,
        step=1000,
        seconds=31.5,
        loss=0.01,
        passed_at=passed_at,
        probes=probes or {},
        verdict=verdict,
    )
    return Cell.trained(run, Path(path), json.dumps(content.to_dict()).encode(), content, None)


def sweep_of(cells, out="sweeps/known"):
    return SweepResult(Path(out), tuple(cells))


def square(**verdict_options):
    """Two gammas by two decays by three seeds, every kind of cell at least once.

    Rows are decays, ascending: at 0, gamma .3 is underfit thrice and .7 votes 2, 3, 3; at .01, gamma .3 is
    Phase 1, failed, not trained and .7 Phase 3 thrice.
    """
    plan = {
        (0.3, 0): ("underfit", "underfit", "underfit"), (0.7, 0): ("2", "3", "3"),
        (0.3, 0.01): ("1", "failed", None), (0.7, 0.01): ("3", "3", "3"),
    }  # fmt: skip
    return [
        cell(
            sign,
            gamma=gamma,
            weight_decay=decay,
            seed=seed,
            rank=4.0 + seed,
            error="it broke" if sign == "failed" else None,
        )
        for (gamma, decay), signs in plan.items()
        for seed, sign in enumerate(signs)
    ]
