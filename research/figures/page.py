"""Writes docs/replication.md from its template and the figures' JSONs.

    python research/figures/page.py            # writes it
    python research/figures/page.py --check    # fails where it differs

The template is replication.md.jinja beside it: words by hand, every result an expression. A verdict's word
comes from the readings of the claim (claims_c.py, claims_j.py, claims_tasks.py) by the rule of readings.py.

A second network is a second JSON of the same figure, whose name has one word more
(`c2_gamma_depth_postnorm.json`, pictures alike): `networks("c2_gamma_depth")` gives both, and what the
template says of each stands within one loop.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

import numerals
import trends
from claims_c import CLAIMS as OF_2405_05409
from claims_j import CLAIMS as OF_2501_08537
from claims_tasks import CLAIMS as OF_TASKS
from readings import Reading, verdict
from sentences import sentences_of

DOCS = Path(__file__).parents[2] / "docs"
TEMPLATE = Path(__file__).parent / "replication.md.jinja"
PAGE = DOCS / "replication.md"
FIGURES = DOCS / "images/figures"

CLAIMS = {**OF_2405_05409, **OF_2501_08537, **OF_TASKS}
VARIANTS = {
    "gpt2": "`gpt2` (pre-norm, {})",
    "postnorm": "`postnorm` (post-norm, {}, true fan-in)",
    "released": "`released` (as in the released code, {})",
}
"""Variant -> what the page says of it."""
ACTIVATIONS = {"relu": "ReLU", "gelu": "GELU", "gelu_new": "GELU in its tanh form"}


so = sentences_of(TEMPLATE)


class Numbers(dict[str, Any]):
    """A figure's JSON, and of which network it is."""

    suffix: str = ""
    """What its name and its pictures' names have more than the figure's own: `_postnorm`."""


def networks(name: str, folder: Path = FIGURES, *, required: bool = True) -> list[Numbers]:
    """The JSONs of a figure: its own, and those of other networks, by name.

    Raises:
        FileNotFoundError: there is none, and one is required.
    """
    found = []
    for path in sorted(folder.glob(f"{name}*.json")):
        suffix = path.stem.removeprefix(name)
        if suffix and not suffix.startswith("_"):
            continue
        numbers = Numbers(json.loads(path.read_text(encoding="utf-8")))
        numbers.suffix = suffix
        found.append(numbers)
    if required and not found:
        raise FileNotFoundError(f"{folder} must hold {name}.json; run the figure's script")
    return found


def readings(figure: str, numbers: Numbers) -> list[Reading]:
    """What the paper says in this figure, asked of these numbers."""
    return CLAIMS[figure][1](numbers)


def word(figure: str, numbers: Numbers) -> str:
    """The verdict on one network."""
    return verdict(readings(figure, numbers))


def words(figure: str) -> str:
    """The verdict, or that of each network where there are several."""
    found = networks(CLAIMS[figure][0])
    if len(found) == 1:
        return word(figure, found[0])
    return "; ".join(f"`{variant(each)}` {word(figure, each)}" for each in found)


def variant(numbers: Numbers) -> str:
    """What a network is called: the word that its JSON's name has more, or its variant."""
    return numbers.suffix.lstrip("_") or "/".join(numbers["network"]["variant"])


def rule(numbers: Numbers, figure: str) -> str:
    """The readings as a table, a column a seed: yes, no, in how many parts, or nothing."""
    found = readings(figure, numbers)
    seeds = sorted({seed for each in found for seed in each.by_seed}, key=int)
    lines = [row("what the paper says", [f"seed {seed}" for seed in seeds]), "|---" * (len(seeds) + 1) + "|"]
    lines += [row(each.says, [_so(each.by_seed.get(seed, ())) for seed in seeds]) for each in found]
    return "\n".join(lines)


def _so(parts: Sequence[bool]) -> str:
    if len(set(parts)) > 1:
        return f"{sum(parts)} of {len(parts)}"
    return "-" if not parts else "yes" if parts[0] else "no"


def row(head: str, cells: Iterable[Any]) -> str:
    """A row of a table."""
    return f"| {' | '.join([head, *map(str, cells)])} |".replace("|cosine|", "\\|cosine\\|")


