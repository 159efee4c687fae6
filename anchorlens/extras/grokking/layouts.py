"""The content of published runs of modular arithmetic: weights, configuration, steps, losses, trained pairs.

The layouts are those of TransformerLens' Grokking_Demo (`model, config, checkpoints, checkpoint_epochs,
train_losses, test_losses, train_indices`), of ARENA (`state_dicts`), of Grokfast (`net`, `net_its`), of
progress-measures-paper (`model`, `config` as a dict, `epoch`), and of pizza and rep_theory (bare weights, and
a JSON file next to them).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from einops import rearrange
from torch import Tensor

from anchorlens.configuration import check_number
from anchorlens.files import state_dict
from anchorlens.safe import check_inside
from anchorlens.texts import safe_repr

_WEIGHTS = ("model", "model_state_dict", "model_state", "state_dict")
_CONFIGS = ("config", "model_config", "cfg", "args", "metadata", "run_config")
_TRAJECTORIES = {"checkpoints": "checkpoint_epochs", "state_dicts": "", "net": "net_its"}
"""A map from the key of a list of weights to the key of its steps."""
_SPLITS = ("train_indices", "train_idx", "train_inds", "train_index")
_STEPS = ("epoch", "epochs_done", "step", "global_step")
_MODULI = ("p", "P", "modulus", "mod", "prime", "C", "group_parameter")
"""The configuration fields that hold p."""
_LOGGED = {
    **{"train_losses": "loss", "train_loss": "loss", "test_losses": "test_loss", "val_loss": "test_loss"},
    **{"train_accs": "train_accuracy", "train_acc": "train_accuracy"},
    **{"test_accs": "id_accuracy", "val_acc": "id_accuracy"},
}
"""A map from lists with one number for each step to their names in a log."""
_STEP_FILE = re.compile(r"(?:[A-Za-z_]*?(?:step|epoch|ep|checkpoint)_?)?(\d{1,12})\.(?:pt|pth)")


class Run(NamedTuple):
    """A run from a file of other software."""

    weights: Mapping[str, Tensor]
    """The last weights, by the names and in the orientation of the file."""
    config: Mapping[str, Any]
    """The configuration of the run, which may be empty."""
    along: tuple[tuple[int, str, Any], ...]
    """The step, name and content of each entry of the trajectory, in the order of the file."""
    content: Mapping[str, Any]
    """The content of the whole file."""

    @property
    def is_modular(self) -> bool:
        """Whether the model reads two to four tokens, and the file indicates modular arithmetic."""
        return len(self.weights.get("pos_embed.W_pos", ())) in (2, 3, 4) and bool(
            self.along
            or any(name in self.content for name in _SPLITS)
            or modulus_field(self.config)
            or is_transposed(self.weights)
            or "x_embed" in self.weights
        )

    @property
    def step(self) -> int | None:
        """The step of the last weights, from the file's fields, losses or trajectory."""
        last = next((self.content[name] for name in _STEPS if _is_step(self.content.get(name))), None)
        losses = self.content.get("train_losses")
        if last is None and isinstance(losses, list) and losses:
            last = len(losses) - 1
        return max([*([] if last is None else [last]), *(step for step, *_ in self.along)], default=None)

    @property
    def has_steps(self) -> bool:
        """Whether the file contains the steps of the entries of its trajectory."""
        return any(
            key in self.content and self.content.get(steps) is not None
            for key, steps in _TRAJECTORIES.items()
        )

    @property
    def log(self) -> tuple[Mapping[str, Any], ...]:
        """The losses and accuracies as lines of a log.

        A list that is shorter than the longest list is taken to have a value at every k-th step.
        """
        lists = {key: self.content[key] for key in _LOGGED if isinstance(self.content.get(key), list)}
        n_steps = max(map(len, lists.values()), default=0)
        lines: dict[int, dict[str, Any]] = {}
        for key, values in lists.items():
            every = max(1, n_steps // max(1, len(values)))
            for k, value in enumerate(values):
                one = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
                if type(one) in (int, float):
                    lines.setdefault(k * every, {})[_LOGGED[key]] = one
        return tuple({"step": step, **lines[step]} for step in sorted(lines))


def run_in(content: Mapping[str, Any]) -> Run | None:
    """Return the run in a file, or `None` if the weights do not have TransformerLens' names.

    Raises:
        ValueError: If a trajectory and its steps do not have the same length.
    """
    config = next((content[name] for name in _CONFIGS if type(content.get(name)) is dict), {})
    lists = {key: content[key] for key in _TRAJECTORIES if isinstance(content.get(key), list)}
    key = next((key for key, tables in lists.items() if any(map(_weights, tables))), None)
    along = () if key is None else _entries(content, key)
    tables = (*(content.get(name) for name in _WEIGHTS), content, *(table for *_, table in reversed(along)))
    weights = next((weights for table in tables if (weights := _weights(table))), None)
    return None if weights is None else Run(weights, config, along, content)


def _weights(table: object) -> Mapping[str, Tensor] | None:
    found = state_dict(table) if isinstance(table, dict) else {}
    return found if "embed.W_E" in found else None


def _entries(content: Mapping[str, Any], key: str) -> tuple[tuple[int, str, Any], ...]:
    tables, named = content[key], _TRAJECTORIES[key]
    steps = content.get(named)
    if steps is None:
        losses = [content[name] for name in _LOGGED if isinstance(content.get(name), list)]
        every = max(1, round(max(map(len, losses), default=0) / len(tables)))
        steps = [k * every for k in range(len(tables))]
    steps = steps.tolist() if isinstance(steps, Tensor) else steps
    if not isinstance(steps, list) or len(steps) != len(tables) or not all(map(_is_step, steps)):
        raise ValueError(
            f"{named} must be {len(tables)} steps, one for each entry of {key}, got {safe_repr(steps)}. "
            f"Correct {named}"
        )
    return tuple((step, f"{key}[{k}]", tables[k]) for k, step in enumerate(steps))


def _is_step(value: object) -> bool:
    return type(value) is int and 0 <= value < 10**12


def modulus_field(config: Mapping[str, Any]) -> tuple[str, int] | None:
    """Return the name and the value of the configuration field with the modulus p, or None."""
    return next(((name, config[name]) for name in _MODULI if type(config.get(name)) is int), None)


def is_transposed(weights: Mapping[str, Tensor]) -> bool:
    """Check whether matrices are stored as [out, in] with merged heads (Nanda, ARENA and Zhong)."""
    output = weights.get("blocks.0.attn.W_O")
    return output is not None and output.ndim == 2


def split_in(content: Mapping[str, Any], p: int) -> list[int] | None:
    """Return the indices a * p + b of the trained pairs in a file, or `None` for a file without pairs.

    Raises:
        ValueError: If the indices are invalid.
    """
    name = next((name for name in _SPLITS if name in content), None)
    if name is None:
        return None
    given = content[name]
    indices = given.tolist() if isinstance(given, Tensor) else given
    if not isinstance(indices, list) or not indices or not all(type(index) is int for index in indices):
        raise ValueError(
            f"{name} must be a list of integers, got {safe_repr(given)}. Save a list of integers"
        )
    for index in (min(indices), max(indices)):
        if not 0 <= index < p * p:
            raise ValueError(
                f"{name} must be indices a * p + b of pairs in 0..{p * p - 1:,} for p = {p}, got "
                f"{index:,}. Give the file of the run to which the indices belong."
            )
    return indices


def step_files(folder: Path) -> dict[int, Path]:
    """Return a map from steps to files of weights in a folder, ascending.

    Raises:
        ValueError: If a link leads out of the folder.
    """
    found = {}
    for file in folder.iterdir():
        if match := _STEP_FILE.fullmatch(file.name):
            check_inside(folder, file)
            found[int(match[1])] = file
    return dict(sorted(found.items()))


_TURNS = {
    **{"W_E": "m v -> v m", "W_in": "h m -> m h", "W_out": "m h -> h m", "W_O": "m (i h) -> i h m"},
    **dict.fromkeys(("W_Q", "W_K", "W_V"), "i h m -> i m h"),
}
_WITH_BIAS = ("attn.W_Q", "attn.W_K", "attn.W_V", "attn.W_O", "mlp.W_in", "mlp.W_out", "unembed.W_U")


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
        n_heads = len(found["blocks.0.attn.W_Q"])
        found = {name: _turned(name, weight, n_heads) for name, weight in found.items()}
    if "attn_coeff" in config:
        found = _without_mask(found, config["attn_coeff"])
    for name, weight in tuple(found.items()):
        if name.endswith(_WITH_BIAS):
            shape = weight.shape[::2] if weight.ndim == 3 and name[-1] in "QKV" else weight.shape[-1:]
            found.setdefault(name.replace(".W_", ".b_"), weight.new_zeros(shape))
    return found


_INSTEAD = "Give the model itself: fourier(model, task), evaluate(model, task)"


def _turned(name: str, weight: Tensor, n_heads: int) -> Tensor:
    pattern = _TURNS.get(name.rpartition(".")[2])
    if pattern is None:
        return weight
    if weight.ndim != (3 if pattern.startswith("i") else 2):
        raise ValueError(
            f"{name} must be a matrix of a modular-arithmetic network, got shape {list(weight.shape)}. "
            f"{_INSTEAD}"
        )
    return rearrange(weight, pattern, **({"i": n_heads} if "(i h)" in pattern else {}))


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
