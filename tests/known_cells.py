"""Cells of a sweep made by hand, with numbers that the tests know."""

from pathlib import Path

from anchorlens.runs.presets import preset
from anchorlens.sweep.cells import Cell, SweepResult
from anchorlens.tasks.shared.phases import LABELS, phase_by_definition

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
    return None if value is None else {"value": value, "standard_error": 0.001, "n_sequences": 1000}


def mechanism(sign, reading="v_similarity.centred_gap"):
    """A mechanism verdict sure of one phase; of none for `underfit`."""
    label = SIGNS.get(sign)
    ranges = {name: [0.2 * i, 0.2 * i + 0.3] for i, name in enumerate(LABELS)}
    evidence = {"reading": reading, "probe": "v_similarity", "meaning": "values say g(x; a)", "value": 0.63}
    evidence |= {"odds": {label: 2.1} if label else {}, "alone": {}, "sees": "trained pairs"}
    return {
        "phase": None if label is None else int(sign[0]),
        "commutative": {"2": False, "2c": True}.get(sign),
        "label": label or "undecided: underfit",
        "reason": "underfit: train longer" if label is None else "the readings lie where its do",
        "probabilities": {name: 0.94 if name == label else 0.02 for name in LABELS} if label else None,
        "cause": None if label else "underfit",
        "by_probes": None,
        "outside": [],
        "readings": [{**evidence, "ranges": ranges, "vote": label, "weight": 2.1}],
    }


def verdict(sign, *, inside=None, symmetric=None, explanation="Both say it."):
    """A verdict as `Verdict.to_dict` gives it."""
    train, held_out, ood, commutativity = ANSWERS[sign]
    phase = phase_by_definition(train, held_out, ood, commutativity)
    named_phase = phase.to_dict()
    inner = mechanism(inside or sign)
    named = None not in (phase.phase, inner["phase"])
    behaviour = {
        "train": accuracy(train), "train_source": "training set", "train_fresh": accuracy(train),
        "id": accuracy(held_out), "ood": accuracy(ood), "symmetric": accuracy(symmetric),
        "commutativity": accuracy(commutativity), "finite": True, "phase": named_phase, "options": {},
        "deviations": {"ood": {"0": ood, "-3": 1 - ood}},
        "pairs": [{"pair": [3, 4], "split": "ood", "accuracy": accuracy(ood)}],
        "positions": [], "solution": None, "best_constant": accuracy(0.0125), "held_out": "the pair (3, 4)",
        "overlap": {"n_sequences": 1000, "counts": {"id": 0, "ood": 0}},
    }  # fmt: skip
    return {
        "schema_version": 1, **named_phase, "agreement": phase.phase == inner["phase"] if named else None,
        "explanation": explanation, "warnings": [], "behaviour": behaviour, "mechanism": inner,
        "checkpoint": {
            "path": None, "sha256": None, "kind": "anchorlens", "step": 1000, "versions": VERSIONS,
        },
        "trajectory": [],
    }  # fmt: skip


def cell(sign=None, *, rank=8.5, path="cells/one", error=None, details=None, verdict_options=None, **fields):
    """A cell that came to this: a phase's sign, `underfit`, `failed`, `diverged`; None: not trained."""
    run = preset("quick", **fields)
    if sign in (None, "failed"):
        return Cell(run, sign or "missing", error=error, details=details)
    status = "diverged" if sign == "diverged" else "finished"
    found = verdict("underfit" if sign == "diverged" else sign, **(verdict_options or {}))
    content = {"step": 1000, "seconds": 31.5, "loss": 0.01, "verdict": found}
    content["probes"] = {"stable_rank.w_q": rank, "stable_rank.w_q_normalized": 0.4}
    return Cell(run, status, Path(path), content, error, details)


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
