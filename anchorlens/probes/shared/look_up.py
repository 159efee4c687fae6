"""The look-up baseline: how well the other rows of training data answer a row, without any rule.

Each way of looking up answers a left-out row from the most similar other rows: the longest common end of the
tokens, the tokens in any order, the edit distance, or, for numbers, the Euclidean distance and both halves
in either order.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int, Real

from anchorlens.tasks.shared.batch import IGNORE, distinct_rows

ABOVE_CHANCE = 0.1
"""The smallest excess of a look-up over chance at which rows are related."""
_NEAREST = 12
"""The number of most similar rows, of which the nearest give the answer."""
_LONGEST_END = 32
_MOST_COUNTS = 512
_TENTHS = 10
_ROUNDS = 6
_FEWEST_GROUPS = 50
_LARGEST_GROUP = 0.2
"""The smallest number of groups, and the largest proportion of the rows in one group."""
_IMPROVEMENT = 0.02
"""The smallest decrease of the look-up's accuracy for which coarser groups are taken."""
_AGREEING = 0.9
"""The proportion of equal targets from which two tokens of a position are synonyms."""
_PAIRS_OF_A_ROW = 16

Answers: TypeAlias = "tuple[Int[np.ndarray, ' asked'], Int[np.ndarray, ' asked']]"
"""The answer to each question, and the row that it comes from."""


class Groups(NamedTuple):
    """The groups of related rows."""

    of_row: Int[np.ndarray, " row"]
    """The number of each row's group, from 0."""
    in_any_order: bool
    """Whether rows of a group have the same tokens in another order."""

    @property
    def n(self) -> int:
        """The number of groups."""
        return int(self.of_row.max()) + 1

    def tenths(self, rng: np.random.Generator) -> Int[np.ndarray, " row"]:
        """Draw a tenth, 0 to 9, for each group, and return the tenth of each row."""
        return rng.permutation(self.n)[self.of_row] * _TENTHS // self.n


