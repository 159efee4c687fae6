"""What a model answers: accuracies per split and pair, deviations, commutativity, and its phase.

Every (pair, key, position) is asked (up to `max_cells`); only the noise around it is sampled, several
draws for each, so that the standard errors speak of noise alone. Sources: arXiv 2405.05409 (inferential
and symmetric accuracy), 2501.08537 (ID, OOD, commutativity).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from anchorlens.configuration import check_number, documented
from anchorlens.models.config import ModelConfig
from anchorlens.models.measuring import BATCH_BYTES, evaluation_mode, sequence_bytes
from anchorlens.randomness import generator
from anchorlens.tasks.phases import Phase, phase_by_definition
from anchorlens.tasks.two_anchor.drawing import Drawing
from anchorlens.tasks.two_anchor.task import AnchorBatch, AnchorTask, Cells, Pair, Split
from anchorlens.views import view

_MOST_PERMUTED = 10_000_000
"""Sequences of a training set of which a permutation is made, to choose some."""

Model = Callable[[Tensor], Tensor]
"""Anything that maps tokens [batch, pos] to logits [batch, pos, d_vocab], as a HookedTransformer does, or
to [batch, 1, d_vocab], those of the last position alone."""


MOST_ASKED = 100_000_000
"""Sequences that an option of `evaluate` may speak of."""
MOST_DRAWS = 10_000
"""Noise draws of a cell."""

MEANING = {
    "train": "answers to what it was trained on",
    "id": "seen pairs, held-out (key, position)",
    "ood": "unseen pairs, asked for the composition",
    "symmetric": "unseen pairs, answered like their mirror",
    "commutativity": "same answer for (.., a, b) and (.., b, a)",
}
"""Accuracy of a Behaviour -> what it is, in a few words."""


@documented
@dataclass(frozen=True)
class Accuracy:
    """A share of sequences, with what it was measured on."""

    value: float
    """0..1."""
    standard_error: float
    """Of the noise draws (0 where every sequence there is was asked)."""
    n_sequences: int
    """Sequences asked."""

    def __str__(self) -> str:
        return f"{self.value:.3f} ± {self.standard_error:.3f}"


@documented
@dataclass(frozen=True)
class PairAccuracy:
    """Accuracy of one anchor pair."""

    pair: Pair
    """Anchor tokens in order."""
    split: Split
    """`id`: a seen pair on held-out (key, position); `ood`: an unseen pair on all of them."""
    accuracy: Accuracy
    """Against the trained target for seen pairs, the inferential one for unseen."""


@documented
@dataclass(frozen=True, eq=False)
class Behaviour:
    """Everything `evaluate` measured: accuracies (0..1) with standard errors, and the phase.

    Source: arXiv 2405.05409 (inferential and symmetric accuracy), 2501.08537 (ID, OOD, commutativity).
    """

    train: Accuracy
    """On sequences of the training set where it is known, else on fresh noise around trained cells."""
    train_source: Literal["training set", "fresh noise"]
    """Which of the two `train` is."""
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
    phase: Phase
    """By definition, from the numbers above."""
    finite: bool
    """Whether every logit was finite."""
    options: dict[str, Any]
    """Noise draws, seed and the task's words."""

    def __repr__(self) -> str:
        ood = "no unseen pair" if self.ood is None else f"OOD {self.ood.value:.3f}"
        return f"Behaviour({self.phase.label}; train {self.train.value:.3f}, ID {self.id.value:.3f}, {ood})"

    def _repr_html_(self) -> str:
        return view("behaviour.html", behaviour=self)

    def rows(self) -> Iterator[tuple[str, Accuracy, str]]:
        """Name, accuracy and meaning of every accuracy that was measured."""
        for name, meaning in MEANING.items():
            accuracy: Accuracy | None = getattr(self, name)
            if accuracy is None:
                continue
            if name == "train" and self.train_source == "fresh noise":
                meaning = "trained (pair, key, position), fresh noise"
            yield name.upper() if name in ("id", "ood") else name, accuracy, meaning

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

    def headline(self) -> dict[str, Any]:
        """The few numbers that sum it up, JSON-ready: accuracies (0..1 or None) and the phase."""
        names = ("train", "id", "ood", "symmetric", "commutativity")
        values: dict[str, Any] = {}
        for name in names:
            accuracy = getattr(self, name)
            values[name] = None if accuracy is None else accuracy.value
        return {**values, "phase": self.phase.phase, "label": self.phase.label}

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready content."""
        values = asdict(self)
        values["phase"] = {"label": self.phase.label, **values["phase"]}
        values["deviations"] = {
            split: {str(deviation): share for deviation, share in shares.items()}
            for split, shares in self.deviations.items()
        }
        values["pairs"] = [
            {**row, "pair": list(p.pair)} for p, row in zip(self.pairs, values["pairs"], strict=True)
        ]
        return values


def evaluate(
    model: Model,
    task: AnchorTask,
    *,
    training_set: AnchorBatch | Drawing | None = None,
    n_noise: int = 8,
    max_train: int = 4096,
    max_cells: int = 20_000,
    seed: int = 0,
    batch_size: int = 1024,
) -> Behaviour:
    """Measure what a model answers and name its phase by definition.

    Args:
        model: a HookedTransformer, or anything that maps tokens [batch, pos] to logits
            [batch, pos, d_vocab]. Its training mode and device are left as they are.
        task: what it was trained on.
        training_set: the sequences it was trained on (`Checkpoint.training_set()`, or for a large one
            `training_drawing()`), for the train accuracy; without it that is measured on fresh noise, which
            a model that memorised a small training set gets wrong.
        n_noise: noise draws for every held-out and unseen (pair, key, position), >= 2 unless the
            task has no noise.
        max_train: sequences of the training set asked at most, >= 1; of a larger one a random choice.
        max_cells: (pair, key, position) asked at most per split, >= 2; a split with more (the papers'
            have 6,972, 868 and 1,120) is asked on a random choice, and the standard errors grow.
        seed: of the noise, and of that choice.
        batch_size: sequences per forward pass at most; fewer where their activations take more than 256 MB.

    Returns:
        Accuracies (0..1) with standard errors, per pair, deviations, commutativity and the phase.

    Raises:
        ValueError: an unusable option, a vocabulary or context too small for the task, or logits of
            another shape than [batch, pos, d_vocab] with room for every target.

    Example:
        >>> from anchorlens.models.hooked import ModelConfig, build_model
        >>> evaluate(build_model(ModelConfig()), AnchorTask(), n_noise=2).phase.label
        'undecided: underfit'

    Source: inferential and symmetric accuracy of arXiv 2405.05409; ID, OOD and commutativity of
    2501.08537.
    """
    check_number("max_train", max_train, minimum=1, limit=MOST_ASKED, integer=True)
    check_number("batch_size", batch_size, minimum=1, limit=MOST_ASKED, integer=True)
    check_number("max_cells", max_cells, minimum=2, limit=MOST_ASKED, integer=True)
    check_number("seed", seed, minimum=0, integer=True)
    has_noise = task.seq_len > task.chain_length + 1
    check_number("n_noise", n_noise, minimum=2 if has_noise else 1, limit=MOST_DRAWS, integer=True)
    n_noise = n_noise if has_noise else 1
    questions = _Questions(model, task, seed, batch_size, max_cells)

    ask = questions.ask
    train_cells = questions.cells("train")
    fresh = ask(train_cells, min(2, n_noise)) == task.targets(train_cells)[:, None]
    train_fresh = questions.accuracy("train", fresh)
    train = train_fresh if training_set is None else questions.ask_batch(training_set, max_train)

    id_cells = questions.cells("id")
    id_deviation = ask(id_cells, n_noise) - task.targets(id_cells)[:, None]
    deviations: dict[Split, dict[int, float]] = {"id": _shares(id_deviation)}
    pairs = list(questions.pair_accuracies("id", id_cells, task.seen_pairs, id_deviation == 0))
    id_accuracy = questions.accuracy("id", id_deviation == 0)

    ood = symmetric = commutativity = None
    if task.ood_pairs:
        cells = questions.cells("ood")
        mirror = replace(cells, pairs=cells.pairs[:, ::-1])
        answers, mirrored = ask(cells, n_noise), ask(mirror, n_noise)  # the same noise for both
        inferential = task.targets(cells, kind="inferential")
        deviation = answers - inferential[:, None]
        deviations["ood"] = _shares(deviation)
        pairs += questions.pair_accuracies("ood", cells, task.ood_pairs, deviation == 0)
        ood = questions.accuracy("ood", deviation == 0)

        has_mirror = (cells.pairs != mirror.pairs).any(axis=1)
        commutativity = questions.accuracy("ood", (answers == mirrored)[has_mirror])
        symmetric_targets = task.targets(cells, kind="mirrored")
        mirror_is_seen = np.isin(task.pair_index(mirror.pairs), task.pair_index(np.array(task.seen_pairs)))
        differs = mirror_is_seen & (symmetric_targets != inferential)
        symmetric = questions.accuracy("ood", (answers == symmetric_targets[:, None])[differs])

    assert train_fresh is not None and train is not None and id_accuracy is not None
    return Behaviour(
        train=train,
        train_source="fresh noise" if training_set is None else "training set",
        train_fresh=train_fresh,
        id=id_accuracy,
        ood=ood,
        symmetric=symmetric,
        commutativity=commutativity,
        pairs=tuple(pairs),
        deviations=deviations,
        phase=phase_by_definition(
            train=train.value if questions.finite else math.nan,
            id=id_accuracy.value,
            ood=None if ood is None else ood.value,
            commutativity=None if commutativity is None else commutativity.value,
        ),
        finite=questions.finite,
        options={
            "n_noise": n_noise,
            "max_train": max_train,
            "max_cells": max_cells,
            "seed": seed,
            "task": task.describe(),
        },
    )


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
    questions = _Questions(model, task, seed, batch_size=1024, max_cells=2048)
    accuracies: dict[str, float | None] = {
        "train_accuracy": questions.ask_batch(training_set, max_train).value
    }
    for split in ("id", "ood"):
        cells = questions.cells(split)
        targets = task.targets(cells, kind="inferential" if split == "ood" else "trained")
        right = questions.ask(cells, 1)[:, 0] == targets if len(cells) else None
        accuracies[f"{split}_accuracy"] = None if right is None else float(right.mean())
    return accuracies


class _Questions:
    """Asks one model for its answers (argmax at the last position), in bounded batches."""

    def __init__(self, model: Model, task: AnchorTask, seed: int, batch_size: int, max_cells: int) -> None:
        check_capacity(model, task)
        self.model, self.task, self.seed = model, task, seed
        config = getattr(model, "config", None)
        if isinstance(config, ModelConfig):
            batch_size = min(batch_size, max(1, BATCH_BYTES // sequence_bytes(config, task.seq_len)))
        self.batch_size, self.max_cells = batch_size, max_cells
        self.finite = True
        parameters = model.parameters() if isinstance(model, torch.nn.Module) else iter(())
        self.device = next((p.device for p in parameters), torch.device("cpu"))

    def cells(self, split: Split) -> Cells:
        """Every cell of a split, or a random choice of `max_cells` of them."""
        n_cells = self.task.n_cells(split)
        if n_cells <= self.max_cells:
            return self.task.cells(split)
        rng = generator(self.seed, "evaluation", 1)
        return self.task.some_cells(split, rng.choice(n_cells, self.max_cells, replace=False))

    def ask(self, cells: Cells, n_noise: int) -> Int[np.ndarray, "cell draw"]:
        """Answers for every cell under `n_noise` draws of noise.

        The noise is a function of the seed and of how many cells there are: pairs and their mirrors,
        asked with the same keys and positions, get the same noise and are comparable one by one.
        """
        rng = generator(self.seed, "evaluation")
        draws = []
        for _ in range(n_noise):
            noise = self.task.noise(len(cells), rng)
            draws.append(self._answers(self.task.place(cells, noise).tokens))
        return np.stack(draws, axis=1)

    def accuracy(self, split: Split, right: Bool[np.ndarray, "cell draw"]) -> Accuracy | None:
        """Mean over cells and draws; None where there is no cell."""
        if not right.size:
            return None
        return _accuracy(right, whole=self.task.n_cells(split) <= self.max_cells)

    def pair_accuracies(
        self, split: Split, cells: Cells, pairs: Iterable[Pair], right: Bool[np.ndarray, "cell draw"]
    ) -> Iterator[PairAccuracy]:
        """The accuracy of each pair that is among the cells."""
        asked = self.task.pair_index(cells.pairs)
        order = np.argsort(asked, kind="stable")
        pairs = list(pairs)
        wanted = self.task.pair_index(np.array(pairs))
        ends = [np.searchsorted(asked[order], wanted, side=side) for side in ("left", "right")]
        whole = self.task.n_cells(split) <= self.max_cells
        for pair, start, end in zip(pairs, *ends, strict=True):
            if start < end:
                accuracy = _accuracy(right[order[start:end]], whole=whole)
                yield PairAccuracy(pair, split, accuracy)

    def ask_batch(self, batch: AnchorBatch | Drawing, limit: int) -> Accuracy:
        """Accuracy on a batch, or on a random choice of `limit` of its sequences."""
        n, rng = min(limit, len(batch)), generator(self.seed, "evaluation", 2)
        if len(batch) <= _MOST_PERMUTED:
            rows = rng.permutation(len(batch))[:n]
        else:
            rows = rng.choice(len(batch), n, replace=False)
        asked = batch.take(rows)
        right = self._answers(asked.tokens) == asked.targets.numpy()
        share = float(right.mean())
        error = math.sqrt(share * (1 - share) / n * (1 - n / len(batch)))  # drawn without replacement
        return Accuracy(share, error, n)

    def _answers(self, tokens: Int[Tensor, "batch pos"]) -> Int[np.ndarray, " batch"]:
        answers = []
        with evaluation_mode(self.model), torch.inference_mode():
            for chunk in tokens.split(self.batch_size):
                logits = self.model(chunk.to(self.device))
                self._check(logits, chunk)
                last = logits[:, -1]  # [batch, d_vocab]
                self.finite = self.finite and bool(last.isfinite().all())
                answers.append(last.argmax(dim=-1).cpu().numpy())
        return np.concatenate(answers)

    def _check(self, logits: Any, tokens: Int[Tensor, "batch pos"]) -> None:
        shape = tuple(getattr(logits, "shape", ()))
        n_sequences, n_pos = tokens.shape
        if (
            len(shape) != 3
            or shape[0] != n_sequences
            or shape[1] not in (1, n_pos)
            or shape[2] < self.task.d_vocab
        ):
            raise ValueError(
                f"model must give logits [batch, pos, d_vocab >= {self.task.d_vocab}] for tokens "
                f"{list(tokens.shape)}, got {list(shape) or type(logits).__name__}; is it of this task?"
            )


def check_capacity(model: Model, task: AnchorTask) -> None:
    """Check that a HookedTransformer can read a task's sequences; of another model nothing is known.

    Raises:
        ValueError: its vocabulary or context is too small.
    """
    config = getattr(model, "cfg", None)
    for name, need in (("d_vocab", task.d_vocab), ("n_ctx", task.seq_len)):
        have = getattr(config, name, None)
        if isinstance(have, int) and have < need:
            raise ValueError(
                f"model must have {name} >= {need} for this task, got {have}; is it of this task?"
            )


def _accuracy(right: Bool[np.ndarray, "cell draw"], *, whole: bool = True) -> Accuracy:
    """Mean over cells and draws.

    Where every cell is there (`whole`), the standard error is that of the noise draws within the
    cells; where they are a random choice, that of the cells' means, which holds both.
    """
    share = right.mean(axis=1)
    n_cells, n_draws = right.shape
    error = 0.0
    if not whole:
        error = float(share.std(ddof=1)) / math.sqrt(n_cells) if n_cells > 1 else 0.5
    elif n_draws > 1:
        variance = share * (1 - share) * n_draws / (n_draws - 1)  # of one draw, unbiased, per cell
        error = math.sqrt(variance.sum() / n_draws) / n_cells
    return Accuracy(float(share.mean()), error, right.size)


def _shares(deviation: Int[np.ndarray, "cell draw"]) -> dict[int, float]:
    values, counts = np.unique(deviation, return_counts=True)
    return dict(zip(values.tolist(), (counts / deviation.size).tolist(), strict=True))
