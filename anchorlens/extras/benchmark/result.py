"""The result of a benchmark: the score of each reading of a probe on each question, and its raw values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Bool, Float

from anchorlens.configuration import frozen_dataclass
from anchorlens.records import Count, Name, Record, Share, Text
from anchorlens.views import figure, html

if TYPE_CHECKING:
    import plotly.graph_objects as go

Ending = Literal["Phase 1", "Phase 2", "Phase 3", "inferential solution", "another solution"]
"""The outcome of a run: its phase in `reasoning`; in `conflict`, whether it composes for unseen pairs."""
ENDINGS: tuple[Ending, ...] = get_args(Ending)
Outcome = Literal["memorised", "learnt a rule", "between"]
"""The accuracy class of a model on held-out keys, relative to its training data."""


@frozen_dataclass()
class BenchmarkQuestion:
    """Two kinds of models that a reading may distinguish."""

    asks: str
    """The question in words."""
    no: tuple[Ending | Outcome, ...]
    """The endings or outcomes for which the answer is no."""
    yes: tuple[Ending | Outcome, ...]
    """The endings or outcomes for which the answer is yes; near AUC 1, these models have larger values."""

    def answer(self, ending: Ending, outcome: Outcome) -> bool | None:
        """Return True for the answer yes, False for no, and `None` for a model of neither kind."""
        return next((side == self.yes for side in (self.yes, self.no) if {ending, outcome} & {*side}), None)


QUESTIONS: Mapping[str, BenchmarkQuestion] = {
    "memorised": BenchmarkQuestion(
        "has it memorised its training data (accuracy on held-out keys at most 0.3 of that on training data, "
        "against at least 0.9)?",
        ("learnt a rule",),
        ("memorised",),
    ),
    "generalises": BenchmarkQuestion(
        "does it answer held-out keys (Phase 2 and 3 against Phase 1)?", ("Phase 1",), ("Phase 2", "Phase 3")
    ),
    "composes": BenchmarkQuestion(
        "does it compose the rules for unseen pairs (Phase 3 against Phase 2)?", ("Phase 2",), ("Phase 3",)
    ),
    "inferential": BenchmarkQuestion(
        "where the training data conflict with the rules: does it compose them nevertheless (the inferential "
        "solution against all others)?",
        ("another solution",),
        ("inferential solution",),
    ),
}
"""A map from the name of each question to the question."""


N_DRAWS = 2_000
LEAST_TASKS = 3
"""The smallest number of tasks of either side for which an interval is computed."""
_SEED = 2501


class AucInterval(NamedTuple):
    """An AUC, 0..1, and its 95% interval, with `None` for a value that cannot be computed."""

    auc: float | None
    low: float | None = None
    high: float | None = None


def auc_with_interval(
    values: Float[np.ndarray, " model"], is_yes: Bool[np.ndarray, " model"], tasks: Sequence[str]
) -> AucInterval:
    """Compute the AUC of a reading on a question with the answers yes and no.

    The AUC is the probability that a model with the answer yes has a larger value than a model with the
    answer no. Ties count half. The interval is from a cluster bootstrap. Each draw takes tasks with
    replacement, and all models of each drawn task. Models of one task are not independent. The bootstrap
    omits draws in which every model has the same answer. The seed is fixed.

    Args:
        values: the finite value of the reading for each model.
        is_yes: a boolean mask of the models with the answer yes.
        tasks: the name of the task of each model.

    Returns:
        The AUC and its interval. An AUC of 0.5 is chance level. At an AUC below 0.5, models with the answer
        yes tend to have smaller values than models with the answer no. The AUC is `None` if all models have
        the same answer. The interval is `None` if the models of one answer belong to fewer than three tasks.

    >>> tasks = ["a", "b", "c", "a", "b", "c"]
    >>> auc_with_interval(np.array([0.1, 0.2, 0.3, 0.3, 0.8, 0.9]), np.arange(6) > 2, tasks).auc
    0.9444444444444444
    """
    yes, no = np.flatnonzero(is_yes), np.flatnonzero(~is_yes)
    if not len(yes) or not len(no):
        return AucInterval(None)
    difference = values[yes][:, None] - values[no][None]
    above = (np.sign(difference) + 1) / 2
    names, task = np.unique(np.asarray(tasks), return_inverse=True)
    if min(len(set(task[side])) for side in (yes, no)) < LEAST_TASKS:
        return AucInterval(float(above.mean()))
    random = np.random.default_rng(_SEED)
    times = random.multinomial(len(names), np.full(len(names), 1 / len(names)), size=N_DRAWS)
    of_yes, of_no = times[:, task[yes]], times[:, task[no]]
    n_compared = of_yes.sum(axis=1) * of_no.sum(axis=1)
    n_above = np.einsum("dy,yn,dn->d", of_yes, above, of_no, optimize=True)
    drawn = n_above[n_compared > 0] / n_compared[n_compared > 0]
    low, high = np.quantile(drawn, [0.025, 0.975]).tolist()
    return AucInterval(float(above.mean()), low, high)


@frozen_dataclass()
class BenchmarkModel(Record):
    """A model of the benchmark, and its known properties."""

    name: Name
    """The name of the model's run."""
    ending: Ending
    """The outcome of training, by the model's answers."""
    task: Name
    """The name of the model's task, which all models of one task share."""
    kind: Name
    """The functions of the model's task, which are shifts, multiplication, permutations or affine."""
    regime: Literal["reasoning", "conflict"]
    """The regime of the training data. In `reasoning`, every trained pair obeys the rules. In `conflict`, the
    reversed pair of an unseen pair breaks the rules."""
    label: Name
    """The ending in more detail, with the commutativity of Phase 2 and the kind of other solutions."""
    train: Share
    """The accuracy on the training data."""
    id: Share
    """The accuracy on held-out keys."""
    ood: Share
    """The accuracy on unseen pairs, against the composition."""

    @property
    def outcome(self) -> Outcome:
        """The accuracy class of the model on held-out keys.

        The class is `memorised` if the accuracy on held-out keys is at most 0.3 times the training accuracy.
        The class is `learnt a rule` if the accuracy on held-out keys is at least 0.9 times the training
        accuracy. Otherwise, the class is `between`.
        """
        relative = self.id / self.train if self.train else 0.0
        return "memorised" if relative <= 0.3 else "learnt a rule" if relative >= 0.9 else "between"


