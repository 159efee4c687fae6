"""`anchorlens control`: take a run to a later phase."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from anchorlens import cli
from anchorlens.cli import path_option
from anchorlens.configuration import check_number
from anchorlens.training import COMMAND_LINE_SECONDS


@cli.one_line_errors
def control_command(
    run: Annotated[
        Path,
        typer.Argument(
            help="Folder of a run, or a checkpoint that stores its training configuration.", readable=False
        ),
    ],
    out: Annotated[
        Path | None,
        path_option("Folder of the attempts. The command skips finished attempts in the folder."),
    ] = None,
    minutes: Annotated[float, typer.Option(help="Total time budget in minutes.")] = 20.0,
    every: Annotated[
        bool,
        typer.Option(
            "--all", help="Try all attempts within the time budget, even if an attempt reaches Phase 3."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the attempts in order without training.")
    ] = False,
    as_json: cli.AsJson = False,
    workers: Annotated[int | None, typer.Option(help="Number of processes. Default: one per core.")] = None,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="auto|cpu|cuda|cuda:N|mps",
            help="Device to train on. Default: the device in the run's recipe.",
        ),
    ] = None,
    seed: cli.NoiseSeed = 0,
    data: cli.TaskFiles = None,
    tasks: cli.OwnTasks = None,
) -> None:
    """Try interventions that may take a run from Phase 1 or 2 to Phase 3.

    Some attempts start from the run's checkpoint and rescale, decay or penalise its weights. Other attempts
    retrain the model from scratch with a larger gamma or weight decay. Cheap and promising attempts come
    first, and the search ends when an attempt reaches Phase 3. The command selects the best attempt on one
    half of the OOD test inputs and measures this attempt on the other half. Run the same command again to
    resume the search.

    Examples:
        anchorlens control runs/a --out runs/controlled
        anchorlens control runs/a --dry-run
    """
    check_number("--minutes", minutes, above=0)
    if out is None and not dry_run:
        raise ValueError(
            "--out must be the folder of the attempts, got none. Give a folder, for example --out "
            "runs/controlled"
        )
    from anchorlens.extras.control import control
    from anchorlens.extras.control.views import print_control, print_plan_of_control
    from anchorlens.files import open_checkpoint

    task = cli.moved(open_checkpoint(run).checkpoint.task, data) if data else None
    if not dry_run and not sys.stderr.isatty():  # a terminal shows a progress bar instead
        cli.say(f"trying to take {run} to a later phase in at most {minutes:g} minutes, into {out}")
    found = control(
        run,
        out,
        task=task,
        minutes=minutes,
        every=every,
        dry_run=dry_run,
        workers=workers,
        device=device,
        seed=seed,
        progress=COMMAND_LINE_SECONDS,
    )
    cli.draw_and_print(found, as_json, None, print_plan_of_control if dry_run else print_control)
