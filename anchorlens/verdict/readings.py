"""The readings of a model for the probe verdict, which are normalised for width.

The readings do not use answers to unseen pairs, masked or not. Some readings use activations of unseen pairs,
and the probe verdict does not use these readings. One reading is the margin on trained pairs with fresh
noise. One key in nine of its inputs is held out at its position. The readings do not use held-out keys
specifically.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from anchorlens import probes
from anchorlens.configuration import frozen_dataclass
from anchorlens.models.running import device_of, evaluation_mode
from anchorlens.probes.shared.anchor_sequences import anchor_sequences, many_keys
from anchorlens.probes.shared.contract import ProbeResult, needs_training_set
from anchorlens.probes.shared.edge_effects import margin
from anchorlens.probes.two_anchor.fusion_similarity import mirror_comparisons
from anchorlens.randomness import generator
from anchorlens.tasks.two_anchor.task import AnchorTask

if TYPE_CHECKING:
    from anchorlens.models.library import HookedTransformer

Sees = Literal["trained pairs", "unseen pairs", "training data", "weights"]
_N_MARGINS = 1000
"""The largest number of training sequences for a margin."""


@frozen_dataclass()
class Measurement:
    """A probe with the options for its readings. The options omit values that only figures need."""

    probe: Callable[..., ProbeResult]
    """The probe."""
    at: Callable[[AnchorTask, int], Mapping[str, Any]] | None = None
    """The function from (task, position of the key) to the options, or `None` if the probe has no
    position."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The options of a probe that has no position."""
    costly: bool = False
    """Whether the measurement is costly. A verdict takes a costly measurement only if it could change
    the label."""
    may_refuse: bool = False
    """Whether the probe may refuse a model that the other probes accept. The readings are then missing."""


def _at_position(task: AnchorTask, position: int) -> dict[str, Any]:
    return {"key_position": position}


def _mask_key(task: AnchorTask, position: int) -> dict[str, Any]:
    # shared noise, as in the calibration; figures draw it independently
    return {"key_position": position, "perplexity": None, "seen": True, "noise": "shared"}


def _routes(task: AnchorTask, position: int) -> dict[str, Any]:
    tokens = anchor_sequences(task, [int(task.keys[0])], [task.seen_pairs[0]], key_position=position)
    return {"tokens": tokens[0], "effects": "routes", "patterns": "frozen"}


def _mirrors(task: AnchorTask, position: int) -> dict[str, Any]:
    return {"key_position": position, "comparisons": mirror_comparisons(task), "keys": many_keys(task)}


MEASURED: Mapping[str, Measurement] = {
    "mask_key_token": Measurement(probes.mask_key_token, _mask_key),
    "mask_second_anchor": Measurement(probes.mask_second_anchor, _at_position),
    "information_flow": Measurement(probes.information_flow, _routes),
    "activation_patching": Measurement(probes.activation_patching, _at_position, costly=True),
    "interchange": Measurement(probes.interchange, _at_position, costly=True),
    "v_similarity": Measurement(probes.v_similarity, _at_position),
    "fusion_similarity": Measurement(probes.fusion_similarity, _at_position),
    "fusion_similarity of mirrored pairs": Measurement(probes.fusion_similarity, _mirrors),
    "nearest_neighbours": Measurement(probes.nearest_neighbours, _at_position),
    "gradient_sharing": Measurement(probes.gradient_sharing),
    "q_condensation": Measurement(probes.q_condensation),
    "embedding_pca": Measurement(probes.embedding_pca),
    "stable_rank": Measurement(probes.stable_rank),
    "holdout": Measurement(probes.holdout, None, {"related": False}, costly=True, may_refuse=True),
    "survival": Measurement(probes.survival, costly=True),
}
"""The measurements by name. Each name begins with the name of the probe. The costly measurements are in the
order of their cost."""
EVERY = tuple(MEASURED)
"""The names of all measurements."""
CHEAP = tuple(name for name, measured in MEASURED.items() if not measured.costly)
"""The names of the cheap measurements."""
COSTLY = tuple(name for name, measured in MEASURED.items() if measured.costly)
"""The names of the costly measurements, with the least costly measurement first."""


