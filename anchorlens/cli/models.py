"""`anchorlens evaluate` and `anchorlens probe`: measure the answers, or the internals, of a checkpoint."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Annotated, Any

import typer

from anchorlens.cli import shared
from anchorlens.cli.field_options import read_json
from anchorlens.cli.inputs import TrainingData, check_config, moved, opened_input
from anchorlens.configuration import check_number
from anchorlens.files.tables import TABLES
from anchorlens.files.writing import PICTURES, check_can_write
from anchorlens.models.devices import choose_device
from anchorlens.tasks.registry import task_or_default
from anchorlens.texts import safe_repr, safe_text
from anchorlens.training.progress import COMMAND_LINE_SECONDS


@shared.one_line_errors
def evaluate_command(
    checkpoint: shared.Checkpoint,
    as_json: shared.AsJson = False,
    n_noise: Annotated[
        int | None, typer.Option(help="Number of noise draws for every pair, key and position. Default: 8.")
    ] = None,
    seed: shared.NoiseSeed = 0,
    device: shared.Device = "auto",
    train_data: shared.TrainData = None,
    data: shared.TaskFiles = None,
    config: shared.ConfigOfBare = None,
    tasks: shared.OwnTasks = None,
) -> None:
    """Measure the accuracy of a model, and assign a phase.

    Examples:
        anchorlens evaluate runs/a/ckpt.pt
        anchorlens evaluate runs/a/ckpt.pt --n-noise 2 --json
    """
    check_config(config)
    check_number("--n-noise", n_noise, minimum=1, limit=10_000, integer=True, optional=True)
    check_number("--seed", seed, minimum=0, integer=True)
    given = opened_input(checkpoint, config, device, data)
    task, training = task_or_default(given.task), TrainingData(train_data)
    training_set = training.of(given, task)
    training.check_use()
    from anchorlens.show.terminal.training import print_behaviour
    from anchorlens.verdict.evaluate import evaluate

    own: dict[str, Any] = {} if n_noise is None else {"n_noise": n_noise}
    try:
        behaviour = evaluate(given, training_set=training_set, device=device, seed=seed, **own)
    except ValueError as error:
        raise ValueError(shared.about(checkpoint, str(error))) from None
    print_behaviour(checkpoint, given.checkpoint, task, behaviour, as_json)


@shared.one_line_errors
def probe_command(
    name: Annotated[str | None, typer.Argument(help="Name of a probe. --list prints all names.")] = None,
    checkpoint: shared.CheckpointUnlessList = None,
    list_probes: Annotated[
        bool, typer.Option("--list", help="Print the name and the description of each probe.")
    ] = False,
    options: Annotated[
        str, typer.Option(metavar="JSON", help='Options of the probe as JSON, for example {"layer": 1}.')
    ] = "{}",
    as_json: shared.AsJson = False,
    plot: shared.Plot = None,
    is_along: Annotated[
        bool,
        typer.Option(
            "--along",
            help="Measure every checkpoint of the given run, and report the readings by step. A run is a "
            "folder or a file.",
        ),
    ] = False,
    table: Annotated[
        Path | None, shared.path_option("Needs --along. Write the readings as a .csv or .parquet table.")
    ] = None,
    own: shared.OwnProbes = None,
    tasks: shared.OwnTasks = None,
    config: shared.ConfigOfBare = None,
    model: shared.OwnModel = None,
    initial: Annotated[
        Path | None,
        shared.path_option(
            "Checkpoint of the same model at the start of its run, for the probe training_regime. Default: "
            "initial weights drawn again from the seed."
        ),
    ] = None,
    device: shared.Device = "auto",
    data: shared.TaskFiles = None,
) -> None:
    """Run one probe on a model, and plot the result.

    The probes q_condensation, embedding_pca, stable_rank and training_regime use only the weights. With a
    HookedTransformerConfig as --config, these four probes accept the state dict of any HookedTransformer.
    With tokens in --options, the probes attention_patterns and activation_patching accept any
    HookedTransformer.

    Examples:
        anchorlens probe information_flow runs/a/ckpt.pt --plot flow.html
        anchorlens probe --list
    """
    if list_probes:
        from anchorlens.probes import with_own
        from anchorlens.probes.from_file import in_one_sentence

        for probe in with_own(own or []):
            typer.echo(f"{probe.__name__:20s} {in_one_sentence(probe)}")
        return
    checkpoint = checkpoint or (None if model is None else Path(model))
    if name is None or checkpoint is None:
        raise ValueError(
            f"a probe and a checkpoint must be given, got no {'probe' if name is None else 'checkpoint'}. "
            "Name a probe and a checkpoint, or use --list"
        )
    if plot is not None:
        check_can_write(plot, "--plot", PICTURES, (checkpoint, initial, config, *(own or ())))
    if table is not None:
        check_can_write(table, "--table", TABLES)
    for option, value, otherwise in (("--table", table, "use --json"), ("--data", data, "omit --data")):
        if value and not is_along:
            got = f"{option} alone. Add --along, or {otherwise}"
            raise ValueError(f"{option} must be given together with --along, got {got}")
    if is_along and initial:
        raise ValueError("--along must be given without --initial, got both. Omit --initial")
    check_config(config)
    chosen = read_json("options", options)
    if not isinstance(chosen, dict):
        raise ValueError(f'--options must be a JSON object such as {{"layer": 1}}, got {safe_repr(options)}')
    if "initial" in chosen:
        raise ValueError(
            f"--options must name options of {safe_text(name)}, got 'initial'. If the probe needs an initial "
            "model, use --initial"
        )
    from anchorlens import probes
    from anchorlens.probes.from_file import what_went_wrong
    from anchorlens.probes.shared.contract import given_for

    probe = probes.probe_named(name, probes.with_own(own or []))
    if initial is not None and not probes.needs_initial(probe):
        raise ValueError(
            "--initial must be given only for a probe that compares a model with the start of its run, got "
            f"{name}. Omit --initial"
        )
    where = choose_device(device)
    if is_along:
        from anchorlens.files.importers import open_checkpoint

        task = moved(open_checkpoint(checkpoint).checkpoint.task, data) if data else None
        about: dict[str, Any] = {"task": task, "config": config, "device": where, "model": model}
        found = probes.along(checkpoint, probe, progress=COMMAND_LINE_SECONDS, **about, **chosen)
        if table is not None:
            found.table(table)
            shared.say(f"{len(found.rows)} rows are in {table}")
        shared.draw_and_print(found, as_json, plot, lambda result: typer.echo(repr(result)))
        return
    opened = functools.partial(given_for, probe, options=chosen, config=config, device=where)
    given = opened(checkpoint) if model is None else opened_input(checkpoint, config, device, None, model)
    start = {} if initial is None else {"initial": opened(initial)}
    for note in (*given.notes, *given.facts) if probes.needs_task(probe, chosen) else ():
        shared.say(note)
    try:
        result = probes.apply(probe, given, **start, **chosen)
    except Exception as error:
        if probe in probes.SHIPPED and not isinstance(error, ValueError):
            raise  # an internal error: show the whole traceback
        raise ValueError(shared.about(checkpoint, what_went_wrong(error, probe))) from error
    shared.draw_and_print(result, as_json, plot, lambda result: typer.echo(repr(result)))
