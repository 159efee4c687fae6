"""The side claims of arXiv 2501.08537 as readings of the figures' JSONs."""

from __future__ import annotations

from shared.numerals import short
from shared.ordering import share_above
from shared.readings import HALF, ID, IN_ORDER, OOD, Claims, Numbers, Reading, mostly, one_each, rising


def _shorter(label: str) -> str:
    """`Phase 3 at gamma 0.8` as the page writes it."""
    return " ".join(short(word) if word.startswith("0.") else word for word in label.split())


def memorised(numbers: Numbers) -> list[Reading]:
    """Figure 3A of 2501.08537: what comes before held-out keys are answered has fit its training data."""
    decay = numbers["accuracies"]["weight_decay"]
    labels: dict[str, list[str]] = {}
    for cell in numbers["phases"]["cells"]:
        if cell["weight_decay"] == decay:
            labels.setdefault(str(cell["seed"]), []).append(cell["label"])
    there: dict[str, bool | None] = {seed: "Phase 1" in own for seed, own in labels.items()}
    return [Reading("some gamma is in Phase 1: only the training data are fit", one_each(there))]


def phases(numbers: Numbers) -> list[Reading]:
    """Figure 3B of 2501.08537."""
    found = numbers["phases"]
    labels: dict[str, set[str]] = {seed: set() for seed in found["order"]}
    all_three: dict[str, list[bool]] = {seed: [] for seed in found["order"]}
    for cell in found["cells"]:
        labels[str(cell["seed"])].add(cell["label"])
    for row in found["rows"]:
        all_three[str(row["seed"])].append(row["has_all_three"])
    both = {"Phase 2 with commutativity", "Phase 2 without commutativity"}
    return [
        Reading("every weight decay has Phases 1, 2 and 3 along gamma", all_three),
        Reading(
            "Phase 2 comes with and without commutativity",
            one_each({s: both <= own for s, own in labels.items()}),
        ),
    ]


def clusters(numbers: Numbers) -> list[Reading]:
    """Figure 4C of 2501.08537: in most cells of each label the paper's number of clusters is the nearest."""
    return [
        Reading(
            f"{label}: {found['expected'] or 'no'} clusters, in most runs",
            {seed: [found["n_as_expected"][seed] > n / 2] for seed, n in found["n_cells_by_seed"].items()},
        )
        for label, found in numbers["key_token"]["by_label"].items()
        if "expected" in found
    ]


def larger(numbers: Numbers, reading: str) -> dict[str, dict[str, dict[str, float | None]]]:
    """Figure 4D of 2501.08537: the cells of Phase 3, all or some, against those of each other label.

    Returns:
        Cells of Phase 3 -> other label -> by seed the share of the pairs in which Phase 3 has more, 0..1.
        Stand-ins of another architecture are not compared with.
    """
    gaps: dict[str, dict[str, list[float]]] = {}
    for label, found in numbers["second_anchor"]["by_label"].items():
        for cell in found["cells"] if found["source"] == "grid" else ():
            gaps.setdefault(label, {}).setdefault(str(cell["seed"]), []).append(cell[reading])
    composing = [label for label in gaps if label.startswith("Phase 3")]
    return {
        one: {
            other: {seed: share_above(gaps[one][seed], gaps[other].get(seed, [])) for seed in gaps[one]}
            for other in gaps
            if other not in composing
        }
        for one in composing
    }


def blocks(numbers: Numbers) -> list[Reading]:
    """Figure 4D of 2501.08537: the raw and the centred gap in Phase 3 against each other label."""
    found = []
    for words, reading in (("raw", "gap"), ("centred", "centred_gap")):
        for name, others in larger(numbers, reading).items():
            seeds = next(iter(others.values()))
            by_seed = {
                seed: [s >= IN_ORDER for each in others.values() if (s := each[seed]) is not None]
                for seed in seeds
            }
            says = f"{_shorter(name)}: blocks, compared with each label of another phase, {words} cosine"
            found.append(Reading(says, by_seed))
    return found


def in_phase_3(numbers: Numbers, name: str, words: str) -> Reading:
    """A number that is larger in Phase 3 than in the others."""
    return Reading(f"{words} in Phase 3 than in the other phases", mostly(numbers[name]["phase_3_larger"]))


def condensed_in_phase_3(numbers: Numbers) -> list[Reading]:
    """Figure 5A of 2501.08537."""
    return [in_phase_3(numbers, "condensation", "the neurons' mean |cosine| is larger")]


