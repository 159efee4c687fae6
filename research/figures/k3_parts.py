"""Figure k3: the initialisation of which part decides the phase?

    python research/figures/k3_parts.py [--seed 0 1 2] [--suffix .png]

One part at a time has the gamma of the other side: .8 in a model of gamma .5, and .5 in a model of .8. A
part's effect is the mean of what it gives the one and takes from the other.
"""

from __future__ import annotations

from typing import Any

from anchorlens.models.config import PARTS
from shared.control_arms import bars, command_line, finish, measured, over_seeds

LARGE, SMALL = 0.5, 0.8
"""Gammas of the large and of the small initialisation."""


def arm(gamma: float, part: str | None = None) -> str:
    """The name of an arm."""
    return f"{gamma:g}" if part is None else f"{gamma:g}, {part} {LARGE + SMALL - gamma:g}"


def arms() -> dict[str, dict[str, Any]]:
    """Both gammas, and each with one part of the other."""
    found = {}
    for gamma in (LARGE, SMALL):
        found[arm(gamma)] = {"gamma": gamma}
        for part in PARTS:
            found[arm(gamma, part)] = {"gamma": gamma, f"gamma_{part}": round(LARGE + SMALL - gamma, 2)}
    return found


def main() -> None:
    """Read the command line, train what is missing, judge the claims, draw."""
    given = command_line(__doc__)
    rows = measured(given, arms())

    def effect(of: Any, part: str) -> float:
        given_to = of(arm(LARGE, part))["ood"] - of(arm(LARGE))["ood"]
        taken_from = of(arm(SMALL))["ood"] - of(arm(SMALL, part))["ood"]
        return (given_to + taken_from) / 2

    numbers = {f"parts_{part}": over_seeds(rows, lambda of, part=part: effect(of, part)) for part in PARTS}
    names = {name: f"gamma {name}" for name in arms()}
    picture = bars(rows, names, "One part with the gamma of the other side")
    finish(given, "k3_parts", picture, rows, numbers)


if __name__ == "__main__":
    main()
