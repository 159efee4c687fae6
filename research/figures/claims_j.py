"""The claims of arXiv 2501.08537 as readings of the figures' JSONs."""

from __future__ import annotations

from claims_c import times
from numerals import short
from readings import HALF, ID, IN_ORDER, OOD, RARE, Claims, Numbers, Reading, mostly, one_each, rising


def _shorter(label: str) -> str:
    """`Phase 3 at gamma 0.8` as the page writes it."""
    return " ".join(short(word) if word.startswith("0.") else word for word in label.split())


def id_before_ood(numbers: Numbers) -> list[Reading]:
    """Figure 3A of 2501.08537."""
    first = numbers["accuracies"]["first_gamma"]
    before = {
        seed: each["id"] is not None and (each["ood"] is None or each["id"] < each["ood"])
        for seed, each in first.items()
    }
    return [Reading("ID is reached at a smaller gamma than OOD", one_each(before))]


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
            "of two cells along gamma that differ, the larger gamma has the higher phase",
            rising(found["order"]),
        ),
        Reading(
            "Phase 2 comes with and without commutativity",
            one_each({s: both <= own for s, own in labels.items()}),
        ),
    ]


def clusters(numbers: Numbers) -> list[Reading]:
    """Figure 4C of 2501.08537: in most cells of each label the papers' number of clusters is the nearest."""
    return [
        Reading(
            f"{label}: {found['expected'] or 'no'} clusters, in most cells",
            {seed: [found["n_as_expected"][seed] > n / 2] for seed, n in found["n_cells_by_seed"].items()},
        )
        for label, found in numbers["key_token"]["by_label"].items()
    ]


def blocks(numbers: Numbers) -> list[Reading]:
    """Figure 4D of 2501.08537: the gap in Phase 3 against each other label."""
    found = []
    for name, others in numbers["second_anchor"]["larger"].items():
        seeds = sorted({seed for shares in others.values() for seed in shares})
        shares = {
            seed: [share for each in others.values() if (share := each[seed]) is not None] for seed in seeds
        }
        by_seed = {seed: [share >= IN_ORDER for share in own] for seed, own in shares.items()}
        found.append(Reading(f"{_shorter(name)}: blocks, compared with each label of another phase", by_seed))
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
        in_phase_3(numbers, "embedding", "the embedding is more in order"),
        Reading("each other label has less than half of that order", little),
    ]


def ranks(numbers: Numbers) -> list[Reading]:
    """Figure 5C of 2501.08537."""
    rank = numbers["stable_rank"]
    lower = {seed: None if s is None else 1 - s for seed, s in rank["phase_3_larger"].items()}
    return [
        Reading("the stable rank falls with gamma", rising(rank["along_gamma"], falls=True)),
        Reading("it falls with weight decay", rising(rank["along_weight_decay"], falls=True)),
        Reading("it is lower in Phase 3 than in the other phases", mostly(lower)),
    ]


def condensed_over_the_grid(numbers: Numbers) -> list[Reading]:
    """Figure 10 of 2501.08537."""
    cosines, groups = (numbers[f"q_condensation.{name}"] for name in ("mean_abs_cosine", "n_groups"))
    return [
        Reading("the neurons' mean |cosine| grows with gamma", rising(cosines["along_gamma"])),
        Reading("it grows with weight decay", rising(cosines["along_weight_decay"])),
        Reading(
            "where the number of groups changes, it falls with gamma",
            rising(groups["along_gamma"], falls=True),
        ),
        Reading("and with weight decay", rising(groups["along_weight_decay"], falls=True)),
    ]


def addition(numbers: Numbers) -> list[Reading]:
    """Figure 7C of 2501.08537, of the cells that there are."""
    cells = numbers["cells"]
    recipe = 0.01
    hole, control, filled = {}, {}, {}
    for seed in sorted({cell["seed"] for cell in cells}):
        own = [cell for cell in cells if cell["seed"] == seed]
        ood = {(c["split"], c["weight_decay"], c["gamma"]): c["ood"] for c in own}
        gammas = sorted(g for split, decay, g in ood if (split, decay) == ("square", recipe))
        ends = [ood["square", recipe, gamma] for gamma in (gammas[:1] + gammas[1:][-1:])]
        hole[str(seed)] = [ends[0] < OOD and ends[1] >= ID] if len(ends) > 1 else []
        control[str(seed)] = [
            v >= ID for (split, _, g), v in ood.items() if split == "random" and g in gammas
        ]
        filled[str(seed)] = [
            ood["square", 1.0, g] > OOD
            for (split, decay, g), value in ood.items()
            if (split, decay) == ("square", 0.0) and value < OOD and ("square", 1.0, g) in ood
        ]
    return [
        Reading("a hole (below .50) at the smallest gamma, none (.90) at the largest", hole),
        Reading("pairs left out at random are added at every gamma (.90)", control),
        Reading("where weight decay 0 leaves a hole, 1 fills it (above .50)", filled),
    ]


def marked_pairs(numbers: Numbers) -> list[Reading]:
    """Figure 8B of 2501.08537: the four marked pairs against the twelve, at the largest gamma."""
    found = numbers["pairs"]
    summary = [run for run in found["summary"] if run["reading"] == "first"]
    gamma = max(run["gamma"] for run in summary)
    thresholds = (min(run["threshold"] for run in summary), max(run["threshold"] for run in summary))
    readings = []
    for threshold in thresholds:
        runs = {
            str(run["seed"]): run for run in summary if (run["gamma"], run["threshold"]) == (gamma, threshold)
        }
        late = {
            seed: None if run["broken"]["p"] is None else run["broken"]["p"] < RARE
            for seed, run in runs.items()
        }
        slowed: dict[str, list[bool]] = {}
        for seed, run in runs.items():
            ratios, others = run["paired"]["ratios"], run["paired"]["others"]
            own = [ratios[",".join(map(str, pair))] for pair in found["marked"]]
            slowed[seed] = [] if others is None else [one > others for one in own if one is not None]
        where = f"to {threshold:.0%}".replace("%", " %")
        readings += [
            Reading(
                f"{where}: the four marked pairs are later than the twelve (p below .05)", one_each(late)
            ),
            Reading(f"{where}: each of the four is slowed more than the twelve, against the control", slowed),
        ]
    return readings


CLAIMS: Claims = {
    "J3A": ("j3_phases", id_before_ood),
    "J3B": ("j3_phases", phases),
    "J4C": ("j4_masking", clusters),
    "J4D": ("j4_masking", blocks),
    "J5A": ("j5_complexity", condensed_in_phase_3),
    "J5B": ("j5_complexity", ordered_in_phase_3),
    "J5C": ("j5_complexity", ranks),
    "J7C": ("j7c_addition_reversed", addition),
    "J8A": ("j8_convergence", lambda numbers: times(numbers["complexity"])),
    "J8B": ("j8_convergence", marked_pairs),
    "J10": ("j10_condensation", condensed_over_the_grid),
}
"""Figure -> the JSON with its numbers, and the readings of it."""
