"""The content of published runs of modular arithmetic: weights, configuration, steps and curves.

The layouts are those of TransformerLens' Grokking_Demo (`model, config, checkpoints, checkpoint_epochs,
train_losses, test_losses, train_indices`), of ARENA (`state_dicts`), of Grokfast (`net`, `net_its`), of
progress-measures-paper (`model`, `config` as a dict, `epoch`), of pizza and rep_theory (bare weights, and a
JSON file next to them), and those with other names for the same content.
"""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from anchorlens.configuration import check_number
from anchorlens.extras.grokking.splits import split_name
from anchorlens.extras.shared.weights import StoredWeight, mapped, with_biases
from anchorlens.files import models_in, state_dict, without_wrappers
from anchorlens.safe import CheckpointError, check_inside, read_tensors
from anchorlens.texts import safe_repr

_WEIGHTS = ("model", "model_state_dict", "model_state", "state_dict")
_CONFIGS = ("config", "model_config", "cfg", "args", "metadata", "run_config")
_STEPS = ("epoch", "epochs_done", "step", "global_step", "iteration")
_LISTS_OF_STEPS = re.compile(r"(?:\w+_)?(?:steps?|its?|iters?|iterations?|epochs?)")
_EVERY = re.compile(r"(?:log|eval)\w*_(?:every|interval|freq|frequency)")
_CURVE = re.compile(r"(train|test|val)(?:ing|id|idation)?_(loss|acc)(?:es|s|uracy|uracies)?(?:_history)?")
_LOGGED = {
    **{"train_loss": "loss", "test_loss": "test_loss", "val_loss": "test_loss"},
    **{"train_acc": "train_accuracy", "test_acc": "id_accuracy", "val_acc": "id_accuracy"},
}
"""A map from the parts of the name of a curve to its name in a log."""
_MODULI = ("p", "P", "modulus", "mod", "prime", "C", "group_parameter")
"""The configuration fields that hold p."""
_STEP_FILE = re.compile(
    r"((?:[A-Za-z_.-]*?(?:step|epoch|ep|checkpoint|ckpt))?[_-]?)(\d{1,12})\.(?:pt|pth|safetensors)"
)
_OF_TRAINING = re.compile("opt|sched|rng|scaler")
"""The names of the states of an optimiser and its kin."""
_FEW_POSITIONS = 4
_FEW = 2
"""The largest number of values in a list that is a setting."""


