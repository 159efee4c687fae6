"""Writes replication.md and the pages in replication/ beside it from templates and the figures' JSONs.

    python research/figures/page.py            # writes them
    python research/figures/page.py --check    # fails where one differs

The templates are pages/*.md.jinja beside it, `index` for the page with the table: words by hand, every result
an expression. A figure's word comes from its main claim (claims/main_claims.toml), its effect
(claims/effects.py) and the rule of claims/main_claims.py; its side claims from their readings
(claims/side_claims_*.py).

A second network is a second JSON of the same figure, whose name has one word more
(`c2_gamma_depth_postnorm.json`, pictures alike): `networks("c2_gamma_depth")` gives both, and what the
template says of each stands within one loop.
"""

from __future__ import annotations

import json
import math
import statistics
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import jinja2

from claims import main_claims
from claims.effects import EFFECTS
from claims.main_claims import Answer, Claim, Outcome
from claims.side_claims_c import CLAIMS as OF_2405_05409
from claims.side_claims_j import CLAIMS as OF_2501_08537
from claims.side_claims_j import larger
from claims.side_claims_tasks import CLAIMS as OF_TASKS
from shared import arms, numerals, pages, trends
from shared.pair_fit import seeds_together
from shared.readings import Reading
from shared.sentences import Stale

HERE = Path(__file__).parent
TEMPLATES, FOLDER = HERE / "pages", HERE / "replication"
INDEX = "index"
"""The template of replication.md; every other one is of a page in replication/."""
FIGURES = HERE.parents[1] / "docs/images/figures"
GPU = Path(__file__).parents[1] / "gpu"
"""The queue of jobs for a borrowed GPU, and what came of those that ran."""

CLAIMS = {**OF_2405_05409, **OF_2501_08537, **OF_TASKS}
"""Figure -> the readings of its side claims."""
VARIANTS = {
    "gpt2": "`gpt2` (pre-norm, {})",
    "postnorm": "`postnorm` (post-norm, {}, true fan-in)",
    "released": "`released` (as in the released code, {})",
}
"""Variant -> what a page says of it."""
ACTIVATIONS = {"relu": "ReLU", "gelu": "GELU", "gelu_new": "GELU in its tanh form"}


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


@cache
def main_claims_read() -> dict[str, Claim]:
    """Every figure's main claim."""
    return main_claims.read()


@cache
def outcome(figure: str) -> Outcome:
    """The word of a figure's main claim, and what each of its networks says."""
    claim = main_claims_read()[figure]
    answers = []
    for numbers in networks(claim.data):
        effect = EFFECTS[figure](numbers)
        answers.append(Answer(numbers, effect, main_claims.word_of(effect, claim)))
    return main_claims.outcome(claim, answers)


def with_word(word: str) -> list[str]:
    """The figures that have this word, in the order of the table."""
    return [figure for figure in main_claims_read() if outcome(figure).word == word]


def correction() -> dict[str, Any]:
    """What the number of claims makes of the words: see main_claims.toml."""
    asked = {
        figure: outcome(figure).answer.effect.reached
        for figure in main_claims_read()
        if outcome(figure).asked
    }
    zones = {figure: main_claims_read()[figure].zone for figure in asked}
    return {
        "n_asked": len(asked),
        "by_chance": main_claims.right_by_chance([len(found) for found in asked.values()]),
        "right": sum(min(found) > zones[figure] for figure, found in asked.items()),
        "kept": main_claims.holm({figure: main_claims.one_sided(found) for figure, found in asked.items()}),
    }


def right_seeds(figure: str) -> str:
    """In how many of the seeds that were trained the effect lies above the dead zone."""
    return f"{n_right(figure)} of {len(outcome(figure).answer.effect.by_seed)}"


def n_right(figure: str) -> int:
    """The number of seeds in which the effect lies above the dead zone."""
    return sum(value > main_claims_read()[figure].zone for value in outcome(figure).answer.effect.reached)


def whose(figure: str, answer: Answer) -> str:
    """Whose architecture a network has."""
    claim = main_claims_read()[figure]
    if claim.network == main_claims.OURS:
        return "ours"
    if answer.numbers["network"]["variant"] != [claim.network]:
        return "another"
    return "the paper's" if main_claims.is_own(claim, answer.numbers) else "the paper's, too few sequences"


def shown(answer: Answer) -> str:
    """What an effect is made of, seed by seed."""
    return ", ".join(
        f"{words}: {numerals.each(by_seed, None if _counts(by_seed) else 2)}"
        for words, by_seed in answer.effect.shown
    )


def _counts(by_seed: Mapping[str, float | None]) -> bool:
    """Whether numbers are counts, or medians of counts."""
    known = [value for value in by_seed.values() if value is not None]
    return all((2 * value).is_integer() for value in map(float, known)) and max(known, default=0) > 1


