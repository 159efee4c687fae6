"""Figure k4: a penalty on the complexity itself against weight decay, at equal training accuracy.

    python research/figures/k4_penalty.py [--seed 0 1 2] [--suffix .png]

Gamma .5. Weight decay of three sizes, a nuclear norm of W_Q, W_K, W_V, W_O, W_in and W_out of three sizes,
and a stable rank of the same of three; an arm counts where its runs have fit their data (train accuracy .99).
"""

from __future__ import annotations

from typing import Any

from shared.control_arms import IS_FIT, bars, best_by_others, command_line, finish, measured, over_seeds

GAMMA, NONE = 0.5, "none"
HIDDEN = ("qk", "vo", "mlp")
DECAYS, NUCLEAR, RANK = (0.1, 0.3, 1.0), (1e-5, 1e-4, 1e-3), (1e-3, 1e-2, 1e-1)


def penalty(kind: str, weight: float) -> dict[str, Any]:
    """A penalty on every hidden matrix, without decay."""
    text = " ".join(f"{kind}:{part}={weight:g}" for part in HIDDEN)
    return {"gamma": GAMMA, "weight_decay": 0.0, "penalty": text}


def arms() -> dict[str, dict[str, Any]]:
    """None, decay, nuclear norm, stable rank."""
    found: dict[str, dict[str, Any]] = {NONE: {"gamma": GAMMA, "weight_decay": 0.0}}
    found |= {f"decay {d:g}": {"gamma": GAMMA, "weight_decay": d} for d in DECAYS}
    found |= {f"nuclear norm {w:g}": penalty("nuclear", w) for w in NUCLEAR}
    return found | {f"stable rank {w:g}": penalty("stable_rank", w) for w in RANK}


def main() -> None:
    """Read the command line, train what is missing, judge the claims, draw."""
    given = command_line(__doc__)
    rows = measured(given, arms())
    decay, nuclear, rank = (
        best_by_others(rows, [name for name in arms() if name.startswith(kind)], fit_alone=True)
        for kind in ("decay", "nuclear", "stable")
    )
    none = over_seeds(rows, lambda of: of(NONE)["ood"] if of(NONE)["train"] >= IS_FIT else None)
    numbers = {
        "penalty_nuclear": {s: nuclear[s]["ood"] - decay[s]["ood"] for s in nuclear.keys() & decay.keys()},
        "penalty_rank": {s: rank[s]["ood"] - none[s] for s in rank.keys() & none.keys()},
    }
    picture = bars(
        rows, {name: name for name in arms()}, "Weight decay and penalties on complexity, gamma .5"
    )
    finish(given, "k4_penalty", picture, rows, numbers)


if __name__ == "__main__":
    main()
