"""What `control` tries, in this order: cheap and likely ones first, training anew last.

Figures k1 to k4 (docs/complexity_control.md) say why these: decay and rescaling help, early and of all
weights; W_Q and W_K alone, and the penalties on complexity that were tried, do not.

To change what is tried, change this list: a name, why it may help, what it does, where it comes from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from anchorlens.configuration import check_number, documented, field_types
from anchorlens.models.config import PARTS
from anchorlens.runs.run_config import RunConfig
from anchorlens.runs.train_config import TrainConfig
from anchorlens.safe import safe_repr

SHORT, LONGER = 0.2, 0.5
"""Shares of the run's steps that attempts from its checkpoint take."""


@documented
@dataclass(frozen=True)
class Intervention:
    """Something that may take a run to a later phase: what it changes of the recipe, and of which weights.

    Raises:
        ValueError: a name that cannot be that of a folder, or a share of steps that is none.
    """

    name: str
    """Of the attempt and its folder: small letters, digits, `_`."""
    why: str
    """Why it may help, in one sentence."""
    source: str
    """Where it comes from: a paper, a figure, or `ours`."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the recipe or the model -> value, as `preset` takes them."""
    added: Mapping[str, float] = field(default_factory=dict)
    """Fields -> what is added to the value that they have: `gamma` 0.2 makes .7 of .5. What a part of the
    weights has not of its own is that of all weights."""
    at_least: Mapping[str, float] = field(default_factory=dict)
    """Fields of `added` -> the least that they become."""
    anew: bool = False
    """Whether weights are drawn again, from the same seed; else it goes on from the checkpoint."""
    steps: float = 1.0
    """Share of the run's steps that it takes, above 0."""
    baseline: bool = False
    """Whether it is what the others are compared with: training anew at a larger gamma."""

    def __post_init__(self) -> None:
        """Check name and steps."""
        if not isinstance(self.name, str) or not re.fullmatch("[a-z0-9_]{1,60}", self.name):
            raise ValueError(
                f"the name of an intervention must be small letters, digits and _, got {safe_repr(self.name)}"
            )
        check_number(f"the steps of {self.name}", self.steps, above=0, limit=1000)

    def applied(self, run: RunConfig, start: str) -> RunConfig:
        """The attempt: `run` with this changed.

        Args:
            run: task, model and recipe of the run that is to be helped. What its recipe changed on the way
                and where it started are left out, and no attempt stops early.
            start: the checkpoint that an attempt goes on from if it is not made anew.

        Raises:
            ValueError: neither recipe nor model has such a field, or it cannot have such a value.
        """
        plain = run.train_config.without_interventions()
        train: dict[str, Any] = {
            "steps": max(1, round(self.steps * plain.total_steps)),
            "epochs": None,
            "warmup_steps": round(min(1, self.steps) * plain.total_warmup_steps),
            "warmup_epochs": None,
            "early_stop_evaluations": None,
            "stop_at_loss": None,
            "threads": plain.threads or 1,
            "start": None if self.anew else start,
            "start_sha256": None,
        }
        model: dict[str, Any] = {}
        changed = dict(self.fields)
        for name, more in self.added.items():
            changed[name] = max(_sum(run, name, more), self.at_least.get(name, float("-inf")))
        for name, value in changed.items():
            (train if name in field_types(TrainConfig) else model)[name] = value
        unknown = [name for name in model if name not in field_types(type(run.model_config))]
        if unknown:
            raise ValueError(f"{self.name} changes {unknown[0]}, which this model does not have")
        if model and not self.anew:
            raise ValueError(f"{self.name} changes the model ({', '.join(model)}), so anew must be True")
        return run._replace(
            model_config=replace(run.model_config, **model), train_config=replace(plain, **train)
        )


def _sum(run: RunConfig, name: str, more: float) -> float:
    """What a field has and more."""
    values = run.model_config.to_dict() | run.train_config.without_interventions().to_dict()
    value = values.get(name)
    whole, _, part = name.rpartition("_")
    if value is None and part in PARTS:
        value = values.get(whole)
    if value is None:
        raise ValueError(f"this run does not record {name}, so nothing can be added to it")
    return round(value + more, 6)


_SMALL = "small initial weights, arXiv 2405.05409 and 2501.08537, here of a trained model; figure k2"
_DECAY = "weight decay, arXiv 2501.08537 (phases along gamma and decay); figures k1 and k4"

INTERVENTIONS: tuple[Intervention, ...] = (
    Intervention(
        "quarter_decay",
        "Weights that are kept small by decay cannot grow back to what they memorised.",
        f"{_SMALL}; {_DECAY}",
        {"rescale": "all=0.25@0", "weight_decay": 1.0},
        steps=SHORT,
    ),
    Intervention(
        "quarter",
        "A quarter of every weight brings a model near the small weights from which training composes.",
        _SMALL,
        {"rescale": "all=0.25@0"},
        steps=SHORT,
    ),
    Intervention(
        "halve",
        "With half of every weight it forgets less than with a quarter, and keeps more of what is right.",
        _SMALL,
        {"rescale": "all=0.5@0"},
        steps=SHORT,
    ),
    Intervention(
        "eighth",
        "With an eighth of every weight it forgets nearly all, and needs longer to fit again.",
        _SMALL,
        {"rescale": "all=0.125@0"},
        steps=LONGER,
    ),
    Intervention(
        "quarter_values_mlp",
        "W_V, W_O and the MLPs map a pair as a whole, so only they shrink; embedding and attention stay.",
        f"{_SMALL}, by part",
        {"rescale": "vo=0.25@0 mlp=0.25@0"},
        steps=SHORT,
    ),
    Intervention(
        "decay_window",
        "Strong decay in the first half undoes what was memorised, and the second half fits again.",
        f"{_DECAY}, in stages",
        {"weight_decay": "0:0.5=3"},
        steps=LONGER,
    ),
    Intervention(
        "anew_decay",
        "The same start with strong decay from the first step on.",
        _DECAY,
        {"weight_decay": 1.0},
        anew=True,
    ),
    Intervention(
        "anew_parts",
        "A smaller embedding and smaller MLPs at the start; attention as it was.",
        "gamma by part; figure k3",
        added={"gamma_embedding": 0.3, "gamma_mlp": 0.3},
        anew=True,
    ),
    Intervention(
        "anew",
        "Smaller weights at the start: the papers' own way to Phase 3, and the baseline for all others.",
        "gamma, arXiv 2405.05409 and 2501.08537",
        added={"gamma": 0.2},
        at_least={"gamma": 0.7},
        anew=True,
        baseline=True,
    ),
)
"""Tried in this order."""
