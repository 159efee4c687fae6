"""The reading of a file that its weights confirm, out of the readings that the file leaves open.

A reading is a choice of weights, network, input tokens, trained pairs, labels and operation.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from anchorlens.extras.grokking.operations import OPERATIONS
from anchorlens.extras.grokking.splits import labels_in, split_by_seed, splits_in
from anchorlens.extras.grokking.task import LAYOUTS, ModularTask
from anchorlens.files import LoadedModel
from anchorlens.tasks import FEWEST_TRAINED, FIT_THRESHOLD, Evaluator
from anchorlens.texts import safe_repr

_LEAST = 0.95
"""The least accuracy of a reading if the file has no log of train accuracy."""
_NEAR = 0.02
"""The largest difference below the train accuracy in the file's log."""
ASKED = tuple(name for name in OPERATIONS if name not in ("table", "random"))
_USUAL = ("a b =", "a b", "a B =", "a B")
"""The orders of tokens that are the only usual ones for their number of tokens."""
_MARKS = {"equals_token": "=", "operator_token": "op"}
"""A map from the fields of the task to the marks in its layout."""
LAST = "the last of its checkpoints"
"""What was chosen if the weights are not those that the file names."""
_MOST_MARKS = 4
"""The largest number of tokens after the numbers that may be `=` and the operator."""


class Claims(NamedTuple):
    """What a file and its user say of a run."""

    said: Mapping[str, Any]
    """The values in the file."""
    fields: Mapping[str, Any]
    """The fields of the task that the caller states."""
    moduli: Sequence[int]
    """The values that p may have."""
    sizes: tuple[int, int]
    """The numbers of tokens and of positions of the model."""
    operation: str | None
    """The operation that the file or the caller states, or None."""
    named: str | None
    """The operation in the words of the file, or None."""
    logged: float | None
    """The train accuracy in the file's log, or None."""


class FileReading(NamedTuple):
    """A reading of a file, with its accuracy."""

    found: LoadedModel
    """The network, before its task is known."""
    task: ModularTask
    """The task with its operation and input tokens."""
    pairs: Int[np.ndarray, " pair"] | None
    """The indices of the trained pairs; None if they are not known."""
    targets: Int[np.ndarray, " pair"]
    """The target of each trained pair, or else of each pair."""
    labels: str | None
    """The name of the trained labels in the file; None if the answers of the operation are the targets."""
    accuracy: float
    """The fraction of the targets that are answered."""
    rank: int
    """0 if the reading follows every statement of the file; larger for those that do not."""
    unstated: tuple[str, ...]
    """What neither the file nor the caller states, in words."""

    @property
    def is_of_its_operation(self) -> bool:
        """Whether there are enough trained pairs, with the operation's answers, to find the operation."""
        if self.pairs is None:
            return True
        is_right = self.targets == self.task.answers[self.pairs]
        return len(is_right) >= FEWEST_TRAINED and is_right.mean() >= _LEAST


def confirmed(readings: Sequence[FileReading], claims: Claims) -> tuple[FileReading, str]:
    """Return the reading that the weights confirm, and another in words, or "".

    The weights confirm a reading with the train accuracy in the file's log, or else with 0.95. A reading that
    is stated in full stands without confirmation, unless the log or another reading contradicts it.

    Args:
        readings: the readings of a file.
        claims: what the file and its user say.

    Raises:
        ValueError: If the weights confirm no reading, or several with different operations.
    """
    operation, logged = claims.operation, claims.logged
    least = _LEAST if logged is None else logged - _NEAR
    asked = [one for one in readings if one.task.operation == operation or one.is_of_its_operation]
    fit = [one for one in asked if one.accuracy >= (max(least, FIT_THRESHOLD) if one.unstated else least)]
    right = [one for one in fit if operation in (None, one.task.operation)]
    best = min(right, key=lambda one: (one.rank, -one.accuracy), default=None)
    others = [one for one in right if best and one.rank == best.rank]
    rivals = [one for one in others if best and not np.array_equal(one.task.answers, best.task.answers)]
    if best and not rivals:
        also = [", ".join(one.unstated) for one in others if one.unstated != best.unstated]
        return best, "".join(f"; also confirmed: {one}" for one in also[:1])
    stated = [one for one in readings if not (one.unstated or one.rank)]
    if stated and not fit and (logged is None or stated[0].pairs is None):
        return stated[0], ""
    shown = [best, *rivals] if best else sorted(asked, key=lambda one: -one.accuracy)
    words = [f"{one.task.operation} {one.accuracy:.4f} ({one.task.input_in_words})" for one in shown[:3]]
    got = "; ".join(dict.fromkeys(words)) or "too few trained pairs"
    of = "" if operation is None else f" of {operation}, which the file names,"
    unknown = "" if operation or not claims.named else f"{safe_repr(claims.named)} is not an operation. "
    raise ValueError(
        f"one reading{of} must fit the weights with an accuracy of at least {least:.2f}, got {got}. {unknown}"
        f'In --config, give a table [task] with kind = "modular", modulus = {claims.moduli[0]}, operation '
        'and tokens; for another operation, operation = "table" and its table'
    )