def reading_positions(task: AnchorTask) -> tuple[int, ...]:
    """Return the positions of the key at which the verdict takes readings, without repetition.

    The positions are one third and four fifths of the index of the second-to-last position, rounded. The
    verdict does not use the last position of the key, because the last anchor would be at the position of the
    answer.

    >>> reading_positions(AnchorTask())
    (2, 4)
    """
    last = max(0, len(task.positions) - 2)
    return tuple(dict.fromkeys(round(last * share) for share in (1 / 3, 4 / 5)))


@frozen_dataclass()
class Reading:
    """One field of one measurement, which is evidence for a phase or a solution."""

    measurement: str
    """The name of the measurement in `MEASURED`, which begins with the name of the probe."""
    field: str
    """The name of the field in the probe's result."""
    meaning: str
    """The meaning of the reading, in a few words."""
    sees: Sees = "trained pairs"
    """The data on which the probe measures the reading."""
    normalise: Callable[[float, Any], float] | None = None
    """The function from (value, model.cfg) to the normalised value, or `None` for an unchanged value."""
    over_training: bool = False
    """Whether the value is a margin, which is divided by the margin on training sequences
    (`relative_margin`)."""

    @property
    def probe(self) -> str:
        """The name of the probe."""
        return self.measurement.split()[0]

    @property
    def name(self) -> str:
        """The name of the reading, such as `v_similarity.centred_gap`."""
        relative = "relative_" if self.over_training else ""
        return f"{self.probe}.{relative}{self.field}{self.measurement.removeprefix(self.probe)}"

    def of(self, value: float | None, cfg: object) -> float | None:
        """Return the normalised reading, or `None` if the probe's value is missing or not finite.

        Args:
            value: the value of the probe, or `None` if the value is missing.
            cfg: the `cfg` of the model. The function uses its `d_model`.
        """
        if value is not None and self.normalise is not None:
            value = self.normalise(value, cfg)
        return None if value is None or not np.isfinite(value) else float(value)


def _bounded_margin(value: float, cfg: object) -> float:
    """Bound a margin to the range from -1 to 1 by tanh(margin / 4), which saturates beyond a few logits."""
    return float(np.tanh(value / 4))


def _over_random_cosine(value: float, cfg: Any) -> float:
    """Divide a mean |cosine| by sqrt(2 / (pi d_model)), which is the mean for random directions."""
    return value * float(np.sqrt(np.pi * cfg.d_model / 2))


def _readings(measurement: str, sees: Sees = "trained pairs", **meanings: str) -> Iterator[Reading]:
    """Yield the readings of a measurement, given the meaning of each field."""
    for name, meaning in meanings.items():
        yield Reading(measurement, name, meaning, sees)