def ordered_in_phase_3(numbers: Numbers) -> list[Reading]:
    """Figure 5B of 2501.08537."""
    medians = {
        label: next(iter(found["median_by_seed"].values()))
        for label, found in numbers["embedding"]["by_label"].items()
    }
    composing = medians.pop("Phase 3", {})
    little = {
        seed: [own[seed] < HALF * most for own in medians.values() if own.get(seed) is not None]
        for seed, most in composing.items()
    }
    return [
        in_phase_3(numbers, "embedding", "the embedding has more order"),
        Reading("each other label has less than half of that order", little),
    ]


def ranks(numbers: Numbers) -> list[Reading]:
    """Figure 5C of 2501.08537."""
    rank = numbers["stable_rank"]
    lower = {seed: None if s is None else 1 - s for seed, s in rank["phase_3_larger"].items()}
    return [
        Reading("the stable rank falls with gamma", rising(rank["along_gamma"], falls=True)),
        Reading("the stable rank falls with weight decay", rising(rank["along_weight_decay"], falls=True)),
        Reading("the stable rank is lower in Phase 3 than in the other phases", mostly(lower)),
    ]


def condensed_over_the_grid(numbers: Numbers) -> list[Reading]:
    """Figure 10 of 2501.08537."""
    cosines, groups = (numbers[f"q_condensation.{name}"] for name in ("mean_abs_cosine", "n_groups"))
    return [
        Reading("the neurons' mean |cosine| grows with gamma", rising(cosines["along_gamma"])),
        Reading("the neurons' mean |cosine| grows with weight decay", rising(cosines["along_weight_decay"])),
        Reading(
            "where the number of groups changes, the number falls with gamma",
            rising(groups["along_gamma"], falls=True),
        ),
        Reading(
            "where the number of groups changes, the number falls with weight decay",
            rising(groups["along_weight_decay"], falls=True),
        ),
    ]


def addition(numbers: Numbers) -> list[Reading]:
    """Figure 7C of 2501.08537, of the cells that there are."""
    cells = numbers["cells"]
    control, filled = {}, {}
    for seed in sorted({cell["seed"] for cell in cells}):
        own = [cell for cell in cells if cell["seed"] == seed]
        ood = {(c["split"], c["weight_decay"], c["gamma"]): c["ood"] for c in own}
        gammas = {g for split, _, g in ood if split == "square"}
        control[str(seed)] = [
            v >= ID for (split, _, g), v in ood.items() if split == "random" and g in gammas
        ]
        filled[str(seed)] = [
            ood["square", 1.0, g] > OOD
            for (split, decay, g), value in ood.items()
            if (split, decay) == ("square", 0.0) and value < OOD and ("square", 1.0, g) in ood
        ]
    return [
        Reading("sums held out at random are correct at every gamma (0.90)", control),
        Reading("where weight decay 0 leaves a hole, weight decay 1 fills it (above 0.50)", filled),
    ]


def marked_pairs(numbers: Numbers) -> list[Reading]:
    """Figure 8B of 2501.08537: each marked pair over its control against the twelve, at the largest gamma."""
    found = numbers["pairs"]
    summary = [run for run in found["summary"] if run["reading"] == "first"]
    gamma = max(run["gamma"] for run in summary)
    readings = []
    for threshold in sorted({run["threshold"] for run in summary}):
        slowed: dict[str, list[bool]] = {}
        for run in summary:
            if (run["gamma"], run["threshold"]) == (gamma, threshold):
                ratios, others = run["paired"]["ratios"], run["paired"]["others"]
                own = [ratios[",".join(map(str, pair))] for pair in found["marked"]]
                slowed[str(run["seed"])] = (
                    [] if others is None else [one > others for one in own if one is not None]
                )
        where = f"to {threshold:.0%}"
        words = f"{where}: against the control, each of the four is slowed more than the mean of the twelve"
        readings.append(Reading(words, slowed))
    return readings


CLAIMS: Claims = {
    "J3A": memorised,
    "J3B": phases,
    "J4C": clusters,
    "J4D": blocks,
    "J5A": condensed_in_phase_3,
    "J5B": ordered_in_phase_3,
    "J5C": ranks,
    "J7C": addition,
    "J8B": marked_pairs,
    "J10": condensed_over_the_grid,
}
"""Figure -> the readings of its JSON."""