class LookUp:
    """Rows of training data that can be looked up in one another."""

    def __init__(self, inputs: np.ndarray, targets: Int[np.ndarray, "row ..."]) -> None:
        """Index the rows.

        Args:
            inputs: tokens [row, pos] as integers, or numbers [row, ...] as floats.
            targets: the target of each row [row], or targets [row, pos] with -100 at unscored positions.
        """
        self._given, self._are_tokens = inputs, inputs.dtype.kind in "iu"
        self._way_of_orders = 1 if self._are_tokens else 2  # in `_answers`
        self._targets = targets.astype(np.int64).reshape(len(targets), -1)
        self._row, self._column = np.nonzero(self._targets != IGNORE)
        self._wanted = self._targets[self._row, self._column]

    @cached_property
    def _inputs(self) -> Int[np.ndarray, "row pos"]:
        return _with_one_synonym(self._given.astype(np.int64), self._targets)

    @cached_property
    def _points(self) -> Float[np.ndarray, "row dim"]:
        """The numbers of a row, or how often each token occurs in the row."""
        if not self._are_tokens:
            return self._given.reshape(len(self._given), -1).astype(np.float32)
        places = np.unique(self._inputs, return_inverse=True)[1].reshape(self._inputs.shape) % _MOST_COUNTS
        counts = [np.bincount(row, minlength=places.max() + 1) for row in places]
        return np.stack(counts).astype(np.float32)

    @cached_property
    def _mirrors(self) -> Int[np.ndarray, " row"] | None:
        """The same number for rows of numbers that differ in the order of their halves.

        None if no rows do, or if such rows have different targets.
        """
        if self._are_tokens or self._points.shape[1] % 2:
            return None
        both = self._points.reshape(2 * len(self._points), -1)
        halves = np.sort(np.unique(both, axis=0, return_inverse=True)[1].reshape(-1, 2), axis=1)
        first, number = distinct_rows(halves)
        answers, _ = distinct_rows(np.hstack([halves, self._targets]))
        return number if len(answers) == len(first) < len(halves) else None

    @cached_property
    def _ends(self) -> list[Int[np.ndarray, " question"]]:
        return list(self._shortest_ends(_LONGEST_END))

    def _shortest_ends(self, longest: int) -> Iterator[Int[np.ndarray, " question"]]:
        """Yield a number for the last 0, 1, 2 ... tokens before each question, equal for equal tokens."""
        end = np.zeros(len(self._row), dtype=np.int64)
        yield end
        if not self._are_tokens:
            return
        tokens = self._given.astype(np.int64)
        last = self._column + tokens.shape[1] - self._targets.shape[1]
        for at in range(min(tokens.shape[1], longest)):
            token = np.where(last >= at, tokens[self._row, last - at], -1) + 1
            end = np.unique(end * (int(tokens.max()) + 2) + token, return_inverse=True)[1]
            yield end

    def chance(self, is_out: Bool[np.ndarray, " row"]) -> float:
        """Return the accuracy of the most frequent target after the last token, from 0 to 1.

        For numbers, this is the accuracy of the most frequent target.
        """
        answers, _ = self._by_ends(is_out[self._row], list(self._shortest_ends(1)))
        return float((answers == self._wanted[is_out[self._row]]).mean())

    def accuracy(self, is_out: Bool[np.ndarray, " row"]) -> float:
        """Return the accuracy of the best look-up on the rows of a mask, from 0 to 1.

        The other rows are those outside the mask. The accuracy is over scored positions.
        """
        wanted = self._wanted[is_out[self._row]]
        return max(float((answers == wanted).mean()) for answers, _ in self._answers(is_out))

    def groups(self, rng: np.random.Generator) -> Groups:
        """Group the rows so that a look-up in other groups fails.

        Rows belong to one group if one of them answers the other. If the look-up still answers a tenth of the
        groups from the other groups, groups are joined again. If no grouping helps, each row is a group.
        """
        groups = best = Groups(np.arange(len(self._targets)), False)
        least = np.inf
        for _ in range(_ROUNDS):
            tenths, links = groups.tenths(rng), [[], [], []]
            n_right, n_asked = np.zeros(3), 0
            chance = self.chance(tenths == 0)
            for tenth in range(_TENTHS):
                is_out = tenths == tenth
                asked = is_out[self._row]
                for way, (answers, source) in enumerate(self._answers(is_out)):
                    right = answers == self._wanted[asked]
                    n_right[way] += right.sum()
                    links[way].append(np.stack([self._row[asked][right], source[right]]))
                n_asked += asked.sum()
                if groups.n == len(tenths) and n_right.max() <= (chance + ABOVE_CHANCE) * n_asked:
                    return groups  # as in most data: the first tenth shows that no rows are related
            way = int(n_right.argmax())
            accuracy = n_right[way] / n_asked
            if accuracy < least - _IMPROVEMENT:
                best, least = groups, accuracy
            if accuracy <= chance + ABOVE_CHANCE:
                break
            joined = _joined(groups.of_row[np.hstack(links[way])], groups.n)[groups.of_row]
            if joined.max() + 1 < _FEWEST_GROUPS or np.bincount(joined).max() > _LARGEST_GROUP * len(joined):
                break
            by_order = way == self._way_of_orders and (groups.in_any_order or groups.n == len(joined))
            groups = Groups(joined, by_order and self._order_is_without_effect())
        return best

    def _order_is_without_effect(self) -> bool:
        """Return whether rows of the same tokens or halves in any order always have the same targets."""
        if not self._are_tokens:
            return self._mirrors is not None
        bags = np.sort(self._inputs, axis=1)
        n_bags, n_answers = (len(distinct_rows(one)[0]) for one in (bags, np.hstack([bags, self._targets])))
        return n_bags == n_answers

    def _answers(self, is_out: Bool[np.ndarray, " row"]) -> Iterator[Answers]:
        """Yield the answers to the questions of the masked rows, by each way of looking up."""
        asked = is_out[self._row]
        yield self._by_ends(asked, self._ends)
        out, others = np.flatnonzero(is_out), np.flatnonzero(~is_out)
        far = ((self._points[out] ** 2).sum(axis=1)[:, None] + (self._points[others] ** 2).sum(axis=1)) - (
            2 * self._points[out] @ self._points[others].T
        )
        near = _smallest(far)
        yield self._by_rows(out, others[near], np.take_along_axis(far, near, axis=1), asked)
        if self._are_tokens:
            differ = np.zeros(far.shape, dtype=np.int16)
            for column in self._inputs.T:
                differ += column[out][:, None] != column[others]
            near = others[np.hstack([near, _smallest(differ)])]
            yield self._by_rows(out, near, _edit_distances(self._inputs[out], self._inputs[near]), asked)
        elif self._mirrors is not None:
            differ = (self._mirrors[out][:, None] != self._mirrors[others]).astype(np.int16)
            near = _smallest(differ)
            yield self._by_rows(out, others[near], np.take_along_axis(differ, near, axis=1), asked)

    def _by_ends(self, asked: Bool[np.ndarray, " question"], ends: list[np.ndarray]) -> Answers:
        """Answer with the most frequent target after the longest end of the tokens that occurs elsewhere."""
        known, n_targets = np.flatnonzero(~asked), int(self._wanted.max()) + 1
        answers, source = np.full((2, int(asked.sum())), -1)
        for end in ends:
            of_known = end[known] * n_targets + self._wanted[known]
            _, first, counts = np.unique(of_known, return_index=True, return_counts=True)
            first = known[first[counts.argsort(kind="stable")]]
            commonest = np.full(end.max() + 1, -1)
            commonest[end[first]] = first  # of equal ends the last assignment stays
            found = commonest[end[asked]]
            answers = np.where(found < 0, answers, self._wanted[found])
            source = np.where(found < 0, source, self._row[found])
        return answers, source

    def _by_rows(
        self,
        out: Int[np.ndarray, " out"],
        near: Int[np.ndarray, "out neighbour"],
        far: Real[np.ndarray, "out neighbour"],
        asked: Bool[np.ndarray, " question"],
    ) -> Answers:
        """Answer with the most frequent target of the nearest rows at the same position."""
        place = np.zeros(len(self._targets), dtype=np.int64)
        place[out] = np.arange(len(out))
        mine = place[self._row[asked]]
        targets = self._targets[near[mine], self._column[asked][:, None]]
        is_nearest = (far <= far.min(axis=1, keepdims=True))[mine]
        votes = ((targets[:, :, None] == targets[:, None]) & is_nearest[:, None]).sum(axis=2) * is_nearest
        best = votes.argmax(axis=1, keepdims=True)
        answers, source = (np.take_along_axis(each, best, axis=1)[:, 0] for each in (targets, near[mine]))
        return answers, source


