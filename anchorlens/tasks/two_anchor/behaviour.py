"""What a model answers: accuracies per split and pair, deviations, commutativity, and its phase.

Every (pair, key, position) is asked (up to `max_cells`); only the noise around it is sampled, several
draws for each, so that the standard errors are those of the noise alone. Sources: arXiv 2405.05409
(inferential and symmetric accuracy), 2501.08537 (ID, OOD, commutativity).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Int

from anchorlens.configuration import check_number, documented
from anchorlens.tasks.shared.accuracy import Accuracy
from anchorlens.tasks.shared.batch import TokenBatch
from anchorlens.tasks.shared.checked_batch import token_batch
from anchorlens.tasks.shared.evaluation import Evaluation
from anchorlens.tasks.shared.metric import Metric
from anchorlens.tasks.shared.overlap import Overlap
from anchorlens.tasks.shared.phases import CLEAR
from anchorlens.tasks.shared.sketch import Sketch
from anchorlens.tasks.two_anchor import by_position
from anchorlens.tasks.two_anchor.anchor_functions import Pair
from anchorlens.tasks.two_anchor.by_position import PositionAnswers, Solution
from anchorlens.tasks.two_anchor.drawing import Drawing
from anchorlens.tasks.two_anchor.metrics import KIND, METRICS
from anchorlens.tasks.two_anchor.overlap import overlap_with_training
from anchorlens.tasks.two_anchor.questions import Model, PairAccuracy, Questions
from anchorlens.tasks.two_anchor.sequences import AnchorBatch
from anchorlens.tasks.two_anchor.splits import Split

if TYPE_CHECKING:
    from anchorlens.tasks.two_anchor.task import AnchorTask

TrainingSet = AnchorBatch | TokenBatch | Drawing | Sequence[Any]
"""What a model was trained on; the last is (tokens [batch, pos], targets [batch]), as tensors, arrays or
lists."""

MOST_ASKED = 100_000_000
"""Largest `max_train`, `max_cells` and `batch_size` of `evaluate`."""
MOST_DRAWS = 10_000
"""Largest `n_noise`."""


@documented
@dataclass(frozen=True, eq=False)
class Behaviour(Evaluation):
    """Everything `evaluate` measured: accuracies (0..1) with standard errors, and the phase.

    Source: arXiv 2405.05409 (inferential and symmetric accuracy), 2501.08537 (ID, OOD, commutativity).
    """

    drawn_at_random: ClassVar[str] = "noise draws"
    train: Accuracy
    """On sequences of the training set where it is known, else on fresh noise around trained trials."""
    train_source: str
    """Which of the two `train` is: `training set` or `fresh noise`."""
    train_fresh: Accuracy
    """On every trained (pair, key, position) with fresh noise."""
    id: Accuracy
    """Seen pairs at held-out (key, position)."""
    ood: Accuracy | None
    """Unseen pairs against the inferential target; None where every pair is trained."""
    symmetric: Accuracy | None
    """Unseen pairs against their mirrored pair's trained target; None unless that target differs."""
    commutativity: Accuracy | None
    """Share of (key, position, noise) for which a mirrored pair gets the same answer in both orders,
    over the pairs with an unseen order; None where there is none."""
    pairs: tuple[PairAccuracy, ...]
    """One for every pair."""
    deviations: dict[Split, dict[int, float]]
    """Split -> {answer - target: share of its sequences}; the target is inferential for `ood`."""
    finite: bool
    """Whether every logit was finite."""
    options: dict[str, Any]
    """Noise draws, seed and the task's words."""
    positions: tuple[PositionAnswers, ...] = ()
    """One for every position of the key; empty for more than 200 of them."""
    best_constant: Accuracy | None = None
    """What the best answer that never changes gets of the training questions: chance, with its standard error
    for so many questions. None in files of before."""
    held_out: str = ""
    """What the task leaves out of training, in words."""
    overlap: Overlap | None = None
    """The training sequences that ask held-out questions; None where the training data are not known."""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """What the task measures."""
        return METRICS

    def measure(self, name: str) -> Accuracy | None:
        """The value of a metric with its standard error; None where it is not defined."""
        return getattr(self, name)

    @property
    def at_chance(self) -> str | None:
        """Why its answers are no sign that it was trained on the task at all; None where they are one.

        Neither train accuracy, on fresh noise and on given training data, is more than two standard errors
        above that of the best answer that never changes.
        """
        constant = self.best_constant
        if constant is None:
            return None
        for train in (self.train_fresh, self.train):
            error = math.sqrt(
                constant.value * (1 - constant.value) / min(train.n_sequences, constant.n_sequences)
            )
            if train.value > constant.value + CLEAR * error:
                return None
        return (
            f"train accuracy {self.train_fresh.value:.3f} is not above {constant}, that of the best answer "
            "that never changes: no sign that it was trained on this task"
        )

    def __repr__(self) -> str:
        ood = "no unseen pair" if self.ood is None else f"OOD {self.ood.value:.3f}"
        return f"Behaviour({self.phase.label}; train {self.train.value:.3f}, ID {self.id.value:.3f}, {ood})"

    @property
    def solution(self) -> Solution | None:
        """How unseen pairs are answered whose mirrored pair is trained on another target; None without any.

        See `anchorlens.tasks.two_anchor.by_position.solution_of`.
        """
        return by_position.solution_of(self.positions)

    @property
    def sketches(self) -> Sequence[Sketch]:
        """Accuracies over the positions of the key, where there are several."""
        return (by_position.sketch(self.positions),) if len(self.positions) > 1 else ()

    def positions_in_words(self) -> str:
        """The solution and what differs notably between positions, in a line; empty without either."""
        return by_position.in_words(self.positions)

    def by_pair(self) -> dict[Pair, PairAccuracy]:
        """Pair -> its accuracy."""
        return {tuple(pair.pair): pair for pair in self.pairs}

    def lowest(self, n: int) -> list[PairAccuracy]:
        """The `n` pairs with the lowest accuracy, those that are no number first."""
        return sorted(self.pairs, key=lambda pair: np.nan_to_num(pair.accuracy.value, nan=-1.0))[:n]

    def deviations_in_words(self, split: Split, most: int = 4) -> str:
        """The most frequent deviations of a split with their shares: `+0 in 75%, -4 in 25%`."""
        ranked = sorted(self.deviations[split].items(), key=lambda item: -item[1])
        named = [f"{deviation:+d} in {share:.0%}" for deviation, share in ranked[:most]]
        rest = 1 - sum(share for _, share in ranked[:most])
        return ", ".join(named) + (f", others in {rest:.0%}" if len(ranked) > most else "")

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready content."""
        values = asdict(self)
        deviations = {
            split: {str(deviation): share for deviation, share in shares.items()}
            for split, shares in self.deviations.items()
        }
        pairs = [{**row, "pair": list(row["pair"])} for row in values["pairs"]]
        ours = {"pairs": pairs, "deviations": deviations, "positions": list(values["positions"])}
        return {**values, **ours, "solution": self.solution, "phase": self.phase.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Behaviour:
        """Read what `to_dict` gave, also after a way through JSON.

        Raises:
            KeyError: something is missing.
        """
        derived = ("phase", "solution")  # they follow from the rest
        read = {name: value for name, value in values.items() if name not in derived}
        for name in ("train_fresh", "best_constant", *(metric.name for metric in METRICS)):
            read[name] = None if values[name] is None else Accuracy.from_dict(values[name])
        read["overlap"] = Overlap.from_dict(values["overlap"])
        read["pairs"] = tuple(map(PairAccuracy.from_dict, values["pairs"]))
        read["positions"] = tuple(map(PositionAnswers.from_dict, values["positions"]))
        read["deviations"] = {
            split: {int(deviation): share for deviation, share in shares.items()}
            for split, shares in values["deviations"].items()
        }
        return cls(**read)


def evaluate(
    model: Model,
    task: Any,
    *,
    training_set: TrainingSet | None = None,
    n_noise: int = 8,
    max_train: int = 4096,
    max_cells: int = 20_000,
    seed: int = 0,
    batch_size: int = 1024,
) -> Any:
    """Measure what a model answers and name its phase by definition.

    Args:
        model: a HookedTransformer, or anything that maps tokens [batch, pos] to logits
            [batch, pos, d_vocab]. Its training mode and device are left as they are.
        task: what it was trained on. One of another kind than AnchorTask has its own options, which its
            `evaluate` takes; here it is given `training_set` and `seed`.
        training_set: the sequences it was trained on, for the train accuracy: tokens [batch, seq_len] and
            targets [batch], integers, as tensors, arrays or lists; a TokenBatch; or what a checkpoint draws
            (`Checkpoint.training_set()`, for a large one `training_drawing()`). Without it that is measured
            on fresh noise, which a model that memorised a small training set gets wrong.
        n_noise: noise draws for every held-out and unseen (pair, key, position), >= 2 unless the
            task has no noise.
        max_train: sequences of the training set asked at most, >= 1; of a larger one a random choice.
        max_cells: (pair, key, position) asked at most per split, >= 2; a split with more (the papers'
            have 6,972, 868 and 1,120) is asked on a random choice, and the standard errors grow.
        seed: of the noise, and of that choice.
        batch_size: sequences per forward pass at most; fewer where their activations take more than 256 MB.

    Returns:
        A Behaviour: accuracies (0..1) with standard errors, per pair, deviations, commutativity and the
        phase; for a task of another kind its `Evaluation`.

    Raises:
        ValueError: an unusable option, a training set of another shape or vocabulary than the task's, a
            model whose vocabulary or context is too small for the task, or logits of another shape than
            [batch, pos, d_vocab] with room for every target.

    Example:
        >>> from anchorlens.models.hooked import ModelConfig, build_model
        >>> from anchorlens import AnchorTask
        >>> evaluate(build_model(ModelConfig()), AnchorTask(), n_noise=2).phase.label
        'undecided: training data unknown'

    Source: inferential and symmetric accuracy of arXiv 2405.05409; ID, OOD and commutativity of
    2501.08537.
    """
    if getattr(task, "kind", KIND) != KIND:
        return task.evaluate(model, training_set=training_set, seed=seed)
    check_number("max_train", max_train, minimum=1, limit=MOST_ASKED, integer=True)
    check_number("batch_size", batch_size, minimum=1, limit=MOST_ASKED, integer=True)
    check_number("max_cells", max_cells, minimum=2, limit=MOST_ASKED, integer=True)
    check_number("seed", seed, minimum=0, integer=True)
    has_noise = task.seq_len > task.chain_length + 1
    check_number("n_noise", n_noise, minimum=2 if has_noise else 1, limit=MOST_DRAWS, integer=True)
    n_noise = n_noise if has_noise else 1
    questions = Questions(model, task, seed, batch_size, max_cells)
    known = None if training_set is None else checked_training_set(training_set, task)

    ask = questions.ask
    train_trials = questions.trials("train")
    train_targets = task.targets(train_trials)
    fresh = ask(train_trials, min(2, n_noise)) == train_targets[:, None]
    train_fresh = questions.accuracy("train", fresh)
    train, trained = train_fresh, questions.by_position("train", train_trials, fresh)
    if known is not None:
        train, trained = questions.ask_batch(known, max_train)

    id_trials = questions.trials("id")
    id_deviation = ask(id_trials, n_noise) - task.targets(id_trials)[:, None]
    deviations: dict[Split, dict[int, float]] = {"id": _shares(id_deviation)}
    pairs = list(questions.pair_accuracies("id", id_trials, task.seen_pairs, id_deviation == 0))
    id_accuracy = questions.accuracy("id", id_deviation == 0)
    found = {"train": trained, "id": questions.by_position("id", id_trials, id_deviation == 0)}

    ood = symmetric = commutativity = None
    if task.ood_pairs:
        trials = questions.trials("ood")
        mirror = replace(trials, pairs=trials.pairs[:, ::-1])
        answers, mirrored = ask(trials, n_noise), ask(mirror, n_noise)  # the same noise for both
        inferential = task.targets(trials, kind="inferential")
        deviation = answers - inferential[:, None]
        deviations["ood"] = _shares(deviation)
        pairs += questions.pair_accuracies("ood", trials, task.ood_pairs, deviation == 0)
        ood = questions.accuracy("ood", deviation == 0)

        has_mirror = (trials.pairs != mirror.pairs).any(axis=1)
        commutativity = questions.accuracy("ood", (answers == mirrored)[has_mirror])
        symmetric_targets = task.targets(trials, kind="mirrored")
        mirror_is_seen = np.isin(task.pair_index(mirror.pairs), task.pair_index(np.array(task.seen_pairs)))
        differs = mirror_is_seen & (symmetric_targets != inferential)
        two_ways, as_mirror = trials.take(np.flatnonzero(differs)), answers == symmetric_targets[:, None]
        symmetric = questions.accuracy("ood", as_mirror[differs])
        found["ood"] = questions.by_position("ood", trials, deviation == 0)
        found["inferential"] = questions.by_position("ood", two_ways, (deviation == 0)[differs])
        found["symmetric"] = questions.by_position("ood", two_ways, as_mirror[differs])

    assert train_fresh is not None and train is not None and id_accuracy is not None
    return Behaviour(
        train=train,
        train_source="fresh noise" if known is None else "training set",
        train_fresh=train_fresh,
        id=id_accuracy,
        ood=ood,
        symmetric=symmetric,
        commutativity=commutativity,
        pairs=tuple(pairs),
        deviations=deviations,
        finite=questions.finite,
        options={
            "n_noise": n_noise,
            "max_train": max_train,
            "max_cells": max_cells,
            "seed": seed,
            "task": task.describe(),
        },
        positions=by_position.gathered(found, task.positions.tolist()),
        best_constant=_best_constant(train_targets),
        held_out=task.held_out,
        overlap=None if known is None else overlap_with_training(known, task),
    )


def _best_constant(targets: Int[np.ndarray, " trial"]) -> Accuracy:
    share = float(np.bincount(targets).max()) / len(targets)
    return Accuracy.of_share(share, len(targets))


def checked_training_set(training_set: TrainingSet, task: AnchorTask) -> TokenBatch | Drawing:
    """A model's training data, if they are sequences of this task.

    Raises:
        ValueError: they are something else, of another shape, or hold tokens that the task does not have.
    """
    if not isinstance(training_set, Drawing):
        return token_batch(training_set, seq_len=task.seq_len, d_vocab=task.d_vocab)
    if (training_set.task.seq_len, training_set.task.d_vocab) != (task.seq_len, task.d_vocab):
        raise ValueError(
            f"training_set must be drawn from a task with seq_len {task.seq_len} and d_vocab {task.d_vocab}, "
            f"got one with {training_set.task.seq_len} and {training_set.task.d_vocab}; is it of this model?"
        )
    return training_set


def quick_accuracies(
    model: Model, task: AnchorTask, training_set: AnchorBatch, *, seed: int = 0, max_train: int = 1024
) -> dict[str, float | None]:
    """Train, ID and OOD accuracy from one noise draw, for the log of a run.

    Args:
        model: as for `evaluate`.
        task: as for `evaluate`.
        training_set: the sequences it is trained on.
        seed: of the noise.
        max_train: sequences of the training set asked at most.

    Returns:
        `train_accuracy`, `id_accuracy`, `ood_accuracy`, 0..1; None where every pair is trained.
    """
    questions = Questions(model, task, seed, batch_size=1024, max_cells=2048)
    accuracies: dict[str, float | None] = {
        "train_accuracy": questions.ask_batch(training_set, max_train)[0].value
    }
    for split in ("id", "ood"):
        trials = questions.trials(split)
        targets = task.targets(trials, kind="inferential" if split == "ood" else "trained")
        right = questions.ask(trials, 1)[:, 0] == targets if len(trials) else None
        accuracies[f"{split}_accuracy"] = None if right is None else float(right.mean())
    return accuracies


def _shares(deviation: Int[np.ndarray, "trial draw"]) -> dict[int, float]:
    values, counts = np.unique(deviation, return_counts=True)
    return dict(zip(values.tolist(), (counts / deviation.size).tolist(), strict=True))
