"""The effect of each figure's main claim, a number for each seed: main_claims.toml says what it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from claims.main_claims import Effect
from claims.side_claims_tasks import CHANCE, KNOWN, PYTORCHS, by_size
from shared.arms import LARGE, SMALL
from shared.complexity import Time, slope
from shared.numerals import short
from shared.readings import HALF, ID, MOST, Numbers

BySeed = Mapping[str, float | None]
Row = Mapping[str, Any]

LARGE_INIT, SMALL_INIT = 0.5, 0.8
"""The two initialisations that 2405.05409 compares."""
DECAY = 0.01
"""Weight decay of the rows along gamma: cells of one seed at 0, 0.01 and 0.1 are no runs of their own."""
EQUIVALENT = 1.25
"""Times that are within this factor are about as long."""
LARGE_RATE = 8e-4
"""A learning rate from which on we call it large: the largest of `postnorm`."""
MARKED_AT = 0.6
"""Accuracy at which figure 8B of 2501.08537 marks its slow pairs."""


def minus(more: BySeed, less: BySeed) -> dict[str, float | None]:
    """The difference in every seed, without the last digits of its arithmetic; None where one is unknown.

    >>> minus({"0": 1.0, "1": None}, {"0": 0.25, "1": 0.5})
    {'0': 0.75, '1': None}
    """
    found: dict[str, float | None] = {}
    for seed, value in more.items():
        other = less.get(seed)
        found[seed] = None if value is None or other is None else round(value - other, 9)
    return found


def seeds_of(numbers: Numbers) -> list[str]:
    """The seeds of a figure's runs, as the keys of its JSON."""
    return [str(seed) for seed in sorted(numbers["network"]["seed"])]


def of_gamma(by_name: Mapping[str, Mapping[str, float]], gamma: float) -> BySeed:
    """The values of one initialisation, by seed."""
    return by_name.get(f"gamma {gamma:g}", {})


def solutions(numbers: Numbers) -> Effect:
    """Figure 2 of 2405.05409: each solution at the learning rate with the most answers by it."""

    def best(solution: str, gamma: float) -> BySeed:
        own = [r for r in numbers["runs"] if r["depth"] == 2 and r["gamma"] == gamma and r["train"] >= ID]
        shares = {seed: [r[solution] for r in own if str(r["seed"]) == seed] for seed in seeds_of(numbers)}
        return {seed: max(found) if found else None for seed, found in shares.items()}

    symmetric = [best("symmetric", gamma) for gamma in (LARGE_INIT, SMALL_INIT)]
    inferential = [best("inferential", gamma) for gamma in (LARGE_INIT, SMALL_INIT)]
    halves = minus(symmetric[0], symmetric[1]), minus(inferential[1], inferential[0])
    worse = {
        seed: None if one is None or (other := halves[1][seed]) is None else min(one, other)
        for seed, one in halves[0].items()
    }
    return Effect(
        worse,
        [
            ("symmetric at gamma 0.5", symmetric[0]),
            ("at 0.8", symmetric[1]),
            ("inferential at 0.5", inferential[0]),
            ("at 0.8", inferential[1]),
            ("the smaller change", worse),
        ],
    )


def solution_of(answers: Row) -> str | None:
    """The solution that a run has: that of more than half of its answers; None where it has none.

    >>> solution_of({"symmetric": 0.11, "inferential": 0.13})
    """
    has = [name for name in ("symmetric", "inferential") if answers[name] > MOST]
    return has[0] if has else None


def with_solution(numbers: Numbers, seed: str, solution: str | None = None) -> list[str]:
    """The initialisations at which a seed's run has a solution, or this one."""
    found = {
        name: solution_of(by_seed[seed]) for name, by_seed in numbers["answers"].items() if seed in by_seed
    }
    return [name for name, has in found.items() if has is not None and solution in (None, has)]


