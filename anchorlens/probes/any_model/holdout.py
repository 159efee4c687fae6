"""Holdout: does the model still predict training data that are held out of further training?"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np
import plotly.graph_objects as go
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from anchorlens.configuration import check_number
from anchorlens.engine.numerics import numeric_settings
from anchorlens.files.any_module import AnyModule, of_any_module
from anchorlens.files.model_input import given_training_data
from anchorlens.models.annotations import HookedTransformer
from anchorlens.models.running import check_tokens, device_of, evaluation_mode
from anchorlens.models.wrappers import is_hooked
from anchorlens.plots import BLUE, CATEGORIES, GREY, ORANGE, styled
from anchorlens.probes.shared.checks import WeightsRefused, check_count, check_model
from anchorlens.probes.shared.contract import ProbeResult, number, probe_result, takes_any
from anchorlens.probes.shared.look_up import ABOVE_CHANCE, LookUp
from anchorlens.probes.shared.parameters import Copies
from anchorlens.randomness import generator
from anchorlens.tasks.shared.base import Batch, Task
from anchorlens.tasks.shared.batch import TokenBatch, distinct_rows, token_batch
from anchorlens.tasks.shared.evaluator import check_capacity
from anchorlens.tasks.shared.task_errors import task_errors

UPDATES = (0, 20, 40, 80, 100)
"""The number of updates before each measurement."""
_UPDATES_WITH_DECAY = 80
MEMORISED, LEARNT = 0.75, 0.84
"""The largest ratio of models that memorised, and the smallest ratio of models that learnt a rule. Runs of
six kinds of task determined these two ratios after 100 updates (research/holdout/holdout.md)."""
LEARNT_OF_MODULES = 0.93
"""The smallest ratio for a module of another class. An MLP that memorised random labels reached 0.88."""
_KNOWN = 0.9
_LOST = 0.8
_DECAYING = 0.85
"""The accuracy thresholds. A model below the first threshold does not know its training data. A copy below
the second threshold has lost the other data, so the ratio is undefined. Weights decay if a batch reaches the
third threshold."""
_MOST_RELATED = 5000
"""The largest number of random sequences that are looked up in one another."""
_SLOWEST = 4
"""The largest divisor of the learning rate. The probe halves the rate each time a copy loses the other
data."""
_FEWEST, _DRAWN = 200, 10_000
"""The smallest number of distinct sequences, and the number drawn from a task without a training set."""
_WIDTH = 0.07
"""The width of the bars of the plot, relative to the number of updates."""


@probe_result
class Holdout(ProbeResult):
    """The accuracies on held-out and on all other training data during further training."""

    probe: ClassVar[str] = "holdout"
    readings: ClassVar[tuple[str, ...]] = (
        "holdout_ratio", "related_ratio", "ratio_at_80", "ratio_at_40", "ratio_at_20", "others", "chance",
        "look_up", "dose",
    )  # fmt: skip
    updates: np.ndarray
    """[measurement] The number of updates before each measurement, which is 0, 20, 40, 80 or 100."""
    left_out_accuracies: np.ndarray
    """[measurement, copy] The accuracy over scored tokens of the sequences that the copy's training leaves
    out, from 0 to 1."""
    other_accuracies: np.ndarray
    """[measurement, copy] The accuracy over scored tokens of the other sequences, from 0 to 1."""
    ratios: np.ndarray
    """[measurement, copy] The excess of `left_out_accuracies` over chance, divided by the excess of
    `other_accuracies`, from 0 to 1. The ratio is NaN if the other accuracy is below 0.8, or less than 0.1
    above chance."""
    holdout_ratio: float | None
    """The mean ratio after 100 updates, from 0 to 1. At a ratio of 1, the copies predict held-out sequences
    as well as trained sequences. At a low ratio, the copies forget held-out sequences. Even a model that
    memorised has a ratio above 0. The ratio is `None` if a copy loses the other sequences."""
    ratio_at_80: float | None
    """The mean ratio after 80 updates."""
    ratio_at_40: float | None
    """The mean ratio after 40 updates."""
    ratio_at_20: float | None
    """The mean ratio after 20 updates."""
    others: float
    """The mean accuracy on the other sequences after 100 updates, from 0 to 1."""
    chance: float
    """The mean accuracy of a predictor on the held-out sequences, from 0 to 1. The predictor uses only the
    last token. It predicts the last token's most frequent target in the other training data."""
    related_ratio: float | None
    """The mean ratio after 100 updates if related sequences are held out together, from 0 to 1. Both
    accuracies are taken above `chance` or `look_up`, whichever is larger. Without related sequences, the
    copies are those of `holdout_ratio`. The ratio is `None` if the other accuracy is below 0.8, or less than
    0.1 above the larger of both, and if only the sequences were held out."""
    related_left_out: float | None
    """The mean accuracy on the held-out sequences in this measurement, from 0 to 1."""
    look_up: float | None
    """The mean accuracy of a look-up of the sequences that this measurement holds out, from 0 to 1. The
    look-up answers a sequence with the answer of the most similar other training sequence."""
    n_groups: int | None
    """The number of groups of related sequences, among at most 5,000 random sequences. Two sequences are
    related if a look-up of one finds the other. Without related sequences, each sequence is a group."""
    in_any_order: bool | None
    """Whether related sequences have the same tokens, or halves of numbers, in another order."""
    dose: float
    """The mean weight decay of the first 80 updates, from 0 to `weight_decay`. Weights decay only in updates
    with a batch accuracy of at least 0.85."""
    learnt_from: float
    """The smallest ratio of a model that learnt a rule: 0.84, or 0.93 for a module of another class."""
    n_distinct: int
    """The number of distinct sequences in the training data."""
    n_left_out: int
    """The number of distinct sequences that each copy holds out."""
    lr: float
    """The learning rate. The rate is half or a quarter of the requested rate if a copy loses the other data
    at a higher rate."""
    weight_decay: float
    """The largest weight decay of an update. At half the requested learning rate, the decay is twice the
    requested decay."""
    batch_size: int
    """The number of sequences in an update."""
    n_sequences: int
    """The largest number of sequences for an accuracy."""
    seed: int
    """The seed of the held-out sequences, the batches and the test inputs."""

    def headline(self) -> str:
        """Return the holdout ratio and both accuracies after the last update as text."""
        ratio = "no ratio" if self.holdout_ratio is None else f"{self.holdout_ratio:.2f}"
        after = f"after {self.updates[-1]} updates without them, the others at {self.others:.2f}"
        left_out = f"accuracy {self.left_out_accuracies[-1].mean():.2f} on left-out training data"
        return f"{ratio}: {left_out} {after}"

    def plot(self) -> go.Figure:
        """Plot the accuracies against updates, with bars for the ranges of memorisation and of a rule."""
        figure, last = go.Figure(), int(self.updates[-1])
        for name, colour, values in (
            ("left out", ORANGE, self.left_out_accuracies),
            ("the others", BLUE, self.other_accuracies),
        ):
            for own in values.T:
                figure.add_scatter(
                    x=self.updates, y=own, mode="lines", line={"color": colour, "width": 1}, opacity=0.4,
                    showlegend=False, hoverinfo="skip",
                )  # fmt: skip
            thick = {"color": colour, "width": 3}
            figure.add_scatter(x=self.updates, y=values.mean(axis=1), name=name, line=thick)
        above = self.others - self.chance
        memorised, learnt = (self.chance + bound * above for bound in (MEMORISED, self.learnt_from))
        for name, colour, low, high in (
            (f"learnt a rule (ratio from {self.learnt_from:.2f})", CATEGORIES[2], learnt, self.others),
            (f"memorised (ratio to {MEMORISED:.2f})", GREY, 0.0, memorised),
        ):
            figure.add_bar(
                x=[last * (1 + _WIDTH)], y=[high - low], base=[low], width=[last * _WIDTH], name=name,
                marker_color=colour, opacity=0.5,
            )  # fmt: skip
        figure.update_xaxes(title="updates without the training data left out", tickvals=self.updates)
        figure.update_yaxes(title="accuracy", range=[0, 1.02])
        figure.update_layout(barmode="overlay", legend={"orientation": "h", "y": -0.2, "yanchor": "top"})
        return styled(figure, "Accuracy of training data left out of further training", height=420)


