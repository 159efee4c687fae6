"""The word of each figure, by the rules of main_claims.toml: its main claim, asked of the figures' JSONs.

An effect is one number for each seed; above zero is what the paper says. The word of a figure is that of the
paper's own architecture; what another architecture would get is said beside it and is never the word.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from scipy.stats import t

REPLICATED, RIGHT_DIRECTION, NOT = "replicated", "right direction", "not replicated"
NOT_REACHED, NOT_TESTED = "not reached", "not tested"
WORDS = (REPLICATED, RIGHT_DIRECTION, NOT, NOT_REACHED, NOT_TESTED)
"""From the best to what says nothing."""
LIST = Path(__file__).with_suffix(".toml")
"""The main claims, and the rules in words."""
FEWEST_SEEDS = 2
"""One seed is not a result."""
LEVEL = 0.05
"""Of the test that Holm's correction is for."""
OURS = "ours"
"""The `network` of a figure whose sizes and protocol the paper leaves to us."""


@dataclass(frozen=True)
class Claim:
    """The main claim of a figure: main_claims.toml says what each field is."""

    page: str
    paper: str
    figure: str
    data: str
    network: str
    picture: str
    claim: str
    effect: str
    state: str
    zone: float
    size: float
    side: Sequence[str]
    samples: int = 0
    """Sequences that the claim must be asked on at least."""


@dataclass(frozen=True)
class Effect:
    """The effect of a main claim in one network."""

    by_seed: Mapping[str, float | None]
    """Seed -> the effect; None where the seed does not reach the state that is asked about."""
    shown: Sequence[tuple[str, Mapping[str, float | None]]]
    """What it is made of: words, and a number for each seed."""
    holds: bool = True
    """What the word *replicated* wants beside the size of the effect."""

    @property
    def reached(self) -> list[float]:
        """Of the seeds that reach the state."""
        return [value for value in self.by_seed.values() if value is not None]


@dataclass(frozen=True)
class Answer:
    """What one network says to the main claim of a figure."""

    numbers: Mapping[str, Any]
    """The figure's JSON."""
    effect: Effect
    word: str
    """One of `WORDS`, never *not tested*."""


@dataclass(frozen=True)
class Outcome:
    """The word of a figure."""

    word: str
    """One of `WORDS`."""
    answer: Answer
    """That of the network that the word is of; where it was not asked, of the one with the most seeds."""
    others: Sequence[Answer]
    """Those of other architectures and widths."""

    @property
    def asked(self) -> bool:
        """Whether the word says something of the claim."""
        return self.word in (REPLICATED, RIGHT_DIRECTION, NOT)


def read(path: Path = LIST) -> dict[str, Claim]:
    """Every figure's main claim, in the order of the table."""
    return {name: Claim(**fields) for name, fields in tomllib.loads(path.read_text(encoding="utf-8")).items()}


def word_of(effect: Effect, claim: Claim) -> str:
    """The word of one network.

    >>> claim = read()["C2"]  # dead zone 0.1, size 0.5
    >>> [word_of(Effect({"0": 0.7, "1": one}, []), claim) for one in (0.5, 0.2, 0.1, None)]
    ['replicated', 'right direction', 'not replicated', 'not reached']
    """
    found = effect.reached
    if len(found) < FEWEST_SEEDS:
        return NOT_REACHED
    if effect.holds and min(found) >= claim.size:
        return REPLICATED
    return RIGHT_DIRECTION if min(found) > claim.zone else NOT


def is_own(claim: Claim, numbers: Mapping[str, Any]) -> bool:
    """Whether a JSON is of the paper's own architecture, on as many sequences as the claim wants."""
    if claim.network == OURS:
        return True
    network = numbers["network"]
    return network["variant"] == [claim.network] and min(network["n_samples"]) >= claim.samples


def outcome(claim: Claim, answers: Sequence[Answer]) -> Outcome:
    """The word of a figure, of what its networks answer.

    Args:
        claim: of the figure.
        answers: one for each network that was trained, at least one.
    """
    own = [answer for answer in answers if is_own(claim, answer.numbers)]
    if claim.network == OURS:
        reached = [answer for answer in own if answer.word != NOT_REACHED]
        chosen = max(reached, key=lambda answer: WORDS.index(answer.word)) if reached else _most_seeds(own)
        return Outcome(chosen.word if reached else NOT_TESTED, chosen, _without(answers, chosen))
    if not own:
        chosen = _most_seeds(answers)
        return Outcome(NOT_TESTED, chosen, _without(answers, chosen))
    widest = sorted(own, key=lambda answer: _size(answer.numbers["network"]), reverse=True)
    chosen = next((answer for answer in widest if answer.word != NOT_REACHED), None)
    chosen = chosen or max(widest, key=lambda answer: len(answer.effect.shown))  # what there is to see
    return Outcome(chosen.word, chosen, _without(answers, chosen))


def _size(network: Mapping[str, Any]) -> tuple[int, int]:
    """The width of a network, and how many sequences it has seen in training."""
    return max(network["d_model"]), max(network.get("total_steps", [0])) * max(network.get("batch_size", [0]))


def _most_seeds(answers: Sequence[Answer]) -> Answer:
    return max(answers, key=lambda answer: len(answer.effect.reached))


def _without(answers: Sequence[Answer], chosen: Answer) -> list[Answer]:
    return [answer for answer in answers if answer is not chosen]


def one_sided(values: Sequence[float]) -> float:
    """The p of a mean above zero by Student's t over the seeds; 1 where they have no spread.

    >>> round(one_sided([1.0, 2.0, 3.0]), 3), one_sided([1.0])  # t = 2 / (1 / sqrt 3) = 3.46, 2 degrees
    (0.037, 1.0)
    """
    spread = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    if spread == 0:
        return 1.0
    return float(t.sf(fmean(values) / spread, len(values) - 1))


def holm(p_values: Mapping[str, float], level: float = LEVEL) -> list[str]:
    """The names whose p stays below the level by Holm's correction for all of them.

    >>> holm({"a": 0.03, "b": 0.001, "c": 0.024})  # against 0.05 / 3, 0.05 / 2 and 0.05
    ['b', 'c', 'a']
    >>> holm({"a": 0.03, "b": 0.001, "c": 0.026})  # 0.026 is above 0.05 / 2, and later ones fall too
    ['b']
    """
    kept = []
    for k, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        if p >= level / (len(p_values) - k):
            break
        kept.append(name)
    return kept


def right_by_chance(n_seeds: Sequence[int]) -> float:
    """How many rows would have the right sign in every seed by chance alone, in the mean.

    >>> right_by_chance([2, 3, 3])  # 1/4 + 1/8 + 1/8
    0.5
    """
    return sum(0.5**n for n in n_seeds)