def routes(numbers: Numbers) -> Effect:
    """Figure 3 of 2405.05409: the route of a run's solution against the others."""
    flow = numbers["readings"]["information_flow"]
    scores = {name.removesuffix("_route"): flow[name] for name in flow if name.endswith("_route")}

    def ahead(name: str, seed: str) -> float:
        found = {route: by_name[name][seed] or 0.0 for route, by_name in scores.items()}
        return found.pop(str(solution_of(numbers["answers"][name][seed]))) - max(found.values())

    every = {seed: with_solution(numbers, seed) for seed in seeds_of(numbers)}
    found = {seed: [ahead(name, seed) for name in names] for seed, names in every.items()}
    worst = {seed: min(each) if each else None for seed, each in found.items()}
    best = {seed: max(each) if each else None for seed, each in found.items()}
    return Effect(worst, [("own route minus the next, worst run", worst), ("best run", best)])


def likeness(numbers: Numbers) -> Effect:
    """Figure 4 of 2405.05409: the last position in the two solutions."""
    gaps = numbers["readings"]["fusion_similarity"]["centred_gap"]

    def of(solution: str, choose: Callable[[Sequence[float]], float]) -> BySeed:
        own = {
            seed: [gaps[n][seed] for n in with_solution(numbers, seed, solution)]
            for seed in seeds_of(numbers)
        }
        return {seed: choose(found) if found else None for seed, found in own.items()}

    inferential, symmetric = of("inferential", min), of("symmetric", max)
    return Effect(
        minus(inferential, symmetric), [("inferential runs", inferential), ("symmetric", symmetric)]
    )


def condensed(numbers: Numbers) -> Effect:
    """Figure 5 of 2405.05409: the neurons of W_Q at the two initialisations."""
    cosines = numbers["readings"]["q_condensation"]["mean_abs_cosine"]
    fit = {
        name: {s: v for s, v in by_seed.items() if numbers["answers"][name][s]["train"] >= ID}
        for name, by_seed in cosines.items()
    }
    small, large = of_gamma(fit, SMALL_INIT), of_gamma(fit, LARGE_INIT)
    return Effect(minus(small, large), [("mean \\|cosine\\| at gamma 0.5", large), ("at 0.8", small)])


def growth(times: Sequence[Time]) -> float | None:
    """Time at the largest complexity over that at none, by a line through log epochs; None where censored."""
    line = slope(times)
    return None if line is None else line.factor ** max(time.complexity for time in times)


def times(numbers: Numbers) -> Effect:
    """Figure 6 of 2405.05409 and 8A of 2501.08537: how time grows with complexity, two layers."""
    every = [Time(**run) for run in numbers["runs"] if run["line"] == "2 layers"]

    def of(gamma: float) -> list[Time]:
        return [time for time in every if time.panel == f"gamma {gamma:g}"]

    def by_seed(gamma: float) -> BySeed:
        return {
            seed: growth([time for time in of(gamma) if str(time.seed) == seed]) for seed in seeds_of(numbers)
        }

    small, large = by_seed(SMALL_INIT), by_seed(LARGE_INIT)
    shown = [("times as long at gamma 0.8", small), ("at 0.5", large)]
    return Effect(minus(small, large), shown, holds=about_as_long(of(LARGE_INIT)))


def about_as_long(times: Sequence[Time]) -> bool:
    """Whether the 95% interval of the growth of time lies within a quarter of 1."""
    line = slope(times)
    most = max((time.complexity for time in times), default=0)
    return line is not None and 1 / EQUIVALENT <= line.low**most <= line.high**most <= EQUIVALENT


def eigenvalues(numbers: Numbers) -> Effect:
    """Figure 7 of 2405.05409: eigenvalues for most of the variance at the two initialisations."""
    small, large = (numbers["components"].get(f"{gamma:g}", {}) for gamma in (SMALL_INIT, LARGE_INIT))
    saved = {
        seed: None if few is None or seed not in large else 1 - few / large[seed]
        for seed, few in small.items()
    }
    return Effect(saved, [("eigenvalues at gamma 0.5", large), ("at 0.8", small)])


def over_training(numbers: Numbers) -> Effect:
    """Both papers: the lowest stable rank on the way, with the recipe."""
    rank = numbers["summary"]["stable_rank"]["recipe"]
    small, large = (
        {seed: course["least"] for seed, course in rank[f"{gamma:g}"].items()}
        for gamma in (SMALL_INIT, LARGE_INIT)
    )
    return Effect(minus(large, small), [("lowest rank at gamma 0.5", large), ("at 0.8", small)])