@takes_any(costly=True)
def holdout(
    model: HookedTransformer,
    task: Task | None = None,
    *,
    training_set: object = None,
    which: object = None,
    related: bool = True,
    n_copies: int = 3,
    lr: float = 2e-3,
    weight_decay: float = 5.0,
    batch_size: int = 128,
    n_sequences: int = 256,
    seed: int = 0,
) -> Holdout:
    """Measure whether a model still predicts training data that are held out of further training.

    AdamW trains copies of the model for 100 updates. Each copy holds out a different random tenth of the
    training data. In each of the first 80 updates, the weights decay if the batch accuracy is at least 0.85.
    Each copy therefore continues to predict all other training data. Each copy forgets information that it
    does not need for these predictions. A copy that keeps a rule for the other training data also predicts
    the held-out tenth. If the final accuracy of a copy on the other training data is below 0.8, the probe
    starts again, at most twice. Each new start has half the learning rate and twice the weight decay of the
    previous start. The probe does not change the model, and uses only training data.

    The accuracy is the proportion of scored tokens that a copy predicts correctly from the correct earlier
    tokens. The probe subtracts the chance level from both accuracies before it computes their ratio. The
    chance level is the accuracy of a predictor that uses only the last token and gives the most frequent
    target of this token. Equal sequences count once.

    If other sequences contain what a sequence teaches, a model that memorised random labels also keeps the
    sequence. Examples are augmented data, windows of one text, and all prefixes of a text. A look-up in the
    other sequences finds such related sequences. A second measurement holds out groups of related sequences,
    and takes the accuracies above the accuracy of the look-up (`related_ratio`).

    Limitations: The probe may overlook what sequences share. The probe does not show which rule the model
    learnt, or whether the rule holds outside the training data. The holdout ratio of a model trained on
    random labels can reach 0.6, although these labels follow no rule. Two models that memorised can have the
    same ratio although only one of the models predicts new data. The holdout ratio is therefore not an
    estimate of the accuracy on new data.

    Args:
        model: a HookedTransformer, a native TransformerBridge, or any torch module with its `training_set`.
        task: the task, for a call without `training_set`. The probe draws 10,000 training sequences of the
            task. For a checkpoint with a recipe, the probe draws the training sequences of the run.
        training_set: the tokens [sequence, pos] and the targets [sequence], or targets [sequence, pos] with
            -100 for unscored positions. You may give a pair (tokens, targets), an object with both, or the
            path of a file with both. A module of another class takes a pair (x, y) as in `classify`.
        which: a boolean mask [sequence] that is true for the sequences to hold out instead of random tenths,
            for example for exceptions. With `which`, every copy holds out the masked sequences, and each copy
            has separate batches.
        related: whether to look for related sequences, without `which`. The second measurement doubles the
            time where there are some.
        n_copies: the number of copies, from 1 to 10.
        lr: the learning rate, above 0.
        weight_decay: the decoupled weight decay of an update, at least 0.
        batch_size: the number of sequences in an update, at least 1.
        n_sequences: the largest number of sequences on which an accuracy is measured, at least 1.
        seed: the seed of the tenths, the batches and the test inputs.

    Returns:
        The accuracies on the held-out and on all other training sequences, from 0 to 1, and the ratios of the
        two accuracies. The probe measures both accuracies before training and after 20, 40, 80 and 100
        updates. The result also contains the learning rate and the weight decay.

    Raises:
        ValueError: If the training data are missing.
        ValueError: If the training data have fewer than 200 distinct sequences.
        ValueError: If the training data do not fit the model.
        ValueError: If the training accuracy of the model is below 0.9.
        ValueError: If `which` holds out no sequence or all sequences.
        ValueError: If an option is out of range.

    Example:
        >>> from anchorlens import load_checkpoint
        >>> from anchorlens.training import checkpoints
        >>> phase1 = load_checkpoint(checkpoints.shipped()[0])
        >>> holdout(phase1, related=False, n_copies=1).holdout_ratio < 0.7
        True

    Source: The probe is ours. Weight decay shrinks weights that training does not need. Networks forget data
    that they no longer train on (McCloskey and Cohen 1989, catastrophic interference).
    """
    if isinstance(model, torch.nn.Module) and not is_hooked(model) and training_set is not None:
        any_module, training_set, _ = of_any_module(model, given_training_data(training_set))
        model = cast("HookedTransformer", any_module)
    check_model(model)
    for name, value in {"batch_size": batch_size, "n_sequences": n_sequences}.items():
        check_count(name, value)
    check_number("n_copies", n_copies, minimum=1, maximum=10, integer=True)
    check_number("lr", lr, above=0, maximum=1)
    check_number("weight_decay", weight_decay, minimum=0, maximum=1 / lr)
    data, mask = _distinct(_training_data(model, task, training_set, seed), which)
    tenth = generator(seed, "probe").permutation(len(data)) // (len(data) // 10)
    is_out = np.array([tenth == k if mask is None else mask for k in range(n_copies)])
    trained = partial(
        _trained_without, model, lr=lr, weight_decay=weight_decay, batch_size=batch_size,
        n_sequences=n_sequences, seed=seed,
    )  # fmt: skip
    look_up = _look_up(model, data)
    chance = np.array([look_up.chance(own) for own in is_out])
    left_out, others, dose, factor = trained(data, 1, is_out)
    ratios = _ratios(left_out, others, chance)
    at_20, at_40, at_80, at_end = map(number, ratios[1:].mean(axis=1))
    of_groups = dict.fromkeys(("related_ratio", "related_left_out", "look_up", "n_groups", "in_any_order"))
    if mask is None and related:
        of_groups = _of_groups(model, data, is_out, (left_out, others), trained, seed)
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
        **cast("Any", of_groups),
        dose=dose,
        learnt_from=LEARNT_OF_MODULES if isinstance(model, AnyModule) else LEARNT,
        n_distinct=len(data),
        n_left_out=len(data) // 10 if mask is None else int(mask.sum()),
        lr=lr / factor,
        weight_decay=weight_decay * factor,
        batch_size=batch_size,
        n_sequences=n_sequences,
        seed=seed,
    )


