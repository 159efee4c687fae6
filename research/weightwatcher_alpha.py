"""WeightWatcher's alpha as a probe file: what a reading of another library looks like to the benchmark.

    anchorlens benchmark research/weightwatcher_alpha.py

It needs the extra `research` (`pip install '.[research]'`).
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from typing import Any

from torch import nn

from anchorlens.probes.shared.linalg import weight_matrices


def weightwatcher_alpha(model: Any) -> float:
    """Exponent of the power law that fits the tail of each matrix's spectrum, the mean over all matrices.

    The package looks for PyTorch's own layers and finds none in a HookedTransformer: every weight matrix is
    given to it as a linear layer, heads merged. Those with fewer than 8 singular values it leaves out.

    Args:
        model: any HookedTransformer. It is only read.

    Returns:
        Above 1; the smaller, the heavier the tail. NaN where no matrix can be fit.

    Source: Martin, Peng, Mahoney (2021), Nature Communications 12, 4122; `weightwatcher` 0.7.7, its defaults.
    """
    logging.getLogger("weightwatcher").setLevel(logging.ERROR)
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it prints and warns while it is imported and while it fits
        import weightwatcher  # pyright: ignore[reportMissingImports] - of the extra [research]

        watcher = weightwatcher.WeightWatcher(model=_as_linear_layers(model))
        return float(watcher.get_summary(watcher.analyze()).get("alpha", float("nan")))


def _as_linear_layers(model: Any) -> nn.ModuleDict:
    layers = nn.ModuleDict()
    for name, matrix in weight_matrices(model).items():
        layer = nn.Linear(*matrix.shape, bias=False, device="cpu")
        layer.weight = nn.Parameter(matrix.T.cpu().contiguous(), requires_grad=False)
        layers[name.replace(".", " ")] = layer
    return layers
