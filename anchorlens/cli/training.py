"""`anchorlens train`: train one model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from anchorlens.cli import shared
from anchorlens.cli.field_options import FieldOptions, read_fields
from anchorlens.cli.inputs import base_parts, read_toml
from anchorlens.recipes.presets import presets
from anchorlens.recipes.run_config import RunConfig, merged, sorted_by_part
from anchorlens.training.progress import COMMAND_LINE_SECONDS


def _stored_run(out: Path) -> RunConfig | None:
    from anchorlens.training.run_folder import stored_run  # late, since it imports torch

    return stored_run(out)


@FieldOptions(short={"from": "start"})
@shared.one_line_errors
def train_command(
    ctx: typer.Context,
    preset: Annotated[
        str | None,
        typer.Option(metavar="NAME", help=f"Base configuration: {', '.join(presets())}. Default: quick."),
    ] = None,
    config: Annotated[
        Path | None,
        shared.file_option("TOML file with the tables task, model and train, and optionally a preset."),
    ] = None,
    out: Annotated[Path | None, shared.path_option("Folder of the run, for its log and checkpoints.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the run in the folder, or start a run if none exists.")
    ] = False,
    tensorboard: Annotated[
        Path | None,
        shared.path_option("Folder for an additional TensorBoard log. The log needs the extra `logging`."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print parameters, bytes, steps, FLOPs and time without training."),
    ] = False,
    as_json: shared.AsJson = False,
    tasks: shared.OwnTasks = None,
) -> None:
    """Train and evaluate a model on a task.

    Options override the TOML file, and the TOML file overrides the preset. With --from CHECKPOINT, the task,
    model and recipe come from the checkpoint. Options and the TOML file then override single fields.

    Examples:
        anchorlens train --gamma 0.7 --steps 1000 --out runs/a
        anchorlens train --preset scan --split jump --out runs/scan
    """
    fields = read_fields(ctx)
    if out is None and not dry_run:
        raise ValueError(
            "--out must be the folder of the run, got none. Give a folder, for example --out runs/g0.7"
        )
    changes: dict[str, Any] = {} if config is None else read_toml(config)
    named = changes.pop("preset", None)
    changes = merged(changes, sorted_by_part(fields))
    stored = _stored_run(out) if resume and out is not None else None
    if stored is not None and preset is None and named is None:
        base = stored.to_dict()  # a flag changes only its field; `train` checks whether it may
    else:
        base = base_parts(preset or named, changes.get("train", {}).get("start"))
    run = RunConfig.from_dict(merged(base, changes), is_new=True)
    from anchorlens.show.terminal.training import print_behaviour, print_plan

    if out is None or dry_run:
        from anchorlens.training.plan import training_plan

        print_plan(training_plan([run]), as_json)
        return
    from anchorlens.training.logging import TensorBoard
    from anchorlens.training.plan import check_runs
    from anchorlens.training.run import train
    from anchorlens.training.run_folder import has_ended

    check_runs([run], starts=not (resume and has_ended(out)))
    logger = None if tensorboard is None else TensorBoard(tensorboard)
    is_allowed = resume or not (out / "config.json").exists()
    if is_allowed and not sys.stderr.isatty():  # a terminal shows a progress bar instead
        shared.say(f"training {run.overview} in {out}")
    try:
        result = train(*run, out=out, resume=resume, progress=COMMAND_LINE_SECONDS, on_log=logger)
    finally:
        if logger is not None:
            logger.close()
    shared.say(f"{result.status} at step {result.checkpoint.step}; the model is in {out / 'ckpt.pt'}")
    print_behaviour(out / "ckpt.pt", result.checkpoint, result.checkpoint.task, result.behaviour, as_json)
