"""Writes holdout/holdout.md from holdout/page.md.jinja and the table of the study, and draws its picture.

    python research/holdout_page.py            # writes both
    python research/holdout_page.py --check    # fails where the page differs
    python research/holdout_page.py --bounds   # prints the bounds that the first halves give

The template has the words, every result is an expression.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import jinja2

from anchorlens.probes.any_model.holdout import LEARNT, MEMORISED
from anchorlens.probes.shared.look_up import ABOVE_CHANCE
from holdout import analysis, any_analysis
from holdout.analysis import Row
from holdout.kinds import FIRST_HALF, KINDS, runs
from holdout.overlaps import KINDS as OVERLAPPING

DOCS = Path(__file__).parents[1] / "docs"
FOLDER = Path(__file__).parent / "holdout"
PAGE, PICTURE = FOLDER / "holdout.md", DOCS / "images/holdout.png"
TEMPLATE, OVERLAPS, AGAIN = FOLDER / "page.md.jinja", FOLDER / "overlaps.json", FOLDER / "again.json"
"""The difference of accuracies within which a look-up explains what the copies answer."""


def written(rows: Sequence[Row] | None = None) -> str:
    """The page."""
    rows = analysis.rows_of() if rows is None else rows
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {"number": number, "interval": interval, "span": span}
    parts = {
        "first": analysis.of_half(rows, first=True),
        "opened": analysis.of_half(rows[: analysis.OPENED_WITH], first=False),
        "later": analysis.of_half(rows[analysis.OPENED_WITH :], first=False),
    }
    second = analysis.decided(analysis.of_half(rows, first=False))
    n_memorised = sum(analysis.truth(row) == "memorised" for row in second)
    between = [row for row in rows if analysis.truth(row) == "between"]
    memorised = (row for row in analysis.decided(rows) if analysis.truth(row) == "memorised")
    highest = max(memorised, key=lambda row: row.get("holdout_ratio") or 0)
    template = environment.from_string(TEMPLATE.read_text("utf-8"))
    overlaps = [row for row in json.loads(OVERLAPS.read_text("utf-8")) if "holdout_ratio" in row]
    overlaps.sort(key=lambda row: (row["rule"], list(OVERLAPPING).index(row["kind"]), row["seed"]))
    random = [row for row in overlaps if not row["rule"]]
    again = json.loads(AGAIN.read_text("utf-8"))
    text = template.render(
        overlaps=overlaps,
        any=any_analysis.of_page(),
        n_random=len(random),
        wrong_by_rows=sum((row["holdout_ratio"] or 0) >= LEARNT for row in random),
        wrong_by_groups=sum((row["ratio_of_groups"] or 0) >= LEARNT for row in random),
        again=related(again),
        n_memorised_again=sum(analysis.truth(row) == "memorised" for row in again),
        n_wrong_again=sum(
            analysis.truth(row) == "memorised" and analysis.named(row) == "learnt" for row in again
        ),
        n_again=sum("part" in row and row["part"] in ("", "the rest") for row in again),
        rows=rows,
        n_planned=len(list(runs())),
        n_draws=analysis.N_DRAWS,
        scores={name: analysis.score(analysis.decided(part)) for name, part in parts.items()},
        kinds=[of_kind(kind, rows) for kind in KINDS],
        errors=[row for row in analysis.decided(rows) if analysis.named(row) != analysis.truth(row)],
        between=between,
        n_pairs=n_memorised * (len(second) - n_memorised),
        called={
            name: sum(analysis.named(row) == name for row in between) for name in ("learnt", "memorised")
        },
        most_of_memorised=highest["holdout_ratio"],
        most_memorised=f"{highest['name']}, {highest['task']}",
        MEMORISED=MEMORISED,
        LEARNT=LEARNT,
        **{name: getattr(analysis, name) for name in ("truth", "share", "named", "decided")},
    )
    return text.strip() + "\n"


def related(rows: Sequence[Row]) -> list[dict[str, object]]:
    """For each kind, how many runs that learnt are called so by rows, and by groups and look-up too."""
    counted = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        learnt = [
            row
            for row in analysis.decided(rows)
            if row["kind"] == kind and analysis.truth(row) == "learnt" and row.get("look_up") is not None
        ]
        by_rows = [row for row in learnt if analysis.named(row) == "learnt"]
        by_both = [
            row
            for row in by_rows
            if (row["related_ratio"] or 0) >= LEARNT
            and row["look_up"] <= row["related_left_out"] - ABOVE_CHANCE
        ]
        counted.append({"kind": kind, "n": len(learnt), "by_rows": len(by_rows), "by_both": len(by_both)})
    return [row for row in counted if row["n"]]


def of_kind(kind: str, rows: Sequence[Row]) -> dict[str, object]:
    """What the runs of a kind are and read."""
    own = [row for row in rows if row["kind"] == kind]
    by_truth = {
        name: [row for row in own if analysis.truth(row) == name]
        for name in ("memorised", "learnt", "between", "not fit", "close to chance")
    }
    wrong = [row for row in analysis.decided(own) if analysis.named(row) not in (None, analysis.truth(row))]
    unnamed = [row for row in analysis.decided(own) if analysis.named(row) is None]
    return {
        "kind": kind,
        "is_first": kind in FIRST_HALF,
        "n": {name: len(some) for name, some in by_truth.items()},
        "ratios": {
            name: [row["holdout_ratio"] for row in some if row.get("holdout_ratio") is not None]
            for name, some in by_truth.items()
        },
        "wrong": len(wrong),
        "unnamed": len(unnamed),
    }


def number(value: float | None) -> str:
    """Two digits.

    >>> number(0.944), number(None)
    ('0.94', '-')
    """
    return "-" if value is None else f"{value:.2f}"


def interval(found: tuple[float | None, float | None, float | None]) -> str:
    """A number with its interval.

    >>> interval((0.944, 0.9, 1.0)), interval((1.0, None, None))
    ('0.94 [0.90, 1.00]', '1.00')
    """
    value, low, high = found
    return number(value) if low is None else f"{number(value)} [{number(low)}, {number(high)}]"


def span(values: Sequence[float]) -> str:
    """Smallest and largest.

    >>> span([0.3, 0.1]), span([]), span([0.5])
    ('0.10 to 0.30', '-', '0.50')
    """
    ends = sorted({number(min(values)), number(max(values))}) if values else ["-"]
    return " to ".join(ends)


def draw(rows: Sequence[Row], path: Path = PICTURE) -> None:
    """The ratio of each run against its accuracy on fresh sequences, coloured by kind."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(12, 5.4), sharey=True)
    colours = dict(zip(KINDS, (pyplot.get_cmap("tab20")(k) for k in range(20)), strict=False))
    titles = ("kinds that fixed the bounds", "kinds opened after that")
    for place, (axis, title) in enumerate(zip(axes, titles, strict=True)):
        axis.axhspan(0, MEMORISED, color="grey", alpha=0.12, lw=0)
        axis.axhspan(LEARNT, 1.03, color="green", alpha=0.10, lw=0)
        for edge in (analysis.MEMORISED_TO, analysis.LEARNT_FROM):
            axis.axvline(edge, color="grey", lw=0.8, ls=":")
        for kind in KINDS:
            if (kind in FIRST_HALF) != (place == 0):
                continue
            own = [
                row
                for row in rows
                if row["kind"] == kind
                and row.get("holdout_ratio") is not None
                and analysis.truth(row) in ("memorised", "learnt", "between")
            ]
            points = [(max(0, min(1, analysis.share(row))), row["holdout_ratio"]) for row in own]
            if points:
                axis.scatter(*zip(*points, strict=True), s=26, color=colours[kind], label=kind, alpha=0.85)
        axis.set(title=title, xlabel="accuracy on new sequences / on training data, from chance")
        axis.set(xlim=(-0.03, 1.03), ylim=(0, 1.03))
        axis.legend(fontsize=8, loc="lower right")
    axes[0].set_ylabel("holdout_ratio")
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": None})
    pyplot.close(figure)


def main() -> None:
    """Read the command line, write or check."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the page differs")
    parser.add_argument("--bounds", action="store_true", help="print the bounds of the first halves alone")
    given = parser.parse_args()
    rows = analysis.rows_of()
    if given.bounds:
        first = analysis.decided(analysis.of_half(rows, first=True))
        print(analysis.bounds(first), analysis.score(first))
        modules = any_analysis.rows_of(any_analysis.TABLES["first"])
        print(*any_analysis.admitted(modules), sep="\n")
        for memorised in (0.75, 0.83):
            rule = any_analysis.RULE._replace(memorised=memorised)
            print(f"memorised up to {memorised:g}: {any_analysis.score(modules, rule)}")
    elif not given.check:
        PAGE.write_text(written(rows), encoding="utf-8")
        draw(rows)
    elif not PAGE.exists() or PAGE.read_text("utf-8") != written(rows):
        raise SystemExit(f"{PAGE.name} is not what its template gives; run this script without --check")


if __name__ == "__main__":
    main()