def learning_rate(numbers: Numbers) -> Effect:
    """Figures 14 to 16 of 2405.05409: the inferential answers at the largest rate and at the smallest."""
    own = [run for run in numbers["runs"] if run["depth"] == 2 and run["gamma"] == SMALL_INIT]
    rates = sorted({run["lr"] for run in own})

    def at(rate: float) -> dict[str, float | None]:
        fit = {str(r["seed"]): r["inferential"] for r in own if r["lr"] == rate and r["train"] >= ID}
        return {seed: fit.get(seed) for seed in seeds_of(numbers)}

    if len(rates) < 2 or rates[-1] < LARGE_RATE:  # small rates alone answer another question
        return Effect(dict.fromkeys(seeds_of(numbers)), [])
    ends = {rate: at(rate) for rate in (rates[0], rates[-1])}
    shown = [
        (f"{words} {short(rate)}", found)
        for (rate, found), words in zip(ends.items(), ("inferential at rate", "at"), strict=True)
    ]
    return Effect(minus(ends[rates[-1]], ends[rates[0]]), shown)


def id_before_ood(numbers: Numbers) -> Effect:
    """Figure 3A of 2501.08537: the gammas from which on both are answered."""
    first = numbers["accuracies"]["first_gamma"]
    of = {name: {seed: each[name] for seed, each in first.items()} for name in ("id", "ood")}
    return Effect(minus(of["ood"], of["id"]), [("ID from gamma", of["id"]), ("OOD from", of["ood"])])


def has_phase(cell: Row) -> bool:
    """Whether a cell has a phase, so that it has fit its data: anything else is undecided."""
    return cell["label"].startswith("Phase")


def _row(cells: Sequence[Row], seed: str) -> list[Row]:
    """A seed's cells along gamma at the weight decay of the recipe, of those that have a phase."""
    own = [
        cell
        for cell in cells
        if str(cell["seed"]) == seed and cell["weight_decay"] == DECAY and has_phase(cell)
    ]
    return sorted(own, key=lambda cell: cell["gamma"])


def phases(numbers: Numbers) -> Effect:
    """Figure 3B of 2501.08537: the order of the phases along gamma."""
    shares: dict[str, float | None] = {}
    for seed in seeds_of(numbers):
        found = [cell["phase"] for cell in _row(numbers["phases"]["cells"], seed)]
        pairs = [(a, b) for k, a in enumerate(found) for b in found[k + 1 :] if a != b]
        complete = {1, 2, 3} <= set(found)
        shares[seed] = fmean(a < b for a, b in pairs) if complete else None
    by_chance = dict.fromkeys(shares, 0.5)
    return Effect(minus(shares, by_chance), [("pairs of gammas in order", shares)])


def by_phase(summary: Mapping[str, Any], name: str, seeds: Sequence[str]) -> tuple[BySeed, BySeed]:
    """The median of a number in the cells of Phase 3 and in those of the other phases, seed by seed.

    Stand-ins of another architecture do not count.
    """
    labels = {
        label: found["cells"]
        for label, found in summary["by_label"].items()
        if found["source"] == "grid" and " at gamma " not in label
    }

    def of(cells: Sequence[Row]) -> BySeed:
        own = {s: [c[name] for c in cells if str(c["seed"]) == s and c[name] is not None] for s in seeds}
        return {seed: median(found) if found else None for seed, found in own.items()}

    others = [cell for label, cells in labels.items() if label != "Phase 3" for cell in cells]
    return of(labels.get("Phase 3", [])), of(others)


def clusters(numbers: Numbers) -> Effect:
    """Figure 4C of 2501.08537: clusters in Phase 2 without commutativity and with it."""
    found = numbers["key_token"]["by_label"]
    without, with_it = (
        {
            seed: found.get(f"Phase 2 {which} commutativity", {})
            .get("median_by_seed", {})
            .get("n_clusters", {})
            .get(seed)
            for seed in seeds_of(numbers)
        }
        for which in ("without", "with")
    )
    return Effect(minus(without, with_it), [("clusters without", without), ("with commutativity", with_it)])


def blocks(numbers: Numbers) -> Effect:
    """Figure 4D of 2501.08537: the raw cosine that the paper draws."""
    composing, others = by_phase(numbers["second_anchor"], "gap", seeds_of(numbers))
    return Effect(minus(composing, others), [("raw gap in Phase 3", composing), ("other phases", others)])


