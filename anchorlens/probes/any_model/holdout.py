"""Holdout: whether the model still answers training data that were left out of further training."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from anchorlens.configuration import check_number
from anchorlens.files.importers.inputs import given_training_data
from anchorlens.models.running import check_tokens, device_of, evaluation_mode
from anchorlens.probes.plots.accuracy_lines import accuracy_lines
from anchorlens.probes.shared.calling import takes_any
from anchorlens.probes.shared.checks import MOST_SEQUENCES, check_model
from anchorlens.probes.shared.further_training import AdamW, Copies
from anchorlens.probes.shared.result import ProbeResult, number, probe_result
from anchorlens.randomness import generator
from anchorlens.show.figures import BLUE, CATEGORIES, GREY, ORANGE
from anchorlens.tasks.shared.asking import blaming
from anchorlens.tasks.shared.base import Batch
from anchorlens.tasks.shared.batch import IGNORE, TokenBatch
from anchorlens.tasks.shared.checked_batch import token_batch
from anchorlens.tasks.shared.distinct_rows import distinct_rows
from anchorlens.tasks.shared.evaluator import check_capacity
from anchorlens.training.engine.numerics import numeric_settings

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from anchorlens.models.library import HookedTransformer
    from anchorlens.tasks.shared.base import Task

UPDATES = (0, 20, 40, 80, 100)
"""Updates before each measurement."""
_UPDATES_WITH_DECAY = 80
MEMORISED, LEARNT = 0.75, 0.84
"""The ratio after 100 updates of models that memorised is at most the first, and of models that learnt a rule
at least the second: fixed on runs of six kinds of task (docs/holdout.md)."""
_KNOWN, _LOST, _DECAYING = 0.9, 0.8, 0.85
"""Accuracy below which a model does not know its training data; below which the others are lost and no ratio
is read; and from which on weights decay."""
_CLOSE = 0.1
"""How little the accuracy of the others may exceed chance where no ratio is read."""
_SLOWEST = 4
"""What the learning rate is divided by at most where the others are lost; it is halved each time."""
_FEWEST, _DRAWN = 200, 10_000
"""Fewest distinct sequences, and the number drawn from a task where no training set is known."""


@probe_result
class Holdout(ProbeResult):
    """Accuracy of training data after training without them, and that of the other training data."""

    probe: ClassVar[str] = "holdout"
    readings: ClassVar[tuple[str, ...]] = (
        "holdout_ratio", "ratio_at_80", "ratio_at_40", "ratio_at_20", "others", "chance", "dose",
    )  # fmt: skip
    updates: np.ndarray
    """[measurement] Updates before each measurement: 0, 20, 40, 80, 100."""
    left_out_accuracies: np.ndarray
    """[measurement, copy] Accuracy over scored tokens of the sequences that the copy was trained without,
    0..1."""
    other_accuracies: np.ndarray
    """[measurement, copy] Accuracy over scored tokens of the other sequences, 0..1."""
    ratios: np.ndarray
    """[measurement, copy] How far `left_out_accuracies` are above chance, divided by how far
    `other_accuracies` are, 0..1; NaN where the accuracy of the others is below 0.8, or less than 0.1 above
    chance."""
    holdout_ratio: float | None
    """Mean ratio after 100 updates, 0..1: 1 = left-out sequences are answered as well as those trained, low =
    they are forgotten. A model that memorised does not read 0. None where the others of a copy are lost."""
    ratio_at_80: float | None
    """The same after 80 updates."""
    ratio_at_40: float | None
    """The same after 40 updates."""
    ratio_at_20: float | None
    """The same after 20 updates."""
    others: float
    """Mean accuracy of the other sequences after 100 updates, 0..1."""
    chance: float
    """Mean accuracy on the left-out sequences of an answer that goes by the last token read alone, and is
    the commonest after it in the other training data, 0..1."""
    dose: float
    """Mean weight decay of the first 80 updates, 0..`weight_decay`: weights decay in those updates alone
    whose batch is answered with accuracy 0.85 or more."""
    n_distinct: int
    """Number of distinct sequences in the training data."""
    n_left_out: int
    """Number of distinct sequences that a copy was trained without."""
    lr: float
    """Learning rate; half or a quarter of what was asked for where the others were lost at a higher one."""
    weight_decay: float
    """Largest weight decay of an update; at half the learning rate, twice what was asked for."""
    batch_size: int
    """Number of sequences in an update."""
    n_sequences: int
    """Largest number of sequences that an accuracy is measured on."""
    seed: int
    """Seed of the sequences left out, the batches and the questions."""

    def headline(self) -> str:
        """How well the left-out training data are still answered."""
        ratio = "no ratio" if self.holdout_ratio is None else f"{self.holdout_ratio:.2f}"
        after = f"after {self.updates[-1]} updates without them, the others at {self.others:.2f}"
        left_out = f"accuracy {self.left_out_accuracies[-1].mean():.2f} on left-out training data"
        return f"{ratio}: {left_out} {after}"

    def plot(self) -> go.Figure:
        """Accuracies against updates, and where models that memorised and that learnt a rule end."""
        lines = {"left out": (ORANGE, self.left_out_accuracies), "the others": (BLUE, self.other_accuracies)}
        memorised, learnt = (
            self.chance + bound * (self.others - self.chance) for bound in (MEMORISED, LEARNT)
        )
        bars = {
            f"learnt a rule (ratio from {LEARNT:.2f})": (CATEGORIES[2], learnt, self.others),
            f"memorised (ratio to {MEMORISED:.2f})": (GREY, 0.0, memorised),
        }
        return accuracy_lines(
            "Accuracy of training data left out of further training", self.updates, lines, bars
        )


@takes_any
def holdout(
    model: HookedTransformer,
    task: Task | None = None,
    *,
    training_set: object = None,
    which: object = None,
    n_copies: int = 3,
    lr: float = 2e-3,
    weight_decay: float = 5.0,
    batch_size: int = 128,
    n_sequences: int = 256,
    seed: int = 0,
) -> Holdout:
    """Measure whether a model still answers training data that are left out of further training.

    AdamW trains copies of the model for 100 updates, each copy without another random tenth of the training
    data. In the first 80 weights decay while the batch is answered with accuracy 0.85 or more, so the copy
    forgets what the other training data do not need, and keeps the answers to these. If the accuracy of the
    others ends below 0.8, everything is done again from the model with half the learning rate and twice the
    decay, at most twice. A rule that the other data need answers the left-out data too. The model is only
    read, and no held-out data are used.

    Accuracy is over scored tokens, each after the right tokens before it. Chance is subtracted: how often the
    commonest target after the last token alone is right. Equal sequences count once.

    Limitations: The probe does not show which rule the model learnt, or whether the rule holds outside the
    training data. The ratio of random labels is not 0 but up to 0.6. A model that memorised can have the same
    ratio whether or not it answers held-out data, so the ratio is not an estimate of held-out accuracy.

    Args:
        model: any HookedTransformer, or a native TransformerBridge.
        task: the task, if `training_set` is left out: 10,000 of its training sequences are drawn. For a
            checkpoint that knows its recipe they are those of its run.
        training_set: tokens [sequence, pos] and targets [sequence], or [sequence, pos] with -100 where
            nothing is scored; a pair, an object with both, or the path of a file with them.
        which: bool [sequence], the sequences to leave out instead of random tenths; exceptions, for example.
            Every copy is then trained without the same ones, on batches of its own.
        n_copies: number of copies, 1..10.
        lr: learning rate, > 0.
        weight_decay: decoupled weight decay of an update, >= 0.
        batch_size: number of sequences in an update, >= 1.
        n_sequences: largest number of sequences that an accuracy is measured on, >= 1.
        seed: seed of the tenths, the batches and the questions.

    Returns:
        Accuracies, 0..1, of the left-out sequences and the others, and their ratios, before training and
        after 20, 40, 80 and 100 updates; the rate and weight decay that were used.

    Raises:
        ValueError: no training data, fewer than 200 distinct sequences, a model that does not fit them or
            answers them with accuracy below 0.9, nothing or everything left out, or a number out of range.

    Example:
        >>> from anchorlens import load_checkpoint
        >>> from anchorlens.training import checkpoints
        >>> phase1 = load_checkpoint(checkpoints.shipped()[0])
        >>> holdout(phase1).holdout_ratio < 0.7
        True

    Source: ours; weight decay shrinks weights that training does not need, and networks forget what they no
    longer train on (McCloskey and Cohen 1989, catastrophic interference).
    """
    check_model(model)
    for name, value in {"batch_size": batch_size, "n_sequences": n_sequences}.items():
        check_number(name, value, minimum=1, limit=MOST_SEQUENCES, integer=True)
    check_number("n_copies", n_copies, minimum=1, maximum=10, integer=True)
    check_number("lr", lr, above=0, maximum=1)
    check_number("weight_decay", weight_decay, minimum=0, maximum=1 / lr)
    check_number("seed", seed, minimum=0, integer=True)
    data, mask = _distinct(_training_data(model, task, training_set, seed), which)
    rng = generator(seed, "probe")
    tenth = rng.permutation(len(data)) // (len(data) // 10)
    is_out = np.array([tenth == k if mask is None else mask for k in range(n_copies)])
    chance = np.array([_chance(data, own) for own in is_out])
    factor = 1
    while True:
        left_out, others, dose = _trained_without(
            model, data, is_out, generator(seed, "probe", 1),
            lr=lr / factor, weight_decay=weight_decay * factor, batch_size=batch_size,
            n_sequences=n_sequences,
        )  # fmt: skip
        if others[-1].min() >= _LOST or factor == _SLOWEST:
            break
        factor *= 2
    is_read = (others >= _LOST) & (others - chance >= _CLOSE)
    ratios = np.clip((left_out - chance) / np.where(is_read, others - chance, np.nan), 0, 1)
    at_20, at_40, at_80, at_end = map(number, ratios[1:].mean(axis=1))
    return Holdout(
        updates=np.array(UPDATES),
        left_out_accuracies=left_out,
        other_accuracies=others,
        ratios=ratios,
        holdout_ratio=at_end,
        ratio_at_80=at_80,
        ratio_at_40=at_40,
        ratio_at_20=at_20,
        others=float(others[-1].mean()),
        chance=float(chance.mean()),
        dose=dose,
        n_distinct=len(data),
        n_left_out=int(is_out[0].sum()),
        lr=lr / factor,
        weight_decay=weight_decay * factor,
        batch_size=batch_size,
        n_sequences=n_sequences,
        seed=seed,
    )


holdout.costly = True


def _training_data(
    model: HookedTransformer, task: Task | None, training_set: object, seed: int
) -> TokenBatch:
    """The training data of a caller or task, checked against the model.

    Raises:
        ValueError: there are none, or the model cannot read them.
    """
    if task is not None:
        check_capacity(model, task)
    if training_set is None and task is not None:
        with blaming(task):
            training_set = task.training_set(_DRAWN, seed)
    if training_set is None:
        raise ValueError(
            "holdout needs the training data of the model, got none; give training_set=(tokens, targets), or "
            "the task it was trained on"
        )
    given = given_training_data(training_set)
    if isinstance(given, Batch) and not hasattr(given, "tokens"):  # sequences that are read on demand
        given = given.take(generator(seed, "probe").permutation(len(given))[:_DRAWN])
    data = token_batch(given, d_vocab=model.cfg.d_vocab, every_position=None)
    check_tokens(model, data.tokens[:1].long())
    if 0 < (n := model.cfg.d_vocab_out) <= (highest := int(data.targets.max())):
        raise ValueError(f"targets must be below d_vocab_out of the model, {n}, got {highest}")
    return data


def _distinct(data: TokenBatch, which: object) -> tuple[TokenBatch, Bool[np.ndarray, " sequence"] | None]:
    """Each sequence once, and which of them the caller leaves out.

    Raises:
        ValueError: too few sequences, or `which` is not a mask that leaves out some.
    """
    first, _ = distinct_rows(np.hstack([data.tokens.numpy(), data.targets.numpy().reshape(len(data), -1)]))
    if len(first) < _FEWEST:
        raise ValueError(
            f"training data must have at least {_FEWEST} distinct sequences, got {len(first)}; with "
            f"fewer, the accuracy on a tenth of them is too uncertain"
        )
    distinct = TokenBatch(data.tokens[first], data.targets[first])
    if which is None:
        return distinct, None
    mask = np.asarray(which)
    if mask.dtype != bool or mask.shape != (len(data),) or mask[first].all() or not mask.any():
        raise ValueError(
            f"which must be true and false for each of {len(data):,} training sequences, got {mask.dtype} "
            f"{list(mask.shape)} with {np.count_nonzero(mask):,} true; leave out some of them"
        )
    return distinct, mask[first]


def _chance(data: TokenBatch, is_out: Bool[np.ndarray, " sequence"]) -> float:
    """Accuracy on left-out sequences of the commonest target after the last token, counted in the others."""
    tokens, targets = data.tokens.long().numpy(), data.targets.long().numpy()
    if targets.ndim == 1:
        tokens, targets = tokens[:, -1:], targets[:, None]
    row, column = np.nonzero(targets != IGNORE)
    last, wanted, out = tokens[row, column], targets[row, column], is_out[row]
    n_answers = wanted.max() + 1
    pairs, counts = np.unique(last[~out] * n_answers + wanted[~out], return_counts=True)
    ascending = pairs[counts.argsort(kind="stable")]
    commonest = np.full(last.max() + 1, np.bincount(wanted[~out]).argmax())
    commonest[ascending // n_answers] = ascending % n_answers  # of equal tokens the last assignment stays
    return float((commonest[last[out]] == wanted[out]).mean())


def _trained_without(
    model: HookedTransformer,
    data: TokenBatch,
    is_out: Bool[np.ndarray, "copy sequence"],
    rng: np.random.Generator,
    *,
    lr: float,
    weight_decay: float,
    batch_size: int,
    n_sequences: int,
) -> tuple[Float[np.ndarray, "measurement copy"], Float[np.ndarray, "measurement copy"], float]:
    """Accuracies of what each copy is trained without and of the others, and the mean weight decay.

    Raises:
        ValueError: the model does not answer its training data.
    """
    left_out, others = ([np.flatnonzero(own) for own in masks] for masks in (is_out, ~is_out))

    def taken(rows: list[np.ndarray]) -> tuple[Tensor, Tensor]:
        batch, shape = data.take(np.concatenate(rows)), (len(rows), -1)
        return batch.tokens.unflatten(0, shape), batch.targets.unflatten(0, shape)

    questions = [
        taken([rng.choice(own, min(n_sequences, len(own)), replace=False) for own in rows])
        for rows in (left_out, others)
    ]
    found, decays = [], []
    with evaluation_mode(model), numeric_settings(device_of(model)):
        copies = Copies(model, len(is_out), data.tokens)
        optimizer = AdamW(list(copies.weights.values()), lr)
        for update in range(UPDATES[-1] + 1):
            if update in UPDATES:
                found.append([copies.accuracies(*each).cpu().numpy() for each in questions])
            if update == 0 and (least := float(np.mean(found[0], axis=1).min())) < _KNOWN:
                raise ValueError(
                    f"the model must answer its training data with accuracy >= {_KNOWN}, got {least:.2f}; "
                    "give the training_set that it was trained on, or a model that has fit it"
                )
            if update < UPDATES[-1]:
                batch = copies.answers(*taken([rng.choice(own, batch_size) for own in others]))
                is_answered = batch.n_right >= _DECAYING * batch.n_scored
                decays.append(weight_decay * (update < _UPDATES_WITH_DECAY) * is_answered.double())
                optimizer.update(copies.gradients(batch.losses), decays[-1])
    measured = np.array(found, dtype=float)
    return measured[:, 0], measured[:, 1], float(torch.stack(decays[:_UPDATES_WITH_DECAY]).mean())