_LATE = ", before the last MLP"
_MARGIN = "margin on trained pairs with fresh noise"
SURVIVAL = Reading("survival", "survival", "accuracy on trained pairs that further training leaves out")
"""The reading of `survival`, which a verdict may take twice."""
READINGS: tuple[Reading, ...] = (
    *_readings(
        "mask_key_token",
        mirror_merge="distance between a pair and its reverse, with the key masked",
        silhouette_ordered="clusters of ordered pairs, with the key masked",
        silhouette_unordered="clusters of unordered pairs, with the key masked",
    ),
    *_readings("mask_second_anchor", centred_gap="g(x; a) remains, with the second anchor masked"),
    *_readings(
        "information_flow",
        inferential_route="margin lost without the inferential route (key to anchors, anchors to last)",
        symmetric_route="margin lost without the symmetric route (anchors to last, then key to last)",
        gathered_route="margin lost without the gathered route (all to the second anchor, then to last)",
    ),
    Reading("information_flow", "margin", f"{_MARGIN}, tanh(logits / 4)", normalise=_bounded_margin),
    Reading(
        "information_flow",
        "margin",
        f"{_MARGIN}, relative to training sequences",
        sees="training data",
        over_training=True,
    ),
    *_readings(
        "activation_patching",
        carried_by_second_anchor="a change of the second anchor takes effect through its own position",
    ),
    *_readings(
        "interchange",
        accuracy="patching the best location replaces g(x; a)",
        equal_accuracy="at that location, the answer depends on g(x; a) only",
    ),
    *_readings("v_similarity", centred_gap="values at the first anchor encode g(x; a)"),
    *_readings("fusion_similarity", centred_gap="inputs with equal targets are similar at the last position"),
    *_readings(
        "fusion_similarity of mirrored pairs",
        "unseen pairs",
        centred_gap=f"both orders of an unseen pair are similar{_LATE}",
    ),
    *_readings(
        "nearest_neighbours",
        g1_at_first_anchor="the first anchor encodes g(x; a1), after the first layer",
        g2_at_second_anchor="the second anchor encodes g(x; a2), after the first layer",
        target_at_second_anchor=f"the second anchor encodes the target, as in other pairs{_LATE}",
        target_at_last=f"the last position encodes the target, as in other pairs{_LATE}",
        pair_share="the last position encodes the anchors, after the first layer",
    ),
    *_readings(
        "nearest_neighbours",
        "unseen pairs",
        unseen_target_at_last=f"an unseen pair is most similar to trained pairs with its target{_LATE}",
        unseen_margin="an unseen pair is more similar to trained pairs with its target than to others, "
        "in cosines",
        unseen_g1_at_last=f"an unseen pair is most similar to trained pairs with its g(x; a1){_LATE}",
    ),
    *_readings(
        "gradient_sharing",
        sharing="the same weights answer pairs without a common anchor",
        mlp_sharing="pairs without a common anchor share the last MLP",
        attention_sharing="pairs without a common anchor share the last attention",
        order_blindness="both orders of two anchors use the embedding in the same way",
    ),
    Reading(
        "q_condensation",
        "mean_abs_cosine",
        "similarity of W_Q neurons, relative to random directions",
        sees="weights",
        normalise=_over_random_cosine,
    ),
    *_readings("embedding_pca", "weights", lag_order="order of the rules in the embedding"),
    *_readings(
        "stable_rank",
        "weights",
        w_q_normalized="stable rank of the first W_Q, relative to a Gaussian matrix",
    ),
    *_readings(
        "holdout",
        "training data",
        holdout_ratio="accuracy on training data that further training leaves out",
    ),
    SURVIVAL,
)
"""All readings, in the order of the probes."""
OF_ANY_TASK: tuple[Reading, ...] = (
    *(reading for reading in READINGS if reading.sees == "weights"),
    *_readings(
        "embedding_pca",
        "weights",
        rank_normalized="stable rank of the centred embedding, relative to a Gaussian matrix",
    ),
)
"""The readings for models of any task. These readings are not evidence for a phase without a calibration for
the task."""


def measurements(
    model: HookedTransformer,
    task: AnchorTask,
    *,
    names: Collection[str] = EVERY,
    training_set: object = None,
    seed: int = 0,
) -> dict[str, list[ProbeResult]]:
    """Apply the probes whose results contain the readings.

    Args:
        model: a HookedTransformer of two layers or more.
        task: the task of the model.
        names: the names of the measurements to take, from `MEASURED`. Default: all measurements.
        training_set: the training data of the model. Default: training data drawn by the task.
        seed: the seed of the costly probes.

    Returns:
        A map from each measurement to the results of its probe. If the probe has an option for the key's
        position, there is one result for each position in `reading_positions`. The list of results is empty
        if a probe with `may_refuse` refuses the model.

    Raises:
        ValueError: If a probe without `may_refuse` refuses the model or the task, or does not converge. The
            message contains the reason.
    """
    results = {}
    positions = reading_positions(task)
    for name, measured in MEASURED.items():
        if name not in names:
            continue
        asked = [measured.at(task, one) for one in positions] if measured.at else [measured.options]
        data: dict[str, Any] = {"seed": seed} if measured.costly else {}
        data |= {"training_set": training_set} if needs_training_set(measured.probe) else {}
        try:
            results[name] = [probes.apply(measured.probe, model, task, **data, **one) for one in asked]
        except (ValueError, torch.linalg.LinAlgError) as error:  # pyright: ignore[reportPrivateImportUsage]
            if not measured.may_refuse:
                raise ValueError(f"{name}: {error}") from None
            results[name] = []
    return results


