"""Figure k2: what becomes of a Phase 2 model whose weights are halved while it trains?

    python research/figures/k2_rescaling.py [--seed 0 1 2] [--suffix .png]

Gamma .5 ends in Phase 2 in this setting. All matrices, or those of one part, are multiplied by .5 before an
update at a quarter, half and three quarters of the run; the optimizer's moments stay.
"""

from __future__ import annotations

from typing import Any

from anchorlens.models.config import PARTS
from shared.control_arms import command_line, finish, lines, measured, over_seeds

GAMMA, FACTOR, STEPS = 0.5, 0.5, 1000
MOMENTS = (250, 500, 750)
WHAT = ("all", *PARTS)
PLAIN = "not rescaled"


def arm(part: str, step: int) -> str:
    """The name of an arm."""
    return f"{part} at {step}"


def arms() -> dict[str, dict[str, Any]]:
    """The run without, and every part at every moment."""
    found: dict[str, dict[str, Any]] = {PLAIN: {"gamma": GAMMA}}
    for part in WHAT:
        for step in MOMENTS:
            found[arm(part, step)] = {"gamma": GAMMA, "rescale": f"{part}={FACTOR:g}@{step}"}
    return found


def main() -> None:
    """Read the command line, train what is missing, judge the claims, draw."""
    given = command_line(__doc__)
    rows = measured(given, arms())

    def gain(of: Any, part: str, step: int) -> float:
        return of(arm(part, step))["ood"] - of(PLAIN)["ood"]

    numbers = {
        "rescale_early": over_seeds(rows, lambda of: gain(of, "all", 250)),
        "rescale_late": over_seeds(rows, lambda of: gain(of, "all", 250) - gain(of, "all", 750)),
        "rescale_qk": over_seeds(rows, lambda of: gain(of, "qk", 250) - gain(of, "all", 250) / 2),
    }
    groups = {part: {step: arm(part, step) for step in MOMENTS} for part in WHAT}
    groups[PLAIN] = dict.fromkeys(MOMENTS, PLAIN)
    picture = lines(
        rows,
        groups,
        "Weights halved during training, gamma 0.5",
        "update before which weights are halved, of 1,000",
    )
    finish(given, "k2_rescaling", picture, rows, numbers)


if __name__ == "__main__":
    main()
