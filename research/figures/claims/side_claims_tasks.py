"""The side claims of arXiv 2501.08537 on realistic tasks as readings of the figures' JSONs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from shared.arms import COMPLEXITY, LARGE, SMALL
from shared.readings import IN_ORDER, Claims, Numbers, Reading

Row = Mapping[str, Any]

PYTORCHS = 0.5
"""The gamma of PyTorch's initialisation."""
DRAWN = 0.95
"""Share of trained tuples of figure 6 that must be right."""
CHANCE = 0.55
"""Share of fresh questions of figure 7E below which answers are as good as chance (0.5)."""
KNOWN = 0.99
"""ID accuracy from which on both settings of figure 7B know what they were trained on."""


Asked = Mapping[str, Callable[[Sequence[Row]], Sequence[bool | None]]]
"""What the paper says -> whether it is so in each part of a seed's rows; None is unknown."""


def scan(numbers: Numbers) -> list[Reading]:
    """Figure 7A: the two settings over sizes and learning rates, and the grid of gamma and weight decay."""
    return _by_seed(
        numbers,
        {
            "at every size OOD is higher with small weights and decay than with large ones without": _more(
                "ood"
            ),
            "the same where each has just fit its training data, if both do": _at_fit,
            "the same with the best of several learning rates for each": _at_the_best_rate,
            "at every weight decay, OOD grows with gamma": _along_gamma,
            "at every gamma, the largest weight decay has a higher OOD than none": _by_decay,
            "OOD grows as the stable rank of W_Q falls": _along_rank,
        },
    )


def cogs(numbers: Numbers) -> list[Reading]:
    """Figure 7B: the two settings over sizes and learning rates, and their complexity."""
    return _by_seed(
        numbers,
        {
            "at every size small initial weights with decay answer more of the 21 cases than large ones "
            "without": _more("ood"),
            "the same for the 18 lexical cases": _more("lexical"),
            "both answer 0.99 of the ID test, where the paper compares them": lambda rows: [
                _both_know(large, small) for large, small in by_size(rows)
            ],
            "the same with the best of several learning rates for each": _at_the_best_rate,
            "small initial weights with decay have the lower stable rank of W_Q": _more(
                COMPLEXITY[0], less=True
            ),
        },
    )


def prontoqa(numbers: Numbers) -> list[Reading]:
    """Figure 7E: error and speed of the two settings over the size of the training set."""
    return _by_seed(
        numbers,
        {
            "small initial weights with decay fit the training examples in fewer steps": _sooner,
            "with large initial weights the steps grow with the size, and then fall": _up_and_down,
        },
    )


def _by_seed(numbers: Numbers, claims: Asked) -> list[Reading]:
    seeds = sorted({row["seed"] for row in numbers["cells"]})
    own = {seed: [row for row in numbers["cells"] if row["seed"] == seed] for seed in seeds}
    return [
        Reading(says, {str(seed): [one for one in asked(own[seed]) if one is not None] for seed in seeds})
        for says, asked in claims.items()
    ]


def commonest(rows: Iterable[Row], name: str) -> list[Row]:
    """The rows with the commonest value of a field: the usual learning rate, the size of the grid."""
    rows = list(rows)
    ((value, _),) = Counter(row[name] for row in rows).most_common(1)
    return [row for row in rows if row[name] == value]


def in_order(points: Iterable[tuple[float, float]]) -> bool | None:
    """Whether three quarters of the pairs of points that differ in both rise; None without such a pair."""
    rises = [(a < c) == (b < d) for (a, b), (c, d) in combinations(points, 2) if a != c and b != d]
    return sum(rises) / len(rises) >= IN_ORDER if rises else None


def _setting(rows: Iterable[Row], setting: tuple[float, float]) -> list[Row]:
    return [row for row in rows if (row["gamma"], row["weight_decay"]) == setting]