def size_of(answer: Answer) -> str:
    """The effect of the seeds that reach the state: of two seeds both, of more the mean and its interval."""
    found = answer.effect.reached
    if len(found) > 2 and len(set(found)) > 1:
        return numerals.mean_and_interval(found)
    return numerals.one_by_one(found)


def label(figure: str) -> str:
    """What the table calls a figure: C is 2405.05409, J 2501.08537.

    >>> label("C6"), label("rate"), label("J7C")
    ('C 6, J 8A', 'C 14-16', 'J 7C')
    """
    claim = main_claims_read()[figure]
    letter = "J" if claim.paper == "2501.08537" else "C"
    return f"{letter} {claim.figure}".replace(", 8A", ", J 8A").replace("C over", "C, J over")


def network_of(figure: str) -> str:
    """Whose network the word is of: for the table."""
    found = outcome(figure)
    numbers = found.answer.numbers
    own = numbers["network"]
    name = f"`{own['variant'][0]}` {max(own['d_model'])}" if "variant" in own else "small U-Net"
    whose_own = whose(figure, found.answer)
    if whose_own == "another":
        return f"{name}, another ({found.answer.word})"
    return name if whose_own == "the paper's" else f"{name}, {whose_own}"


def picture(figure: str) -> str:
    """The file of a figure's picture, of the network that its word is of where there is one."""
    name = main_claims_read()[figure].picture
    own = f"{name}{getattr(outcome(figure).answer.numbers, 'suffix', '')}.png"
    return own if (FIGURES / own).exists() else f"{name}.png"


def variant(numbers: Numbers) -> str:
    """What a network is called: the word that its JSON's name has more, or its variant."""
    return numbers.suffix.lstrip("_") or "/".join(numbers["network"].get("variant", ["U-Net"]))


def rule(numbers: Numbers, figure: str) -> str:
    """The side claims as a table, a column a seed: yes, no, in how many parts, or nothing."""
    found: list[Reading] = CLAIMS[figure](numbers)
    seeds = sorted({seed for each in found for seed in each.by_seed} or map(str, numbers["seed"]), key=int)
    lines = [row("side claim", [f"seed {seed}" for seed in seeds]), "|---" * (len(seeds) + 1) + "|"]
    lines += [row(each.says, [_so(each.by_seed.get(seed, ())) for seed in seeds]) for each in found]
    return "\n".join(lines)


def _so(parts: Sequence[bool]) -> str:
    if len(set(parts)) > 1:
        return f"{sum(parts)} of {len(parts)}"
    return "-" if not parts else "yes" if parts[0] else "no"


def row(head: str, cells: Iterable[Any]) -> str:
    """A row of a table."""
    return f"| {' | '.join([head, *map(str, cells)])} |".replace("|cosine|", "\\|cosine\\|")


def network(numbers: Numbers, *, samples: bool = True, more: Mapping[str, str] | None = None) -> str:
    """The settings of a network as a table: variant, sizes, samples, steps, learning rate, seeds.

    Args:
        numbers: with `network` (common.py).
        samples: whether the run has a number of samples of its own.
        more: further rows, setting -> value.
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

    variants = numerals.joined(
        VARIANTS[each].format(ACTIVATIONS[found["activation"][0]]) for each in found["variant"]
    )
    rows = {
        "variant": variants,
        "depth": f"{several('n_layers', 'layer')}, {several('n_heads', 'head')}",
        "sizes": ", ".join(f"{name} {whole(name)}" for name in ("d_model", "d_head", "d_mlp")),
        **({"training sequences": whole("n_samples")} if samples else {}),
        "batch size": whole("batch_size"),
        "training steps": whole("total_steps"),
        "learning rate": settings("lr"),
        "weight decay": settings("weight_decay"),
        "gamma": settings("gamma"),
        "seeds": whole("seed"),
        **(more or {}),
    }
    return "\n".join(["| setting | value |", "|---|---|", *(row(name, [rows[name]]) for name in rows)])


def others(script: str, name: str | None = None) -> str:
    """The commands that gave the other networks of a figure, a line each; they follow that of its own.

    Args:
        script: of research/figures, without its ending.
        name: of the JSON, where it is another.
    """
    lines, own = [], networks(name or script)[0]["preset"]
    for each in networks(name or script):
        if each.suffix:
            changed = each.get("set", {}).items()
            fields = [f"{field}={','.join(map(_plain, values))}" for field, values in changed]
            seeds = f"--seed {' '.join(map(str, each['seed']))}"
            asked = " ".join([*_options(each), seeds, *(["--set", *fields] if fields else [])])
            preset = "" if each["preset"] in ("quick", own) else f"--preset {each['preset']} "
            tag = each.suffix.lstrip("_")
            lines.append(
                f"\npython research/figures/{script}.py {preset}{asked} --tag {tag} "
                "--suffix .png --out docs/images/figures"
            )
    return "".join(lines)


def _options(network: Mapping[str, Any]) -> list[str]:
    """A script's own options that gave a network, as one would type them."""
    typed = []
    for name, value in network.get("options", {}).items():
        words = [] if value is True else map(_plain, value if isinstance(value, list) else [value])
        if value is not False and value is not None:
            typed.append(" ".join([f"--{name.replace('_', '-')}", *words]))
    return typed