class Run(NamedTuple):
    """A run from a file of other software."""

    weights: Mapping[str, Tensor]
    """The weights that the file names, else those of the largest step, in the orientation of the file."""
    config: Mapping[str, Any]
    """The configuration of the run, which may be empty."""
    along: tuple[tuple[int, str, Any], ...]
    """The step, name and content of each entry of the trajectory, by step."""
    said: Mapping[str, Any]
    """The values of the file and of its tables by name, except the weights."""
    steps_are_given: bool
    """Whether the file contains the steps of its trajectory."""
    named_step: int | None
    """The step that the file names beside its weights, or None."""

    @property
    def sizes(self) -> tuple[int, int]:
        """The number of tokens and the number of positions of the model; 0 positions without an embedding."""
        n_tokens = self.weights["embed.W_E"].shape[is_transposed(self.weights)]
        return n_tokens, len(self.weights.get("pos_embed.W_pos", ()))

    @property
    def is_modular(self) -> bool:
        """Whether the model reads some tokens at once, and the file indicates modular arithmetic."""
        n_positions = self.sizes[1]
        signs = (self.along, split_name(self.said), is_transposed(self.weights), "x_embed" in self.weights)
        few = n_positions <= _FEW_POSITIONS and any(signs)
        return n_positions >= 2 and (few or modulus_field(self.said) is not None)

    @property
    def step(self) -> int | None:
        """The step of the weights, from an equal entry of the trajectory, the file's fields or its losses."""
        same = [step for step, _, one in self.along if self.steps_are_given and is_same(one, self.weights)]
        named = [] if self.named_step is None else [self.named_step]
        lines = range(len(_listed(self.said.get("train_losses"))))
        return max(same or named or lines or (step for step, *_ in self.along), default=None)

    @property
    def unused(self) -> set[str]:
        """The names of the lists and arrays that neither the layout nor the log uses."""
        data = {n for n, v in self.said.items() if getattr(v, "ndim", 0) or len(_listed(v)) > _FEW}
        steps = {name for name in data if _LISTS_OF_STEPS.fullmatch(name)}
        return {name for name in data - steps - self.curves.keys() if "." not in name}

    @property
    def curves(self) -> dict[str, dict[int, Any]]:
        """A map from the name of each curve whose steps are known to its values by step."""
        found = {name: _listed(self.said[name]) for name in self.said if _CURVE.fullmatch(name)}
        longest = max(map(len, found.values()), default=0)
        steps = {name: self._steps_of_curve(name, len(values), longest) for name, values in found.items()}
        return {name: dict(zip(steps[name], found[name], strict=True)) for name in found if steps[name]}

    def _steps_of_curve(self, name: str, n: int, longest: int) -> Sequence[int]:
        """Return the steps of a curve of n values by what the file says; empty if they are not known."""
        if (steps := _list_of_steps(self.said, n)) is not None:
            return steps
        every = next((v for k, v in self.said.items() if _EVERY.fullmatch(k) and _is_step(v)), 0)
        given = [step for step, *_ in self.along if self.steps_are_given]
        if not every and n and max(given, default=self.named_step or 0) <= longest:
            every = longest // n if n == longest or ("loss" in name and longest % n == 0) else 0
        return range(0, n * every, every) if every else ()

    @property
    def log(self) -> tuple[Mapping[str, Any], ...]:
        """The curves whose steps are known, as lines of a log."""
        lines: dict[int, dict[str, Any]] = defaultdict(dict)
        for name, curve in self.curves.items():
            part, what = _CURVE.fullmatch(name).groups()  # pyright: ignore[reportOptionalMemberAccess]
            values = {step: value for step, value in curve.items() if type(value) in (int, float)}
            scale = 100 if what == "acc" and max(values.values(), default=0) > 1 else 1  # in percent
            for step, value in values.items():
                lines[step][_LOGGED[f"{part}_{what}"]] = value / scale
        return tuple({"step": step, **lines[step]} for step in sorted(lines))

    @property
    def train_accuracy(self) -> float | None:
        """The train accuracy at the step of the weights by the log, or None."""
        logged = [line for line in self.log if "train_accuracy" in line]
        until = [line for line in logged if self.step is None or line["step"] <= self.step]
        return (until or logged)[-1]["train_accuracy"] if logged else None


def run_in(content: Mapping[str, Any]) -> Run | None:
    """Return the run in a file, or `None` if the weights do not have TransformerLens' names.

    Raises:
        ValueError: If a trajectory and its steps do not have the same length.
    """
    named = [value for name, value in content.items() if not _OF_TRAINING.search(str(name))]
    tables = [value for value in named if isinstance(value, dict) and not _weights(value)]
    said = {str(name): value for table in (*tables, content) for name, value in table.items()}
    for rows in [value for value in said.values() if isinstance(value, list)]:
        if rows and all(isinstance(row, dict) and any(map(_CURVE.fullmatch, map(str, row))) for row in rows):
            said |= {name: [row.get(name) for row in rows] for name in rows[-1]}  # one table for each step
    along, is_given = _trajectory(content, said)
    whole = (*(content.get(name) for name in _WEIGHTS), content, *(one for *_, one in reversed(along)))
    weights = next((found for table in whole if (found := _weights(table))), None)
    if weights is None:
        return None
    config = next((content[name] for name in _CONFIGS if type(content.get(name)) is dict), {})
    plain = {name: value for name, value in said.items() if name not in weights and not _has_weights(value)}
    return Run(weights, config, along, plain, is_given, _step_in(content))