def by_size(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """The two settings at the usual rate, size by size: (large initial weights, small ones)."""
    usual = commonest(rows, "lr")
    small = {row["n_samples"]: row for row in _setting(usual, SMALL)}
    large = {row["n_samples"]: row for row in _setting(usual, LARGE)}
    return [(large[n], small[n]) for n in sorted(large.keys() & small.keys())]


def _more(name: str, *, less: bool = False) -> Callable[[Sequence[Row]], list[bool]]:
    """Size by size, whether small initial weights with decay have more of something, or less."""

    def asked(rows: Sequence[Row]) -> list[bool]:
        return [
            (small[name] < large[name]) if less else (small[name] > large[name])
            for large, small in by_size(rows)
        ]

    return asked


def _both_know(large: Row, small: Row) -> bool:
    return min(large["id"], small["id"]) >= KNOWN


def _updates(row: Row) -> float:
    """Until the training data are fit; infinite where they never were."""
    step = row["at_fit"]["step"]
    return float("inf") if step is None else step


def _sooner(rows: Sequence[Row]) -> list[bool]:
    pairs = [(_updates(large), _updates(small)) for large, small in by_size(rows)]
    return [small < large for large, small in pairs if min(large, small) < float("inf")]


def _up_and_down(rows: Sequence[Row]) -> list[bool]:
    """Whether the most updates are needed at a size between others; a run that never fits needs the most."""
    usual = commonest(_setting(rows, LARGE), "lr")
    found = [_updates(row) for row in sorted(usual, key=lambda row: row["n_samples"])]
    if len(found) < 3 or min(found) == float("inf"):
        return []
    return [max(found[1:-1]) > max(found[0], found[-1])]


def _at_fit(rows: Sequence[Row]) -> list[bool]:
    found = [(large["at_fit"]["ood"], small["at_fit"]["ood"]) for large, small in by_size(rows)]
    return [small > large for large, small in found if None not in (large, small)]


def _at_the_best_rate(rows: Sequence[Row]) -> list[bool]:
    asked = commonest(rows, "n_samples")
    if len({row["lr"] for row in asked}) == 1:
        return []
    large, small = (max(row["ood"] for row in _setting(asked, setting)) for setting in (LARGE, SMALL))
    return [small > large]


def _grid(rows: Sequence[Row]) -> list[Row]:
    return commonest(commonest(rows, "lr"), "n_samples")


def _along_gamma(rows: Sequence[Row]) -> list[bool | None]:
    decays = sorted({row["weight_decay"] for row in _grid(rows)})
    return [
        in_order((row["gamma"], row["ood"]) for row in _grid(rows) if row["weight_decay"] == decay)
        for decay in decays
    ]


def _by_decay(rows: Sequence[Row]) -> list[bool]:
    ood = {(row["gamma"], row["weight_decay"]): row["ood"] for row in _grid(rows)}
    most = max(decay for _, decay in ood)
    return [
        ood[gamma, most] > ood[gamma, 0.0]
        for gamma, decay in sorted(ood)
        if decay == most > 0 and (gamma, 0.0) in ood
    ]


def _along_rank(rows: Sequence[Row]) -> list[bool | None]:
    return [in_order((-row[COMPLEXITY[0]], row["ood"]) for row in _grid(rows))]


def concept_graphs(numbers: Numbers) -> list[Reading]:
    """Figure 6: small circles over gamma, triangles at PyTorch's own and circles at some larger one."""
    return _by_seed(
        numbers,
        {
            "the larger gamma, the fewer triangles": lambda rows: [
                in_order((row["gamma"], -row["failure"]) for row in rows)
            ],
            "0.95 of the trained tuples are drawn correctly, at every gamma": lambda rows: [
                row["train"] >= DRAWN for row in rows
            ],
        },
    )


def text(numbers: Numbers) -> list[Reading]:
    """Figure 7D: bits per byte on held-out text over gamma, each weight decay by itself."""
    decays = sorted({row["weight_decay"] for row in numbers["cells"]})

    def along_gamma(rows: Sequence[Row]) -> list[bool | None]:
        return [
            in_order((row["gamma"], -row["validation_bits"]) for row in rows if row["weight_decay"] == decay)
            for decay in decays
        ]

    def below_pytorchs(rows: Sequence[Row]) -> list[bool | None]:
        found = []
        for decay in decays:
            bits = {row["gamma"]: row["validation_bits"] for row in rows if row["weight_decay"] == decay}
            larger = [value for gamma, value in bits.items() if gamma > PYTORCHS]
            found.append(max(larger) < bits[PYTORCHS] if larger and PYTORCHS in bits else None)
        return found

    return _by_seed(
        numbers,
        {
            "the larger gamma, the fewer bits per byte on held-out text": along_gamma,
            "every gamma above 0.5 needs fewer bits than gamma 0.5": below_pytorchs,
        },
    )


CLAIMS: Claims = {
    "J6": concept_graphs,
    "J7A": scan,
    "J7B": cogs,
    "J7D": text,
    "J7E": prontoqa,
}
"""Figure -> the readings of its JSON."""