def readings_of(
    networks: Iterable[tuple[LoadedModel, tuple[str, ...]]], claims: Claims
) -> Iterator[FileReading]:
    """Yield the readings of a file by network, modulus, input, operation, form of the split, and labels.

    Args:
        networks: the networks as which the weights may be read, each with what was chosen for it in words.
        claims: what the file and its user say.

    Raises:
        ValueError: If a field or the trained pairs are invalid.
    """
    for (found, chosen), start in itertools.product(networks, [*_inputs(claims)]):
        model = found.model if found.checkpoint is None else found.checkpoint.fast_model()
        tokens = start.sequences(np.arange(start.modulus**2)).tokens
        answered, given = Evaluator(model, start, 4096).answers(tokens), splits_in(claims.said, start.modulus)
        for task in _with_operations(start, claims):
            drawn = {} if given else split_by_seed(task.pairs, answered == task.answers, claims.said)
            for k, (form, pairs) in enumerate({**given, **drawn}.items() or [("", task.pairs)]):
                unstated = (*chosen, *_unstated(task, claims))
                unstated += (f"trained pairs: {form}",) if k or drawn else ()
                labels = labels_in(claims.said, pairs, task.modulus) if form else None
                for name, targets in filter(None, (labels, (None, task.answers[pairs]))):
                    right = (answered[pairs] == targets)[targets >= 0]
                    share = float(right.sum() / max(len(right), 1))
                    rank = 4 * (LAST in chosen) + 2 * (labels is not None and name is None) + (k > 0)
                    yield FileReading(
                        found, task, pairs if form else None, targets, name, share, rank, unstated
                    )


def _inputs(claims: Claims) -> Iterator[ModularTask]:
    """Yield the tasks with each input that a model of these sizes may read, the likeliest first."""
    fields, (n_tokens, n_ctx) = claims.fields, claims.sizes
    other = "b" if claims.said.get("diff_vocab") else "B"  # of pizza: the second number has its own tokens
    known = [one for one in LAYOUTS if len(one.split()) <= n_ctx and other not in one]
    orders = [fields["tokens"]] if "tokens" in fields else sorted(known, key=len, reverse=True)
    for p, order in itertools.product(claims.moduli, orders):
        open_ = [name for name, mark in _MARKS.items() if mark in order.split() and name not in fields]
        first = p * (1 + ("B" in order))
        tokens = range(first, min(n_tokens, first + _MOST_MARKS))
        for marks in itertools.permutations(tokens, len(open_)):
            own = {} if marks == (*tokens[: len(open_)],) else dict(zip(open_, marks, strict=True))
            yield ModularTask.from_dict({"modulus": p, **fields, "tokens": order, **own})


def _with_operations(start: ModularTask, claims: Claims) -> Iterator[ModularTask]:
    """Yield the task with each operation that is defined for its modulus."""
    for operation in [claims.fields["operation"]] if "operation" in claims.fields else ASKED:
        with contextlib.suppress(ValueError):
            yield replace(start, operation=operation)


def _unstated(task: ModularTask, claims: Claims) -> Iterator[str]:
    """Yield what neither the file nor the caller states of a task, in words."""
    if task.operation != claims.operation:
        yield f"operation {task.operation}"
    if len(claims.moduli) > 1:
        yield f"modulus {task.modulus}"
    is_usual = task.tokens in _USUAL and claims.sizes == (task.d_vocab, task.seq_len)
    if not is_usual and "tokens" not in claims.fields:
        yield task.input_in_words