def _joined(pairs: Int[np.ndarray, "2 pair"], n: int) -> Int[np.ndarray, " item"]:
    """Return the number of the connected part of each of `n` items that pairs connect."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(pairs.shape[1]), tuple(pairs)), (n, n))
    return connected_components(graph, directed=False)[1]


def _smallest(distances: Real[np.ndarray, "out other"]) -> Int[np.ndarray, "out neighbour"]:
    """Return the indices of the smallest distances of each row, in any order."""
    n = min(_NEAREST, distances.shape[1])
    return np.argpartition(distances, n - 1, axis=1)[:, :n]


def _edit_distances(
    rows: Int[np.ndarray, "out pos"], others: Int[np.ndarray, "out neighbour pos"]
) -> Int[np.ndarray, "out neighbour"]:
    """Compute the Levenshtein distance of each row to each of its neighbours."""
    n_inserted = np.arange(rows.shape[1] + 1, dtype=np.int16)
    distances = np.broadcast_to(n_inserted, (*others.shape[:2], len(n_inserted)))
    for token in rows.T:
        changed = distances + 1
        differs = others != token[:, None, None]
        changed[..., 1:] = np.minimum(changed[..., 1:], distances[..., :-1] + differs)
        distances = np.minimum.accumulate(changed - n_inserted, axis=-1) + n_inserted
    return distances[..., -1]


def _with_one_synonym(
    tokens: Int[np.ndarray, "row pos"], targets: Int[np.ndarray, "row target"]
) -> Int[np.ndarray, "row pos"]:
    """Replace tokens of a position by one of them if their exchange does not change the target.

    An unused position thus has only one token. The tokens are unchanged if the sequences have several
    targets, or if equal sequences would then have different targets.
    """
    if (scored := (targets != IGNORE).any(axis=0)).sum() != 1:
        return tokens
    answers, rng = targets[:, scored][:, 0], np.random.default_rng(0)
    merged = tokens.copy()
    by_chance = float(((np.unique(answers, return_counts=True)[1] / len(answers)) ** 2).sum())
    for position in range(tokens.shape[1]):
        _, context = distinct_rows(np.delete(np.hstack([merged, 0 * merged[:, :1]]), position, axis=1))
        order = np.lexsort((rng.random(len(tokens)), context))
        n = int(tokens[:, position].max()) + 1
        codes, agree = [], []
        for a, b in ((order[:-k], order[k:]) for k in range(1, _PAIRS_OF_A_ROW + 1)):
            pair = np.sort(merged[np.stack([a, b]), position], axis=0)
            alike = (context[a] == context[b]) & (pair[0] != pair[1])
            codes.append((pair[0] * n + pair[1])[alike])
            agree.append((answers[a] == answers[b])[alike])
        found, place = np.unique(np.concatenate(codes), return_inverse=True)
        n_pairs, n_agree = np.bincount(place), np.bincount(place, np.concatenate(agree))
        is_sure = n_agree * np.log(1 / by_chance) >= np.log(100 * max(1, len(found)))
        links = found[is_sure & (n_agree >= _AGREEING * n_pairs)]
        merged[:, position] = _joined(np.stack([links // n, links % n]), n)[merged[:, position]]
    first, sequence = distinct_rows(merged)
    pairs, counts = np.unique(sequence * (answers.max() + 1) + answers, return_counts=True)
    n_commonest = np.zeros(len(first))
    np.maximum.at(n_commonest, pairs // (answers.max() + 1), counts)
    is_better = len(first) >= _FEWEST_GROUPS and n_commonest.sum() >= _AGREEING * len(tokens)
    return merged if is_better else tokens
