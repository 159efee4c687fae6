"""Parameters that keep their values, because their start is not a draw: the reason for each of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

PLAIN = "named in fan_in", "frozen", "marked with _no_reinit", "a single number", "a vector of one value"
"""The reasons that lie in the words of the caller or in the shape of the parameter."""
ASKED, _FROZEN, _MARKED, _SINGLE, _VECTOR = PLAIN
_FAR = 3.0
"""The mean of a bias, in units of torch's largest start, from which the bias has a start of its own."""


def own_starts(parameters: Mapping[str, tuple[Tensor, Any]], by_values: bool) -> dict[str, str]:
    """Return the reason to keep each parameter whose start is not a draw.

    The values of a parameter are a reason only in a model whose other matrices look like draws. Memory that
    nobody filled does not: its standard deviation is rarely within 1e-6 and 1e3.

    Args:
        parameters: each parameter and its role: a `Matrix`, the start of a bias or norm, or None if unknown.
        by_values: whether the values may be a reason.
    """
    trains = any(parameter.requires_grad for parameter, _ in parameters.values())
    roles = {name: role for name, (_, role) in parameters.items()}
    values = {
        name: one.detach().float() for name, (one, _) in parameters.items() if by_values and not one.is_meta
    }
    fan_ins = {name: roles[name].fan_in for name in values if hasattr(roles[name], "fan_in")}
    reasons = {name: text for name, one in values.items() if (text := _structure(one, roles[name]))}
    stds = [float(values[name].std()) for name in fan_ins.keys() - reasons.keys()]
    if stds and all(1e-6 < std < 1e3 for std in stds):
        reasons |= _own_biases({name: values[name] for name in values if roles[name] == 0.0}, fan_ins)
    else:
        reasons = {}
    for name, (parameter, role) in parameters.items():
        if getattr(parameter, "_no_reinit", False):
            reasons[name] = _MARKED
        elif trains and not parameter.requires_grad:
            reasons[name] = _FROZEN
        elif parameter.numel() == 1 and (role is None or role == 1.0):
            reasons[name] = _SINGLE
    return reasons


def _structure(values: Tensor, role: object) -> str | None:
    """Describe values that no draw gives: equal rows, one value in each row, or sines and cosines.

    A bias, and the weight of a norm that is not 0, start at their constant.
    """
    if values.numel() < 2 or role == 0.0 or (role == 1.0 and values.any()):
        return None
    rows = values.reshape(-1, values.shape[-1])
    if min(rows.shape) < 2:
        return _VECTOR if (rows == rows[0, 0]).all() else None
    if (rows == rows[0]).all():
        return "all its rows are equal"
    if ((rows != 0).sum(dim=1) <= 1).all():
        return "each of its rows has a single value"
    squares = rows.square().sum(dim=1) / (rows.shape[1] / 2)
    return "a table of sines and cosines" if (squares - 1).abs().max() < 0.01 else None


def _own_biases(biases: Mapping[str, Tensor], fan_ins: Mapping[str, int]) -> dict[str, str]:
    """Return the biases far outside torch's start, +-1 / sqrt(fan-in), if all others are within it."""
    widths = {name: fan_ins.get(f"{name.removesuffix('bias')}weight") for name in biases}
    shifts = {name: biases[name] * n**0.5 for name, n in widths.items() if n}
    far = {name for name, shift in shifts.items() if shift.mean().abs() > _FAR}
    fresh = all(shift.abs().max() < 1.01 for name, shift in shifts.items() if name not in far)
    return dict.fromkeys(far if fresh and len(far) < len(shifts) else (), "a bias with a start of its own")
