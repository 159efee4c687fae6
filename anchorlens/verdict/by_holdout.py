"""The probe verdict `memorised` or `learnt a rule` by `holdout`, for tasks without a calibrated phase.

`holdout` trains copies of the model further without a random tenth of the training data. The verdict uses
only the training data and the weights. It does not use held-out data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import torch

from anchorlens import probes
from anchorlens.files.importers.inputs import Input
from anchorlens.probes.any_model.holdout import LEARNT, MEMORISED, UPDATES, Holdout, holdout
from anchorlens.tasks.shared.base import Task
from anchorlens.tasks.shared.phases import MEMORISATION, Memorisation, Phase
from anchorlens.verdict.readings import MEASURED, OF_ANY_TASK
from anchorlens.verdict.verdict import ByProbes, Evidence

if TYPE_CHECKING:
    from anchorlens.models.library import HookedTransformer

BOUNDS: Mapping[Memorisation, tuple[float, float]] = dict(
    zip(MEMORISATION, ((0.0, MEMORISED), (LEARNT, 1.0)), strict=True)
)
"""The smallest and largest ratio of each label."""
_MEANINGS = {
    "holdout_ratio": f"after {UPDATES[-1]} updates without a tenth of the training data: accuracy on that "
    "tenth, over the accuracy on the other data, both above chance",
    "ratio_at_80": "the same ratio after 80 updates",
    "ratio_at_40": "the same ratio after 40 updates",
    "ratio_at_20": "the same ratio after 20 updates",
    "others": f"accuracy on the other training data after {UPDATES[-1]} updates",
    "chance": "accuracy of the most frequent answer after the last token",
    "dose": "mean weight decay per update",
    "n_left_out": "number of training sequences in that tenth",
}
"""The meaning of each field of `Holdout`."""


def by_holdout(
    model: HookedTransformer, task: Task, training_set: object = None, *, why_not: Phase | None = None
) -> tuple[ByProbes, Holdout | None]:
    """Measure whether a model memorised its training data or learnt a rule.

    Args:
        model: a HookedTransformer, or a native TransformerBridge.
        task: a task without anchors.
        training_set: the training data of the model. Default: training data drawn by the task.
        why_not: the reason why the probe is not applied, or `None` to apply the probe.

    Returns:
        The verdict, and the result of the probe `holdout`. The result is `None` if the probe took no
        measurement. The label of the verdict is `memorised` or `learnt a rule`. The verdict has a reason
        instead of a label if the holdout ratio lies between the bounds of both labels, or if the probe
        refuses its input. The verdict also lists readings of the weights. These readings are not evidence for
        a label.
    """
    if why_not is not None:
        return ByProbes(why_not, None, tuple(_of_weights(model, task))), None
    try:
        found = probes.apply(holdout, Input(task, model), training_set=training_set)
    except ValueError as error:
        phase = Phase.undecided("no readings", str(error))
        return ByProbes(phase, None, tuple(_of_weights(model, task))), None
    assert isinstance(found, Holdout)
    phase = phase_by_holdout(found)
    return ByProbes(phase, None, (*_of_holdout(found, phase), *_of_weights(model, task))), found


def phase_by_holdout(found: Holdout) -> Phase:
    """Return the label that a holdout ratio determines.

    The label is `memorised` up to a ratio of 0.75, and `learnt a rule` from a ratio of 0.84 on. Between these
    bounds, the result is undecided.
    """
    ratio, numbers = found.holdout_ratio, f"ratio {found.headline()}"
    if ratio is None:
        why = "the copies forgot the other training data too, or the last token alone almost gives the answer"
        return Phase.undecided("no readings", f"{why}, so there is no ratio")
    for label, (low, high) in BOUNDS.items():
        if low <= ratio <= high:
            return Phase(None, None, numbers, solution=label)
    why = (
        f"models that memorised have at most {MEMORISED:.2f}, those that learnt a rule at least {LEARNT:.2f}"
    )
    return Phase.undecided("between", f"{why}; {numbers}")


def _of_holdout(found: Holdout, phase: Phase) -> Iterator[Evidence]:
    """Yield the readings of `holdout`.

    Only the ratio after all updates determines the label.
    """
    for name, meaning in _MEANINGS.items():
        value, decides = getattr(found, name), name == "holdout_ratio"
        about = (f"holdout.{name}", "holdout", meaning, None if value is None else float(value))
        ranges, vote = ({**BOUNDS}, phase.solution) if decides else ({}, None)
        yield Evidence(*about, ranges=ranges, vote=vote, weight=0.0, sees="training data")


def _of_weights(model: HookedTransformer, task: Task) -> Iterator[Evidence]:
    """Yield the readings of the weights, which are not evidence of memorisation."""
    for reading in OF_ANY_TASK:
        try:
            result = probes.apply(MEASURED[reading.measurement].probe, model, task)
        except (ValueError, torch.linalg.LinAlgError):  # pyright: ignore[reportPrivateImportUsage]
            continue  # the probe does not apply to this architecture
        value = reading.of(getattr(result, reading.field, None), getattr(model, "cfg", None))
        if value is not None:
            about = (reading.name, reading.probe, reading.meaning)
            yield Evidence(*about, value, ranges={}, vote=None, weight=0.0, sees=reading.sees)