@frozen_dataclass()
class QuestionScore(Record):
    """The score of a reading on one question."""

    auc: Share | None
    """The probability that a model with the answer yes has a larger value than a model with the answer no.
    Ties count half, and 0.5 is chance level. Below 0.5, models with the answer yes have the smaller values.
    `None` if an answer has no model with a value."""
    low: Share | None
    """The lower end of the 95% interval, from 2,000 draws of tasks. `None` if the models of one answer belong
    to fewer than three tasks."""
    high: Share | None
    """The upper end of the interval."""
    n_no: Count
    """The number of models with the answer no and a value."""
    n_yes: Count
    """The number of models with the answer yes and a value."""
    n_missing: Count
    """The number of models with an answer but without a value."""

    @property
    def in_words(self) -> str:
        """A text with the AUC and its interval, for example `0.81 (0.70 to 0.90)`.

        >>> QuestionScore(0.5, None, None, 3, 3, 0).in_words
        '0.50'
        """
        if self.auc is None:
            return "none"
        interval = "" if self.low is None or self.high is None else f" ({self.low:.2f} to {self.high:.2f})"
        return f"{self.auc:.2f}{interval}"


def question_scores(
    models: Sequence[BenchmarkModel], values: Mapping[str, float | None]
) -> dict[str, QuestionScore]:
    """Return the score of a reading on each question.

    Args:
        models: the models of the benchmark.
        values: a map from the name of each model to the value of the reading, or to `None` without a value.
    """
    scores = {}
    for name, question in QUESTIONS.items():
        asked = [one for one in models if question.answer(one.ending, one.outcome) is not None]
        there = [(one, value) for one in asked if (value := values[one.name]) is not None]
        is_yes = np.array([question.answer(one.ending, one.outcome) for one, _ in there], dtype=bool)
        numbers = np.array([value for _, value in there], dtype=float)
        interval = auc_with_interval(numbers, is_yes, [one.task for one, _ in there])
        n_yes = int(is_yes.sum())
        scores[name] = QuestionScore(*interval, len(there) - n_yes, n_yes, len(asked) - len(there))
    return scores


@frozen_dataclass(eq=False)
class ReadingScore(Record):
    """The scores of one reading of a probe on every question."""

    name: Name
    """The field `probe.field` of a ProbeResult, the name of a function that returns a number, or a key."""
    scores: Mapping[Name, QuestionScore]
    """A map from each question to its score."""
    values: Mapping[Name, float | None]
    """A map from each model to its value, or to `None` without a value."""

    @property
    def telling(self) -> float:
        """The mean distance of the AUCs from chance level (0.5). Tables are sorted by this distance."""
        distances = [abs(score.auc - 0.5) for score in self.scores.values() if score.auc is not None]
        return sum(distances) / len(distances) if distances else 0.0


@frozen_dataclass(eq=False, repr=False)
class Benchmark(Record):
    """The scores of a probe's readings on models whose solution is known."""

    probe: Name
    """The name of the probe."""
    readings: tuple[ReadingScore, ...]
    """The readings, in the probe's order."""
    models: tuple[BenchmarkModel, ...]
    """The models on which it was measured."""
    failures: Mapping[Name, Text]
    """A map from each model without a reading to the reason, in one line."""

    def plot(self) -> go.Figure:
        """Plot the AUC of every reading with its interval, in one panel for each question."""
        return figure(self)

    _repr_html_ = html

    def __repr__(self) -> str:
        best = max(self.readings, key=lambda reading: reading.telling)
        scores = ", ".join(f"{name} {best.scores[name].in_words}" for name in QUESTIONS)
        failed = f"; no reading of {len(self.failures)}" if self.failures else ""
        return f"Benchmark({best.name}, AUC: {scores}; {len(self.models)} models{failed})"
