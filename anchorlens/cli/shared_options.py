"""The options that several commands share, each with its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def path_option(help: str, *names: str) -> Any:
    """Make an option that takes a path.

    The command reports an unreadable path when the command opens the path.
    """
    return typer.Option(*names, help=help, readable=False)


def file_option(help: str) -> Any:
    """Make an option that takes an existing file."""
    return typer.Option(help=help, exists=True, dir_okay=False, readable=False)


Checkpoint = Annotated[
    Path,
    typer.Argument(help="Checkpoint in any format that `classify` accepts.", readable=False),
]
CheckpointsUnlessList = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Checkpoint in any format that `classify` accepts. With --along, give the folder of a run.",
        readable=False,
    ),
]
"""The argument of `probe`, which takes no checkpoint with --list."""
AsJson = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on stdout.")]
Device = Annotated[
    str,
    typer.Option(
        metavar="auto|cpu|cuda|cuda:N|mps", help="Device to run on. `mps` is accepted but untested."
    ),
]
NoiseSeed = Annotated[int, typer.Option(help="Seed of the noise in the test inputs.")]
Plot = Annotated[Path | None, path_option("Also write the picture to a .html, .png, .svg or .pdf file.")]
_OF_YOUR_OWN = (
    "Python file with your own {0}, in addition to the shipped {0}. The command executes the Python "
    "file. You can repeat this option."
)
OwnProbes = Annotated[list[Path] | None, path_option(_OF_YOUR_OWN.format("probes"), "--probes")]
OwnTasks = Annotated[list[Path] | None, path_option(_OF_YOUR_OWN.format("tasks"), "--tasks")]
"""`BoundedGroup` reads this option before all others, which may be fields of these tasks."""
ConfigOfBare = Annotated[
    Path | None, file_option("TOML or JSON file with the configuration of a bare state dict.")
]
TrainData = Annotated[
    Path | None,
    file_option(
        "Training data for checkpoints that do not describe their training data. The .pt, .safetensors, .npz "
        "or .csv file holds tokens and targets."
    ),
]
TaskFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        metavar="PATH",
        help="Text files of the task `text`, or folder of the task `cogs`. The command never opens paths "
        "that a checkpoint stores. You can repeat this option.",
    ),
]
