"""Answers to the questions without a network: forward chaining, its deduction in words, and shortcuts."""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from anchorlens.configuration import article
from anchorlens.texts import safe_repr

_SENTENCE = re.compile(r"^(?:(each|every) )?(\w+) (is|are)( not)?(?: (an?))? (\w+)$")
_QUERY = re.compile(r"^(?:true or false :|is the following statement true or false \?) (.+)$")


class Statement(NamedTuple):
    """A sentence that states that a subject has, or does not have, a property or concept."""

    text: str
    """The sentence, as in the prompt."""
    subject: str
    negated: bool
    predicate: str
    of_all: bool
    """Whether the statement is about all members of a concept, instead of an entity."""


class Question(NamedTuple):
    """A parsed prompt."""

    rules: tuple[Statement, ...]
    """The statements about concepts."""
    facts: tuple[Statement, ...]
    """The statements about the entity."""
    query: Statement
    """The statement to judge."""


def normalised(text: str) -> str:
    """Convert a published question to this task's lower-case format, with punctuation as separate words."""
    return " ".join(re.findall(r"[a-z]+|[.:?]", text.lower()))


def read_question(prompt: str) -> Question:
    """Parse a prompt.

    Raises:
        ValueError: If a sentence of the prompt has an invalid form.
    """
    *context, query = (sentence.strip() for sentence in prompt.strip(" .").split(" . "))
    match = _QUERY.match(query)
    if match is None:
        raise ValueError(
            f"a prompt must end in `true or false : ...`, got {safe_repr(query)}. Correct the prompt"
        )
    statements = list(map(_statement, context))
    rules, facts = (tuple(s for s in statements if s.of_all == of_all) for of_all in (True, False))
    return Question(rules, facts, _statement(match[1]))


def deduction(prompt: str) -> str:
    """Write the chain of thought of an answer: the entity's concept, then rules and conclusions in turn.

    Rules are written as in the prompt. For a sample of the official generator, the result equals the
    `chain_of_thought` of the sample.

    Args:
        prompt: a prompt in which the query or its opposite follows from the rules.

    Raises:
        ValueError: If neither the query nor its opposite follows, or a sentence of the prompt has an invalid
            form.

    >>> deduction("each wumpus is shy . rex is a wumpus . true or false : rex is not shy .")
    'rex is a wumpus . each wumpus is shy . rex is shy .'
    """
    chain = _deduced(prompt)
    if chain is None:
        raise ValueError(
            f"the query or its opposite must follow from the rules, got {safe_repr(prompt)}. Correct the "
            "prompt"
        )
    return " . ".join(chain) + " ."


def n_steps(prompt: str) -> int | None:
    """Count the rules that the deduction needs, or return `None` for a prompt without a deduction.

    >>> n_steps("each wumpus is shy . rex is a wumpus . true or false : rex is not shy .")
    1
    """
    try:
        return deduction(prompt).count(" .") // 2
    except ValueError:
        return None


def _of(entity: str, rule: Statement) -> str:
    """Apply a rule to an entity: `rex is not shy`, `rex is an impus`."""
    what = article(rule.predicate) if rule.predicate.endswith("pus") else rule.predicate
    return f"{entity} is{' not' if rule.negated else ''} {what}"


def _statement(sentence: str) -> Statement:
    match = _SENTENCE.match(sentence)
    if match is None:
        raise ValueError(
            f"a sentence must have the form 'X is Y', got {safe_repr(sentence)}. Correct the sentence"
        )
    quantifier, subject, verb, no, _, predicate = match.groups()
    of_all = quantifier is not None or verb == "are"
    return Statement(sentence, _singular(subject), no is not None, _singular(predicate), of_all)


def _singular(word: str) -> str:
    return word.removesuffix("es") if word.endswith("puses") else word


def by_chaining(prompt: str) -> bool | None:
    """Return whether the query is true by the rules, or `None` if the rules do not decide the query."""
    chain = _deduced(prompt)
    return None if chain is None else _statement(chain[-1]).negated == read_question(prompt).query.negated


def _deduced(prompt: str) -> list[str] | None:
    """Return the sentences that prove the query or its opposite, conclusion last; `None` if neither."""
    rules, facts, asked = read_question(prompt)
    entity = asked.subject
    chains = {(fact.predicate, fact.negated): [fact.text] for fact in facts if fact.subject == entity}
    new = set(chains)
    while new:
        reached = {
            (rule.predicate, rule.negated): [*chains[rule.subject, False], rule.text, _of(entity, rule)]
            for rule in rules
            if (rule.subject, False) in new
        }
        new = reached.keys() - chains.keys()
        chains |= {conclusion: reached[conclusion] for conclusion in new}
    return chains.get((asked.predicate, False), chains.get((asked.predicate, True)))


def by_degree(prompt: str) -> bool:
    """Apply the shortcut that follows one of the rules about the property in the query.

    The shortcut chooses the rule whose subject occurs in the most rules.
    """
    question = read_question(prompt)
    spoken_of = Counter(word for rule in question.rules for word in (rule.subject, rule.predicate))
    about = [rule for rule in question.rules if rule.predicate == question.query.predicate]
    if not about:
        return by_polarity(prompt)
    most = max(about, key=lambda rule: spoken_of[rule.subject])
    return most.negated == question.query.negated


def by_polarity(prompt: str) -> bool:
    """Apply the shortcut that classifies a query without `not` as true."""
    return not read_question(prompt).query.negated
