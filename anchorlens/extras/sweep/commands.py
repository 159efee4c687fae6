"""`anchorlens sweep`, `status` and `diagram`: train runs over a grid, show progress, draw phase diagrams."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anchorlens import cli
from anchorlens.extras.sweep.grids import ALIASES, axis_values, grid
from anchorlens.files import PAGES, TABLES, check_can_write
from anchorlens.recipes import merged
from anchorlens.texts import safe_repr
from anchorlens.training import COMMAND_LINE_SECONDS

if TYPE_CHECKING:
    from anchorlens.extras.sweep.cells import SweepResult

GROUP = "Train and compare many models"


@cli.in_group(GROUP)
@cli.FieldOptions(axes=True, short=ALIASES, first=("engine",))
@cli.one_line_errors
def sweep_command(
    ctx: typer.Context,
    preset: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Base configuration of the runs. Default: quick."),
    ] = None,
    config: Annotated[
        Path | None,
        cli.file_option(
            "TOML file with the tables task, model, train and sweep (the axes), and optionally a preset."
        ),
    ] = None,
    out: Annotated[
        Path | None, cli.path_option("Folder of the sweep. The command skips finished runs in the folder.")
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="ENGINE",
            help="Engine that trains the runs: serial, local, slurm, or a Dask cluster. The engine local "
            "uses all cores or all GPUs. Name a Dask cluster by tls://HOST:PORT, tcp://HOST:PORT or its "
            "scheduler file. Default: local if Dask is installed (extra `cluster`), else serial.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Number of processes (local) or jobs (slurm). Default (local): one process per core or GPU."
        ),
    ] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Train failed runs again.")] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="List the runs with their estimated time and memory, without training."
        ),
    ] = False,
    tasks: cli.OwnTasks = None,
) -> None:
    """Train a model for every combination of values.

    An option takes one value or a list of values, such as 0,0.01,1. A range such as 0.3:0.8:0.05 has a step
    of 0.05 and includes both ends. An integer range such as 0:3 stands for 0, 1 and 2. Run the same command
    again to resume a stopped sweep.

    Options override the TOML file, and the TOML file overrides the preset. The folder of a run appears when
    the run is finished. If a sweep is killed, unfinished runs resume from their last saved state.

    Examples:
        anchorlens sweep --gamma 0.3:0.8:0.05 --seed 0:3 --out sweeps/a
        anchorlens sweep --preset phase2 --n-samples 5000,20000 --dry-run
    """
    fields = cli.read_fields(ctx)
    if out is None and not dry_run:
        raise ValueError(
            "--out must be the folder of the sweep, got none. Give a folder, for example --out sweeps/a."
        )
    file: dict[str, Any] = {} if config is None else cli.read_toml(config)
    named, axes = file.pop("preset", None), file.pop("sweep", {})
    if not isinstance(axes, dict):
        raise ValueError(f"{config}: sweep must be a table of axes, got {safe_repr(axes)}. Write [sweep].")
    axes |= fields
    start = axis_values("start", axes["start"])[0] if "start" in axes else None
    base = cli.base_parts(preset or named, start)
    runs = grid(merged(base, file), axes)
    from anchorlens.extras.sweep import terminal as printing

    if out is None or dry_run:
        printing.print_plan_of_sweep(runs, out)
        return
    from anchorlens.extras.sweep.run import sweep

    print(printing.overview(runs), file=sys.stderr, flush=True)
    result = sweep(
        runs, out, engine=engine, workers=workers, retry_failed=retry_failed, progress=COMMAND_LINE_SECONDS
    )
    printing.print_sweep(result)
    for status, verb in (("failed", "have"), ("damaged", "are")):
        if n := result.counts.get(status):
            what = f"{n} of {len(result)} runs {verb} {status}; anchorlens status {out} gives the reason"
            cli.fail(what, cli.EXIT_FAILED)


Folder = Annotated[Path, typer.Argument(help="Folder of a sweep.", readable=False)]


@cli.in_group(GROUP)
@cli.one_line_errors
def status_command(
    out: Folder,
    cells: Annotated[bool, typer.Option("--cells", help="Print one row per run.")] = False,
    as_json: cli.AsJson = False,
    tasks: cli.OwnTasks = None,
) -> None:
    """Show the progress of a sweep and the phases of its runs.

    You can use this command while the sweep runs.

    Examples:
        anchorlens status sweeps/a
        anchorlens status sweeps/a --cells
    """
    from anchorlens.extras.sweep import terminal as printing

    result = _opened(out)
    printing.print_sweep_json(result) if as_json else printing.print_sweep(result, cells=cells)


@cli.in_group(GROUP)
@cli.one_line_errors
def diagram_command(
    sweep: Folder,
    out: Annotated[
        Path | None, cli.path_option("Page to write. Default: diagram.html in the folder of the sweep.")
    ] = None,
    x: Annotated[
        str | None,
        typer.Option(metavar="FIELD", help="Field on the horizontal axis. Default: gamma, if it varies."),
    ] = None,
    y: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD", help="Field on the vertical axis. Default: weight_decay, if it varies."
        ),
    ] = None,
    table: Annotated[
        Path | None, cli.path_option("Also write a table of all runs (.csv or .parquet).")
    ] = None,
    reports: Annotated[
        bool,
        typer.Option(
            "--reports",
            help="Also write the full report of every run. Each report takes some seconds and megabytes.",
        ),
    ] = False,
    data: cli.TaskFiles = None,
    tasks: cli.OwnTasks = None,
) -> None:
    """Draw the phase diagram of a sweep as a page that works offline.

    A click on a run opens the report of the run.

    Examples:
        anchorlens diagram sweeps/a
        anchorlens diagram sweeps/a --x gamma --y weight_decay --table runs.csv
    """
    from anchorlens.extras.sweep.cells import write_table
    from anchorlens.extras.sweep.diagram.page import write_diagram

    page = out or sweep / "diagram.html"
    if table is not None:
        check_can_write(table, "--table", TABLES)
    if out is not None:
        check_can_write(out, "--out", PAGES)
    result = _opened(sweep)
    if data:
        cells = (replace(c, run=c.run._replace(task=cli.moved(c.run.task, data))) for c in result)
        result = replace(result, cells=tuple(cells))
    check_can_write(page, "--out", PAGES)
    write_diagram(result, page, x=x, y=y, reports=reports, progress=COMMAND_LINE_SECONDS)
    cli.say(f"the diagram is in {page}")
    if unread := [cell for cell in result if cell.status == "damaged"]:
        what = f"{len(unread)} of {len(result)} runs could not be read: {unread[0].id}: {unread[0].error}"
        cli.say(f"{what}; anchorlens status {sweep} gives every reason" if len(unread) > 1 else what)
    if table is not None:
        write_table(result.cells, table)
        cli.say(f"{len(result)} cells are in {table}")


def _opened(folder: Path) -> SweepResult:
    """Return the sweep in a folder; an unreadable folder is a usage error."""
    from anchorlens.extras.sweep import open_sweep

    try:
        return open_sweep(folder)
    except OSError as error:
        raise ValueError(f"{cli.unreadable_message(folder, error)}. Give the folder of a sweep.") from None
