"""Figure 7 of arXiv 2405.05409 (appendix): how many directions the embedding of the numbers uses.

    python research/figures/c7_covariance.py [--seed 0 1] [--suffix .png]

Claim: the smaller the initialisation, the fewer large eigenvalues has the covariance of the embedding: the
embedding has the lower complexity.

Number: how many of the 79 eigenvalues make up 90 % of the variance; for comparison, before training. The
cells are those of c2_gamma_depth.py at two layers; without them the default trains ten of 13 seconds.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.colors import sample_colorscale

from anchorlens import load_checkpoint
from anchorlens.extras.sweep import Cell
from anchorlens.plots import GREY, styled
from anchorlens.probes import embedding_pca
from shared import common
from shared.solutions import GAMMAS, conflict_runs

SHARE = 0.9
"""Of the variance that the counted eigenvalues make up."""


def components_for(spectrum: Sequence[float] | np.ndarray, share: float = SHARE) -> int:
    """How many of the largest eigenvalues make up a share of their sum.

    >>> components_for([5.0, 4.0, 1.0]), components_for([1.0] * 10)
    (2, 9)
    """
    shares = np.cumsum(spectrum) / np.sum(spectrum)
    return int(np.count_nonzero(shares < share - 1e-9)) + 1


def measure(cells: Sequence[Cell]) -> dict[str, Any]:
    """Spectra after and before training, as shares of the variance, and the eigenvalues that matter.

    `components` is by gamma and seed; `start` is that of the run's first weights; `smallest_to_largest_gamma`
    is the mean number of components at the smallest gamma over that at the largest.
    """
    runs = []
    for cell in cells:
        assert cell.path is not None
        checkpoint = load_checkpoint(cell.path / "ckpt.pt")
        after, before = (
            embedding_pca(model, cell.run.task).spectrum
            for model in (checkpoint.build_model(), checkpoint.initial_model())
        )
        runs.append(
            {
                "gamma": cell.run.model_config.gamma,
                "seed": cell.run.train_config.seed,
                "cell": cell.id,
                "spectrum": (after / after.sum()).tolist(),
                "spectrum_at_start": (before / before.sum()).tolist(),
            }
        )
    gammas = sorted({run["gamma"] for run in runs})
    components, start = (
        {
            gamma: {run["seed"]: components_for(run[name]) for run in runs if run["gamma"] == gamma}
            for gamma in gammas
        }
        for name in ("spectrum", "spectrum_at_start")
    )
    least, most = (statistics.fmean(components[gamma].values()) for gamma in (gammas[0], gammas[-1]))
    return {
        "share_of_variance": SHARE,
        "components": components,
        "components_at_start": start,
        "smallest_to_largest_gamma": least / most,
        "runs": runs,
    }


def draw(numbers: Mapping[str, Any]) -> go.Figure:
    """Share of the variance over the rank of the eigenvalue: a line a run, a colour a gamma."""
    runs = numbers["runs"]
    gammas = sorted({run["gamma"] for run in runs})
    shades = [0.25 + 0.7 * i / max(1, len(gammas) - 1) for i in range(len(gammas))]
    colors = dict(zip(gammas, sample_colorscale("Viridis_r", shades), strict=True))
    figure = go.Figure()
    named: set[str] = set()
    for run in sorted(runs, key=lambda run: run["gamma"]):
        name = f"gamma {run['gamma']:g}"
        line = {"color": colors[run["gamma"]], "width": 1.5}
        figure.add_scatter(**_line(run["spectrum"], name, line, legend=name not in named))
        named.add(name)
    line = {"color": GREY, "width": 2, "dash": "dot"}
    figure.add_scatter(**_line(runs[0]["spectrum_at_start"], "before training", line, legend=True))
    figure.update_xaxes(title="rank of the eigenvalue")
    figure.update_yaxes(title="proportion of the variance", type="log", exponentformat="power")
    return styled(figure, "Covariance of the numbers' embedding, two layers", width=700, height=450)


def _line(spectrum: Sequence[float], name: str, line: Mapping[str, Any], *, legend: bool) -> dict[str, Any]:
    x = list(range(1, len(spectrum) + 1))
    return {"x": x, "y": spectrum, "name": name, "line": line, "legendgroup": name, "showlegend": legend}


def main() -> None:
    """Read the command line, train what is missing, measure, draw."""
    parser = common.options(__doc__)
    parser.add_argument("--gamma", type=float, nargs="+", default=list(GAMMAS))
    given = parser.parse_args()
    cells = common.trained(given, conflict_runs(given, {"n_layers": [2], "gamma": given.gamma}))
    numbers = measure(cells)
    common.write(given, "c7_covariance", draw(numbers), numbers)


if __name__ == "__main__":
    main()
