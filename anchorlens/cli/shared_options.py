"""The options that several commands have, each with its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def path_option(help: str, *names: str) -> Any:
    """An option that takes a path. What cannot be read is reported when it is opened, as other errors are."""
    return typer.Option(*names, help=help, readable=False)


def file_option(help: str, *names: str) -> Any:
    """An option that takes a file that is there."""
    return typer.Option(*names, help=help, exists=True, dir_okay=False, readable=False)


_CHECKPOINT = typer.Argument(
    help="A checkpoint: a file or folder of any kind that classify reads.", readable=False
)
Checkpoint = Annotated[Path, _CHECKPOINT]
CheckpointsUnlessList = Annotated[
    list[Path] | None,
    typer.Argument(
        help="A checkpoint: a file or folder of any kind that classify reads. With --along folders of runs.",
        readable=False,
    ),
]
"""Of `probe`, which takes none with --list."""
AsJson = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on stdout.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps (which we could not test).")]
NoiseSeed = Annotated[int, typer.Option(help="Seed of the noise.")]
Plot = Annotated[Path | None, path_option("Write the picture: .html, .png, .svg or .pdf.")]
_OF_YOUR_OWN = (
    "A Python file with {} of your own; they join the shipped ones. The file is run. May be given more "
    "than once."
)
OwnProbes = Annotated[list[Path] | None, path_option(_OF_YOUR_OWN.format("probes"), "--probes")]
OwnTasks = Annotated[list[Path] | None, path_option(_OF_YOUR_OWN.format("tasks"), "--tasks")]
"""Read before the command's other options are, which its tasks' fields may be among: see `BoundedGroup`."""
ConfigOfBare = Annotated[Path | None, file_option("What bare state dicts are: TOML or JSON.")]
TrainData = Annotated[
    Path | None,
    file_option(
        "What the checkpoints were trained on that do not carry their own training data: tokens and "
        "targets in a .pt, .safetensors, .npz or CSV file."
    ),
]
TaskFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        help="Where the files of the checkpoints' task lie now, if they were moved: of text its files, of "
        "cogs its folder. May be given more than once.",
    ),
]
