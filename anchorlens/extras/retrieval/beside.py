"""A model that looks up the stored answer of a training input, and computes other answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from anchorlens.configuration import check_choice, check_number, frozen_dataclass
from anchorlens.extras.retrieval.places import HOOKS, Place, folds, measured_place, nearest, neighbours
from anchorlens.models import attached, device_of, hooks, measuring
from anchorlens.probes.shared import check_inputs, check_layer
from anchorlens.randomness import generator
from anchorlens.tasks import AnchorTask, LazyDataset, TrainingSet, Trials, checked_training_set, pairs_asked

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

    from anchorlens.models import HookedTransformer

MOST_STORED = 1_000_000
"""Largest `max_stored`."""


@frozen_dataclass()
class LookedUp:
    """For each kind of input, the fraction of looked-up inputs, 0..1, or `None` for a kind without inputs."""

    rules: float | None
    """The fraction for trained pairs at held-out (key, position), without exceptions."""
    exceptions: float | None
    """The fraction for exceptions at trained positions."""
    unseen: float | None
    """The fraction for pairs that are never trained."""


@dataclass(eq=False, repr=False)
class RetrievingModel:
    """The result of `with_retrieval`: a model for `task.evaluate` that returns logits at the last position.

    Attributes:
        model: the unchanged HookedTransformer.
        task: the task of the model.
        place: the location of the stored activations, and the distance threshold.
        places: every location that was tried.
        n_stored: the number of stored training sequences.
    """

    model: HookedTransformer
    task: AnchorTask
    place: Place
    places: tuple[Place, ...]
    _activations: Float[np.ndarray, "stored d"]
    _answers: Int[np.ndarray, " stored"]

    def __post_init__(self) -> None:
        """Index the activations; `with_retrieval` makes the call."""
        self.n_stored, self._index = len(self._answers), neighbours(self._activations)
        self.cfg = self.model.cfg  # `evaluate` checks that vocabulary and context fit the task

    def __call__(self, tokens: Int[Tensor, "batch pos"], /) -> Float[Tensor, "batch one d_vocab"]:
        """Compute the model's logits at the last position, [batch, 1, d_vocab].

        If the nearest stored activation is within the threshold, the logit of its answer is set to the
        largest logit plus 1.
        """
        logits, near, answers = self._asked(tokens)
        rows = torch.from_numpy(np.flatnonzero(near)).to(logits.device)
        said = torch.from_numpy(answers[near]).to(logits.device)
        logits[rows, 0, said] = logits[rows, 0].amax(dim=-1) + 1
        return logits

    def is_looked_up(self, tokens: Int[Tensor, "batch pos"]) -> Bool[np.ndarray, " batch"]:
        """Return a boolean mask of the sequences whose answer is looked up."""
        return np.concatenate([self._asked(chunk)[1] for chunk in tokens.split(1024)])

    def looked_up(self, *, seed: int = 0, max_trials: int = 20_000) -> LookedUp:
        """Measure the fraction of looked-up inputs of each kind, counting each input once.

        Args:
            seed: the seed of the noise, and of the choice of inputs if a kind has more than `max_trials`.
            max_trials: the largest number of inputs of each kind, >= 1.

        Raises:
            ValueError: If an option is invalid.
        """
        check_number("max_trials", max_trials, minimum=1, limit=MOST_STORED, integer=True)
        rng = generator(seed, "evaluation")

        def share(trials: Trials) -> float | None:
            if not len(trials):
                return None
            if len(trials) > max_trials:
                trials = trials.take(rng.choice(len(trials), max_trials, replace=False))
            asked = self.task.place(trials, self.task.noise(len(trials), rng))
            return float(self.is_looked_up(asked.tokens).mean())

        held_out = self.task.trials("id")
        rules = held_out.take(np.flatnonzero(~self.task.is_exception(held_out)))
        return LookedUp(share(rules), share(self.task.exception_trials), share(self.task.trials("ood")))

    def _asked(
        self, tokens: Int[Tensor, "batch pos"]
    ) -> tuple[Tensor, Bool[np.ndarray, " batch"], Int[np.ndarray, " batch"]]:
        """Compute logits [batch, 1, d_vocab], whether each input counts as seen, and the stored answers."""
        kept: list[Tensor] = []

        def keep(value: Tensor, hook: object) -> None:
            kept.append(value[:, -1].detach().clone())

        name = hooks.hook_name(self.place.layer, self.place.hook)
        with measuring(self.model), attached(self.model, [(name, keep)]):
            logits = self.model(tokens.to(device_of(self.model)))[:, -1:].clone()
        distances, rows = nearest(self._index, kept[-1].double().cpu().numpy())
        return logits, distances <= self.place.threshold, self._answers[rows]

    def __repr__(self) -> str:
        where = hooks.hook_name(self.place.layer, self.place.hook)
        return (
            f"RetrievingModel({self.n_stored:,} stored at {where}, looked up within "
            f"{self.place.threshold:.3g}; held-out training data recognised {self.place.recognised:.0%}, "
            f"held-out pairs not retrieved {self.place.left_alone:.0%})"
        )


def with_retrieval(
    model: HookedTransformer,
    task: AnchorTask,
    training_set: TrainingSet,
    *,
    layer: int | None = None,
    hook: str | None = None,
    max_stored: int = 20_000,
    seed: int = 0,
) -> RetrievingModel:
    """Extend a model with a memory that looks up answers to inputs that resemble training sequences.

    The memory stores the model's activations at the last position of each training sequence, and the trained
    answers. For each input, the memory finds the nearest stored activation (Euclidean distance). If the
    distance is within a threshold, the result is the stored answer. Otherwise, the result is the model's
    answer.

    The location and the threshold are chosen on training data alone, by cross-validation in four folds. Each
    fold excludes all sequences of a quarter of the trained pairs from the store, and tests these sequences as
    unseen inputs. Each fold also excludes a quarter of the sequences of all remaining pairs, and tests these
    sequences as seen inputs. The threshold maximises the mean of two fractions. The first fraction counts the
    seen inputs that are within the threshold and whose stored answer is correct. The second fraction counts
    the unseen inputs outside the threshold. The memory uses the location with the largest mean of the two
    fractions, and stores all sequences. The choice does not use the model's own answers, because nearly all
    of the model's answers to training sequences are correct.

    Args:
        model: a model of the task. The function does not change the model.
        task: an AnchorTask.
        training_set: the training data of the model, as for `evaluate`.
        layer: the layer of the activations, counted from the last layer if negative. Default: the best layer.
        hook: one of `HOOKS`. Default: the best hook of the model. The attention output holds information from
            the key and the anchors. The attention output does not contain the embedding of the last token.
            The MLP has not yet turned the information at the attention output into an answer. A rule and an
            exception may have the same answer.
        max_stored: the largest number of stored sequences, >= 8. The function draws a random sample of a
            larger training set.
        seed: the seed of the sample and of the folds.

    Returns:
        A model for `task.evaluate` that returns logits at the last position.

    Raises:
        ValueError: If an option is invalid, or the model is not a HookedTransformer of the task. The training
            data must be from the task and have at least eight sequences and two pairs.

    Example:
        >>> from anchorlens import AnchorTask, ModelConfig, build_model
        >>> task = AnchorTask(n_exceptions=20)
        >>> beside = with_retrieval(build_model(ModelConfig(d_model=32)), task, task.sample(200))
        >>> task.evaluate(beside, n_noise=2).phase.label
        'undecided: training data unknown'

    Source: ours.
    """
    task = check_inputs(model, task)
    check_number("max_stored", max_stored, minimum=8, limit=MOST_STORED, integer=True)
    layers = range(model.cfg.n_layers) if layer is None else [check_layer(model, layer)]
    beside = getattr(model.cfg, "parallel_attn_mlp", False) or getattr(model.cfg, "attn_only", False)
    there = tuple(name for name in HOOKS if not (beside and name == hooks.RESID_MID))
    if hook is not None:
        check_choice("hook", hook, there)
    rng = generator(seed, "probe")
    data = checked_training_set(training_set, task)
    if len(data) > max_stored:
        data = data.take(np.sort(rng.choice(len(data), max_stored, replace=False)))
    elif isinstance(data, LazyDataset):
        data = data.all()
    asks, trials = pairs_asked(data.tokens.numpy(), task)
    data = data.take(asks)
    _, pairs = np.unique(trials.pairs, axis=0, return_inverse=True)
    if len(np.unique(pairs)) < 2 or len(pairs) < 8:
        raise ValueError(
            "training_set must hold at least 8 sequences and at least 2 different pairs, got "
            f"{len(pairs):,} sequences and {len(np.unique(pairs))} pair(s). Give more training data"
        )
    wanted = [(one, name) for one in layers for name in (there if hook is None else (hook,))]
    found = hooks.read(model, data.tokens, wanted, position=-1)
    # float64 on the CPU, so that distances are the same on every device
    activations = {place: values.double().cpu().numpy() for place, values in found.items()}
    answers, parts = data.targets.numpy(), folds(pairs.ravel(), rng)
    places = tuple(measured_place(*place, activations[place], answers, parts) for place in wanted)
    best = max(places, key=lambda place: place.score)  # the first of equal ones
    return RetrievingModel(model, task, best, places, activations[best.layer, best.hook], answers)