def network(numbers: Numbers, *, samples: bool = True) -> str:
    """Which network it is: variant, sizes, samples, steps, learning rate, seeds.

    Args:
        numbers: with `network` (common.py).
        samples: whether the run has a number of samples of its own.
    """
    found: Mapping[str, Sequence[Any]] = numbers["network"]

    def several(name: str, what: str) -> str:
        values = found[name]
        return f"{numerals.joined(values)} {what}{'' if values == [1] else 's'}"

    def settings(name: str) -> str:
        values = [numerals.short(value) for value in found[name]]
        return (
            f"{values[0]} to {values[-1]} ({len(values)} values)"
            if len(values) > 5
            else numerals.joined(values)
        )

    def whole(name: str) -> str:
        return numerals.joined(f"{value:,}" for value in found[name])

    model = [
        numerals.joined(
            VARIANTS[each].format(ACTIVATIONS[found["activation"][0]]) for each in found["variant"]
        ),
        several("n_layers", "layer"),
        several("n_heads", "head"),
        *(f"{name} {whole(name)}" for name in ("d_model", "d_head", "d_mlp")),
    ]
    recipe = [
        *([f"{whole('n_samples')} sequences"] if samples else []),
        f"batches of {whole('batch_size')}",
        f"{whole('total_steps')} steps",
        f"lr {settings('lr')}",
        f"weight decay {settings('weight_decay')}",
        f"gamma {settings('gamma')}",
    ]
    seeds = f"seed{'' if len(found['seed']) == 1 else 's'} {whole('seed')}"
    return f"{', '.join(model)}; {', '.join(recipe)}; {seeds}."


def others(script: str, name: str | None = None) -> str:
    """The commands that gave the other networks of a figure, a line each; they follow that of its own.

    Args:
        script: of research/figures, without its ending.
        name: of the JSON, where it is another.
    """
    lines = []
    for each in networks(name or script):
        if each.suffix:
            fields = (f"{field}={','.join(map(_plain, values))}" for field, values in each["set"].items())
            asked = f"--seed {' '.join(map(str, each['seed']))} --set {' '.join(fields)}"
            preset = "" if each["preset"] == "quick" else f"--preset {each['preset']} "
            tag = each.suffix.lstrip("_")
            lines.append(
                f"\npython research/figures/{script}.py {preset}{asked} --tag {tag} "
                "--suffix .png --out docs/images/figures"
            )
    return "".join(lines)


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def where(rows: Iterable[Mapping[str, Any]], **fields: Any) -> list[Mapping[str, Any]]:
    """The rows that have these values."""
    return [each for each in rows if all(each[name] == value for name, value in fields.items())]


def get(rows: numerals.Values, name: str) -> list[Any]:
    """One value of each row, or of each seed's."""
    return [each[name] for each in numerals.values_of(rows)]


def of(by_seed: Mapping[str, Any], seeds: Iterable[int]) -> list[Any]:
    """The values of these seeds; None where a seed has none."""
    return [by_seed.get(str(seed)) for seed in seeds]


def has(rows: Iterable[Mapping[str, Any]], name: str) -> list[Any]:
    """The different values of the rows, ascending."""
    return sorted({each[name] for each in rows})


def random_cosine(d: int) -> float:
    """Mean |cosine| of two random directions in d dimensions.

    >>> round(random_cosine(2), 4), round(random_cosine(128), 3)  # 2 / pi; nearly sqrt(2 / (pi d))
    (0.6366, 0.071)
    """
    return math.exp(math.lgamma(d / 2) - math.lgamma((d + 1) / 2)) / math.sqrt(math.pi)


def flat(stages: Mapping[str, Any]) -> dict[str, Any]:
    """Stage -> what is lost without it, where stages stand under their route too."""
    found: dict[str, Any] = {}
    for name, value in stages.items():
        inside = isinstance(value, Mapping)
        found |= {f"{name}: {stage}": lost for stage, lost in value.items()} if inside else {name: value}
    return found


def gamma(name: str) -> str:
    """The value in `gamma 0.8 (small initialisation)`."""
    return numerals.short(name.split()[1])


def written(template: Path = TEMPLATE) -> str:
    """The page."""
    environment = jinja2.Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.globals |= {"networks": networks, "verdict": words, "row": row, "so": so, "others": others}
    own = (network, rule, flat, where, get, of, has, gamma, random_cosine)
    styles = (numerals.number, numerals.short, numerals.percent, numerals.joined)
    over_seeds = (numerals.each, numerals.each_percent, numerals.one_by_one)
    over_cells = (trends.trend, trends.least, trends.difference)
    environment.filters |= {
        function.__name__: function for function in (*own, *styles, *over_seeds, *over_cells)
    }
    environment.filters |= {
        "mean": statistics.fmean,
        "solved": lambda run: f"{run['solution'] or '-'} ({numerals.short(run['lr'])})",
        "of_pair": lambda ratios, pair: ratios[pair],
        "sum_of": lambda by_seed: sum(by_seed.values()),
        "grouped": lambda count: f"{count:,}",
        "prefixed": lambda text, before: f"{before} {text}",
        "word": lambda numbers, figure: word(figure, numbers),
    }
    text = environment.from_string(template.read_text(encoding="utf-8")).render()
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"


def main() -> None:
    """Read the command line, write the page or hold it against what would be written."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail where the page differs")
    text = written()
    if not parser.parse_args().check:
        PAGE.write_text(text, encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != text:
        raise SystemExit(f"{PAGE} is not what its template gives; run python research/figures/page.py")


if __name__ == "__main__":
    main()