def take_readings(
    model: HookedTransformer,
    task: AnchorTask,
    *,
    names: Collection[str] = EVERY,
    training_set: object = None,
    seed: int = 0,
) -> dict[str, float | None]:
    """Take the readings of a model.

    Args:
        model: a HookedTransformer of two layers or more.
        task: the task of the model.
        names: the names of the measurements to take, such as `CHEAP` or `COSTLY` of this module. Default: all
            measurements.
        training_set: the training data of the model. Default: `holdout` uses training data drawn by the task.
            The relative margin is then missing unless the margin with fresh noise is at most 0.
        seed: the seed of the costly probes.

    Returns:
        A map from the name of each reading to its mean value over `reading_positions`. A value is `None` if
        the probe has no value for this model or task. The result contains only the readings that were taken.

    Raises:
        ValueError: If a probe refuses the model or the task, or does not converge. The message contains the
            reason.

    Example:
        >>> from anchorlens import AnchorTask, ModelConfig, build_model
        >>> readings = take_readings(build_model(ModelConfig(d_model=32)), AnchorTask(), names=CHEAP)
        >>> readings["information_flow.margin"] < 0  # a random start does not know the answers
        True
    """
    results = measurements(model, task, names=names, training_set=training_set, seed=seed)
    found = {}
    for reading in READINGS:
        if reading.measurement in results:
            value = mean_of(results[reading.measurement], reading.field)
            if reading.over_training and value is not None:
                value = relative_margin(value, training_margin(model, task, training_set))
            found[reading.name] = reading.of(value, model.cfg)
    return found


def training_margin(model: HookedTransformer, task: AnchorTask, training_set: object) -> float | None:
    """Return the mean margin on up to 1,000 training sequences, in logits, or `None` without training data.

    Raises:
        ValueError: If the training data are not sequences of the task.
    """
    if training_set is None:
        return None
    data = task.checked_training_set(training_set)
    some = data.take(generator(0, "probe").permutation(len(data))[:_N_MARGINS])
    with evaluation_mode(model), torch.no_grad():
        logits = model(some.tokens.to(device_of(model)))[:, -1]
    return float(margin(logits, some.targets.to(logits.device)).mean())


def relative_margin(fresh: float, training: float | None) -> float | None:
    """Return the margin on trained pairs with fresh noise, divided by the margin on training sequences.

    If the training data are unknown, only the sign of the quotient is known. A model that has fit its
    training data has a margin above 0 on these data. Without training data, the result is 0 if `fresh` is at
    most 0.

    Args:
        fresh: the margin on trained pairs with fresh noise, in logits.
        training: the margin on training sequences, in logits, or `None` if the training data are unknown.

    Returns:
        The quotient, or `None` if the quotient is unknown, or if the margin on training sequences is at most
        0.

    >>> relative_margin(2.0, 4.0), relative_margin(-2.0, None), relative_margin(2.0, None)
    (0.5, 0.0, None)
    """
    if training is None:
        return 0.0 if fresh <= 0 else None
    return fresh / training if training > 0 else None


def mean_of(results: Sequence[ProbeResult], field: str) -> float | None:
    """Return the mean of a field over the results of one measurement, or `None` if no result has a value."""
    values = [value for result in results if (value := getattr(result, field)) is not None]
    return float(np.mean(values)) if values else None
