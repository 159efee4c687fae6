"""What the scripts of the papers' figures share: their options, their cells, their two files."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import plotly.graph_objects as go

from anchorlens import plots
from anchorlens.extras.sweep import Cell, grid, open_sweep, sweep
from anchorlens.extras.sweep.cells import cell_ids
from anchorlens.extras.sweep.grids import axis_values
from anchorlens.files.checkpoint import library_versions
from anchorlens.recipes.run_config import RunConfig

SHORT: Mapping[str, Any] = {"n_samples": 5000, "batch_size": 256, "steps": 1000, "n_checkpoints": 0}
"""What the scripts change in `quick`, to take minutes; the papers' presets are trained in full.

With 5,000 samples large initial weights still fit their data within 1,000 steps, so that Phase 1 is there to
be seen (5,000, 10,000 and 20,000 were tried, on seed 3 alone).
"""


def options(
    doc: str | None, *, seeds: Sequence[int] = (0, 1), preset: str | None = None
) -> argparse.ArgumentParser:
    """The options that every figure has; a script adds its own.

    Args:
        doc: what stands above them.
        seeds: that are trained where nothing is said.
        preset: of a script that has one alone; without it the option `--preset` is there.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if preset is None:
        parser.add_argument(
            "--preset", default="quick", help="quick, or the papers' paper-2l1h and paper-gpt2"
        )
    parser.set_defaults(preset=preset or "quick")
    parser.add_argument("--seed", type=int, nargs="+", default=list(seeds))
    parser.add_argument(
        "--sweep",
        type=Path,
        default=Path("sweeps/figures"),
        help="a sweep's folder: cells that are in it are taken, missing ones are trained into it",
    )
    parser.add_argument(
        "--as-trained", action="store_true", help="only the cells that are in the sweep's folder; train none"
    )
    parser.add_argument(
        "--engine", help="serial, local, slurm, tcp://... or a scheduler file, as for `sweep`"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("runs/figures"), help="folder of picture and numbers"
    )
    parser.add_argument("--suffix", default=".html", help="of the picture: .html, .png, .svg or .pdf")
    parser.add_argument(
        "--set",
        type=_field,
        nargs="+",
        default=[],
        metavar="FIELD=VALUES",
        help="ask another network or recipe: variant=postnorm steps=3000 gamma=0.5:0.9:0.1 lr=4e-4,8e-4",
    )
    parser.add_argument("--tag", default="", help="of that network; it ends the names of the files: postnorm")
    return parser


def _field(text: str) -> tuple[str, tuple[Any, ...]]:
    """A field of a configuration and its values."""
    name, equals, values = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"expected FIELD=VALUES, got {text!r}")
    try:
        return name, axis_values(name, values)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected the values of a field, got {text!r}: {error}") from error


def runs(given: argparse.Namespace, axes: Mapping[str, Any], **fields: Any) -> list[RunConfig]:
    """The grid of a figure at the scale that was asked for, over the seeds that were asked for.

    What `--set` says goes before an axis and before a field.
    """
    asked = dict(given.set)
    scale = dict(SHORT) if given.preset == "quick" else {}
    fields = {name: value for name, value in {**scale, **fields}.items() if name not in asked}
    return grid(given.preset, {**axes, "seed": given.seed, **asked}, **fields)


def trained(given: argparse.Namespace, wanted: Sequence[RunConfig]) -> list[Cell]:
    """The cells of these runs, in order; what is not in the sweep's folder is trained first.

    With `--as-trained` nothing is: `as_trained`.

    Runs that keep checkpoints on their way have a folder of their own, `<sweep>-trajectories`: a sweep knows
    a run by its recipe, and would take one that kept none for the same. `given.network` becomes what the
    first runs are, for `write`.

    Raises:
        SystemExit: cells that failed; the message says which and why.
    """
    if vars(given).get("as_trained"):
        return as_trained(given, wanted)
    vars(given).setdefault("network", network(wanted))
    cells = list(sweep(wanted, _folder(given, wanted), engine=given.engine))
    failed = [cell for cell in cells if not cell.done]
    if failed:
        raise SystemExit(f"{len(failed)} of {len(cells)} cells failed, the first: {failed[0].error}")
    return cells


def _folder(given: argparse.Namespace, wanted: Sequence[RunConfig]) -> Path:
    keep = any(run.train_config.n_checkpoints for run in wanted)
    return given.sweep.with_name(f"{given.sweep.name}-trajectories") if keep else given.sweep


def as_trained(given: argparse.Namespace, wanted: Sequence[RunConfig]) -> list[Cell]:
    """Those of these runs that are in the sweep's folder and done, in order; none is trained.

    Raises:
        SystemExit: there is none.
    """
    folder = _folder(given, wanted)
    done = {cell.id: cell for cell in open_sweep(folder) if cell.done}
    found = [(run, done[name]) for run, name in zip(wanted, cell_ids(wanted), strict=True) if name in done]
    if not found:
        raise SystemExit(f"{folder} must hold cells of this figure, and has none that is done")
    vars(given).setdefault("network", network([run for run, _ in found]))
    return [cell for _, cell in found]