def condensed_in_phase_3(numbers: Numbers) -> Effect:
    """Figure 5A of 2501.08537: the rule of figure 5 of 2405.05409, by phase."""
    composing, others = by_phase(numbers["condensation"], "q_condensation.mean_abs_cosine", seeds_of(numbers))
    shown = [("mean \\|cosine\\| in Phase 3", composing), ("other phases", others)]
    return Effect(minus(composing, others), shown)


def ordered_in_phase_3(numbers: Numbers) -> Effect:
    """Figure 5B of 2501.08537: how much less order the other phases have."""
    composing, others = by_phase(numbers["embedding"], "embedding_pca.lag_order", seeds_of(numbers))
    lost = {
        seed: None if most is None or (other := others[seed]) is None else 1 - other / most
        for seed, most in composing.items()
    }
    return Effect(lost, [("order in Phase 3", composing), ("other phases", others)])


def _ends(cells: Sequence[Row], name: str, seeds: Sequence[str]) -> tuple[BySeed, BySeed]:
    """A number at the smallest and at the largest gamma of each seed's row."""
    rows = {seed: _row(cells, seed) for seed in seeds}
    smallest, largest = (
        {seed: row[end][name] if len(row) > 1 else None for seed, row in rows.items()} for end in (0, -1)
    )
    return smallest, largest


def ranks(numbers: Numbers) -> Effect:
    """Figure 5C of 2501.08537: the stable rank at both ends of the row."""
    first, last = _ends(numbers["stable_rank"]["cells"], "stable_rank.w_q", seeds_of(numbers))
    lost = {
        seed: None if rank is None or (end := last[seed]) is None else 1 - end / rank
        for seed, rank in first.items()
    }
    return Effect(lost, [("rank at the smallest gamma", first), ("at the largest", last)])


def condensed_over_the_grid(numbers: Numbers) -> Effect:
    """Figure 10 of 2501.08537: the neurons at both ends of the row."""
    first, last = _ends(numbers["cells"], "q_condensation.mean_abs_cosine", seeds_of(numbers))
    shown = [("mean \\|cosine\\| at the smallest gamma", first), ("at the largest", last)]
    return Effect(minus(last, first), shown)


def marked_pairs(numbers: Numbers) -> Effect:
    """Figure 8B of 2501.08537: the four marked pairs over their control, against the twelve."""
    found = numbers["pairs"]
    marked = {",".join(map(str, pair)) for pair in found["marked"]}
    runs = {
        str(run["seed"]): run["paired"]["ratios"]
        for run in found["summary"]
        if (run["gamma"], run["threshold"], run["reading"]) == (SMALL_INIT, MARKED_AT, "first")
    }

    def mean(ratios: Mapping[str, float | None], chosen: bool) -> float | None:
        own = [ratio for pair, ratio in ratios.items() if (pair in marked) == chosen]
        known = [ratio for ratio in own if ratio is not None]
        return fmean(known) if len(known) == len(own) else None

    four, twelve = ({seed: mean(each, chosen) for seed, each in runs.items()} for chosen in (True, False))
    return Effect(minus(four, twelve), [("over the control, the four", four), ("the twelve", twelve)])


def concept_graphs(numbers: Numbers) -> Effect:
    """Figure 6 of 2501.08537: small circles at PyTorch's own initialisation, and where circles are drawn."""
    pytorchs: dict[str, float | None] = {}
    fewest: dict[str, float | None] = {}
    circles: dict[str, float | None] = {}
    for seed in seeds_of(numbers):
        own = [cell for cell in numbers["cells"] if str(cell["seed"]) == seed]
        smaller = [cell for cell in own if cell["gamma"] > PYTORCHS]
        drawing = [cell["failure"] for cell in smaller if cell["circles"] >= HALF]
        pytorchs[seed] = next((cell["failure"] for cell in own if cell["gamma"] == PYTORCHS), None)
        fewest[seed] = min(drawing, default=None)
        circles[seed] = max(cell["circles"] for cell in own)
    shown = [("triangles at gamma 0.5", pytorchs), ("most circles at any gamma", circles)]
    return Effect(minus(pytorchs, fewest), shown)


