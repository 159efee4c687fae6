"""Invented ontologies with a question each: the official ones, and balanced ones without the shortcut.

Source: Saparov & He, arXiv 2210.01240 (fictional ontologies, modus ponens, a linear chain); the balanced
ontology is ours.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

from anchorlens.configuration import article, check_choice, check_number

CONCEPTS = ("wumpus", "yumpus", "zumpus", "dumpus", "rompus", "numpus", "tumpus", "vumpus", "impus", "jompus")
FAMILIES = (
    ("blue", "red", "brown", "orange"),
    ("small", "large"),
    ("metallic", "wooden", "luminous", "liquid"),
    ("transparent", "opaque"),
    ("nervous", "happy", "feisty", "shy"),
    ("bright", "dull"),
    ("sweet", "sour", "spicy", "bitter"),
    ("floral", "fruity", "earthy"),
    ("hot", "cold", "temperate"),
    ("kind", "mean", "angry", "amenable", "aggressive"),
)
"""The properties; a concept has at most one of each family."""
NAMES = ("fae", "rex", "sally", "max", "alex", "sam", "polly", "stella", "wren")
WORDS = (
    *("a", "an", "are", "each", "every", "is", "not", "or", ":", ".", "true", "false"),
    *CONCEPTS,
    *(f"{concept}es" for concept in CONCEPTS),
    *itertools.chain.from_iterable(FAMILIES),
    *NAMES,
)
"""The 74 words, in lower case."""
MOST_HOPS = {"official": 5, "balanced": 4}
"""The most steps of a deduction for each ontology."""
LONGEST_PROMPT = 17 * 6 + 5 + 9
"""The number of words of the longest prompt: rules, the sentence that names the entity, and the query."""
_LONGEST_FACT, _LONGEST_STEP = 5, 6 + 5
"""The most words of a deduction: for the entity, and for each step (its rule and its conclusion)."""

Order = Literal["postorder", "preorder", "random"]

_P_NEGATED = 1 / 3
_WEIGHTS = {"parent": 1.0, "property": 0.3, "negated": 0.7}
"""The relative probabilities of the next step from a concept, when a question is drawn."""


class Node(NamedTuple):
    """A concept with a property, in a chain where the parent of each concept is the next concept."""

    concept: str
    property: str = ""
    """The property; empty for the root."""
    negated: bool = False
    """Whether the rule states that the concept does not have the property."""


class Item(NamedTuple):
    """A question (rules, a fact and a statement to judge) with its answer and its number of steps."""

    prompt: str
    """The rules, the entity, and `true or false : ...`; lower case, every mark is a separate word."""
    answer: str
    """The answer, `true` or `false`."""
    hops: int
    """The number of steps of the deduction: from concept to parent, and the last to the property."""


def most_words(ontology: str, *, with_deduction: bool) -> int:
    """Return the number of words of an ontology's longest prompt, optionally with its longest deduction."""
    return LONGEST_PROMPT + (_LONGEST_FACT + _LONGEST_STEP * MOST_HOPS[ontology]) * with_deduction


def official(hops: int, rng: random.Random, order: Order = "postorder") -> Item:
    """Draw a question of the official generator with its default options.

    Args:
        hops: the number of steps of the deduction, 1..5.
        rng: the source of all random choices.
        order: the order of the rules: `postorder` (from the entity to the root), `preorder` (from the root to
            the entity), or `random`.

    Raises:
        ValueError: If the number of steps or the order is invalid.
    """
    check_number("hops", hops, minimum=1, maximum=MOST_HOPS["official"], integer=True)
    check_choice("order", order, get_args(Order))
    while True:
        *concepts, distractor = rng.sample(CONCEPTS, len(CONCEPTS))
        chain = _chain(concepts, hops, rng)
        if walk := _walk(chain, hops, rng):
            break
    start, asked = walk
    rules = _rules(chain, rng)
    if order == "preorder":
        rules.reverse()
    elif order == "random":
        rng.shuffle(rules)
    said = _is(distractor, "", asked.property, not asked.negated, rng)
    rules.insert(rng.randrange(len(rules) + 1), said)
    return _item(rules, chain[start].concept, asked, hops, rng)


