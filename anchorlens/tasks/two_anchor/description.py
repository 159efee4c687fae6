"""A task in words: what is trained, what is held out, and what a notebook shows of it."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from anchorlens.configuration import settings
from anchorlens.tasks.two_anchor.anchor_functions import Pair, formula
from anchorlens.tasks.two_anchor.sequences import marked, placed
from anchorlens.views import view

_MOST_IN_WORDS = 100
"""Overrides of a task that are named."""
_MOST_UNSEEN = 4
"""Unseen pairs of a task that are named in a line."""
_MOST_IN_GRID = 12
"""Anchors of a task whose pairs a notebook shows."""


def describe(task: Any) -> str:
    """Say in words what an AnchorTask trains and what it holds out.

    >>> from anchorlens import AnchorTask
    >>> print(AnchorTask(regime="conflict").describe())
    Sequences of 9 tokens: key x in 20..99 at position 0..6, its 2 anchors next, else noise in 20..99.
    Anchors: 1: x+5, 2: x+1, 3: x-2, 4: x-8.
    Trained: 15 of 16 anchor pairs; not on the composition: (3, 4): x-6 (composition: x-10).
    Never seen (OOD): (4, 3), asked for the composition.
    Held out (ID test): seen pairs where x mod 9 equals position mod 9; noise is free.
    """
    overrides = [
        f"{pair}: {formula(function)} (composition: {_composition(task, pair)})"
        for pair, function in itertools.islice(task.trained_overrides.items(), _MOST_IN_WORDS)
    ]
    if len(task.trained_overrides) > _MOST_IN_WORDS:
        overrides.append(f"and {len(task.trained_overrides) - _MOST_IN_WORDS:,} more pairs")
    other = f"; not on the composition: {'; '.join(overrides)}" if overrides else ""
    unseen = ", ".join(map(str, task.ood_pairs))
    trained_anchors = set(itertools.chain.from_iterable(task.seen_pairs))
    numbers = f"{task.key_min}..{task.key_max}"
    lines = [
        f"Sequences of {task.seq_len} tokens: key x in {numbers} at position 0..{task.positions[-1]}, "
        f"its {task.chain_length} anchors next, else noise in {numbers}.",
        f"Anchors: {', '.join(f'{a}: {formula(f)}' for a, f in task.anchors.items())}.",
        f"Trained: {len(task.seen_pairs)} of {len(task.pairs)} anchor pairs{other}.",
        f"Never seen (OOD): {unseen}, asked for the composition."
        if unseen
        else "Never seen (OOD): nothing, every pair is trained.",
    ]
    lines += [
        f"No pair with anchor {a} is trained: OOD cannot be inferred."
        for a in task.anchors
        if a not in trained_anchors
    ]
    noise = "noise obeys the training rule too" if task.noise_obeys_split else "noise is free"
    m = task.modulus
    lines.append(f"Held out (ID test): seen pairs where x mod {m} equals position mod {m}; {noise}.")
    return "\n".join(lines)


def held_out(task: Any) -> str:
    """What an AnchorTask leaves out of training: its unseen pairs, and the rule for keys and positions.

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


def task_view(task: Any) -> str:
    """What a notebook shows of an AnchorTask: its words, a training sequence, its pairs and its fields."""
    pair = next((pair for pair in task.seen_pairs if len(set(pair)) > 1), task.seen_pairs[0])
    allowed = task.splits.allowed("train")
    places = task.positions[allowed.any(axis=0)]
    position = places[len(places) // 2]
    keys = task.keys[allowed[:, position]]
    trials = task.product([pair], keys[len(keys) // 2 :][:1], np.array([position]))
    tokens = placed(trials, task.noise(1))[0].tolist()
    key, target = int(trials.keys[0]), int(task.targets(trials)[0])
    values = [key]
    for anchor in pair:
        values.append(task.apply(anchor, values[-1]))
    steps = " → ".join(map(str, values)) if values[-1] == target else ""
    square = task.chain_length == 2 and len(task.anchors) <= _MOST_IN_GRID
    return view(
        "task.html",
        task=task,
        lines=task.describe().split("\n"),
        example=marked(tokens, int(position), task.chain_length),
        steps=steps,
        target=target,
        grid={each: _trained_on(task, each) for each in task.pairs} if square else None,
        rows=settings(task),
    )


def _trained_on(task: Any, pair: Pair) -> tuple[str, str]:
    """What a pair is, and in words what it is trained on."""
    if pair in task.ood_pairs:
        return "unseen", "unseen"
    if pair in task.trained_overrides:
        return "other", f"{formula(task.trained_overrides[pair])}, not {_composition(task, pair)}"
    return "trained", _composition(task, pair)


def _composition(task: Any, pair: Pair) -> str:
    shifts = [function for anchor in pair if isinstance(function := task.anchors[anchor], int)]
    return formula(sum(shifts)) if len(shifts) == len(pair) else "g(..g(x))"