def _plain(value: Any) -> str:
    """As one would type it, to the last digit: another number is another run."""
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return str(value)


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


def capital(sentence: str) -> str:
    """With a capital letter, the rest as it is.

    >>> capital("answers of Phase 3")
    'Answers of Phase 3'
    """
    return sentence[:1].upper() + sentence[1:]


def gpu_jobs() -> list[dict[str, Any]]:
    """The jobs of research/gpu/queue.toml in order; `done` is what came of one, None before it ran."""
    tables = {each["id"]: each for each in tomllib.loads((GPU / "queue.toml").read_text("utf-8"))["job"]}
    found = []
    for name, own in tables.items():
        path = GPU / "done" / f"{name}.json"
        done = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        found.append({**tables.get(own.get("like"), {}), **own, "done": done})
    return found


def waiting(queue: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Figure -> the jobs that have not run and may change its word, in the order of the table."""
    found = {
        figure: [job["id"] for job in queue if figure in job["claims"] and not job["done"]]
        for figure in main_claims_read()
    }
    return {figure: ids for figure, ids in found.items() if ids}


def job_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The networks of a job, a row for each combination of what varies beside the seed."""
    names = [name for name in rows[0] if name != "seed" and not isinstance(rows[0][name], list)]
    axes = list(rows[0])[: list(rows[0]).index("seed")] if "seed" in rows[0] else names[:1]
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for each in rows:
        groups.setdefault(tuple(each[name] for name in axes), []).append(each)
    measured = [name for name in names if name not in axes]
    lines = [row(axes[0], [*axes[1:], *measured]), "|---" * (len(axes) + len(measured)) + "|"]
    for place, own in groups.items():
        found = [_together([each[name] for each in own]) for name in measured]
        lines.append(row(str(place[0]), [*place[1:], *found]))
    return "\n".join(lines)


def _together(values: Sequence[Any]) -> str:
    """The values of the seeds: numbers as anywhere, different words with how many seeds have each."""
    if any(isinstance(value, str) for value in values):
        words = [str(value) for value in values]
        counted = [f"{word} ({words.count(word)})" for word in dict.fromkeys(words)]
        return words[0] if len(counted) == 1 else ", ".join(counted)
    whole = all(value is None or float(value).is_integer() and abs(value) > 1 for value in values)
    return numerals.each(values, 0 if whole else 2)


def environment(templates: Path = TEMPLATES) -> jinja2.Environment:
    """What the templates may use."""
    found = pages.environment(templates)
    own = (
        networks,
        row,
        gpu_jobs,
        waiting,
        job_table,
        others,
        outcome,
        with_word,
        correction,
        right_seeds,
        n_right,
        whose,
        shown,
        size_of,
        picture,
        network_of,
        larger,
        seeds_together,
    )
    found.globals |= {function.__name__: function for function in own}
    found.globals |= {"claims": main_claims_read(), "knowing": arms.KNOWING}
    of_numbers = (network, rule, variant, flat, where, get, of, has, gamma, random_cosine, capital, label)
    over_seeds = (numerals.each, numerals.each_percent, numerals.one_by_one)
    over_cells = (trends.trend, trends.least, trends.difference, trends.correlation)
    found.filters |= {function.__name__: function for function in (*of_numbers, *over_seeds, *over_cells)}
    found.filters |= {
        "mean": statistics.fmean,
        "of_pair": lambda ratios, pair: ratios[pair],
        "sum_of": lambda by_seed: sum(by_seed.values()),
        "grouped": lambda count: f"{count:,}",
        "prefixed": lambda text, before: f"{before} {text}",
    }
    return found


def written(templates: Path = TEMPLATES) -> dict[Path, str]:
    """Every page: its file, and what stands in it."""
    return dict(rendered(template) for template in sorted(templates.glob("*.md.jinja")))


def rendered(template: Path) -> tuple[Path, str]:
    """A page: its file, and what stands in it.

    Raises:
        Stale: a sentence of it is no longer what the numbers say, or no longer has its numbers.
    """
    name = template.name.removesuffix(".md.jinja")
    try:
        text = pages.rendered(template, environment(template.parent))
    except (jinja2.UndefinedError, TypeError, ValueError, ArithmeticError) as error:
        raise Stale(f"{template.name}: {error}; the numbers have another form than its words") from error
    path = HERE / "replication.md" if name == INDEX else FOLDER / f"{name}.md"
    return path, text


if __name__ == "__main__":
    templates = sorted(TEMPLATES.glob("*.md.jinja"))
    pages.write(__doc__, [partial(rendered, template) for template in templates], FOLDER)
