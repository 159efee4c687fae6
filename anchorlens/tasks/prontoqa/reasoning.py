"""What answers these questions without a network: forward chaining, and shortcuts."""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from anchorlens.foreign import shown

_SENTENCE = re.compile(r"^(?:(each|every) )?(\w+) (is|are)( not)?(?: (an?))? (\w+)$")
_QUERY = re.compile(r"^(?:true or false :|is the following statement true or false \?) (.+)$")


class Statement(NamedTuple):
    """A sentence: something is, or is not, something."""

    subject: str
    negated: bool
    predicate: str
    of_all: bool
    """Whether it is of every one of a concept, and not of an entity."""


class Question(NamedTuple):
    """A prompt, read."""

    rules: tuple[Statement, ...]
    """Of concepts."""
    facts: tuple[Statement, ...]
    """Of the entity."""
    query: Statement
    """Is it true?"""


def normalised(text: str) -> str:
    """A published question as this task writes them: lower case, every mark a word of its own."""
    return " ".join(re.findall(r"[a-z]+|[.:?]", text.lower()))


def read_question(prompt: str) -> Question:
    """Read a prompt.

    Raises:
        ValueError: a sentence of another form.
    """
    *context, query = [sentence.strip() for sentence in prompt.strip(" .").split(" . ")]
    asked = _QUERY.match(query)
    if asked is None:
        raise ValueError(f"a prompt must end in `true or false : ...`, got {shown(query)}")
    statements = [_statement(sentence) for sentence in context]
    rules = tuple(one for one in statements if one.of_all)
    return Question(rules, tuple(one for one in statements if not one.of_all), _statement(asked[1]))


def _statement(sentence: str) -> Statement:
    found = _SENTENCE.match(sentence)
    if found is None:
        raise ValueError(f"a sentence must say that something is something, got {shown(sentence)}")
    quantifier, subject, verb, no, _, predicate = found.groups()
    of_all = quantifier is not None or verb == "are"
    return Statement(_singular(subject), no is not None, _singular(predicate), of_all)


def _singular(word: str) -> str:
    return word.removesuffix("es") if word.endswith("puses") else word


def by_chaining(prompt: str) -> bool | None:
    """What follows from the rules: whether the query is true; None where nothing does."""
    question = read_question(prompt)
    known = {
        (fact.predicate, fact.negated) for fact in question.facts if fact.subject == question.query.subject
    }
    while True:
        new = {
            (rule.predicate, rule.negated)
            for rule in question.rules
            if (rule.subject, False) in known and (rule.predicate, rule.negated) not in known
        }
        if not new:
            break
        known |= new
    asked = question.query
    for negated in (False, True):
        if (asked.predicate, negated) in known:
            return negated == asked.negated
    return None


def by_degree(prompt: str) -> bool:
    """A shortcut: of the rules about the property, trust the one whose subject stands in more rules."""
    question = read_question(prompt)
    spoken_of = Counter(word for rule in question.rules for word in (rule.subject, rule.predicate))
    about = [rule for rule in question.rules if rule.predicate == question.query.predicate]
    if not about:
        return by_polarity(prompt)
    most = max(about, key=lambda rule: spoken_of[rule.subject])
    return most.negated == question.query.negated


def by_polarity(prompt: str) -> bool:
    """A shortcut: a query without `not` is true."""
    return not read_question(prompt).query.negated
