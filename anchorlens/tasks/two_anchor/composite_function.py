"""A two-anchor composite function, what is trained of it, and its sequences.

A sequence holds one key token x, an anchor pair right after it, and noise everywhere else. Each anchor is a
function of one number, and the target is their composition, f(x; a1, a2) = g(g(x; a1); a2). Sources: Zhang et
al., arXiv 2501.08537 (the `reasoning` regime) and 2405.05409 (the `conflict` regime).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from anchorlens.configuration import frozen_dataclass, number
from anchorlens.randomness import generator
from anchorlens.tasks.shared.base import TaskConfig
from anchorlens.tasks.two_anchor import anchor_functions as functions
from anchorlens.tasks.two_anchor.anchor_functions import AnchorFunction, FrozenDict, Kind, Targets
from anchorlens.tasks.two_anchor.sequences import AnchorBatch, LazyDataset, Pair, Split, Splits, Trials
from anchorlens.texts import safe_repr

if TYPE_CHECKING:
    from jaxtyping import Bool, Int


_LARGEST_KEY = 10_000_000
_MOST_TARGETS = 2_000_000
"""How large a key and a task's table of targets may be, so that tables stay in memory."""
_MOST_DIGITS = 12
"""Digits of an integer that is read from a key of a file."""


@frozen_dataclass()
class CompositeFunction(TaskConfig):
    """A composite function, the splits of its inputs, and its sequences. `AnchorTask` adds the evaluation."""

    anchors: Mapping[int, AnchorFunction] = field(default_factory=lambda: dict(functions.PAPER_SHIFTS))
    """The function of each anchor token. An integer is a shift, and a mapping is a table of results. A
    callable takes one integer."""
    chain_length: int = number(2, minimum=2, limit=1000)
    """Number of anchors per sequence, at least 2 (2 in the papers)."""
    key_min: int = number(20, minimum=0, limit=_LARGEST_KEY)
    """Smallest number token."""
    key_max: int = number(99, minimum=lambda task: task.key_min, limit=_LARGEST_KEY)
    """Largest number token (inclusive)."""
    seq_len: int = number(9, minimum=lambda task: task.chain_length + 1, limit=100_000)
    """Number of tokens per sequence, called n in the papers."""
    regime: Literal["reasoning", "conflict"] = "reasoning"
    """The rule that selects the unseen anchor pairs. With `reasoning`, both orders of the two largest
    anchors are held out (arXiv 2501.08537). With `conflict`, one order is held out, and the other order is
    trained on a target that is not the composition (arXiv 2405.05409)."""
    complexity: int | None = number(None, minimum=0, maximum=6)
    """Reasoning complexity, from 0 to 6. The complexity is the number of groups of pairs that are trained on
    a symmetric shift instead of the composition. If `complexity` is set, every pair is trained. Default: the
    targets of the regime."""
    unseen_pairs: Sequence[Pair] | None = None
    """Pairs that are held out of training. Default: the held-out pairs of the regime. The property
    `ood_pairs` lists all held-out pairs."""
    overrides: Mapping[Pair, AnchorFunction] | None = None
    """Pairs that are trained on another function of the key than the composition. An integer is a shift of
    the key. The given overrides are added to the overrides of the regime. The property `trained_overrides`
    lists all overrides."""
    split_modulus: int | None = number(None, minimum=2, limit=_LARGEST_KEY)
    """Modulus m of the split. A training sequence has key x at position i only if x mod m and i mod m differ.
    Default: seq_len."""
    noise_obeys_split: bool = False
    """Whether noise tokens also obey the split, as in arXiv 2501.08537. In the released code, only the key
    obeys the split."""
    n_exceptions: int = number(0, minimum=0, limit=_MOST_TARGETS)
    """Number of exceptions. An exception is a combination of a key and a trained pair with a random target.
    The target is the same at every position of the key. Every run uses the same exceptions, and every larger
    set of exceptions contains every smaller set."""

    def __post_init__(self) -> None:
        """Check every field and what follows from them, and tabulate the callables."""
        super().__post_init__()
        anchors = functions.ascending(self.anchors, self.key_min, self.key_max)
        _check_size(len(anchors), self.chain_length, self.key_max - self.key_min + 1, self.seq_len)
        checked: dict[str, Any] = {"anchors": functions.tabulated(anchors, self.keys, self.chain_length)}
        if self.unseen_pairs is not None:
            checked["unseen_pairs"] = functions.distinct_pairs(self.unseen_pairs, anchors, self.chain_length)
        if self.overrides is not None:
            checked["overrides"] = functions.tabulated_overrides(
                self.overrides, anchors, self.keys, self.chain_length
            )
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        splits, _ = self.splits, self._targets  # which check pairs, places, answers and exceptions
        if overlap := set(self.trained_overrides) & set(self.ood_pairs):
            raise ValueError(
                f"a pair must not be in both overrides and unseen_pairs, got {min(overlap)}. Remove the pair "
                "from overrides or unseen_pairs"
            )
        if self.noise_obeys_split and not splits.allowed("train").any(axis=0).all():
            raise ValueError(
                "with noise_obeys_split, every position must have at least 1 noise token, got a position "
                "with 0. Widen the key range"
            )

    @cached_property
    def keys(self) -> Int[np.ndarray, " key"]:
        """Every number token, ascending."""
        return np.arange(self.key_min, self.key_max + 1)

    @cached_property
    def positions(self) -> Int[np.ndarray, " position"]:
        """Every possible position of the key, 0 .. seq_len - 1 - chain_length."""
        return np.arange(self.seq_len - self.chain_length)

    @property
    def modulus(self) -> int:
        """The modulus m of the splits: `split_modulus`, or by default the length of a sequence."""
        return self.seq_len if self.split_modulus is None else self.split_modulus

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """Every ordered anchor pair (chain), trained or unseen."""
        return tuple(itertools.product(self.anchors, repeat=self.chain_length))

    @cached_property
    def ood_pairs(self) -> tuple[Pair, ...]:
        """The pairs that are not trained: `unseen_pairs`, or by default the unseen pairs of the regime."""
        return tuple(self._regime[0] if self.unseen_pairs is None else self.unseen_pairs)

    @cached_property
    def seen_pairs(self) -> tuple[Pair, ...]:
        """The pairs that are trained."""
        unseen = set(self.ood_pairs)
        return tuple(pair for pair in self.pairs if pair not in unseen)

    @cached_property
    def trained_overrides(self) -> Mapping[Pair, AnchorFunction]:
        """A map from each pair that is trained on another function than the composition to this function."""
        return FrozenDict({**self._regime[1], **(self.overrides or {})})

    @cached_property
    def composed_pairs(self) -> list[Pair]:
        """The pairs that are trained on the composition, apart from single exceptions."""
        return [pair for pair in self.seen_pairs if pair not in self.trained_overrides]

    @cached_property
    def commutes(self) -> bool:
        """Whether the composition of any two anchors is the same in both orders, for every key."""
        reverse = self.pair_index(np.array(self.pairs)[:, ::-1])
        return bool((self._targets.inferential == self._targets.inferential[reverse]).all())

    @property
    def in_conflict(self) -> bool:
        """Whether the reversed pair of an unseen pair is trained on another function than the composition.

        The property is true in the regime `conflict`. A model can then answer the unseen pair by the
        composition or by symmetry. A verdict states which solution the model uses.
        """
        return any(pair[::-1] in self.trained_overrides for pair in self.ood_pairs)

    @cached_property
    def _regime(self) -> tuple[Sequence[Pair], Mapping[Pair, AnchorFunction]]:
        return functions.unseen_and_overrides(self.regime, self.complexity, self.anchors, self.pairs)

    @cached_property
    def splits(self) -> Splits:
        """The splits `train`, `id` and `ood`, with their pairs and with the allowed positions of each key."""
        return Splits(self.keys, self.positions, self.modulus, self.seen_pairs, self.ood_pairs)

    @cached_property
    def _targets(self) -> Targets:
        targets = Targets(self.anchors, self.trained_overrides, self.keys, self.chain_length)
        if self.n_exceptions:
            trained = self.keys[self.splits.allowed("train").any(axis=1)]
            functions.put_exceptions(targets, self.n_exceptions, np.array(self.seen_pairs), trained)
        return targets

    @property
    def exceptions(self) -> tuple[functions.MemorisedException, ...]:
        """The key, pair and answer of every exception, in the order of `put_exceptions`."""
        rows, keys, answers = (part.tolist() for part in self._targets.exceptions)
        return tuple(map(functions.MemorisedException, keys, (self.pairs[row] for row in rows), answers))

    @cached_property
    def exception_trials(self) -> Trials:
        """Every exception at every trained position of its key, in the order of `put_exceptions`."""
        rows, keys, _ = self._targets.exceptions
        exception, position = np.nonzero(self.splits.allowed("train")[keys - self.key_min])
        pairs = np.array(self.pairs, dtype=np.int64).reshape(-1, self.chain_length)
        return Trials(pairs[rows[exception]], keys[exception], self.positions[position])

    @cached_property
    def d_vocab(self) -> int:
        """The size of the smallest vocabulary that holds every token and every target."""
        tables = self._targets
        return int(max(tables.inferential.max(), tables.ruled.max(), self.key_max, *self.anchors)) + 1

    def apply(self, anchor: int, x: int) -> int:
        """Return g(x; anchor), the result of an anchor's function for the value x.

        Raises:
            ValueError: If the anchor is unknown, or its table does not contain the value.
        """
        function = self.anchors.get(anchor)
        if isinstance(function, int):
            return x + function
        if not isinstance(function, Mapping) or x not in function:
            raise ValueError(
                f"anchor must be one of {safe_repr(list(self.anchors))} and x a value that the task reaches, "
                f"got {safe_repr(anchor)} and {safe_repr(x)}"
            )
        return function[x]

    def inferential_target(self, key: int, pair: Sequence[int]) -> int:
        """Return the composition f(x; a1, ..) = g(..g(x; a1)..), which may differ from the trained target.

        Raises:
            ValueError: If the task does not have the key or the pair.
        """
        return self._targets.one(key, pair, "inferential")

    def target(self, key: int, pair: Sequence[int]) -> int:
        """Return the target that training uses for a key and pair, or would use for an unseen pair.

        The target is the answer of an exception for this key and pair, if the task has one. Otherwise, the
        target is the override of the pair if an override exists, and else the composition f.

        Raises:
            ValueError: If the task does not have the key or the pair.
        """
        return self._targets.one(key, pair, "trained")

    def targets(self, trials: Trials, *, kind: Kind = "trained") -> Int[np.ndarray, " trial"]:
        """Return the targets of many trials at once.

        Args:
            trials: the trials, with their pairs and keys.
            kind: the kind of target. `trained` applies overrides and exceptions, and `inferential` is the
                composition f. `mirrored` is the target of the reversed pair without exceptions, the symmetric
                solution of arXiv 2405.05409.

        Raises:
            ValueError: If a key does not belong to the task.
        """
        return self._targets.of(trials, kind)

    def is_exception(self, trials: Trials) -> Bool[np.ndarray, " trial"]:
        """Return a boolean array, true where the key and pair of a trial are an exception.

        The keys must be keys of the task.
        """
        places, tables = (self.pair_index(trials.pairs), trials.keys - self.key_min), self._targets
        return np.asarray(tables.trained[places] != tables.ruled[places])

    def answered_by_symmetry(self, trials: Trials) -> Bool[np.ndarray, " trial"]:
        """Return a boolean array, true where another trained order of an unseen pair has the correct target.

        The correct target is the composition of the unseen pair. The OOD test excludes trials with this
        property, because a correct answer to them does not show that a model composes.
        """
        return self._symmetric[self.pair_index(trials.pairs), trials.keys - self.key_min]

    @cached_property
    def _symmetric(self) -> Bool[np.ndarray, "pair key"]:
        return self._targets.answered_by_symmetry(self.pair_index(self.ood_pairs))

    def pair_index(self, pairs: Int[np.ndarray, "trial k"] | Sequence[Pair]) -> Int[np.ndarray, " trial"]:
        """Return the index of each pair in the property `pairs`. The anchors must be anchors of the task."""
        return self._targets.rows(np.asarray(pairs, dtype=np.int64).reshape(-1, self.chain_length))

    def trials(self, split: Split) -> Trials:
        """Return every trial (pair, key, position) of a split once, in a fixed order.

        A trained pair with key x at position i is in the split `train` if x and i differ modulo m, and
        otherwise in `id`. The split `ood` contains the unseen pairs, with every key at every position. No two
        splits share a trial.

        Raises:
            ValueError: If the split is unknown.
        """
        return self.some_trials(split, np.arange(self.n_trials(split)))

    def n_trials(self, split: Split) -> int:
        """Return the number of `trials` of a split, without making the trials."""
        return self.splits.size(split)

    def some_trials(self, split: Split, which: Int[np.ndarray, " trial"]) -> Trials:
        """Return the trials of a split with the indices `which`, without making all trials."""
        return self.splits.trials(split, which)

    def product(
        self, pairs: Sequence[Pair], keys: Int[np.ndarray, " place"], positions: Int[np.ndarray, " place"]
    ) -> Trials:
        """Return a trial for every pair at every entry of the parallel arrays `keys` and `positions`."""
        n, table = len(pairs), np.array(pairs, dtype=np.int64).reshape(-1, self.chain_length)
        return Trials(np.repeat(table, len(keys), axis=0), np.tile(keys, n), np.tile(positions, n))

    def sample(self, n: int, *, split: Split = "train", seed: int = 0) -> AnchorBatch:
        """Draw `n` sequences with uniform pairs and positions, and then uniform keys among the allowed keys.

        Args:
            n: the number of sequences, at least 1.
            split: the split `train`, `id` or `ood` (see `trials`).
            seed: the seed of all random draws.

        Returns:
            A batch of tokens [n, seq_len] and targets [n]. The targets for `ood` are the inferential targets.

        Raises:
            ValueError: If `n` < 1, or the split is unknown or empty.
        """
        return self.lazy_sample(n, split=split, seed=seed).all()

    def lazy_sample(self, n: int, *, split: Split = "train", seed: int = 0) -> LazyDataset:
        """Return the sequences of `sample`, drawn on demand without holding all sequences in memory."""
        return LazyDataset(self, n, split, np.random.default_rng(seed))

    def sequences(self, trials: Trials, seed: int = 0) -> AnchorBatch:
        """Return one sequence for each trial, with noise from the seed and the targets that `sample` uses."""
        return self.place(trials, self.noise(len(trials), np.random.default_rng(seed)))

    def noise(self, n: int, rng: np.random.Generator) -> Int[np.ndarray, "batch pos"]:
        """Draw noise tokens for every position of `n` sequences, before key and anchors are placed."""
        if not self.noise_obeys_split:
            return rng.integers(self.key_min, self.key_max + 1, (n, self.seq_len))
        where = np.arange(self.seq_len)
        return self.splits.some_keys(rng, self.splits.obeys_rule(where), np.tile(where, (n, 1)))

    def place(self, trials: Trials, noise: Int[np.ndarray, "batch pos"]) -> AnchorBatch:
        """Write the key and the anchors of `trials` into a copy of the `noise` tokens."""
        import torch

        tokens, row = noise.astype(np.int64), np.arange(len(trials))
        tokens[row, trials.positions] = trials.keys
        for place, anchors in enumerate(trials.pairs.T, start=1):
            tokens[row, trials.positions + place] = anchors
        targets = torch.from_numpy(self.targets(trials))  # no unseen pair has an override
        return AnchorBatch(torch.from_numpy(tokens), targets, trials)

    @property
    def table_size(self) -> int:
        """The number of targets, one for every pair and key."""
        return len(self.pairs) * len(self.keys)

    def training_set(self, n: int, seed: int) -> AnchorBatch:
        """Draw `n` sequences of the split `train`."""
        return self.lazy_training_set(n, seed).all()

    def lazy_training_set(self, n: int, seed: int) -> LazyDataset:
        """Return the sequences of `training_set`, drawn on demand."""
        return LazyDataset(self, n, "train", generator(seed, "data"))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON data, from which `AnchorTask.from_dict` makes an equal task."""
        values = super().to_dict()
        values["anchors"] = {str(anchor): _as_json(f) for anchor, f in self.anchors.items()}
        if self.unseen_pairs is not None:
            values["unseen_pairs"] = [list(pair) for pair in self.unseen_pairs]
        if self.overrides is not None:
            values["overrides"] = {",".join(map(str, p)): _as_json(f) for p, f in self.overrides.items()}
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read a task from JSON or TOML data (anchors and pairs may be keys such as "3" and "3,4").

        Raises:
            ValueError: If a field is unknown or a value is invalid, such as a key that is not an integer.
        """
        fields = dict(values)
        if "anchors" in fields:
            fields["anchors"] = _read_functions(fields["anchors"], "anchors", _short_integer)
        if fields.get("overrides") is not None:
            fields["overrides"] = _read_functions(fields["overrides"], "overrides", _read_pair)
        if isinstance(unseen := fields.get("unseen_pairs"), list | tuple):
            fields["unseen_pairs"] = [_read_pair(pair) if isinstance(pair, str) else pair for pair in unseen]
        return super().from_dict(fields)


