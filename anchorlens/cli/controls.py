"""`anchorlens control`: what takes a run to a later phase."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from anchorlens.cli.errors import one_line_errors, say
from anchorlens.cli.inputs import reading_checkpoint
from anchorlens.cli.shared_options import AsJson, NoiseSeed, OwnTasks, path_option
from anchorlens.configuration import check_number
from anchorlens.training.progress import COMMAND_LINE_SECONDS


@one_line_errors
def control_command(
    run: Annotated[
        Path,
        typer.Argument(
            help="The folder of a run, or a checkpoint that says how it was trained.", readable=False
        ),
    ],
    out: Annotated[
        Path | None, path_option("Folder of the attempts; what has ended in it is not trained again.")
    ] = None,
    minutes: Annotated[float, typer.Option(help="Time for everything.")] = 20.0,
    every: Annotated[
        bool, typer.Option("--all", help="Try all that fits, also when Phase 3 is reached.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Train nothing; print what would be tried, in which order.")
    ] = False,
    as_json: AsJson = False,
    workers: Annotated[int | None, typer.Option(help="Processes; one per core if left out.")] = None,
    device: Annotated[
        str | None, typer.Option(help="auto, cpu, cuda, cuda:N or mps; that of the run's recipe if left out.")
    ] = None,
    seed: NoiseSeed = 0,
    tasks: OwnTasks = None,
) -> None:
    """Take a run that ended in Phase 1 or 2 further: try interventions, and say which helped.

    From the run's checkpoint weights are rescaled, decayed or penalised; from its start it is trained anew at
    a larger gamma or decay. What is cheap and likely comes first, and the first attempt in Phase 3 ends it.
    The best, chosen by one half of the left-out questions and reported on the other, is a run's folder to go
    on with. The same command again continues.
    """
    check_number("--minutes", minutes, above=0)
    if out is None and not dry_run:
        raise ValueError(
            "--out is missing: name the folder of the attempts, for example --out runs/controlled"
        )
    from anchorlens.controlling import control
    from anchorlens.show.terminal.console import print_json
    from anchorlens.show.terminal.control import print_control, print_plan_of_control

    with reading_checkpoint(run):
        if not dry_run and not sys.stderr.isatty():  # a terminal has the bar
            say(f"trying what takes {run} to a later phase, at most {minutes:g} minutes, into {out}")
        found = control(
            run,
            out,
            minutes=minutes,
            every=every,
            dry_run=dry_run,
            workers=workers,
            device=device,
            seed=seed,
            progress=COMMAND_LINE_SECONDS,
        )
    if as_json:
        print_json(found.to_dict())
    elif dry_run:
        print_plan_of_control(found)
    else:
        print_control(found)
