"""A task in words: what is trained, and what is held out."""

from __future__ import annotations

import itertools
from typing import Any

from anchorlens.tasks.two_anchor.anchor_functions import formula
from anchorlens.tasks.two_anchor.sequences import Pair

_MOST_IN_WORDS = 100
"""Overrides of a task that are named."""
_MOST_EXCEPTIONS = 3
"""Exceptions of a task that are named."""
_NOTHING = "nothing, every pair is trained"
_MOST_UNSEEN = 4
"""Unseen pairs of a task that are named in a line."""


def describe(task: Any) -> str:
    """Describe the trained and the held-out data of an AnchorTask.

    >>> from anchorlens import AnchorTask
    >>> print(AnchorTask(regime="conflict").describe())
    Sequences of 9 tokens: key x in 20..99 at position 0..6, then its 2 anchors; noise in 20..99.
    Anchors: 1: x+5, 2: x+1, 3: x-2, 4: x-8.
    Trained: 15 of 16 anchor pairs; with another target than the composition: (3, 4): x-6 (composition: x-10).
    Never seen (OOD test): (4, 3), with the composition as the target.
    Held out (ID test): trained pairs where x mod 9 equals position mod 9; any noise.
    """
    named = itertools.islice(task.trained_overrides.items(), _MOST_IN_WORDS)
    others = [f"{pair}: {formula(f)} (composition: {composition(task, pair)})" for pair, f in named]
    if (more := len(task.trained_overrides) - _MOST_IN_WORDS) > 0:
        others.append(f"and {more:,} more pairs")
    other = f"; with another target than the composition: {'; '.join(others)}" if others else ""
    unseen = ", ".join(map(str, task.ood_pairs))
    trained_anchors = set(itertools.chain.from_iterable(task.seen_pairs))
    numbers = f"{task.key_min}..{task.key_max}"
    lines = [
        f"Sequences of {task.seq_len} tokens: key x in {numbers} at position 0..{task.positions[-1]}, "
        f"then its {task.chain_length} anchors; noise in {numbers}.",
        f"Anchors: {', '.join(f'{a}: {formula(f)}' for a, f in task.anchors.items())}.",
        f"Trained: {len(task.seen_pairs)} of {len(task.pairs)} anchor pairs{other}.",
        f"Never seen (OOD test): {f'{unseen}, with the composition as the target' if unseen else _NOTHING}.",
    ]
    if task.n_exceptions:
        lines.insert(3, exceptions_in_words(task))
    missing = (anchor for anchor in task.anchors if anchor not in trained_anchors)
    lines += [f"No pair with anchor {anchor} is trained: OOD cannot be inferred." for anchor in missing]
    noise = "noise obeys the training rule too" if task.noise_obeys_split else "any noise"
    m = task.modulus
    lines.append(f"Held out (ID test): trained pairs where x mod {m} equals position mod {m}; {noise}.")
    return "\n".join(lines)


def exceptions_in_words(task: Any) -> str:
    """State the number of exceptions of an AnchorTask, and describe the first three exceptions.

    >>> from anchorlens import AnchorTask
    >>> exceptions_in_words(AnchorTask(n_exceptions=1))
    'Exceptions: 1 of their (key, pair), the same in every run, on a random answer: 33 with (4, 1) -> 104.'
    """
    shown = (f"{one.key} with {one.pair} -> {one.answer}" for one in task.exceptions[:_MOST_EXCEPTIONS])
    several = task.n_exceptions > _MOST_EXCEPTIONS
    return (
        f"Exceptions: {task.n_exceptions:,} of their (key, pair), the same in every run, on a random answer"
        f"{' each, the first' if several else ''}: {', '.join(shown)}."
    )


def held_out(task: Any) -> str:
    """Describe the held-out data of an AnchorTask by its unseen pairs and the rule for keys and positions.

    >>> from anchorlens import AnchorTask
    >>> held_out(AnchorTask())
    'the pairs (3, 4) and (4, 3), nor on key x at position i where x mod 9 = i mod 9'
    """
    rule = f"key x at position i where x mod {task.modulus} = i mod {task.modulus}"
    if not task.ood_pairs:
        return rule
    named = [str(pair) for pair in task.ood_pairs[:_MOST_UNSEEN]]
    if (more := len(task.ood_pairs) - len(named)) > 0:
        named.append(f"{more:,} more")
    pairs = named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
    return f"the pair{'s' * (len(task.ood_pairs) > 1)} {pairs}, nor on {rule}"


def composition(task: Any, pair: Pair) -> str:
    """Return the composition of a pair's functions as a formula."""
    shifts = [function for anchor in pair if isinstance(function := task.anchors[anchor], int)]
    return formula(sum(shifts)) if len(shifts) == len(pair) else "g(..g(x))"
