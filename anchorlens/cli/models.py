"""`anchorlens evaluate` and `anchorlens probe`: what one checkpoint answers, and one thing inside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from anchorlens.cli.errors import one_line_errors, say
from anchorlens.cli.options import ConfigOfBare, OwnProbes, TrainData, check_can_write, check_config
from anchorlens.cli.train_data import training_sets
from anchorlens.cli.unreadable import reading_checkpoint
from anchorlens.configuration import check_number
from anchorlens.foreign import read_json, shown


@one_line_errors
def evaluate_command(
    checkpoint: Annotated[
        Path, typer.Argument(help="A checkpoint file, .pt or .safetensors.", readable=False)
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on stdout.")] = False,
    n_noise: Annotated[int, typer.Option(help="Noise draws for every (pair, key, position).")] = 8,
    seed: Annotated[int, typer.Option(help="Seed of the noise.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    train_data: TrainData = None,
) -> None:
    """Measure what a checkpoint answers, and name its phase by definition."""
    from anchorlens.files.checkpoint import load_checkpoint

    check_number("--n-noise", n_noise, minimum=1, limit=10_000, integer=True)
    check_number("--seed", seed, minimum=0, integer=True)
    with reading_checkpoint(checkpoint):
        loaded = load_checkpoint(checkpoint)
    given = training_sets([checkpoint], train_data)
    from anchorlens.show.terminal.training import print_behaviour
    from anchorlens.tasks.two_anchor.behaviour import evaluate
    from anchorlens.training.numerics import choose_device

    behaviour = evaluate(
        loaded.last_position_model(choose_device(device)),
        loaded.task,
        training_set=given.get(checkpoint, loaded.training_drawing()),
        n_noise=n_noise,
        seed=seed,
    )
    print_behaviour(checkpoint, loaded, behaviour, as_json)


@one_line_errors
def probe_command(
    name: Annotated[str | None, typer.Argument(help="A probe's name; --list prints them.")] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Argument(
            help="A checkpoint: a file or folder of any kind that classify reads.", readable=False
        ),
    ] = None,
    list_probes: Annotated[
        bool, typer.Option("--list", help="Print the probes and what they measure.")
    ] = False,
    options: Annotated[
        str, typer.Option(help='Options of the probe as JSON, {"layer": 1} for example.')
    ] = "{}",
    as_json: Annotated[bool, typer.Option("--json", help="Print numbers and raw values as JSON.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Write the picture: .html, .png, .svg or .pdf.", readable=False)
    ] = None,
    own: OwnProbes = None,
    config: ConfigOfBare = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Measure one thing inside a checkpoint's model."""
    if list_probes:
        from anchorlens.probes import with_own
        from anchorlens.probes.own import first_sentence

        for probe in with_own(own or []):
            typer.echo(f"{probe.__name__:20s} {first_sentence(probe)}")
        return
    if name is None or checkpoint is None:
        raise ValueError("name a probe and a checkpoint, or ask for --list")
    check_can_write("--plot", plot)
    check_config(config)
    try:
        chosen, why = read_json(options), ""
    except ValueError as error:
        chosen, why = None, f", which {error}"
    if not isinstance(chosen, dict):
        raise ValueError(f'--options must be a JSON object such as {{"layer": 1}}, got {shown(options)}{why}')
    from anchorlens import figures, probes
    from anchorlens.files.importers import open_checkpoint
    from anchorlens.probes.own import what_went_wrong

    probe = probes.probe_named(name, probes.with_own(own or []))
    with reading_checkpoint(checkpoint):
        loaded = open_checkpoint(checkpoint, config=config).checkpoint
    try:
        result = probes.apply_to_checkpoint(probe, loaded, device=device, **chosen)
    except Exception as error:
        if probe in probes.PROBES and not isinstance(error, ValueError):
            raise  # an error of ours: all of it
        raise ValueError(what_went_wrong(error, probe)) from error
    if plot is not None:
        figures.save(result.plot(), plot)
        say(f"the picture is in {plot}")
    typer.echo(json.dumps(result.to_dict(), allow_nan=False) if as_json else repr(result))
