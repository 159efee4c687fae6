"""Figure k8: is condensation a cause of composition, or its companion?

    python research/figures/k8_condensation.py [--seed 0 1 2] [--suffix .png]

Readings of condensation tell models that memorise from models that generalise, and say little of who
composes. That is a correlation; here W_Q is held. From a small initialisation (gamma .8) it is frozen at its
random start, or gets noise when it has condensed, 50 updates before the end. From a large one (gamma .5) its
rank is kept small while the model trains, and the rank of all hidden matrices.
"""

from __future__ import annotations

from typing import Any

from shared.control_arms import IS_FIT, bars, command_line, finish, measured, over_seeds

LARGE, SMALL = 0.5, 0.8
HIDDEN = ("qk", "vo", "mlp")
READINGS = ("q_condensation.mean_abs_cosine", "stable_rank.w_q")
NAMES = {
    "small": "gamma .8",
    "small, frozen": "gamma .8, W_Q frozen",
    "small, noise": "gamma .8, noise on W_Q",
    "small, noise on all": "gamma .8, noise on all",
    "large": "gamma .5",
    "large, rank 2": "gamma .5, W_Q of rank 2",
    "large, frozen": "gamma .5, W_Q frozen",
    "large, all of rank 8": "gamma .5, all of rank 8",
}


def arms() -> dict[str, dict[str, Any]]:
    """What is done to W_Q, or to all."""
    small, large = {"gamma": SMALL}, {"gamma": LARGE}
    return {
        "small": small,
        "small, frozen": {**small, "freeze": "W_Q"},
        "small, noise": {**small, "weight_noise": "W_Q=1@950"},
        "small, noise on all": {**small, "weight_noise": " ".join(f"{part}=0.3@950" for part in HIDDEN)},
        "large": large,
        "large, rank 2": {**large, "max_rank": "W_Q=2"},
        "large, frozen": {**large, "freeze": "W_Q"},
        "large, all of rank 8": {**large, "max_rank": " ".join(f"{part}=8" for part in HIDDEN)},
    }


def main() -> None:
    """Read the command line, train what is missing, judge the claims, draw."""
    given = command_line(__doc__)
    rows = measured(given, arms(), readings=READINGS)

    def where_both_fit(of: Any) -> float | None:
        clipped, free = of("large, all of rank 8"), of("large")
        return clipped["ood"] - free["ood"] if min(clipped["train"], free["train"]) >= IS_FIT else None

    def lost(of: Any, name: str) -> float:
        return of("small")[name] - of("small, noise")[name]

    numbers = {
        "condensation_frozen": over_seeds(rows, lambda of: of("small")["ood"] - of("small, frozen")["ood"]),
        "condensation_clipped": over_seeds(rows, lambda of: of("large, rank 2")["ood"] - of("large")["ood"]),
        "condensation_noise": over_seeds(rows, lambda of: lost(of, "ood") - lost(of, "id")),
        "condensation_all": over_seeds(rows, where_both_fit),
    }
    finish(given, "k8_condensation", bars(rows, NAMES, "W_Q held, or disturbed"), rows, numbers)


if __name__ == "__main__":
    main()
