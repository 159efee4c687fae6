"""Figure k1: is weight decay in a quarter of the run as good as throughout, and when must the quarter be?

    python research/figures/k1_windows.py [--seed 0 1 2] [--suffix .png]

The claims are those of the abstract of arXiv 2605.04396, on the two-anchor task; its own task, network and
sizes are not known to us. Weight decay is 1.0 in the window and 0 outside of it; windows are a quarter of
the run and begin 100 updates apart.

AdamW takes away the learning rate times the decay, and the rate falls along the run, so that a late window
takes less. At gamma .5 some windows are therefore asked with equal dose too: their decay is such that the sum
of rate times decay is that of the first quarter. These arms came after the first picture, and no claim rests
on them.
"""

from __future__ import annotations

from statistics import fmean
from typing import Any

from anchorlens import plots, preset
from anchorlens.recipes.schedule import learning_rate
from shared.control_arms import (
    SETTING,
    best_by_others,
    chosen_by_others,
    command_line,
    finish,
    lines,
    measured,
    over_seeds,
)

GAMMAS, DECAY, STEPS, LENGTH = (0.5, 0.8), 1.0, 1000, 250
ONSETS = (0, 100, 200, 300, 400, 500, 600, 700, 750)
MIDDLE = 400
DOSED = (200, 400, 600, 750)
"""Onsets that are asked at gamma .5 with the dose of the first quarter too."""
REASONS = 0.5
"""OOD above which a window led to reasoning."""


def arm(gamma: float, onset: int | str) -> str:
    """The name of an arm."""
    return f"gamma {gamma:g}, {onset}"


def dosed(onset: int) -> str:
    """The name of an arm with the dose of the first quarter."""
    return arm(0.5, onset if onset == 0 else f"{onset}, equal dose")


def window(onset: int, decay: float = DECAY) -> str:
    """Weight decay in a quarter of the run, as a schedule."""
    return f"0 {onset / STEPS:g}:{(onset + LENGTH) / STEPS:g}={decay:g}"


def dose(onset: int) -> float:
    """The sum of learning rate times decay over a window with a decay of 1."""
    recipe = preset("quick", **SETTING).train_config
    return DECAY * sum(learning_rate(recipe, step) for step in range(onset, onset + LENGTH))


def arms() -> dict[str, dict[str, Any]]:
    """Of each gamma: no decay, decay throughout, and every window; some with equal dose."""
    found: dict[str, dict[str, Any]] = {}
    for gamma in GAMMAS:
        found[arm(gamma, "none")] = {"gamma": gamma, "weight_decay": 0.0}
        found[arm(gamma, "throughout")] = {"gamma": gamma, "weight_decay": DECAY}
        for onset in ONSETS:
            found[arm(gamma, onset)] = {"gamma": gamma, "weight_decay": window(onset)}
    for onset in DOSED:
        decay = round(DECAY * dose(0) / dose(onset), 4)
        found[dosed(onset)] = {"gamma": 0.5, "weight_decay": window(onset, decay)}
    return found


def main() -> None:
    """Read the command line, train what is missing, judge the claims, draw."""
    given = command_line(__doc__)
    rows = measured(given, arms())
    regular = [onset for onset in ONSETS if onset % 100 == 0]
    windows = {gamma: [arm(gamma, onset) for onset in ONSETS] for gamma in GAMMAS}
    best = {gamma: best_by_others(rows, windows[gamma]) for gamma in GAMMAS}
    onset_of = {name: onset for gamma in GAMMAS for name, onset in zip(windows[gamma], ONSETS, strict=True)}

    def against_throughout(gamma: float) -> dict[int, float]:
        whole = over_seeds(rows, lambda of: of(arm(gamma, "throughout"))["ood"])
        return {seed: row["ood"] - whole[seed] for seed, row in best[gamma].items()}

    def later(gamma: float, one: int, other: int) -> Any:
        return lambda of: of(arm(gamma, other))["ood"] - of(arm(gamma, one))["ood"]

    numbers = {
        "windows_match": against_throughout(0.5),
        "windows_match_small": against_throughout(0.8),
        "windows_middle": chosen_by_others(rows, {f"{g}": later(g, 0, MIDDLE) for g in GAMMAS}),
        "windows_sharp": chosen_by_others(
            rows,
            {
                f"{g}, {one}": later(g, one, other)
                for g in GAMMAS
                for one, other in zip(regular, regular[1:], strict=False)
            },
        ),
        "windows_move": {
            seed: abs(onset_of[best[0.8][seed]["arm"]] - onset_of[row["arm"]])
            for seed, row in best[0.5].items()
        },
        "windows_basin": over_seeds(
            rows,
            lambda of: (
                sum(of(name)["ood"] > REASONS for name in windows[0.8])
                - sum(of(name)["ood"] > REASONS for name in windows[0.5])
            ),
        ),
    }
    groups: dict[str, dict[int, str]] = {
        f"gamma {g:g}, window": dict(zip(ONSETS, windows[g], strict=True)) for g in GAMMAS
    }
    groups["gamma 0.5, equal dose"] = {onset: dosed(onset) for onset in (0, *DOSED)}
    picture = lines(
        rows, groups, "Weight decay in one quarter of the run", "first update of the window, of 1,000"
    )
    for colour, gamma in zip(plots.CATEGORIES, GAMMAS, strict=False):
        for what, dash in (("throughout", "dash"), ("none", "dot")):
            level = fmean(row["ood"] for row in rows if row["arm"] == arm(gamma, what))
            picture.add_scatter(
                x=[ONSETS[0], ONSETS[-1]],
                y=[level, level],
                mode="lines",
                line={"color": colour, "dash": dash, "width": 1.5},
                name=f"gamma {gamma:g}, {what}",
            )
    finish(given, "k1_windows", picture, rows, numbers)


if __name__ == "__main__":
    main()
