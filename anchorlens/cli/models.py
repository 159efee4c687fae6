"""`anchorlens evaluate` and `anchorlens probe`: what one checkpoint answers, and one thing inside it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anchorlens.cli.errors import one_line_errors, say
from anchorlens.cli.options import (
    ConfigOfBare,
    OwnProbes,
    OwnTasks,
    TaskFiles,
    TrainData,
    check_config,
)
from anchorlens.cli.train_data import moved, training_sets
from anchorlens.cli.unreadable import reading_checkpoint
from anchorlens.configuration import check_number
from anchorlens.files.writing import PICTURES, check_can_write
from anchorlens.safe import read_json, shown

if TYPE_CHECKING:
    from anchorlens.files.checkpoint import Checkpoint
    from anchorlens.files.importers.any_hooked import AnyHooked


@one_line_errors
def evaluate_command(
    checkpoint: Annotated[
        Path,
        typer.Argument(
            help="A checkpoint: a file or folder of any kind that classify reads.", readable=False
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on stdout.")] = False,
    n_noise: Annotated[
        int | None, typer.Option(help="Noise draws for every (pair, key, position). Default 8.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the noise.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    train_data: TrainData = None,
    data: TaskFiles = None,
    config: ConfigOfBare = None,
    tasks: OwnTasks = None,
) -> None:
    """Measure what a checkpoint answers, and name its phase by definition."""
    from anchorlens.files.importers import open_checkpoint

    check_config(config)
    if n_noise is not None:
        check_number("--n-noise", n_noise, minimum=1, limit=10_000, integer=True)
    check_number("--seed", seed, minimum=0, integer=True)
    with reading_checkpoint(checkpoint):
        opened = open_checkpoint(checkpoint, config=config)
    loaded = dataclasses.replace(opened.checkpoint, task=moved(opened.checkpoint.task, data))
    for note in opened.notes:
        say(note)
    given = training_sets([checkpoint], train_data, config)
    from anchorlens.models.devices import choose_device
    from anchorlens.show.terminal.training import print_behaviour

    own = {} if n_noise is None else {"n_noise": n_noise}
    if own and "n_noise" not in loaded.task.sampling:
        raise ValueError(f"the task {loaded.task.kind} has no noise to draw; leave --n-noise out")
    training_set = given.get(checkpoint, loaded.training_drawing())
    behaviour = loaded.evaluate(device=choose_device(device), training_set=training_set, seed=seed, **own)
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
    tasks: OwnTasks = None,
    config: ConfigOfBare = None,
    initial: Annotated[
        Path | None,
        typer.Option(
            help="For training_regime: the model at the start of its run, a checkpoint of the same kind. "
            "Drawn again from the seed where none is given.",
            readable=False,
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Measure one thing inside a checkpoint's model.

    Probes that read weights alone (q_condensation, embedding_pca, stable_rank, training_regime) take any
    HookedTransformer, whatever it was trained on: a state dict, with its HookedTransformerConfig as --config.
    So do attention_patterns and activation_patching where --options gives tokens.
    """
    if list_probes:
        from anchorlens.probes import with_own
        from anchorlens.probes.own import first_sentence

        for probe in with_own(own or []):
            typer.echo(f"{probe.__name__:20s} {first_sentence(probe)}")
        return
    if name is None or checkpoint is None:
        raise ValueError("name a probe and a checkpoint, or ask for --list")
    if plot is not None:
        check_can_write(plot, "--plot", PICTURES, (checkpoint, initial, config, *(own or ())))
    check_config(config)
    try:
        chosen, why = read_json(options), ""
    except ValueError as error:
        chosen, why = None, f", which {error}"
    if not isinstance(chosen, dict):
        raise ValueError(f'--options must be a JSON object such as {{"layer": 1}}, got {shown(options)}{why}')
    from anchorlens import figures, probes
    from anchorlens.models.devices import choose_device
    from anchorlens.probes.own import what_went_wrong

    probe = probes.probe_named(name, probes.with_own(own or []))
    if initial is not None and not probes.needs_initial(probe):
        raise ValueError(f"--initial is for probes that compare with the start of a run; {name} does not")
    any_task = not probes.needs_task(probe, chosen)
    loaded = _opened(checkpoint, config, any_task)
    start = None if initial is None else _opened(initial, config, any_task)
    try:
        where = choose_device(device)
        result = probes.apply(
            probe,
            loaded.build_model(where),
            loaded.task,
            lambda: loaded.initial_model(where) if start is None else start.build_model(where),
            **chosen,
        )
    except Exception as error:
        if probe in probes.PROBES and not isinstance(error, ValueError):
            raise  # an error of ours: all of it
        raise ValueError(what_went_wrong(error, probe)) from error
    if plot is not None:
        figures.save(result.plot(), plot)
        say(f"the picture is in {plot}")
    typer.echo(json.dumps(result.to_dict(), allow_nan=False) if as_json else repr(result))


def _opened(path: Path, config: Path | None, any_task: bool) -> Checkpoint | AnyHooked:
    """A checkpoint of any kind; where the task does not matter, any HookedTransformer too."""
    from anchorlens.files.importers import open_checkpoint
    from anchorlens.files.importers.any_hooked import open_any_hooked

    with reading_checkpoint(path):
        other = open_any_hooked(path, config) if any_task else None
        return open_checkpoint(path, config=config).checkpoint if other is None else other