def _check_size(n_anchors: int, chain_length: int, n_keys: int, seq_len: int) -> None:
    """Check the size of a task before its tables are made.

    Raises:
        ValueError: If the task is too large; the message says what to reduce.
    """
    n_chains, n_positions = n_anchors**chain_length, seq_len - chain_length
    sizes = {
        "keys": (n_keys, 100_000),
        "keys times positions": (n_keys * seq_len, 10_000_000),
        "chains": (n_chains, functions.MOST_PAIRS),
        "chains times keys": (n_chains * n_keys, _MOST_TARGETS),
        "chains times keys times positions": (n_chains * n_keys * n_positions, 20_000_000),
    }
    for what, (n, most) in sizes.items():
        if n > most:
            raise ValueError(
                f"the number of {what} must be at most {most:,}, got {n_keys:,} keys, {n_anchors} anchors in "
                f"chains of {chain_length} and {seq_len:,} tokens. Use fewer anchors or keys, or shorter "
                "chains or sequences"
            )


def _as_json(function: Any) -> int | dict[str, int]:
    """Return a tabulated function as JSON data."""
    return function if isinstance(function, int) else {str(x): y for x, y in function.items()}


def _read_pair(text: str) -> Pair:
    """Parse a pair that is written as in "3,4"."""
    return tuple(map(_short_integer, text.split(",")))


def _short_integer(text: str | int) -> int:
    """Parse an integer of few digits; a file could choose many long integers with the same hash.

    Raises:
        ValueError: If the text is not an integer, or has too many digits.
    """
    if len(str(text)) > _MOST_DIGITS:
        raise ValueError
    return int(text)


def _read_functions(values: object, what: str, read_key: Callable[[str], Any]) -> dict[Any, Any]:
    """Undo the string keys that JSON and TOML need; leave other keys alone."""
    if not isinstance(values, Mapping):
        raise ValueError(f"{what} must be a table, got {safe_repr(values)}. Write a table of keys and values")
    try:
        return {
            (read_key(key) if isinstance(key, str) else key): (
                {_short_integer(x): y for x, y in f.items()} if isinstance(f, Mapping) else f
            )
            for key, f in values.items()
        }
    except (TypeError, ValueError):
        raise ValueError(
            f"the keys of {what} must be integers such as 3 or '3,4', got {safe_repr(list(values))}. Correct "
            "the keys"
        ) from None