def _of_groups(
    model: HookedTransformer,
    data: TokenBatch,
    is_out: Bool[np.ndarray, "copy sequence"],
    found: tuple[np.ndarray, np.ndarray],
    trained: Callable[..., tuple[np.ndarray, np.ndarray, float, int]],
    seed: int,
) -> dict[str, object]:
    """Measure with related sequences held out together; without any, the copies are those of `found`."""
    rng = generator(seed, "probe", 2)
    some = rng.permutation(len(data))[:_MOST_RELATED]
    data, is_out = data.take(some), is_out[:, some]
    look_up = _look_up(model, data)
    groups = look_up.groups(rng)
    if groups.n < len(data):
        is_out = groups.tenths(rng) == np.arange(len(is_out))[:, None]
        found = trained(data, 3, is_out)[:2]
    known = np.array([[look_up.accuracy(own), look_up.chance(own)] for own in is_out])
    return {
        "related_ratio": number(_ratios(*found, known.max(axis=1))[-1].mean()),
        "related_left_out": float(found[0][-1].mean()),
        "look_up": float(known[:, 0].mean()),
        "n_groups": groups.n,
        "in_any_order": groups.in_any_order,
    }


def _look_up(model: HookedTransformer, data: TokenBatch) -> LookUp:
    """Index the inputs of a model, which are its tokens, or the rows of the table of an `AnyModule`."""
    table = model.table if isinstance(model, AnyModule) else None
    inputs = data.tokens if table is None else table[data.tokens[:, 0].long()].float().cpu()
    return LookUp(inputs.numpy(), data.targets.numpy())


