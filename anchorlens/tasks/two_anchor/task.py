"""Two-anchor composite functions: the task, its splits and its sequences.

A sequence holds one key token x, an anchor pair right behind it, and noise everywhere else. Each
anchor is a function of one number, and the target is their composition,
f(x; a1, a2) = g(g(x; a1); a2). Sources: Zhang et al., arXiv 2501.08537 (the `reasoning`
regime) and 2405.05409 (the `conflict` regime).
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from anchorlens.configuration import (
    check_choice,
    check_number,
    documented,
    from_mapping,
    make_plain,
    settings,
)
from anchorlens.foreign import shown
from anchorlens.tasks.two_anchor.anchor_functions import (
    AnchorFunction,
    FrozenDict,
    Pair,
    as_json,
    formula,
    read_functions,
    read_pair,
    short_integer,
    tabulate,
    token,
)
from anchorlens.tasks.two_anchor.composition import composed, tabulated, values_of
from anchorlens.tasks.two_anchor.drawing import Drawing
from anchorlens.tasks.two_anchor.sequences import AnchorBatch, Cells, choose, marked
from anchorlens.views import view

if TYPE_CHECKING:
    from jaxtyping import Bool, Int

Split = Literal["train", "id", "ood"]
SPLITS: tuple[Split, ...] = ("train", "id", "ood")

PAPER_SHIFTS: dict[int, AnchorFunction] = {1: +5, 2: +1, 3: -2, 4: -8}
PAPER_UNSEEN = ((3, 4), (4, 3))
CONFLICT_SHIFT = -6
"""What (3, 4) is trained on in the `conflict` regime; its true total shift is -10 (2405.05409)."""

COMPLEXITY_SHIFTS: tuple[tuple[Pair, int], ...] = (
    ((1, 2), +4),
    ((1, 3), +1),
    ((1, 4), -5),
    ((2, 3), +5),
    ((2, 4), -9),
    ((3, 4), -6),
)
"""Wrong but symmetric total shifts, in the order in which reasoning complexity breaks the groups."""

_MOST_IN_WORDS = 100
"""Overrides of a task that it tells of in words."""
_MOST_IN_GRID = 12
"""Anchors of a task whose pairs a notebook shows."""
_LARGEST_KEY = 10_000_000
_MOST_KEYS = 100_000
_MOST_PAIRS = 100_000
_LONGEST_CHAIN = 1000
_MOST_PLACES = 10_000_000
_MOST_TARGETS = 2_000_000
_MOST_CELLS = 20_000_000


@documented
@dataclass(frozen=True)
class AnchorTask:
    """The papers' task as a user's object; the defaults are the papers' values.

    A task is immutable and holds data only: callables are tabulated when it is made, so that it can
    be saved, compared and sent to another process. `dataclasses.replace` makes a variation of it.

    Raises:
        ValueError: any value that makes no task, with what was expected, what came and what to do.

    Example:
        >>> task = AnchorTask()
        >>> task.inferential_target(key=23, pair=(1, 2))  # 23 + 5 + 1
        29
        >>> batch = task.sample(1000, split="id", seed=0)
        >>> batch.tokens.shape
        torch.Size([1000, 9])
        >>> own = AnchorTask(anchors={1: lambda x: 3 * x % 97 + 10, 2: 1, 3: -2, 4: -8})
        >>> own.inferential_target(key=50, pair=(1, 2))  # 150 mod 97 + 10 + 1
        64

    Source: f(x; a1, a2) = g(g(x; a1); a2), arXiv 2501.08537 (`reasoning`) and 2405.05409 (`conflict`).
    """

    anchors: Mapping[int, AnchorFunction] = field(default_factory=lambda: dict(PAPER_SHIFTS))
    """Anchor token -> its function: an int is a shift, a mapping a table, or a callable of one int."""
    chain_length: int = 2
    """Anchors per sequence, >= 2 (2 in the papers)."""
    key_min: int = 20
    """Smallest number token."""
    key_max: int = 99
    """Largest number token (inclusive)."""
    seq_len: int = 9
    """Tokens per sequence, n in the papers."""
    regime: Literal["reasoning", "conflict"] = "reasoning"
    """`reasoning`: both orders of the two largest anchors unseen (2501.08537); `conflict`: one order is
    trained on a non-inferential target, the other unseen (2405.05409)."""
    complexity: int | None = None
    """Reasoning complexity 0..6: so many groups get a wrong but symmetric shift, and every pair is
    trained; unset for the regime's own targets."""
    unseen_pairs: Sequence[Pair] | None = None
    """Pairs left out of training; unset for the regime's own (`ood_pairs` has them either way)."""
    overrides: Mapping[Pair, AnchorFunction] | None = None
    """Pair -> function of the key that is trained on instead of the composition; an int is a total
    shift. Added to the regime's own (`trained_overrides` has them together)."""
    split_modulus: int | None = None
    """m: key x may stand at position i in training iff x mod m != i mod m; unset for seq_len."""
    noise_obeys_split: bool = False
    """Whether noise tokens obey the training rule too (2501.08537), or only the key (released code)."""

    def __post_init__(self) -> None:
        """Check every field, fill in the regime's own values and tabulate the callables."""
        make_plain(self)
        self._check_scalars()
        # ascending, so that tasks that are equal also draw the same sequences
        anchors = sorted((token(a, "an anchor"), f) for a, f in self.anchors.items())
        object.__setattr__(self, "anchors", FrozenDict(anchors))
        self._check_anchors()
        tables: Mapping[Any, AnchorFunction] = tabulated(self.anchors, self.keys, self.chain_length)
        object.__setattr__(self, "anchors", FrozenDict(tables))
        if self.unseen_pairs is not None:
            few = itertools.islice(self.unseen_pairs, 10 * _MOST_PAIRS)  # it may have no end
            unseen = dict.fromkeys(self._pair(pair, "unseen_pairs") for pair in few)
            object.__setattr__(self, "unseen_pairs", tuple(unseen))
        if self.overrides is not None:
            overrides = {self._pair(pair, "overrides"): f for pair, f in self.overrides.items()}
            keys = self.keys.tolist()
            tables = {p: tabulate(f, keys, f"the override of {p}") for p, f in overrides.items()}
            object.__setattr__(self, "overrides", FrozenDict(tables))
        self._check_targets()

    # -- what the task is ---------------------------------------------------------------------

    @cached_property
    def keys(self) -> Int[np.ndarray, " key"]:
        """Every number token, ascending."""
        return np.arange(self.key_min, self.key_max + 1)

    @cached_property
    def positions(self) -> Int[np.ndarray, " position"]:
        """Every position the key can stand at, 0 .. seq_len - 1 - chain_length."""
        return np.arange(self.seq_len - self.chain_length)

    @property
    def modulus(self) -> int:
        """M of the split rule: `split_modulus`, settled."""
        return self.seq_len if self.split_modulus is None else self.split_modulus

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """Every ordered anchor pair (chain), seen or not."""
        return tuple(itertools.product(self.anchors, repeat=self.chain_length))

    @cached_property
    def ood_pairs(self) -> tuple[Pair, ...]:
        """The pairs never seen in training: `unseen_pairs`, or the regime's own."""
        return tuple(self._regime[0] if self.unseen_pairs is None else self.unseen_pairs)

    @cached_property
    def seen_pairs(self) -> tuple[Pair, ...]:
        """The pairs that are trained."""
        unseen = set(self.ood_pairs)
        return tuple(pair for pair in self.pairs if pair not in unseen)

    @cached_property
    def trained_overrides(self) -> Mapping[Pair, AnchorFunction]:
        """Pair -> function that is trained instead of the composition: the regime's and your own."""
        return FrozenDict({**self._regime[1], **(self.overrides or {})})

    @cached_property
    def d_vocab(self) -> int:
        """Smallest vocabulary that holds every token and every target."""
        largest = max(self._inferential.max(), self._trained.max(), self.key_max, *self.anchors)
        return int(largest) + 1

    def apply(self, anchor: int, x: int) -> int:
        """g(x; anchor), the function of one anchor.

        Raises:
            ValueError: an unknown anchor, or a value its table does not hold.
        """
        if anchor not in self.anchors:
            raise ValueError(f"anchor must be one of {shown(list(self.anchors))}, got {shown(anchor)}")
        function = self.anchors[anchor]
        if isinstance(function, int):
            return x + function
        assert isinstance(function, Mapping)
        if x not in function:
            raise ValueError(
                f"anchor {anchor} has no value for {shown(x)}; it is defined where the task reaches"
            )
        return function[x]

    def inferential_target(self, key: int, pair: Sequence[int]) -> int:
        """f(x; a1, ..) = g(..g(x; a1)..), whatever is trained.

        Raises:
            ValueError: a key or a pair the task does not have.
        """
        return int(self._inferential[self._row(pair), self._column(key)])

    def target(self, key: int, pair: Sequence[int]) -> int:
        """What `pair` is (or would be) trained on: its override where it has one, else f.

        Raises:
            ValueError: a key or a pair the task does not have.
        """
        return int(self._trained[self._row(pair), self._column(key)])

    def targets(
        self, cells: Cells, *, kind: Literal["trained", "inferential", "mirrored"] = "trained"
    ) -> Int[np.ndarray, " cell"]:
        """Targets of many cells at once.

        Args:
            cells: which pairs and keys.
            kind: `trained` (overrides apply), `inferential` (f itself), or `mirrored`: what the
                pair in reverse order is trained on, the symmetric solution of 2405.05409.

        Raises:
            ValueError: keys that the task does not have.
        """
        pairs = cells.pairs[:, ::-1] if kind == "mirrored" else cells.pairs
        table = self._inferential if kind == "inferential" else self._trained
        if len(cells) and not self.key_min <= cells.keys.min() <= cells.keys.max() <= self.key_max:
            raise ValueError(
                f"keys must lie in {self.key_min}..{self.key_max}, got {cells.keys.min()}..{cells.keys.max()}"
            )
        return table[self.pair_index(pairs), cells.keys - self.key_min]

    def cells(self, split: Split) -> Cells:
        """Every (pair, key, position) of a split, each once, in a fixed order.

        `train`: seen pairs where x mod m != i mod m; `id`: seen pairs where they are equal; `ood`:
        unseen pairs with every key at every position. No two splits share a cell.

        Raises:
            ValueError: an unknown split.
        """
        check_choice("split", split, SPLITS)
        key, position = np.nonzero(self._allowed(split))
        return self.product(self._split_pairs(split), self.keys[key], self.positions[position])

    def n_cells(self, split: Split) -> int:
        """How many `cells` a split has, without making them.

        Raises:
            ValueError: an unknown split.
        """
        check_choice("split", split, SPLITS)
        return len(self._split_pairs(split)) * int(np.count_nonzero(self._allowed(split)))

    def some_cells(self, split: Split, which: Int[np.ndarray, " cell"]) -> Cells:
        """The cells of a split at these places of `cells`, without making the others.

        Raises:
            ValueError: an unknown split.
        """
        check_choice("split", split, SPLITS)
        key, position = np.nonzero(self._allowed(split))
        pair, place = np.divmod(which, max(1, len(key)))
        table = np.array(self._split_pairs(split), dtype=np.int64).reshape(-1, self.chain_length)
        return Cells(table[pair], self.keys[key[place]], self.positions[position[place]])

    def product(
        self,
        pairs: Sequence[Pair],
        keys: Int[np.ndarray, " place"],
        positions: Int[np.ndarray, " place"],
    ) -> Cells:
        """Cells of every pair with every (key, position) of two parallel arrays, pair-major."""
        table = np.array(pairs, dtype=np.int64).reshape(len(pairs), self.chain_length)
        return Cells(
            pairs=np.repeat(table, len(keys), axis=0),
            keys=np.tile(keys, len(pairs)),
            positions=np.tile(positions, len(pairs)),
        )

    def sample(self, n: int, *, split: Split = "train", seed: int | np.random.Generator = 0) -> AnchorBatch:
        """Draw `n` sequences: pair and position uniform, then the key uniform among those allowed.

        Args:
            n: number of sequences, >= 1.
            split: `train`, `id` or `ood` (see `cells`).
            seed: a seed, or a NumPy generator that is advanced.

        Returns:
            Tokens [n, seq_len] and targets [n]; for `ood` the inferential targets.

        Raises:
            ValueError: `n` < 1, an unknown split, or a split with nothing in it.
        """
        return self.drawing(n, split=split, seed=seed).all()

    def drawing(self, n: int, *, split: Split = "train", seed: int | np.random.Generator = 0) -> Drawing:
        """The sequences of `sample`, not yet drawn: any of them can be had without holding the others.

        Raises:
            ValueError: as for `sample`.
        """
        check_number("n", n, minimum=1, integer=True)
        check_choice("split", split, SPLITS)
        if not self._split_pairs(split):
            raise ValueError(f"split {split!r} of this task is empty: no pair is in it")
        return Drawing(self, n, split, np.random.default_rng(seed))

    def sequences(self, cells: Cells, noise: int | np.random.Generator = 0) -> AnchorBatch:
        """Fill the noise around given cells.

        Args:
            cells: one per sequence.
            noise: a seed or a NumPy generator for the noise tokens.

        Returns:
            Sequences in the order of `cells`; targets are the trained ones, for unseen pairs the
            inferential ones.
        """
        return self.place(cells, self.noise(len(cells), noise))

    def draw_positions(self, n: int, split: Split, rng: np.random.Generator) -> Int[np.ndarray, " cell"]:
        """Positions of the key, uniform among those that a non-empty split allows."""
        positions = self.positions[self._allowed(split).any(axis=0)]
        return positions[rng.integers(0, len(positions), n)]

    def draw_pairs(self, n: int, split: Split, rng: np.random.Generator) -> Int[np.ndarray, "cell k"]:
        """Anchor pairs, uniform among those of a non-empty split."""
        pairs = self._split_pairs(split)
        return np.array(pairs)[rng.integers(0, len(pairs), n)]

    def draw_keys(
        self, positions: Int[np.ndarray, " cell"], split: Split, rng: np.random.Generator
    ) -> Int[np.ndarray, " cell"]:
        """Keys, uniform among those that a split allows at each position."""
        return choose(rng, self.keys, self._allowed(split), positions)

    def noise(self, n: int, seed: int | np.random.Generator = 0) -> Int[np.ndarray, "batch pos"]:
        """Noise tokens for every position of `n` sequences, before key and anchors are placed."""
        rng = np.random.default_rng(seed)
        if not self.noise_obeys_split:
            return rng.integers(self.key_min, self.key_max + 1, (n, self.seq_len))
        where = np.arange(self.seq_len)
        allowed = (self.keys % self.modulus)[:, None] != where % self.modulus  # [key, pos]
        return choose(rng, self.keys, allowed, np.broadcast_to(where, (n, self.seq_len)))

    def place(self, cells: Cells, noise: Int[np.ndarray, "batch pos"]) -> AnchorBatch:
        """Write key and anchors of `cells` into `noise` tokens (a copy of them)."""
        import torch

        tokens = self._tokens(cells, noise)
        trained = self.targets(cells)
        unseen = self._unseen_rows[self.pair_index(cells.pairs)]
        targets = np.where(unseen, self.targets(cells, kind="inferential"), trained)
        return AnchorBatch(torch.from_numpy(tokens), torch.from_numpy(targets), cells)

    def _tokens(self, cells: Cells, noise: Int[np.ndarray, "batch pos"]) -> Int[np.ndarray, "batch pos"]:
        tokens = noise.astype(np.int64)
        row = np.arange(len(cells))
        tokens[row, cells.positions] = cells.keys
        for place in range(self.chain_length):
            tokens[row, cells.positions + 1 + place] = cells.pairs[:, place]
        return tokens

    def describe(self) -> str:
        """Say in words what is trained and what is held out.

        >>> print(AnchorTask(regime="conflict").describe())
        Sequences of 9 tokens: key x in 20..99 at position 0..6, its 2 anchors next, else noise in 20..99.
        Anchors: 1: x+5, 2: x+1, 3: x-2, 4: x-8.
        Trained: 15 of 16 anchor pairs; not on the composition: (3, 4): x-6 (composition: x-10).
        Never seen (OOD): (4, 3), asked for the composition.
        Held out (ID test): seen pairs where x mod 9 equals position mod 9; noise is free.
        """
        shown = itertools.islice(self.trained_overrides.items(), _MOST_IN_WORDS)
        overrides = [
            f"{pair}: {formula(function)} (composition: {self._composition_formula(pair)})"
            for pair, function in shown
        ]
        if len(self.trained_overrides) > _MOST_IN_WORDS:
            overrides.append(f"and {len(self.trained_overrides) - _MOST_IN_WORDS:,} more pairs")
        unseen = ", ".join(map(str, self.ood_pairs))
        trained_anchors = set(itertools.chain.from_iterable(self.seen_pairs))
        untrained = [
            f"No pair with anchor {a} is trained: OOD cannot be inferred."
            for a in self.anchors
            if a not in trained_anchors
        ]
        noise = "noise obeys the training rule too" if self.noise_obeys_split else "noise is free"
        anchors = ", ".join(f"{a}: {formula(f)}" for a, f in self.anchors.items())
        trained = f"{len(self.seen_pairs)} of {len(self.pairs)} anchor pairs"
        numbers = f"{self.key_min}..{self.key_max}"
        return "\n".join(
            [
                f"Sequences of {self.seq_len} tokens: key x in {numbers} at position "
                f"0..{self.positions[-1]}, its {self.chain_length} anchors next, "
                f"else noise in {numbers}.",
                f"Anchors: {anchors}.",
                f"Trained: {trained}"
                + (f"; not on the composition: {'; '.join(overrides)}." if overrides else "."),
                f"Never seen (OOD): {unseen}, asked for the composition."
                if unseen
                else "Never seen (OOD): nothing, every pair is trained.",
                *untrained,
                f"Held out (ID test): seen pairs where x mod {self.modulus} equals position mod "
                f"{self.modulus}; {noise}.",
            ]
        )

    def _repr_html_(self) -> str:
        pair = next((p for p in self.seen_pairs if len(set(p)) > 1), self.seen_pairs[0])
        allowed = self._allowed("train")
        places = self.positions[allowed.any(axis=0)]
        position = places[len(places) // 2]
        keys = self.keys[allowed[:, position]]
        cells = self.product([pair], keys[len(keys) // 2 :][:1], np.array([position]))
        tokens = self._tokens(cells, self.noise(1))[0].tolist()
        key, target = int(cells.keys[0]), int(self.targets(cells)[0])
        values = [key]
        for anchor in pair:
            values.append(self.apply(anchor, values[-1]))
        steps = " → ".join(map(str, values)) if values[-1] == target else ""
        square = self.chain_length == 2 and len(self.anchors) <= _MOST_IN_GRID
        return view(
            "task.html",
            task=self,
            lines=self.describe().split("\n"),
            example=marked(tokens, int(position), self.chain_length),
            steps=steps,
            target=target,
            grid={each: self._trained_on(each) for each in self.pairs} if square else None,
            rows=settings(self),
        )

    def _trained_on(self, pair: Pair) -> tuple[str, str]:
        """What a pair is, and in words what it is trained on."""
        if pair in self.ood_pairs:
            return "unseen", "unseen"
        if pair in self.trained_overrides:
            return "other", f"{formula(self.trained_overrides[pair])}, not {self._composition_formula(pair)}"
        return "trained", self._composition_formula(pair)

    # -- to and from data ---------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready fields; `AnchorTask.from_dict` gives an equal task back."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values["anchors"] = {str(a): as_json(f) for a, f in self.anchors.items()}
        if self.unseen_pairs is not None:
            values["unseen_pairs"] = [list(pair) for pair in self.unseen_pairs]
        if self.overrides is not None:
            values["overrides"] = {",".join(map(str, p)): as_json(f) for p, f in self.overrides.items()}
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> AnchorTask:
        """Read a task from JSON or TOML data (anchors and pairs may be keys such as "3" and "3,4").

        Raises:
            ValueError: an unknown field or an unusable value.
        """
        values = dict(values)
        if "anchors" in values:
            values["anchors"] = read_functions(values["anchors"], "anchors", short_integer)
        if values.get("overrides") is not None:
            values["overrides"] = read_functions(values["overrides"], "overrides", read_pair)
        if values.get("unseen_pairs") is not None:
            if isinstance(values["unseen_pairs"], str) or not isinstance(values["unseen_pairs"], Sequence):
                raise ValueError(f"unseen_pairs must be a list of pairs, got {shown(values['unseen_pairs'])}")
            values["unseen_pairs"] = [
                read_pair(pair) if isinstance(pair, str) else pair for pair in values["unseen_pairs"]
            ]
        return from_mapping(cls, values)

    # -- checks -------------------------------------------------------------------------------

    def _check_scalars(self) -> None:
        check_number("chain_length", self.chain_length, minimum=2, limit=_LONGEST_CHAIN, integer=True)
        check_number("key_min", self.key_min, minimum=0, limit=_LARGEST_KEY, integer=True)
        check_number("key_max", self.key_max, minimum=self.key_min, limit=_LARGEST_KEY, integer=True)
        check_number("seq_len", self.seq_len, minimum=self.chain_length + 1, limit=_MOST_KEYS, integer=True)
        n_keys = self.key_max - self.key_min + 1
        if n_keys > _MOST_KEYS:
            raise ValueError(f"{n_keys:,} number tokens are more than {_MOST_KEYS:,}; narrow the key range")
        if n_keys * self.seq_len > _MOST_PLACES:
            raise ValueError(
                f"{n_keys:,} number tokens at {self.seq_len:,} positions are more than {_MOST_PLACES:,} "
                "places; narrow the key range or the sequence"
            )
        check_choice("regime", self.regime, ("reasoning", "conflict"))
        if self.split_modulus is not None:
            check_number("split_modulus", self.split_modulus, minimum=2, limit=_LARGEST_KEY, integer=True)
        if not isinstance(self.noise_obeys_split, bool):
            raise ValueError(f"noise_obeys_split must be true or false, got {shown(self.noise_obeys_split)}")
        if self.complexity is not None:
            check_number("complexity", self.complexity, minimum=0, maximum=6, integer=True)
        if not isinstance(self.anchors, Mapping):
            raise ValueError(f"anchors must map tokens to functions, got {shown(self.anchors)}")
        if self.overrides is not None and not isinstance(self.overrides, Mapping):
            raise ValueError(f"overrides must map pairs to functions, got {shown(self.overrides)}")
        if self.unseen_pairs is not None and not isinstance(self.unseen_pairs, Iterable):
            raise ValueError(f"unseen_pairs must be a list of pairs, got {shown(self.unseen_pairs)}")

    def _check_anchors(self) -> None:
        if len(self.anchors) < 2:
            raise ValueError(f"anchors must be 2 or more, got {len(self.anchors)}")
        for anchor in self.anchors:
            if self.key_min <= anchor <= self.key_max:
                raise ValueError(
                    f"anchor {anchor} lies in the key range {self.key_min}..{self.key_max}; "
                    "choose tokens outside it"
                )
        if (n_chains := len(self.anchors) ** self.chain_length) > _MOST_PAIRS:
            raise ValueError(
                f"{len(self.anchors)} anchors in chains of {self.chain_length} are more than "
                f"{_MOST_PAIRS:,} chains; use fewer anchors or shorter chains"
            )
        if n_chains * len(self.keys) > _MOST_TARGETS:
            raise ValueError(
                f"{n_chains:,} chains of {len(self.keys):,} keys are more "
                f"than {_MOST_TARGETS:,} targets; use fewer anchors, keys or shorter chains"
            )
        if (n_cells := n_chains * len(self.keys) * len(self.positions)) > _MOST_CELLS:
            raise ValueError(
                f"{n_chains:,} chains of {len(self.keys):,} keys at {len(self.positions):,} positions are "
                f"{n_cells:,} questions, more than {_MOST_CELLS:,}; use fewer anchors or keys, or shorter "
                "chains or sequences"
            )

    def _check_targets(self) -> None:
        if not self.seen_pairs:
            raise ValueError("unseen_pairs leaves nothing to train on; leave some pairs out of it")
        for name, table in (("composition", self._inferential), ("trained target", self._trained)):
            if table.min() < 0:
                pair, key = np.argwhere(table < 0)[0]
                raise ValueError(
                    f"the {name} of key {self.keys[key]} and pair {self.pairs[pair]} is "
                    f"{table[pair, key]}, no token; raise key_min"
                )
        overlap = set(self.trained_overrides) & set(self.ood_pairs)
        if overlap:
            raise ValueError(f"{sorted(overlap)[0]} is both in overrides and unseen; it can be one only")
        for split in ("train", "id"):
            if not self._allowed(split).any():
                raise ValueError(
                    f"split_modulus {self.modulus} leaves no (key, position) in the {split} split "
                    f"for keys {self.key_min}..{self.key_max}; try a smaller one"
                )
        if self.noise_obeys_split and not self._allowed("train").any(axis=0).all():
            raise ValueError("noise_obeys_split leaves a position without noise; widen the key range")

    # -- the regime ---------------------------------------------------------------------------

    @cached_property
    def _regime(self) -> tuple[Sequence[Pair], dict[Pair, AnchorFunction]]:
        """Unseen pairs and overrides that the regime or the complexity stands for."""
        if self.complexity is not None:
            if self.regime != "reasoning" or self.chain_length != 2 or dict(self.anchors) != PAPER_SHIFTS:
                raise ValueError(
                    "complexity is defined for the papers' four anchors, pairs and regime 'reasoning'; "
                    "give overrides and unseen_pairs instead"
                )
            broken = COMPLEXITY_SHIFTS[: self.complexity]
            return [], {p: shift for (a, b), shift in broken for p in ((a, b), (b, a))}
        first, second = list(self.anchors)[-2:]
        mirrored = {(first, second), (second, first)}
        if self.regime == "reasoning":  # every chain with the two as neighbours; for pairs, just the two
            return [p for p in self.pairs if mirrored & set(itertools.pairwise(p))], {}
        if self.chain_length != 2 or dict(self.anchors) != PAPER_SHIFTS:
            raise ValueError(
                "regime 'conflict' is defined for the papers' four anchors; give unseen_pairs and "
                "overrides with regime 'reasoning' instead"
            )
        return [(4, 3)], {(3, 4): CONFLICT_SHIFT}

    # -- tables -------------------------------------------------------------------------------

    @cached_property
    def _inferential(self) -> Int[np.ndarray, "pair key"]:
        return composed(self.anchors, self.keys, self.chain_length)

    @cached_property
    def _trained(self) -> Int[np.ndarray, "pair key"]:
        table, keys = self._inferential.copy(), self.keys.tolist()
        for pair, function in self.trained_overrides.items():
            table[self._row(pair)] = values_of(function, keys)
        return table

    @cached_property
    def _unseen_rows(self) -> Bool[np.ndarray, " pair"]:
        unseen = set(self.ood_pairs)
        return np.array([pair in unseen for pair in self.pairs])

    def _allowed(self, split: Split) -> Bool[np.ndarray, "key position"]:
        """Where the key may stand in a split."""
        if split == "ood":
            return np.ones((len(self.keys), len(self.positions)), dtype=bool)
        train = (self.keys % self.modulus)[:, None] != self.positions % self.modulus
        return train if split == "train" else ~train

    def _split_pairs(self, split: Split) -> Sequence[Pair]:
        return self.ood_pairs if split == "ood" else self.seen_pairs

    @cached_property
    def _anchor_rank(self) -> Int[np.ndarray, " token"]:
        rank = np.full(max(self.anchors) + 1, -1)
        rank[list(self.anchors)] = np.arange(len(self.anchors))
        return rank

    def pair_index(self, pairs: Int[np.ndarray, "cell k"]) -> Int[np.ndarray, " cell"]:
        """Where each pair stands in `pairs`, the property; anchors are taken to be the task's."""
        index = np.zeros(len(pairs), dtype=np.int64)
        for column in pairs.T:
            index = index * len(self.anchors) + self._anchor_rank[column]
        return index

    def _pair(self, pair: Any, where: str) -> Pair:
        try:
            anchors = tuple(operator.index(anchor) for anchor in pair)
        except TypeError:
            anchors = ()
        if len(anchors) != self.chain_length or any(anchor not in self.anchors for anchor in anchors):
            raise ValueError(
                f"{where} must hold {self.chain_length} anchors of {shown(list(self.anchors))} each, "
                f"got {shown(pair)}"
            )
        return anchors

    def _row(self, pair: Sequence[int]) -> int:
        row = 0
        for anchor in self._pair(pair, "pair"):
            row = row * len(self.anchors) + int(self._anchor_rank[anchor])
        return row

    def _column(self, key: int) -> int:
        check_number("key", key, minimum=self.key_min, maximum=self.key_max, integer=True)
        return int(key) - self.key_min

    def _composition_formula(self, pair: Pair) -> str:
        shifts = [function for a in pair if isinstance(function := self.anchors[a], int)]
        return formula(sum(shifts)) if len(shifts) == len(pair) else "g(..g(x))"