def balanced(hops: int, rng: random.Random) -> Item:
    """Draw a question whose answer depends only on reachability from the entity.

    The ontology has two chains of five concepts. The property in the query is at the same height in both
    chains, with opposite polarity. The rules are in random order, because a fixed order would distinguish the
    chains.

    Args:
        hops: the number of steps of the deduction, 1..4.
        rng: the source of all random choices.

    Raises:
        ValueError: If the number of steps is invalid.
    """
    check_number("hops", hops, minimum=1, maximum=MOST_HOPS["balanced"], integer=True)
    concepts = rng.sample(CONCEPTS, len(CONCEPTS))
    words = [rng.choice(family) for family in rng.sample(FAMILIES, 7)]
    shared = words.pop()
    start = rng.randrange(5 - hops)
    height, negated = start + hops - 1, rng.random() < 0.5
    chains = []
    for which in (0, 1):
        own = concepts[5 * which : 5 * which + 5]
        nodes = [
            Node(concept, words.pop(), rng.random() < _P_NEGATED)
            for k, concept in enumerate(own[:4])
            if k != height
        ]
        nodes.insert(height, Node(own[height], shared, negated != bool(which)))
        chains.append([*nodes, Node(own[4])])
    rules = [rule for chain in chains for rule in _rules(chain, rng)]
    rng.shuffle(rules)
    return _item(rules, chains[0][start].concept, chains[0][height], hops, rng)


def _chain(concepts: Sequence[str], hops: int, rng: random.Random) -> list[Node]:
    """Draw a chain of concepts, its root last."""
    stop = 1 / (hops + 2) / 2
    families, nodes = list(FAMILIES), [Node(concepts[0])]
    for concept in concepts[1:]:
        if rng.random() < stop:
            break
        family = families.pop(rng.randrange(len(families)))
        nodes.append(Node(concept, rng.choice(family), rng.random() < _P_NEGATED))
    return nodes[::-1]


def _walk(chain: list[Node], hops: int, rng: random.Random) -> tuple[int, Node] | None:
    """Draw the entity's concept and the concept whose property is queried; `None` for another length."""
    n_starts = len(chain) - hops  # deep enough: `hops` steps below the root
    if n_starts < 1:
        return None
    start = at = rng.randrange(n_starts)
    while True:
        node = chain[at]
        if not node.property:
            return None
        ends = _WEIGHTS["negated" if node.negated else "property"]
        if rng.random() < ends / (ends + _WEIGHTS["parent"]):
            return (start, node) if at - start + 1 == hops else None
        at += 1


def _rules(chain: list[Node], rng: random.Random) -> list[str]:
    """Write two rules for every concept but the root (its parent, its property), from the entity's end on."""
    return [
        _is(node.concept, *said, rng)
        for node, parent in itertools.pairwise(chain)
        for said in ((parent.concept, "", False), ("", node.property, node.negated))
    ]


def _is(concept: str, parent: str, property: str, negated: bool, rng: random.Random) -> str:
    """Write a rule: `wumpuses are ...`, or `each wumpus is ...`, or `every wumpus is ...`."""
    no = " not" if negated else ""
    if rng.random() < 0.5:
        return f"{concept}es are{no} {f'{parent}es' if parent else property} ."
    return f"{rng.choice(('each', 'every'))} {concept} is{no} {article(parent) if parent else property} ."


def _item(rules: list[str], concept: str, asked: Node, hops: int, rng: random.Random) -> Item:
    name, true = rng.choice(NAMES), rng.random() < 0.5
    no = " not" if asked.negated == true else ""
    query = f"true or false : {name} is{no} {asked.property} ."
    prompt = " ".join([*rules, f"{name} is {article(concept)} .", query])
    return Item(prompt, "true" if true else "false", hops)