def _ratios(
    left_out: Float[np.ndarray, "measurement copy"],
    others: Float[np.ndarray, "measurement copy"],
    chance: Float[np.ndarray, " copy"],
) -> Float[np.ndarray, "measurement copy"]:
    """Return the ratios of both accuracies above chance (see `Holdout.ratios`)."""
    is_read = (others >= _LOST) & (others - chance >= ABOVE_CHANCE)
    return np.clip((left_out - chance) / np.where(is_read, others - chance, np.nan), 0, 1)


def _training_data(
    model: HookedTransformer, task: Task | None, training_set: object, seed: int
) -> TokenBatch:
    """Return the training data of a caller or task, checked against the model.

    Raises:
        ValueError: If training data are missing or do not fit the model.
    """
    if task is not None:
        check_capacity(model, task)
    if training_set is None and task is not None:
        with task_errors(task):
            training_set = task.training_set(_DRAWN, seed)
    if training_set is None:
        raise ValueError(
            "holdout must get the training data of the model, got none. Give training_set=(tokens, "
            "targets), or the task of the model"
        )
    given = given_training_data(training_set)
    if isinstance(given, Batch) and not hasattr(given, "tokens"):  # sequences that are read on demand
        given = given.take(generator(seed, "probe").permutation(len(given))[:_DRAWN])
    data = token_batch(given, every_position=None)
    check_tokens(model, data.tokens.long())
    if 0 < (n := model.cfg.d_vocab_out) <= (highest := int(data.targets.max())):
        raise ValueError(
            f"targets must be below d_vocab_out of the model, {n}, got {highest}. Give the data of the model"
        )
    return data


