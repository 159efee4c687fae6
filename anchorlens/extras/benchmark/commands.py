"""`anchorlens benchmark`: compare a user's own probe with ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from anchorlens.cli import AsJson, Device, Plot, draw_and_print, one_line_errors
from anchorlens.configuration import check_choice, check_number
from anchorlens.files import PICTURES, check_can_write
from anchorlens.models import choose_device
from anchorlens.texts import safe_text


@one_line_errors
def benchmark_command(
    probe: Annotated[
        str,
        typer.Argument(help="Python file to execute with your own probe, or name of a shipped probe."),
    ],
    name: Annotated[
        str | None,
        typer.Option("--probe", metavar="NAME", help="Name of the probe, if the file has several probes."),
    ] = None,
    first: Annotated[
        int | None, typer.Option(help="Number of models, balanced across kinds of model. Default: all.")
    ] = None,
    as_json: AsJson = False,
    plot: Plot = None,
    device: Device = "auto",
) -> None:
    """Score your own probe on 60 models whose solutions are known.

    A probe is a function of (model, task). The return annotation of a probe is float, a mapping from names to
    numbers, or a ProbeResult. The command reports the AUC of each reading of the probe on four questions,
    such as whether a model memorised its training data. For comparison, the command reports the AUC of the
    verdict's readings and of WeightWatcher's alpha. The command builds the models in seconds and runs the
    probe once on each model.

    Examples:
        anchorlens benchmark my_probe.py
        anchorlens benchmark stable_rank --first 12
    """
    check_number("--first", first, minimum=1, integer=True, optional=True)
    is_file = probe.endswith(".py")
    if plot is not None:
        check_can_write(plot, "--plot", PICTURES, (probe,) if is_file else ())
    from anchorlens import benchmark
    from anchorlens.extras.benchmark import reference
    from anchorlens.extras.benchmark.views import print_benchmark

    measure = _of_file(Path(probe), name) if is_file or name else probe
    result = benchmark(measure, first=first, device=choose_device(device))
    draw_and_print(result, as_json, plot, lambda found: print_benchmark(found, reference()))


def _of_file(path: Path, name: str | None) -> Callable[..., Any]:
    """Return the only probe of a file, or the probe with the given name."""
    from anchorlens.probes import own_probes

    probes = {probe.__name__: probe for probe in own_probes(path)}
    if name is None and len(probes) > 1:
        raise ValueError(
            f"--probe must name one of the {len(probes)} probes of {safe_text(path)}, got none. Use --probe "
            f"{' or '.join(probes)}"
        )
    if name is not None:
        check_choice("--probe", name, tuple(probes))
    return probes[name or next(iter(probes))]