def _has_weights(value: object) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(map(_weights, value)))


def _weights(table: object) -> dict[str, Tensor]:
    """Return the weights with TransformerLens' names in a table, without prefixes; or an empty table."""
    found = state_dict(table) if isinstance(table, dict) else {}
    models = models_in(without_wrappers(found), lambda one: "embed.W_E" in one)
    return next(iter(models.values())) if len(models) == 1 else {}


def _step_in(table: Mapping[str, Any]) -> int | None:
    return next((table[name] for name in _STEPS if _is_step(table.get(name))), None)


def _trajectory(
    content: Mapping[str, Any], said: Mapping[str, Any]
) -> tuple[tuple[tuple[int, str, Any], ...], bool]:
    """Return the entries of the first list or table of weights by step, and whether the steps are given."""
    for key, value in content.items():
        items: dict[Any, Any] = dict(enumerate(value)) if isinstance(value, list) else {}
        items = value if isinstance(value, dict) else items
        inner = [one if isinstance(one, dict) else {} for one in items.values()]
        found = [next(filter(None, map(_weights, (*map(one.get, _WEIGHTS), one))), {}) for one in inner]
        if not any(found):
            continue
        steps: list[Any] = [*map(_step_in, inner)]
        if None in steps and isinstance(value, dict):
            digits = [re.fullmatch(r"\D*(\d{1,12})", str(name)) for name in items]
            steps = [number and int(number[1]) for number in digits]
            if None in steps:
                continue
        is_given = None not in steps
        if not is_given:
            steps, is_given = _steps_of(key, len(items), said)
        named = zip(steps, items.items(), found, strict=True)
        entries = [(step, f"{key}[{safe_repr(name)}]", own or one) for step, (name, one), own in named]
        return tuple(sorted(entries, key=lambda entry: entry[0])), is_given
    return (), False


def _list_of_steps(said: Mapping[str, Any], n: int, *first: str) -> list[int] | None:
    """Return the first list of n steps in a file, or None; names that begin with `first` come first."""
    named = [name for name in said if _LISTS_OF_STEPS.fullmatch(name)]
    for name in sorted(named, key=lambda name: not name.startswith(first)):
        steps = _listed(said[name])
        if len(steps) == n and all(map(_is_step, steps)):
            return steps
    return None


def _steps_of(key: str, n: int, said: Mapping[str, Any]) -> tuple[list[int], bool]:
    """Return the steps of a list of weights, and whether the file gives them; else evenly spaced steps.

    Raises:
        ValueError: If the file has steps of this list in another number.
    """
    if (steps := _list_of_steps(said, n, key.rstrip("s"), "checkpoint")) is not None:
        return steps, True
    named = next((name for name in (f"{key.rstrip('s')}_epochs", f"{key}_its") if name in said), None)
    if named is not None:
        raise ValueError(
            f"{named} must be {n} steps, one for each entry of {key}, got {safe_repr(said[named])}. "
            f"Correct {named}"
        )
    longest = max((len(_listed(said[name])) for name in said if _CURVE.fullmatch(name)), default=0)
    return [k * max(1, round(longest / n)) for k in range(n)], False


def _listed(value: object) -> list[Any]:
    """Return a list or a tensor with one axis as a list of plain values; an empty list for another value."""
    if isinstance(value, Tensor):
        return value.tolist() if value.ndim == 1 else []
    values = value if isinstance(value, list | tuple) else ()
    return [one.item() if isinstance(one, Tensor) and one.numel() == 1 else one for one in values]


def _is_step(value: object) -> bool:
    return type(value) is int and 0 <= value < 10**12


def is_same(some: object, others: Mapping[str, Tensor]) -> bool:
    """Check whether a table has the same tensors as other weights."""
    return isinstance(some, Mapping) and all(
        isinstance(one := some.get(name), Tensor) and one.shape == other.shape and torch.equal(one, other)
        for name, other in others.items()
    )


