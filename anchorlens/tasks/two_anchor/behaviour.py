"""What a model answers: accuracies per split and pair, deviations, commutativity, and its phase.

Every (pair, key, position) is evaluated (up to `max_trials` per split). Only the noise around it is sampled,
with several draws for each, so the standard errors are those of the noise alone. Sources: arXiv 2405.05409
(inferential and symmetric accuracy), 2501.08537 (ID, OOD, commutativity).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from anchorlens.configuration import check_number, checked_arguments
from anchorlens.randomness import generator
from anchorlens.tasks.shared.base import LogitsModel
from anchorlens.tasks.shared.batch import TokenBatch, token_batch
from anchorlens.tasks.shared.data_checks import OtherTargets, Overlap, compared
from anchorlens.tasks.shared.evaluator import Evaluator
from anchorlens.tasks.shared.measures import Accuracy
from anchorlens.tasks.shared.phases import TRAINING_SET
from anchorlens.tasks.two_anchor import evaluation
from anchorlens.tasks.two_anchor.composite_function import CompositeFunction
from anchorlens.tasks.two_anchor.evaluation import AnchorEvaluation, PairAccuracy
from anchorlens.tasks.two_anchor.sequences import AnchorBatch, LazyDataset, Pair, Split, Trials

if TYPE_CHECKING:
    from jaxtyping import Bool, Int
    from torch import Tensor


def overlap_with_training(training_set: TokenBatch, task: CompositeFunction) -> Overlap:
    """Count the training sequences that are inputs of the ID test or the OOD test.

    Args:
        training_set: the sequences, of the task's length and vocabulary. The key of a sequence is the token
            before its first anchor token.
        task: the task that defines the splits.
    """
    _, trials = pairs_asked(training_set.tokens.numpy(), task)
    unseen = np.isin(task.pair_index(trials.pairs), task.pair_index(task.ood_pairs))
    held_out_key = ~unseen & (trials.keys % task.modulus == trials.positions % task.modulus)
    return Overlap(len(training_set), {"id": int(held_out_key.sum()), "ood": int(unseen.sum())})


def targets_of(tokens: Int[Tensor, "batch pos"], task: CompositeFunction) -> Int[Tensor, " batch"]:
    """Return the trained target of each sequence, or -1 if the sequence is not an input of the task."""
    import torch

    row, trials = pairs_asked(tokens.numpy(), task)
    targets = np.full(len(tokens), -1, dtype=np.int64)
    targets[row] = task.targets(trials)
    return torch.from_numpy(targets)


def pairs_asked(
    tokens: Int[np.ndarray, "sequence pos"], task: CompositeFunction
) -> tuple[Int[np.ndarray, " row"], Trials]:
    """Return the row of each sequence that is an input of the task, and the pairs, keys and positions."""
    k = task.chain_length
    first = np.isin(tokens, list(task.anchors)).argmax(axis=1)  # 0 where there is none: no key before it
    asks = (first > 0) & (first + k <= tokens.shape[1])
    row, position = np.flatnonzero(asks), first[asks] - 1
    chain = np.stack([tokens[row, position + 1 + place] for place in range(k)], axis=1).astype(np.int64)
    key = tokens[row, position].astype(np.int64)
    asks = (key >= task.key_min) & (key <= task.key_max) & np.isin(chain, list(task.anchors)).all(axis=1)
    return row[asks], Trials(chain[asks], key[asks], position[asks])


_MOST_PERMUTED = 10_000_000
"""Largest training set from which sequences are chosen by a permutation of all."""


class SplitEvaluator(Evaluator[CompositeFunction]):
    """An evaluator that collects the answers of one model at the last position, split by split."""

    def __init__(
        self,
        model: LogitsModel,
        task: CompositeFunction,
        seed: int,
        batch_size: int,
        max_trials: int,
        half: int | None = None,
    ) -> None:
        """Take the arguments of `evaluate`."""
        super().__init__(model, task, batch_size)
        self.seed = seed
        self.max_trials = max_trials
        self.half = half

    def whole(self, split: Split) -> bool:
        """Return whether the evaluation uses every trial (pair, key, position) of a split."""
        return self.task.n_trials(split) <= self.max_trials

    def trials(self, split: Split) -> Trials:
        """Return every trial (pair, key, position) of a split, or a random choice of `max_trials` trials.

        A random choice of unseen trials contains only trials that symmetry does not answer, if the split has
        any.
        """
        n, rng = self.task.n_trials(split), generator(self.seed, "evaluation", 1)
        if self.whole(split):
            rows = np.arange(n)
        elif split == "ood" and len(counting := self._not_by_symmetry(n)):
            rows = rng.choice(counting, min(self.max_trials, len(counting)), replace=False)
        else:
            rows = rng.choice(n, self.max_trials, replace=False)
        found = self.task.some_trials(split, rows)
        if self.half is None or split != "ood":
            return found
        return found.take(np.flatnonzero(found.keys % 2 == self.half))

    def _not_by_symmetry(self, n: int) -> Int[np.ndarray, " row"]:
        """Return the rows of `n` unseen trials that symmetry does not answer; no rows if it answers none."""
        n_positions = len(self.task.positions)
        counts = ~self.task.answered_by_symmetry(self.task.some_trials("ood", np.arange(0, n, n_positions)))
        return np.flatnonzero(np.repeat(counts, n_positions)) if not counts.all() else np.zeros(0, np.int64)

    def exceptions(self) -> tuple[Trials, bool]:
        """Return at most `max_trials` exceptions at trained positions, and whether the choice is complete."""
        trials = self.task.exception_trials
        if len(trials) <= self.max_trials:
            return trials, True
        rng = generator(self.seed, "evaluation", 3)
        return trials.take(rng.choice(len(trials), self.max_trials, replace=False)), False

    def ask(self, trials: Trials, n_noise: int) -> Int[np.ndarray, "trial draw"]:
        """Return the model's answers to every trial (pair, key, position) with `n_noise` draws of noise.

        The noise depends only on the seed and the number of trials. Pairs and their reversed pairs with the
        same keys and positions get the same noise. Their answers are therefore comparable one by one.
        """
        rng = generator(self.seed, "evaluation")
        noises = (self.task.noise(len(trials), rng) for _ in range(n_noise))
        return np.stack([self.answers(self.task.place(trials, noise).tokens) for noise in noises], axis=1)

    def split_accuracy(self, split: Split, right: Bool[np.ndarray, "trial draw"]) -> Accuracy | None:
        """Return the mean accuracy over test inputs and noise draws, or None without test inputs."""
        return Accuracy.of_draws(right, whole=self.whole(split)) if right.size else None

    def pair_accuracies(
        self, split: Split, trials: Trials, pairs: Sequence[Pair], right: Bool[np.ndarray, "trial draw"]
    ) -> Iterator[PairAccuracy]:
        """Yield the accuracy on each pair that occurs in the trials."""
        asked = self.task.pair_index(trials.pairs)
        order = np.argsort(asked, kind="stable")
        wanted = self.task.pair_index(pairs)
        ends = [np.searchsorted(asked[order], wanted, side=side) for side in ("left", "right")]
        for pair, start, end in zip(pairs, *ends, strict=True):
            if start < end:
                accuracy = Accuracy.of_draws(right[order[start:end]], whole=self.whole(split))
                yield PairAccuracy(pair, split, accuracy)

    def by_position(
        self, split: Split, trials: Trials, right: Bool[np.ndarray, "trial draw"]
    ) -> dict[int, Accuracy]:
        """Return a map from key positions to accuracies, empty for more than `MOST_POSITIONS` positions."""
        if len(self.task.positions) > evaluation.MOST_POSITIONS:
            return {}
        return {
            position: Accuracy.of_draws(right[trials.positions == position], whole=self.whole(split))
            for position in np.unique(trials.positions).tolist()
        }

    def ask_batch(
        self, batch: AnchorBatch | TokenBatch | LazyDataset, limit: int
    ) -> tuple[Accuracy, dict[int, Accuracy]]:
        """Return the accuracy on at most `limit` random sequences of a batch, overall and by position.

        Identical sequences count once. A task without noise has few possible sequences. With noise, the batch
        is a sample from a very large set of sequences.
        """
        n, rng = min(limit, len(batch)), generator(self.seed, "evaluation", 2)
        if len(batch) <= _MOST_PERMUTED:
            rows = rng.permutation(len(batch))[:n]
        else:
            rows = rng.choice(len(batch), n, replace=False)
        asked = batch.take(rows).distinct()
        right = self.answers(asked.tokens) == asked.targets.numpy()
        is_anchor = np.isin(asked.tokens.numpy(), list(self.task.anchors))
        position = is_anchor.argmax(axis=1) - 1  # of the key; -1 without anchors
        found, has_noise = {}, self.task.seq_len > self.task.chain_length + 1
        for one in np.intersect1d(position, self.task.positions[: evaluation.MOST_POSITIONS]).tolist():
            found[one] = Accuracy.of_some(right[position == one])
        return Accuracy.of_some(right, of=None if has_noise else self.task.n_trials("train")), found


TrainingSet = AnchorBatch | TokenBatch | LazyDataset | Sequence[Any]
"""What a model was trained on; a sequence is (tokens [batch, pos], targets [batch]), as tensors, arrays or
lists."""

MOST_ASKED = 100_000_000
"""Largest `max_train`, `max_trials` and `batch_size` of `evaluate`."""
MOST_DRAWS = 10_000
"""Largest `n_noise`."""


@checked_arguments()
def evaluate(
    model: LogitsModel,
    task: Any,
    *,
    training_set: TrainingSet | None = None,
    n_noise: int = evaluation.N_NOISE,
    max_train: int = evaluation.MAX_TRAIN,
    max_trials: int = evaluation.MAX_TRIALS,
    seed: int = 0,
    batch_size: int = 1024,
    half: int | None = None,
) -> Any:
    """Evaluate a model on the two-anchor task. `AnchorTask.evaluate` documents the options.

    Example:
        >>> from anchorlens.models.hooked import ModelConfig, build_model
        >>> from anchorlens import AnchorTask
        >>> evaluate(build_model(ModelConfig(d_model=32)), AnchorTask(), n_noise=2).phase.label
        'undecided: training data unknown'
    """
    sizes = {"max_train": (max_train, 1), "batch_size": (batch_size, 1), "max_trials": (max_trials, 2)}
    for name, (value, least) in sizes.items():
        check_number(name, value, minimum=least, limit=MOST_ASKED, integer=True)
    check_number("half", half, minimum=0, maximum=1, integer=True, optional=True)
    has_noise = task.seq_len > task.chain_length + 1
    check_number("n_noise", n_noise, minimum=2 if has_noise else 1, limit=MOST_DRAWS, integer=True)
    n_noise = n_noise if has_noise else 1
    questions = SplitEvaluator(model, task, seed, batch_size, max_trials, half)
    known = None if training_set is None else checked_training_set(training_set, task)

    train_trials = questions.trials("train")
    train_targets = task.targets(train_trials)
    fresh = questions.ask(train_trials, min(2, n_noise)) == train_targets[:, None]
    train_fresh = questions.split_accuracy("train", fresh)
    train, trained = train_fresh, questions.by_position("train", train_trials, fresh)
    if known is not None:
        train, trained = questions.ask_batch(known, max_train)

    id_trials = questions.trials("id")
    id_deviation = questions.ask(id_trials, n_noise) - task.targets(id_trials)[:, None]
    right = id_deviation == 0
    pairs = questions.pair_accuracies("id", id_trials, task.seen_pairs, right)
    id_accuracy = questions.split_accuracy("id", right)
    beside = _beside_the_rules(questions, id_trials, right, n_noise) if task.n_exceptions else {}
    unseen = _answers_on_unseen(questions, n_noise) if task.ood_pairs else _Unseen()
    found = {"train": trained, "id": questions.by_position("id", id_trials, right), **unseen.by_position}
    assert train_fresh is not None and train is not None and id_accuracy is not None
    overlap, other_targets = (None, None) if known is None else _compared_with_task(known, task)
    majority_baseline = float(np.bincount(train_targets).max()) / len(train_targets)
    options = {"n_noise": n_noise, "max_train": max_train, "max_trials": max_trials, "seed": seed}
    positions = evaluation.gathered(found, task.positions.tolist())
    return AnchorEvaluation(
        kind=task.kind,
        metrics=task.metrics,
        measures={"train": train, "id": id_accuracy, **unseen.measures, **beside},
        in_conflict=task.in_conflict,
        **questions.about,
        options=options | {"task": task.describe()} | ({} if half is None else {"half": half}),
        figure_specs=(evaluation.positions_figure(positions),) if len(positions) > 1 else (),
        train_source="fresh noise" if known is None else TRAINING_SET,
        held_out=task.held_out,
        overlap=overlap,
        other_targets=other_targets,
        by_symmetry=unseen.by_symmetry,
        train_fresh=train_fresh,
        pairs=(*pairs, *unseen.pairs),
        deviations={"id": _shares(id_deviation), **unseen.deviations},
        positions=positions,
        best_constant=Accuracy.of_share(majority_baseline, len(train_targets)),
    )


class _Unseen(NamedTuple):
    """What is measured on unseen pairs; nothing where a task has none."""

    measures: Mapping[str, Accuracy | None] = dict.fromkeys(("ood", "symmetric", "commutativity"))
    by_symmetry: Accuracy | None = None
    deviations: Mapping[Split, dict[int, float]] = MappingProxyType({})
    pairs: tuple[PairAccuracy, ...] = ()
    by_position: Mapping[str, dict[int, Accuracy]] = MappingProxyType({})


def _answers_on_unseen(questions: SplitEvaluator, n_noise: int) -> _Unseen:
    """Ask about the unseen pairs and their mirrors, with the same noise for both."""
    task, trials = questions.task, questions.trials("ood")
    counts = ~task.answered_by_symmetry(trials)
    mirror = replace(trials, pairs=trials.pairs[:, ::-1])
    answers, mirrored = questions.ask(trials, n_noise), questions.ask(mirror, n_noise)
    inferential = task.targets(trials, kind="inferential")
    deviation = answers - inferential[:, None]
    same_answer = (answers == mirrored)[(trials.pairs != mirror.pairs).any(axis=1)]
    symmetric_targets = task.targets(trials, kind="mirrored")
    mirror_is_seen = np.isin(task.pair_index(mirror.pairs), task.pair_index(task.seen_pairs))
    differs = mirror_is_seen & (symmetric_targets != inferential)
    two_ways, as_mirror = trials.take(np.flatnonzero(differs)), answers == symmetric_targets[:, None]
    counting = trials.take(np.flatnonzero(counts))
    return _Unseen(
        measures={
            "ood": questions.split_accuracy("ood", deviation[counts] == 0),
            "symmetric": questions.split_accuracy("ood", as_mirror[differs]),
            "commutativity": questions.split_accuracy("ood", same_answer) if task.commutes else None,
        },
        by_symmetry=questions.split_accuracy("ood", deviation[~counts] == 0),
        deviations={"ood": _shares(deviation[counts])} if counts.any() else {},
        pairs=tuple(questions.pair_accuracies("ood", trials, task.ood_pairs, deviation == 0)),
        by_position={
            "ood": questions.by_position("ood", counting, deviation[counts] == 0),
            "inferential": questions.by_position("ood", two_ways, (deviation == 0)[differs]),
            "symmetric": questions.by_position("ood", two_ways, as_mirror[differs]),
        },
    )


def _beside_the_rules(
    questions: SplitEvaluator, trials: Trials, right: Bool[np.ndarray, "trial draw"], n_noise: int
) -> dict[str, Accuracy | None]:
    """Measure what only tasks with exceptions have: `exceptions`, `rules` and `broken`.

    Args:
        questions: the questions, which run the model.
        trials: the trials of the ID split.
        right: whether each answer to the trials is correct.
        n_noise: the number of noise draws for every exception and trained position.
    """
    task = questions.task
    asked, whole = questions.exceptions()
    remembered = questions.ask(asked, n_noise) == task.targets(asked)[:, None]
    obeys = ~task.is_exception(trials)
    is_broken = np.isin(task.pair_index(trials.pairs), task.pair_index(list(task.trained_overrides)))
    return {
        "exceptions": Accuracy.of_draws(remembered, whole=whole),
        "rules": questions.split_accuracy("id", right[obeys & ~is_broken]),
        "broken": questions.split_accuracy("id", right[obeys & is_broken]),
    }


def checked_training_set(training_set: TrainingSet, task: CompositeFunction) -> TokenBatch | LazyDataset:
    """Check that a model's training data are sequences of this task, and return the data.

    Raises:
        ValueError: If the data are not sequences, do not have the task's shape, or contain unknown tokens.
    """
    if not isinstance(training_set, LazyDataset):
        return token_batch(training_set, seq_len=task.seq_len, d_vocab=task.d_vocab)
    if (training_set.task.seq_len, training_set.task.d_vocab) != (task.seq_len, task.d_vocab):
        raise ValueError(
            f"training_set must be drawn from a task with seq_len {task.seq_len} and d_vocab {task.d_vocab}, "
            f"got seq_len {training_set.task.seq_len} and d_vocab {training_set.task.d_vocab}. Give the "
            "training set of this task"
        )
    return training_set


def _compared_with_task(
    known: TokenBatch | LazyDataset, task: CompositeFunction
) -> tuple[Overlap, OtherTargets | None]:
    """Compare training data with the test inputs and the targets of the task."""
    if isinstance(known, LazyDataset):
        if known.task == task and known.split == "train":
            return Overlap(len(known), {"id": 0, "ood": 0}), OtherTargets(len(known), 0)
        known = known.all()
    return overlap_with_training(known, task), compared(known, task.targets_of(known.tokens))


def quick_accuracies(
    model: LogitsModel, task: CompositeFunction, training_set: AnchorBatch, *, seed: int = 0
) -> dict[str, float | None]:
    """Measure train, ID, OOD and exceptions accuracy with one noise draw per trial, for the log of a run.

    Args:
        model: the model, as for `evaluate`.
        task: the task, as for `evaluate`.
        training_set: the sequences that the model is trained on.
        seed: the seed of the noise.

    Returns:
        A map of `train_accuracy`, `id_accuracy` and `ood_accuracy`, from 0 to 1. `ood_accuracy` is None if
        every pair is trained, or symmetry answers every unseen pair. For a task with exceptions, the map also
        contains `exceptions_accuracy`.
    """
    questions = SplitEvaluator(model, task, seed, batch_size=1024, max_trials=evaluation.QUICK_TRIALS)
    train, _ = questions.ask_batch(training_set, evaluation.QUICK_TRAIN)
    accuracies: dict[str, float | None] = {"train_accuracy": train.value}
    for split in ("id", "ood"):
        trials = questions.trials(split)
        right = questions.ask(trials, 1)[:, 0] == task.targets(trials) if len(trials) else np.zeros(0, bool)
        if split == "ood":
            right = right[~task.answered_by_symmetry(trials)]
        accuracies[f"{split}_accuracy"] = float(right.mean()) if len(right) else None
    if task.n_exceptions:
        trials, _ = questions.exceptions()
        right = questions.ask(trials, 1)[:, 0] == task.targets(trials)
        accuracies["exceptions_accuracy"] = float(right.mean())
    return accuracies


def _shares(deviation: Int[np.ndarray, "trial draw"]) -> dict[int, float]:
    values, counts = np.unique(deviation, return_counts=True)
    return dict(zip(values.tolist(), (counts / deviation.size).tolist(), strict=True))