def _settings(
    numbers: Numbers, name: str, where: Callable[[Row, Row], bool]
) -> tuple[dict[str, float | None], list[tuple[str, BySeed]]]:
    """Small initial weights with decay minus large ones without, at the size where it is least.

    Args:
        numbers: with `cells`.
        name: of the accuracy.
        where: of the two cells of a size, whether the claim can be asked of them.
    """
    least: dict[str, float | None] = {}
    whatever: dict[str, float | None] = {}
    most_known: dict[str, dict[str, float | None]] = {"large": {}, "small": {}}
    for seed in seeds_of(numbers):
        pairs = by_size([cell for cell in numbers["cells"] if str(cell["seed"]) == seed])
        found = [small[name] - large[name] for large, small in pairs if where(large, small)]
        least[seed] = min(found, default=None)
        whatever[seed] = min(small[name] - large[name] for large, small in pairs)
        most_known["large"][seed] = max(large["id"] for large, _ in pairs)
        most_known["small"][seed] = max(small["id"] for _, small in pairs)
    at_equal_size = [] if name == "id" else [("difference at equal size, for any ID", whatever)]
    words = f"best ID at gamma {short(LARGE[0])} without decay", f"at {short(SMALL[0])} with"
    return least, [*at_equal_size, *zip(words, most_known.values(), strict=True)]


def scan(numbers: Numbers) -> Effect:
    """Figure 7A of 2501.08537, where both settings know the trained kind of command."""
    return Effect(*_settings(numbers, "ood", lambda large, small: min(large["id"], small["id"]) >= ID))


def cogs(numbers: Numbers) -> Effect:
    """Figure 7B of 2501.08537, where both settings know the trained kind of sentence."""
    return Effect(*_settings(numbers, "ood", lambda large, small: min(large["id"], small["id"]) >= KNOWN))


def prontoqa(numbers: Numbers) -> Effect:
    """Figure 7E of 2501.08537, where either setting has learnt anything."""
    return Effect(*_settings(numbers, "id", lambda large, small: max(large["id"], small["id"]) > CHANCE))


def addition(numbers: Numbers) -> Effect:
    """Figure 7C of 2501.08537: the square at small initial weights and at the largest that add elsewhere."""
    before: dict[str, float | None] = {}
    after: dict[str, float | None] = {}
    for seed in seeds_of(numbers):
        own = {
            cell["gamma"]: cell["ood"]
            for cell in sorted(numbers["cells"], key=lambda cell: cell["gamma"])
            if (str(cell["seed"]), cell["split"], cell["weight_decay"]) == (seed, "square", DECAY)
            and cell["id"] >= KNOWN
        }
        before[seed] = next(iter(own.values()), None)
        after[seed] = own.get(SMALL_INIT)
    shown = [("the square at the smallest gamma that adds elsewhere", before), ("at 0.8", after)]
    return Effect(minus(after, before), shown)


def text(numbers: Numbers) -> Effect:
    """Figure 7D of 2501.08537: bits per byte at PyTorch's own initialisation and at a smaller one."""
    decay = min(cell["weight_decay"] for cell in numbers["cells"])

    def at(gamma: float) -> dict[str, float | None]:
        return {
            str(cell["seed"]): cell["validation_bits"]
            for cell in numbers["cells"]
            if (cell["gamma"], cell["weight_decay"]) == (gamma, decay)
        }

    pytorchs, smaller = at(PYTORCHS), at(SMALL_INIT)
    return Effect(minus(pytorchs, smaller), [("bits at gamma 0.5", pytorchs), ("at 0.8", smaller)])


EFFECTS: Mapping[str, Callable[[Numbers], Effect]] = {
    "C2": solutions,
    "C3": routes,
    "C4": likeness,
    "C5": condensed,
    "C6": times,
    "C7": eigenvalues,
    "training": over_training,
    "rate": learning_rate,
    "J3A": id_before_ood,
    "J3B": phases,
    "J4C": clusters,
    "J4D": blocks,
    "J5A": condensed_in_phase_3,
    "J5B": ordered_in_phase_3,
    "J5C": ranks,
    "J6": concept_graphs,
    "J7A": scan,
    "J7B": cogs,
    "J7C": addition,
    "J7D": text,
    "J7E": prontoqa,
    "J8B": marked_pairs,
    "J10": condensed_over_the_grid,
}
"""Figure -> the effect of its main claim in one network's numbers."""