def taken_up(given: argparse.Namespace, path: Path) -> dict[str, Any]:
    """An earlier JSON of a script, to count and draw anew; what was asked for then is asked for now."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    given.preset, given.seed = stored["preset"], stored["seed"]
    given.network, given.set = stored["network"], stored.get("set", {})
    given.tag = path.stem.removeprefix(stored["figure"]).removeprefix("_")
    given.versions, given.own_options = stored["versions"], stored.get("options", {})
    return stored


NETWORK: Mapping[str, tuple[str, ...]] = {
    "model_config": ("variant", "n_layers", "n_heads", "d_model", "d_head", "d_mlp", "gamma"),
    "train_config": ("n_samples", "batch_size", "total_steps", "lr", "weight_decay", "seed"),
}
"""Part of a run -> what `network` says of it."""


def network(wanted: Sequence[RunConfig]) -> dict[str, list[Any]]:
    """What was trained: each setting's values over the runs, ascending, and schedules behind numbers."""
    found = {
        name: sorted(
            {getattr(getattr(run, part), name) for run in wanted},
            key=lambda value: (isinstance(value, str), value),  # schedules are text
        )
        for part, names in NETWORK.items()
        for name in names
        if all(hasattr(getattr(run, part), name) for run in wanted)
    }
    activations = {getattr(run.model_config, "activation", None) for run in wanted} - {None}
    return {**found, "activation": sorted(activations)}


def add_means(
    figure: go.Figure, name: str, points: Mapping[float, Sequence[float]], *, dash: str = "solid"
) -> None:
    """Add a line through the mean over seeds at each place, and a point for each seed, in one colour.

    Args:
        figure: that holds nothing but what this has added.
        name: of the line.
        points: place -> the value of each seed.
        dash: of the line.
    """
    colour = plots.CATEGORIES[len(list(figure.data)) // 2]
    places = sorted(points)
    each = [(place, value) for place in places for value in points[place]]
    line = {"color": colour, "dash": dash}
    figure.add_scatter(
        x=places, y=[fmean(points[place]) for place in places], name=name, mode="lines", line=line
    )
    figure.add_scatter(
        x=[place for place, _ in each],
        y=[value for _, value in each],
        mode="markers",
        marker={"size": 7, "color": colour},
        showlegend=False,
    )


def on_its_way(rows: Sequence[Mapping[str, Any]], x: str, y: str) -> go.Figure:
    """A number while training, a line for each gamma: the mean over seeds.

    Args:
        rows: with `gamma`, and in `on_its_way` the values of `x` and `y`, at the same moments in all.
        x: what grows.
        y: what is drawn over it.
    """
    figure = go.Figure()
    for gamma in sorted({row["gamma"] for row in rows}):
        lines = [row["on_its_way"] for row in rows if row["gamma"] == gamma]
        means = [fmean(line[k][y] for line in lines) for k in range(len(lines[0]))]
        at = [point[x] for point in lines[0]]
        figure.add_scatter(x=at, y=means, name=f"gamma {gamma:g}", mode="lines+markers")
    return figure.update_layout(showlegend=True)


_OF_EVERY_FIGURE = frozenset(
    ["preset", "seed", "sweep", "engine", "out", "suffix", "set", "tag", "network", "versions", "as_trained"]
)
"""What a script's own options are not."""


def _own_options(given: argparse.Namespace) -> dict[str, Any]:
    own = {name: value for name, value in vars(given).items() if name not in _OF_EVERY_FIGURE}
    return {name: value for name, value in own.items() if not isinstance(value, Path | None)}


def write(
    given: argparse.Namespace,
    name: str,
    pictures: go.Figure | Mapping[str, go.Figure],
    numbers: Mapping[str, Any],
) -> None:
    """Write `<name>.json` and the picture `<name><suffix>`, or several by their own names, and say where.

    Names end with `--tag`, where there is one. The JSON holds `numbers`, what was asked for, the network and
    the versions; what is not finite becomes null.
    """
    given.out.mkdir(parents=True, exist_ok=True)
    tag = f"_{given.tag}" if given.tag else ""
    asked = {"preset": given.preset, "seed": given.seed, **({"set": dict(given.set)} if given.set else {})}
    if own := vars(given).get("own_options", _own_options(given)):
        asked["options"] = own
    asked["network"] = given.network
    versions = vars(given).get("versions") or library_versions()  # those of the training
    content = {"figure": name, **asked, "versions": versions, **plain(numbers)}
    text = json.dumps(content, indent=1, allow_nan=False)
    (given.out / f"{name}{tag}.json").write_text(text + "\n", encoding="utf-8")
    named = {name: pictures} if isinstance(pictures, go.Figure) else pictures
    files = [given.out / f"{each}{tag}{given.suffix}" for each in named]
    for file, picture in zip(files, named.values(), strict=True):
        plots.save(picture, file)
    print(", ".join(map(str, files)), f"and {name}{tag}.json")


def plain(value: Any) -> Any:
    """JSON-ready: NumPy as Python's own, NaN and infinity as None."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
