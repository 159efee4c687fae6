"""The interventions that `control` tries, in this order: cheap and promising ones first, retraining last.

Figures k1 to k4 (research/figures/complexity_control.md) are the reason for this choice: weight decay and
rescaling help if they are early and act on all weights; acting on W_Q and W_K only does not help, nor do the
complexity penalties that were tried.

To change what is tried, change this list. Each entry has a name, a reason, a source, and its changes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from anchorlens.configuration import check_number, field_types, frozen_dataclass
from anchorlens.models import PARTS
from anchorlens.recipes import RunConfig, TrainConfig
from anchorlens.texts import safe_repr

SHORT, LONGER = 0.2, 0.5
"""The steps of attempts from the checkpoint, as a fraction of the run's steps."""


@frozen_dataclass()
class Intervention:
    """A change of recipe or model that may take a run to a later phase.

    Raises:
        ValueError: If the name is not a valid folder name, or the fraction of steps is invalid.
    """

    name: str
    """The name of the attempt and its folder: lower-case letters, digits, `_`."""
    why: str
    """The reason why the intervention may help, in one sentence."""
    source: str
    """The source of the intervention: a paper, a figure, or `ours`."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """A map from fields of the recipe or the model to their values, as `preset` takes them."""
    added: Mapping[str, float] = field(default_factory=dict)
    """A map from fields to a number that is added to their value: `gamma` 0.2 turns 0.5 into 0.7. An unset
    field of one part of the weights (`gamma_mlp`) counts as the field of all weights (`gamma`)."""
    at_least: Mapping[str, float] = field(default_factory=dict)
    """A map from fields of `added` to the lower bound of their new value."""
    anew: bool = False
    """Whether weights are drawn again, from the same seed; else training continues from the checkpoint."""
    steps: float = 1.0
    """The number of steps as a fraction of the run's steps, above 0."""
    baseline: bool = False
    """Whether this attempt is the baseline for the others: training from scratch at a larger gamma."""

    def __post_init__(self) -> None:
        """Check the name and the steps."""
        if not isinstance(self.name, str) or not re.fullmatch("[a-z0-9_]{1,60}", self.name):
            raise ValueError(
                "the name of an intervention must have only lower-case letters, digits and _, got "
                f"{safe_repr(self.name)}. Rename the intervention"
            )
        check_number(f"the steps of {self.name}", self.steps, above=0, limit=1000)

    def applied(self, run: RunConfig, start: str) -> RunConfig:
        """Return the configuration of the attempt: `run` with this intervention.

        Args:
            run: the task, model and recipe of the original run. The attempt omits the interventions, the
                start checkpoint and the early stopping of the original run.
            start: the checkpoint from which an attempt continues, unless the attempt retrains from scratch.

        Raises:
            ValueError: If a field of the intervention is not a field of the recipe or the model, or a value
                is invalid.
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
        model_config = replace(run.model_config, **model)
        if model and not self.anew:
            raise ValueError(
                f"`anew` must be True for changes of the model ({', '.join(model)}), got False. Set "
                "`anew=True`"
            )
        return run._replace(model_config=model_config, train_config=replace(plain, **train))


def _sum(run: RunConfig, name: str, more: float) -> float:
    """Return the value of a field plus `more`."""
    values = run.model_config.to_dict() | run.train_config.without_interventions().to_dict()
    value = values.get(name)
    whole, _, part = name.rpartition("_")
    if value is None and part in PARTS:
        value = values.get(whole)
    if value is None:
        raise ValueError(
            f"the run must record a value of {name} for a change that adds to this value, got none. Give a "
            "new value instead"
        )
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
        "A smaller embedding and smaller MLPs at the start; attention is unchanged.",
        "gamma by part; figure k3",
        added={"gamma_embedding": 0.3, "gamma_mlp": 0.3},
        anew=True,
    ),
    Intervention(
        "anew",
        "Smaller weights at the start: the papers' own route to Phase 3, and the baseline for all others.",
        "gamma, arXiv 2405.05409 and 2501.08537",
        added={"gamma": 0.2},
        at_least={"gamma": 0.7},
        anew=True,
        baseline=True,
    ),
)
"""The interventions, in the order in which they are tried."""
