"""What commands share: options with their help, exit codes, errors on one line, and the output of results."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer

from anchorlens.cli.interruption import EXIT_INTERRUPTED, INTERRUPTED
from anchorlens.models.devices import is_out_of_memory
from anchorlens.texts import safe_repr, safe_text
from anchorlens.training.child_processes import TrainingError

LONGEST = 1200
"""The largest number of characters of an error. An error may quote a text of any length."""
MEMORY = (
    "there is not enough memory. Use a smaller model or batch, fewer or shorter sequences, or fewer workers"
)
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_CHECKPOINT = 3
EXIT_UNDECIDED = 4


def fail(message: str, code: int) -> NoReturn:
    """Print an error on one line, and exit with the given exit code."""
    complain(message)
    raise typer.Exit(code)


def say(message: str) -> None:
    """Print a message on stderr as one printable line, and flush stderr."""
    # not with click, which writes UTF-8 whatever the stream's encoding
    print(safe_text(message, LONGEST), file=sys.stderr, flush=True)


def complain(message: str) -> None:
    """Print an error on stderr as one printable line."""
    say(f"anchorlens: {message}")


def about(path: object, message: str) -> str:
    """Return a message that names the file that it is about."""
    return message if str(path) in message else f"{path}: {message}"


PATIENCE = 3.0
"""The seconds after which a command says on stderr what it still does."""


@contextlib.contextmanager
def said_when_slow(message: str) -> Iterator[None]:
    """Print a message on stderr if what is done within takes more than three seconds."""
    timer = threading.Timer(PATIENCE, say, [message])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def one_line_errors(command: Callable[..., None]) -> Callable[..., None]:
    """Make a command report a user, disk or memory error on one line, and exit with an error code."""

    @functools.wraps(command)
    def wrapped(*args: object, **kwargs: object) -> None:
        try:
            command(*args, **kwargs)
        except KeyboardInterrupt:
            fail(INTERRUPTED, EXIT_INTERRUPTED)
        except SystemExit as error:
            if type(error) is not SystemExit:  # OutputLost
                raise
            place = traceback.extract_tb(error.__traceback__)[-1]
            fail(
                f"{place.filename}: line {place.lineno} must not end the program, got "
                f"sys.exit({safe_repr(error.code)}) before there was a result. Remove this call",
                EXIT_FAILED,
            )
        except ValueError as error:
            code = EXIT_CHECKPOINT if type(error).__name__ == "CheckpointError" else EXIT_USAGE
            fail(str(error), code)
        except OSError as error:
            cause = str(error.strerror or error) or type(error).__name__
            fail(f"{error.filename}: {cause}" if error.filename else cause, EXIT_FAILED)
        except TrainingError as error:
            fail(str(error), EXIT_FAILED)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            fail(MEMORY, EXIT_FAILED)

    return wrapped


OTHERS = "Go further"
"""The title of the group for commands that do not name a group."""

C = TypeVar("C", bound=Callable[..., object])


def in_group(title: str) -> Callable[[C], C]:
    """List a command of a package under a title in the main help.

    Args:
        title: the title of a group in the help, such as `Train and compare many models`.

    Returns:
        A decorator, which must be the outermost decorator.
    """

    def marked(command: C) -> C:
        command.group = title  # pyright: ignore[reportFunctionMemberAccess]
        return command

    return marked


def draw_and_print(
    result: Any, as_json: bool, plot: Path | None, print_for_people: Callable[[Any], object]
) -> None:
    """Write the plot of a result if the path `plot` is given, and print the result as text or JSON."""
    if plot is not None:
        from anchorlens import plots

        plots.save(result.plot(), plot, result)
        say(f"the picture is in {plot}")
    if as_json:
        from anchorlens.show.terminal.console import print_json

        print_json(result.to_dict())
    else:
        print_for_people(result)


def path_option(help: str, *names: str) -> Any:
    """Make an option that takes a path.

    The command reports an unreadable path when the command opens the path.
    """
    return typer.Option(*names, help=help, readable=False)


def file_option(help: str) -> Any:
    """Make an option that takes an existing file."""
    return typer.Option(help=help, exists=True, dir_okay=False, readable=False)


Checkpoint = Annotated[
    Path, typer.Argument(help="Checkpoint in any format that `classify` accepts.", readable=False)
]
CheckpointUnlessList = Annotated[
    Path | None,
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
OwnModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="FILE.py:FUNCTION",
        help="Function without arguments in a Python file of yours that returns the torch module of the "
        "weights. The command runs the file. Without a checkpoint, the module has its weights already.",
    ),
]
TrainData = Annotated[
    Path | None,
    file_option(
        "Training data for checkpoints that do not describe their training data. The .pt, .safetensors, "
        ".npz, .csv, .tsv or .jsonl file holds tokens and targets. An x.npy goes with the y.npy next to it."
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
