"""Convert gamma and learning rate from a model of one width to a model of another width."""

from __future__ import annotations

import math
from typing import NamedTuple

from anchorlens.configuration import check_number, checked_arguments

_MOST = 1_000_000


class WidthTransfer(NamedTuple):
    """The gamma and learning rate at the new width."""

    gamma: float
    """The initialisation rate, with a weight std of d_in^-gamma."""
    lr: float
    """The peak learning rate."""


@checked_arguments()
def transfer(gamma: float, lr: float, from_width: int, to_width: int) -> WidthTransfer:
    """Convert gamma and learning rate from a model of one width to a model of another width.

    The effect of gamma depends on the width. A layer multiplies the scale of its input by about std *
    sqrt(width) = width^(1/2 - gamma). At gamma 0.8, this factor is 0.17 at width 400 and 0.23 at width 128.
    The conversion keeps the factor, and changes the learning rate in proportion to the weights' std:

        to_width^(1/2 - gamma') = from_width^(1/2 - gamma)
        lr' / lr = to_width^-gamma' / from_width^-gamma = sqrt(from_width / to_width)

    A gamma of 1/2 therefore stays 1/2 at every width. The conversion is our own rule of thumb, and
    docs/replication/widths.md reports a test of the rule on two widths.

    Args:
        gamma: the initialisation rate at `from_width`.
        lr: the learning rate at `from_width`, above 0.
        from_width: the d_model of the first model, at least 2. The rule assumes that d_head and d_mlp grow
            with d_model.
        to_width: the d_model of the other model, at least 2.

    Returns:
        The gamma and learning rate at `to_width`.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> gamma, lr = transfer(0.8, 1.5e-4, from_width=400, to_width=128)  # 2501.08537, at our width
        >>> round(gamma, 3), round(lr, 6)
        (0.87, 0.000265)

    Source: std = d_in^-gamma of arXiv 2405.05409 and 2501.08537. The rule is our own.
    """
    check_number("gamma", gamma)
    check_number("lr", lr, above=0)
    for name, width in (("from_width", from_width), ("to_width", to_width)):
        check_number(name, width, minimum=2, limit=_MOST, integer=True)
    kept = 0.5 + (gamma - 0.5) * math.log(from_width) / math.log(to_width)
    return WidthTransfer(kept, lr * math.sqrt(from_width / to_width))
