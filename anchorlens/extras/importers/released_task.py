"""The task of a run of the papers' released code, derived from its config.json.

A run has groups of sequences. `data_name` names them; `data_mode` gives the pair of a group and its keys
(`34_xel`: x mod seq_len differs from the position; `34_xm0`: both are equal); `data_train` is 1 for trained
groups; `data_percent` gives their sizes. Source: the released code of arXiv 2501.08537.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from anchorlens.configuration import check_choice, check_number
from anchorlens.tasks import COMPLEXITY_SHIFTS, CONFLICT_SHIFT, PAPER_SHIFTS, AnchorTask, Overlap, Pair, Task
from anchorlens.texts import safe_repr

_TARGETS = ("composition", "composition_test", "composition_random", "composition_more_anchor")
_NINE_SHIFTS = {anchor: anchor - 5 for anchor in range(1, 10)}
_GROUPS = ("data_name", "data_mode", "data_train", "data_percent")
_MODE = re.compile(r"([1-9])([1-9]).*(xel|xm0)")


class Trained(NamedTuple):
    """The task and training data of a run, as its config.json describes them."""

    task: Task
    """The task, whose unseen pairs are those without a trained group."""
    overlap: Overlap | None
    """The number of trained sequences with held-out keys; None if the file does not name the groups."""
    notes: tuple[str, ...]
    """The remarks on facts that the file or the task cannot express, one line each."""
    used: frozenset[str]
    """The names of the fields that were used."""


def trained(theirs: Mapping[str, Any], given: Task | None) -> Trained:
    """Derive the task from the fields of a config.json.

    The caller must check the sizes in the config.json first.

    Args:
        theirs: the fields of the config.json.
        given: the task to use if the file does not name the pairs.

    Raises:
        ValueError: If a field is missing, or the fields contradict each other.
    """
    target: Any = theirs.get("target")
    check_choice("target", target, _TARGETS)
    for name, largest in (("data_min", "vocab_size"), ("data_max", "vocab_size"), ("seq_len", "max_pos")):
        check_number(name, theirs.get(name), minimum=0, maximum=theirs[largest], integer=True)
    sizes: dict[str, Any] = {
        "seq_len": theirs["seq_len"],
        "key_min": theirs["data_min"],
        "key_max": theirs["data_max"] - 1,  # theirs is exclusive
        "anchors": _NINE_SHIFTS if target == "composition_more_anchor" else PAPER_SHIFTS,
    }
    used = frozenset({"seq_len", "data_min", "data_max", "target"})
    if "data_train" not in theirs:
        papers = AnchorTask(**sizes)
        task, assumed = given, "those of the task that was given"
        if task is None:
            task, assumed = papers, f"all but {', '.join(map(str, papers.ood_pairs))}"
        for name in ("seq_len", "key_min", "key_max"):
            if getattr(task, name, None) != sizes[name]:
                raise ValueError(
                    f"{name} of the task must be {sizes[name]}, got {getattr(task, name, None)}. Give the "
                    "task of this model"
                )
        note = f"its training pairs (data_mode, data_train) are not given; assumed: {assumed}"
        return Trained(task, None, (note,), used)
    groups = _groups(theirs)
    pairs = {pair for pair, _ in groups}
    n_anchors = len(sizes["anchors"])
    if max(last := max(pairs, key=max)) > n_anchors:
        raise ValueError(
            f"data_mode must name pairs of the anchors 1..{n_anchors}, got {last}. Correct data_mode"
        )
    others = {pair: shift for pair, shift in _overrides(theirs, target).items() if pair in pairs}
    task = _task(sizes, pairs, others)
    notes = []
    if target == "composition" and others:
        notes.append(
            f"(3, 4) was trained on x{CONFLICT_SHIFT}, as the released code does for target 'composition'"
        )
    if len({n for (_, keys), n in groups.items() if keys == "xel"}) > 1:
        notes.append(
            "pairs were trained in different proportions (data_percent): the task has them in equal ones"
        )
    n_held_out = sum(n for (_, keys), n in groups.items() if keys == "xm0")
    overlap = Overlap(sum(groups.values()), {"id": n_held_out, "ood": 0})
    used |= {*_GROUPS, "data_size", "random_data_num", *(f"data_size_{name}" for name in theirs["data_name"])}
    return Trained(task, overlap, tuple(notes), used)


def _overrides(theirs: Mapping[str, Any], target: str) -> dict[Pair, int]:
    """Map each pair whose total shift is not the composition's to that shift, also if it is unseen."""
    if target == "composition":
        return {(3, 4): CONFLICT_SHIFT}
    if target != "composition_random":
        return {}
    n, most = theirs.get("random_data_num"), len(COMPLEXITY_SHIFTS)
    check_number("random_data_num", n, minimum=0, maximum=most, integer=True)
    return {pair: shift for (a, b), shift in COMPLEXITY_SHIFTS[:n] for pair in ((a, b), (b, a))}


def _groups(theirs: Mapping[str, Any]) -> dict[tuple[Pair, str], int]:
    """Map (pair, `xel` or `xm0`) of every trained group to its number of sequences.

    Raises:
        ValueError: If the lists do not match, or nothing is trained.
    """
    lists: dict[str, Any] = {name: theirs.get(name) for name in _GROUPS}
    n = {len(values) if isinstance(values, list) else None for values in lists.values()}
    if len(n) > 1 or None in n:
        raise ValueError(
            f"{', '.join(lists)} must be lists of equal length, got different lengths. Correct config.json"
        )
    check_number("data_size", theirs.get("data_size"), minimum=1, limit=10**12, integer=True)
    for percent in lists["data_percent"]:
        check_number("data_percent", percent, minimum=0)
    whole = sum(lists["data_percent"]) or 1.0
    found: dict[tuple[Pair, str], int] = {}
    for name, mode, is_trained, percent in zip(*lists.values(), strict=True):
        check_number("data_train", is_trained, minimum=0, maximum=1, integer=True)
        matched = _MODE.fullmatch(mode) if isinstance(mode, str) else None
        if matched is None:
            raise ValueError(
                f"data_mode must hold modes such as '34_xel' and '34_xm0', got {safe_repr(mode)}. Correct "
                "data_mode"
            )
        size = theirs.get(f"data_size_{name}", math.ceil(theirs["data_size"] * percent / whole))
        check_number(f"the size of {safe_repr(name)}", size, minimum=0, limit=10**12, integer=True)
        if is_trained and size:
            group = (int(matched[1]), int(matched[2])), matched[3]
            found[group] = found.get(group, 0) + size
    if not found:
        raise ValueError(
            "data_train must be 1 for at least one group with sequences, got none. Correct data_train"
        )
    return found


def _task(sizes: Mapping[str, Any], trained: set[Pair], overrides: Mapping[Pair, int]) -> AnchorTask:
    """Make the task with these trained pairs, under the papers' name if it has one."""
    everything = AnchorTask(**sizes, unseen_pairs=())
    unseen = [pair for pair in everything.pairs if pair not in trained]
    papers = [{"regime": "conflict"}, *({"complexity": k} for k in range(len(COMPLEXITY_SHIFTS) + 1))]
    for named in ({}, *(papers if dict(everything.anchors) == PAPER_SHIFTS else ())):
        task = AnchorTask(**sizes, **named)
        if set(task.ood_pairs) == set(unseen) and dict(task.trained_overrides) == overrides:
            return task
    return AnchorTask(**sizes, unseen_pairs=unseen, overrides=overrides or None)
