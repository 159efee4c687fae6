"""The side claims of arXiv 2405.05409 as readings of the figures' JSONs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from claims.effects import EQUIVALENT, growth, seeds_of, with_solution
from shared.complexity import Time
from shared.complexity import order as order_of_times
from shared.numerals import short
from shared.ordering import order
from shared.readings import ID, MOST, TAU, Claims, Numbers, Reading, mostly, one_each


def solutions_over_gamma(numbers: Numbers) -> list[Reading]:
    """Figure 2 of 2405.05409: the solution of each gamma's best run, at every depth."""
    small, large = (
        numbers["small_initialisation"]["gamma_from"],
        numbers["large_initialisation"]["gamma_to"],
    )
    found = []
    for depth in sorted({run["depth"] for run in numbers["runs"]}):
        for solution, words, there in (
            ("inferential", f"from gamma {short(small)} on", lambda gamma: gamma >= small),
            ("symmetric", f"up to gamma {short(large)}", lambda gamma: gamma <= large),
        ):
            best = (numbers["runs"][k] for k in numbers["best"][solution])
            own = [
                run for run in best if run["depth"] == depth and there(run["gamma"]) and run["train"] >= ID
            ]
            by_seed = {
                seed: [run[solution] > MOST for run in own if str(run["seed"]) == seed]
                for seed in seeds_of(numbers)
            }
            found.append(Reading(f"{depth} layers: the {solution} solution {words}", by_seed))
    return found


def _seeds(numbers: Numbers) -> list[str]:
    return sorted({seed for by_seed in numbers["answers"].values() for seed in by_seed}, key=int)


def _apart(numbers: Numbers, value: Callable[[str, str], float], more: str, less: str) -> Any:
    """By seed, whether every run of one solution has more than every run of the other; None without both."""
    found: dict[str, bool | None] = {}
    for seed in _seeds(numbers):
        ones, others = (
            [value(name, seed) for name in with_solution(numbers, seed, solution)]
            for solution in (more, less)
        )
        found[seed] = min(ones) > max(others) if ones and others else None
    return one_each(found)


def routes(numbers: Numbers) -> list[Reading]:
    """Figure 3 of 2405.05409: clusters for the symmetric solution."""
    clusters = numbers["readings"]["first_layer_tsne"]["silhouette_unordered"]
    more = _apart(numbers, lambda name, seed: clusters[name][seed], "symmetric", "inferential")
    return [Reading("the last position clusters by unordered pair more in the symmetric runs", more)]


def likeness(numbers: Numbers) -> list[Reading]:
    """Figure 4 of 2405.05409: equal single-anchor results look alike."""
    gaps = numbers["readings"]["v_similarity"]["centred_gap"]
    more = _apart(numbers, lambda name, seed: gaps[name][seed], "inferential", "symmetric")
    words = "in the inferential runs, equal g(x; a) have more similar values at the first anchor"
    return [Reading(words, more)]


def condensed(numbers: Numbers) -> list[Reading]:
    """Figure 5 of 2405.05409: every larger gamma against the smallest."""
    read = numbers["readings"]
    measured = {
        "the neurons fall in fewer groups": (read["q_condensation"]["n_groups"], -1),
        "more pairs of neurons are parallel": (read["q_condensation"]["parallel_share"], 1),
        "the stable rank of W_Q is lower": (read["stable_rank"]["w_q"], -1),
        "the embedding has more order": (read["embedding_pca"]["lag_order"], 1),
        "two components hold more of its variance": (numbers["variance_in_two_components"], 1),
    }
    first, *others = numbers["answers"]
    return [
        Reading(
            f"{words} at each larger gamma than at gamma {short(first.split()[1])}",
            {
                seed: [sign * (values[name][seed] - values[first][seed]) > 0 for name in others]
                for seed in _seeds(numbers)
            },
        )
        for words, (values, sign) in measured.items()
    ]


def times(numbers: Numbers) -> list[Reading]:
    """Figure 6 of 2405.05409 and 8A of 2501.08537: time against complexity, over gamma; a part is a depth."""
    every = [Time(**run) for run in numbers["runs"]]
    gammas = sorted({float(time.panel.split()[1]) for time in every}, reverse=True)
    found = []
    for gamma in gammas:
        lines = sorted({time.line for time in every if float(time.panel.split()[1]) == gamma})
        runs = {
            seed: [
                [
                    time
                    for time in every
                    if (float(time.panel.split()[1]), time.line, str(time.seed)) == (gamma, line, seed)
                ]
                for line in lines
            ]
            for seed in seeds_of(numbers)
        }
        if gamma == gammas[0]:
            by_seed = {
                seed: [(order_of_times(one) or 0.0) >= TAU for one in each] for seed, each in runs.items()
            }
            found.append(Reading(f"gamma {short(gamma)}: time grows with complexity", by_seed))
        else:
            by_seed = {
                seed: [
                    1 / EQUIVALENT <= ratio <= EQUIVALENT
                    for one in each
                    if (ratio := growth(one)) is not None
                ]
                for seed, each in runs.items()
            }
            found.append(Reading(f"gamma {short(gamma)}: the same time within a quarter", by_seed))
    return found


def eigenvalues(numbers: Numbers) -> list[Reading]:
    """Figure 7 of 2405.05409: fewer components the larger gamma."""
    components = numbers["components"]
    gammas = sorted(components, key=float)
    seeds = components[gammas[0]]
    shares = {seed: order([-components[gamma][seed] for gamma in gammas]).rising_share for seed in seeds}
    return [
        Reading(
            "fewer eigenvalues at the larger of two gammas, in three of four pairs that differ",
            mostly(shares),
        )
    ]


def over_training(numbers: Numbers) -> list[Reading]:
    """Both papers: complexity falls at a small initialisation, then grows; weight decay lowers it."""
    rank = numbers["summary"]["stable_rank"]
    large, small = sorted(rank["recipe"], key=float)
    courses = {name: rank["recipe"][name] for name in (small, large)}
    lower = {
        seed: [
            rank["weight decay 1"][name][seed]["end"] < rank["weight decay 0"][name][seed]["end"]
            for name in (small, large)
        ]
        for seed in courses[small]
    }

    def each(name: str, holds: Callable[[Mapping[str, float]], bool]) -> dict[str, list[bool]]:
        return {seed: [holds(course)] for seed, course in courses[name].items()}

    return [
        Reading(
            f"gamma {short(small)}: the stable rank grows again after its fall",
            each(small, lambda course: course["end"] > course["least"]),
        ),
        Reading("weight decay 1 ends with a lower stable rank than 0, at either gamma", lower),
    ]


CLAIMS: Claims = {
    "C2": solutions_over_gamma,
    "C3": routes,
    "C4": likeness,
    "C5": condensed,
    "C6": times,
    "C7": eigenvalues,
    "training": over_training,
}
"""Figure -> the readings of its JSON."""