def modulus_field(said: Mapping[str, Any]) -> tuple[str, int] | None:
    """Return the name and the value of the field with the modulus p, or None."""
    return next(((name, said[name]) for name in _MODULI if type(said.get(name)) is int), None)


def step_files(folder: Path) -> dict[int, Path]:
    """Return a map from steps to files of weights in a folder, ascending.

    Of several series of files, such as those of the model and of its optimiser, the first one counts whose
    last file holds weights of a model.

    Raises:
        ValueError: If a link leads out of the folder.
    """
    series: dict[str, dict[int, Path]] = defaultdict(dict)
    for file in sorted(folder.iterdir()):
        if match := _STEP_FILE.fullmatch(file.name):
            check_inside(folder, file)
            series[match[1]][int(match[2])] = file
    found = [dict(sorted(files.items())) for files in series.values()]
    return next((files for files in found if len(found) == 1 or _holds_weights(files)), {})


def _holds_weights(files: Mapping[int, Path]) -> bool:
    with contextlib.suppress(CheckpointError, ValueError):
        return run_in(read_tensors(files[max(files)]).values) is not None
    return False


_TURNED = ("W_E", "W_Q", "W_K", "W_V", "W_O", "W_in", "W_out")
"""The matrices that Nanda, ARENA and Zhong store as [out, in]."""


def hooked(weights: Mapping[str, Tensor], config: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return weights in TransformerLens' layout, with zero biases if the network lacks biases.

    Args:
        weights: the weights by TransformerLens' names, in either orientation.
        config: the configuration, where `attn_coeff` is the fraction of attention that is a softmax.

    Raises:
        ValueError: If no HookedTransformer computes the same function.
    """
    found = {name: weight for name, weight in weights.items() if not name.endswith((".mask", ".IGNORE"))}
    for name in ("x_embed", "y_embed"):  # rep_theory stores the embedding again for each number
        if name in found and not torch.equal(found.pop(name), found["embed.W_E"]):
            raise ValueError(f"{name} must equal embed.W_E, got another embedding. {_INSTEAD}")
    if is_transposed(weights):
        names = {name: StoredWeight(name, name.rpartition(".")[2] in _TURNED) for name in found}
        found = mapped(found, names, len(found["blocks.0.attn.W_Q"]))
    if "attn_coeff" in config:
        found = _without_mask(found, config["attn_coeff"])
    return with_biases(found, norm="RMS")[0]  # norms are as they are


_INSTEAD = "Give the model itself: fourier(model, task), evaluate(model, task)"


def _without_mask(weights: dict[str, Tensor], rate: Any) -> dict[str, Tensor]:
    """Convert attention of `rate` times a softmax plus 1 - rate everywhere, as in pizza without a mask.

    The same number of additional heads attends evenly, which is the constant divided by the number of
    positions. At the last position of one layer that is exact.
    """
    check_number("attn_coeff", rate, minimum=0, maximum=1)
    if any(name.startswith("blocks.1.") for name in weights):
        raise ValueError(
            f"a network without a causal mask (attn_coeff {rate:g}) must have one layer, got more. {_INSTEAD}"
        )
    if rate == 1:
        return weights
    found, n_positions = dict(weights), len(weights["pos_embed.W_pos"])
    for matrix, even in (("Q", 0.0), ("K", 0.0), ("V", 1.0)):
        name = f"blocks.0.attn.W_{matrix}"
        found[name] = torch.cat([weights[name], even * weights[name]])
    output = weights["blocks.0.attn.W_O"]
    found["blocks.0.attn.W_O"] = torch.cat([rate * output, (1 - rate) * n_positions * output])
    return found


def is_transposed(weights: Mapping[str, Tensor]) -> bool:
    """Check whether matrices are stored as [out, in] with merged heads (Nanda, ARENA and Zhong)."""
    output = weights.get("blocks.0.attn.W_O")
    return output is not None and output.ndim == 2
