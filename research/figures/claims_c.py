"""The claims of arXiv 2405.05409 as readings of the figures' JSONs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numerals import short
from ordering import order
from readings import HALF, ID, MOST, TAU, Claims, Numbers, Reading, mostly, one_each


def solutions_over_gamma(numbers: Numbers) -> list[Reading]:
    """Figure 2 of 2405.05409: which solution prevails, at every depth."""
    small, large = (
        numbers["small_initialisation"]["gamma_from"],
        numbers["large_initialisation"]["gamma_to"],
    )
    found = []
    for depth in sorted({run["depth"] for run in numbers["runs"]}):
        runs = [run for run in numbers["runs"] if run["depth"] == depth]
        seeds = sorted({run["seed"] for run in runs})
        fit = [run for run in runs if run["train"] >= ID]
        for solution, other, words, there in (
            ("inferential", "symmetric", f"from gamma {short(small)} on", lambda run: run["gamma"] >= small),
            ("symmetric", "inferential", f"up to gamma {short(large)}", lambda run: run["gamma"] <= large),
        ):
            by_seed = {
                str(seed): [run[solution] > run[other] for run in fit if run["seed"] == seed and there(run)]
                for seed in seeds
            }
            found.append(Reading(f"{depth} layers: the {solution} solution prevails {words}", by_seed))
    return found


def _by_answer(answers: Mapping[str, Any], seed: str) -> tuple[list[str], list[str]]:
    """Initialisations at which this seed answers symmetrically, and at which it infers."""
    own = {name: by_seed[seed] for name, by_seed in answers.items() if seed in by_seed}
    symmetric = [name for name, each in own.items() if each["symmetric"] > each["inferential"]]
    return symmetric, [name for name in own if name not in symmetric]


def _seeds(numbers: Numbers) -> list[str]:
    return sorted({seed for by_seed in numbers["answers"].values() for seed in by_seed}, key=int)


def _apart(numbers: Numbers, value: Callable[[str, str], float], *, symmetric_more: bool) -> Any:
    """By seed, whether every run of one solution has more than every run of the other; None without both."""
    found: dict[str, bool | None] = {}
    for seed in _seeds(numbers):
        symmetric, inferential = (
            [value(name, seed) for name in names] for names in _by_answer(numbers["answers"], seed)
        )
        more, less = (symmetric, inferential) if symmetric_more else (inferential, symmetric)
        found[seed] = min(more) > max(less) if more and less else None
    return one_each(found)


def routes(numbers: Numbers) -> list[Reading]:
    """Figure 3 of 2405.05409: a route for each solution, and clusters for the symmetric one."""
    flow = numbers["readings"]["information_flow"]
    clusters = numbers["readings"]["first_layer_tsne"]["silhouette_unordered"]
    scores = {name.removesuffix("_route"): flow[name] for name in flow if name.endswith("_route")}

    def takes(route: str, name: str, seed: str) -> bool:
        """Whether more is lost without this route than without any other."""
        found = {each: by_name[name][seed] or 0.0 for each, by_name in scores.items()}
        return found.pop(route) > max(found.values())

    own: dict[str, bool | None] = {}
    for seed in _seeds(numbers):
        symmetric, inferential = _by_answer(numbers["answers"], seed)
        if not (symmetric and inferential):  # nothing to compare with: a run must have the solution itself
            symmetric, inferential = (
                [name for name in names if numbers["answers"][name][seed][solution] > MOST]
                for solution, names in (("symmetric", symmetric), ("inferential", inferential))
            )
        taken = [takes("symmetric", name, seed) for name in symmetric]
        taken += [takes("inferential", name, seed) for name in inferential]
        own[seed] = all(taken) if taken else None
    more = _apart(numbers, lambda name, seed: clusters[name][seed], symmetric_more=True)
    return [
        Reading("each solution takes its own route, in all runs of the seed", one_each(own)),
        Reading("the last position gathers by unordered pair more in the symmetric runs", more),
    ]


def likeness(numbers: Numbers) -> list[Reading]:
    """Figure 4 of 2405.05409: equal targets, and equal single-anchor results, look alike."""
    return [
        Reading(
            f"{words} more in the inferential runs than in the symmetric ones",
            _apart(
                numbers,
                lambda name, seed, probe=probe: numbers["readings"][probe]["centred_gap"][name][seed],
                symmetric_more=False,
            ),
        )
        for words, probe in (
            ("equal targets look alike at the last position", "fusion_similarity"),
            ("equal g(x; a) have like values at the first anchor", "v_similarity"),
        )
    ]


def condensed(numbers: Numbers) -> list[Reading]:
    """Figure 5 of 2405.05409: every larger gamma against the smallest."""
    read = numbers["readings"]
    measured = {
        "the neurons' mean |cosine| is larger": (read["q_condensation"]["mean_abs_cosine"], 1),
        "the neurons fall in fewer groups": (read["q_condensation"]["n_groups"], -1),
        "more pairs of neurons are parallel": (read["q_condensation"]["parallel_share"], 1),
        "the stable rank of W_Q is lower": (read["stable_rank"]["w_q"], -1),
        "the embedding is more in order": (read["embedding_pca"]["lag_order"], 1),
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


def gamma_of(line: Mapping[str, Any]) -> float:
    """Of a line of `complexity.numbers`, whose panel or name begins with it."""
    return float((line["panel"] or line["line"]).split()[1])


def times(numbers: Numbers) -> list[Reading]:
    """Figure 6 of 2405.05409 and 8A of 2501.08537: time against complexity, over gamma."""
    lines = numbers["lines"]
    largest = max(map(gamma_of, lines))
    found = []
    for gamma in sorted({gamma_of(line) for line in lines}, reverse=True):
        own = [line["order_by_seed"] for line in lines if gamma_of(line) == gamma]
        taus = {seed: [line[seed] for line in own if line[seed] is not None] for seed in own[0]}
        grows = gamma == largest
        words = "grows with" if grows else "does not change with"
        by_seed = {
            seed: [tau >= TAU if grows else abs(tau) < TAU for tau in each] for seed, each in taus.items()
        }
        found.append(Reading(f"gamma {short(gamma)}: time {words} complexity", by_seed))
    return found


def eigenvalues(numbers: Numbers) -> list[Reading]:
    """Figure 7 of 2405.05409: fewer components the larger gamma."""
    components = numbers["components"]
    gammas = sorted(components, key=float)
    seeds = components[gammas[0]]
    ends = {seed: components[gammas[-1]][seed] < components[gammas[0]][seed] for seed in seeds}
    shares = {seed: order([-components[gamma][seed] for gamma in gammas]).rising_share for seed in seeds}
    return [
        Reading(f"fewer at gamma {short(gammas[-1])} than at {short(gammas[0])}", one_each(ends)),
        Reading("fewer at the larger of two gammas, in three of four pairs that differ", mostly(shares)),
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
            f"gamma {short(small)}: the stable rank falls below half of a Gaussian's",
            each(small, lambda course: course["least"] < HALF),
        ),
        Reading(
            f"gamma {short(small)}: it then grows again",
            each(small, lambda course: course["end"] > course["least"]),
        ),
        Reading(f"gamma {short(large)}: it never does", each(large, lambda course: course["least"] >= HALF)),
        Reading("weight decay 1 ends lower than 0, at either gamma", lower),
    ]


CLAIMS: Claims = {
    "C2": ("c2_gamma_depth", solutions_over_gamma),
    "C3": ("c3_information_flow", routes),
    "C4": ("c4_similarity", likeness),
    "C5": ("c5_condensation", condensed),
    "C6": ("c6_complexity", times),
    "C7": ("c7_covariance", eigenvalues),
    "training": ("complexity_over_training", over_training),
}
"""Figure -> the JSON with its numbers, and the readings of it."""