def _distinct(data: TokenBatch, which: object) -> tuple[TokenBatch, Bool[np.ndarray, " sequence"] | None]:
    """Return each sequence once, and the mask of the sequences that the caller holds out.

    Raises:
        ValueError: If there are too few sequences, or `which` is not a mask of some sequences.
    """
    first, _ = distinct_rows(np.hstack([data.tokens.numpy(), data.targets.numpy().reshape(len(data), -1)]))
    if len(first) < _FEWEST:
        raise ValueError(
            f"training data must have at least {_FEWEST} distinct sequences, got {len(first)}. Use more "
            "data, since the accuracy on a tenth of the sequences is too uncertain"
        )
    distinct = TokenBatch(data.tokens[first], data.targets[first])
    if which is None:
        return distinct, None
    mask = np.asarray(which)
    if mask.dtype != bool or mask.shape != (len(data),) or mask[first].all() or not mask.any():
        raise ValueError(
            f"`which` must be a bool mask that holds out some of the {len(data):,} training sequences, got "
            f"{mask.dtype} {list(mask.shape)} with {np.count_nonzero(mask):,} true entries. Hold out some "
            "sequences, but not all"
        )
    return distinct, mask[first]


def _trained_without(
    model: HookedTransformer,
    data: TokenBatch,
    stream: int,
    is_out: Bool[np.ndarray, "copy sequence"],
    *,
    seed: int,
    lr: float,
    weight_decay: float,
    batch_size: int,
    n_sequences: int,
    factor: int = 1,
) -> tuple[Float[np.ndarray, "measurement copy"], Float[np.ndarray, "measurement copy"], float, int]:
    """Return each copy's accuracies on held-out and other sequences, the mean weight decay, and `factor`.

    The learning rate is divided by `factor`, and the weight decay multiplied. If a copy loses the other
    sequences, all copies are trained again with twice the factor.

    Raises:
        ValueError: If the model does not fit its training data.
    """
    rng = generator(seed, "probe", stream)
    left_out, others = ([np.flatnonzero(own) for own in masks] for masks in (is_out, ~is_out))

    def taken(rows: list[np.ndarray]) -> tuple[Tensor, Tensor]:
        batch, shape = data.take(np.concatenate(rows)), (len(rows), -1)
        return batch.tokens.unflatten(0, shape), batch.targets.unflatten(0, shape)

    questions = [
        taken([rng.choice(own, min(n_sequences, *map(len, rows)), replace=False) for own in rows])
        for rows in (left_out, others)
    ]
    found, decays = [], []
    with evaluation_mode(model), numeric_settings(device_of(model)):
        copies = Copies(model, len(is_out), data.tokens)
        for update in range(UPDATES[-1] + 1):
            if update in UPDATES:
                found.append([copies.accuracies(*each).cpu().numpy() for each in questions])
            if update == 0 and (least := float(np.mean(found[0], axis=1).min())) < _KNOWN:
                raise WeightsRefused(
                    f"the training accuracy of the model must be at least {_KNOWN}, got {least:.2f}. Give "
                    "the training_set of the model, or a model that fits its training data"
                )
            if update < UPDATES[-1]:
                batch = copies.answers(*taken([rng.choice(own, batch_size) for own in others]))
                is_answered = batch.n_right >= _DECAYING * batch.n_scored
                decay = weight_decay * factor * (update < _UPDATES_WITH_DECAY)
                decays.append(decay * is_answered.double())
                copies.update(batch.losses, lr / factor, decays[-1])
    measured = np.array(found, dtype=float)
    if measured[-1, 1].min() < _LOST and factor < _SLOWEST:
        return _trained_without(
            model, data, stream, is_out, seed=seed, lr=lr, weight_decay=weight_decay, batch_size=batch_size,
            n_sequences=n_sequences, factor=2 * factor,
        )  # fmt: skip
    dose = float(torch.stack(decays[:_UPDATES_WITH_DECAY]).mean())
    return measured[:, 0], measured[:, 1], dose, factor
