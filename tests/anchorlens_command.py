"""The command `anchorlens`, called in this process."""

from typer.testing import CliRunner

from anchorlens.cli import app, shared

shared.PATIENCE = 3600.0
"""On a busy machine, the line on what takes long would stand in the stderr of any test."""


def call(*arguments, code=0, columns=200):
    """Call it, and check that it exits as it should and lets no error through.

    Args:
        arguments: its words, as text or what becomes text.
        code: the exit code it must have; None for any.
        columns: width of the terminal it writes to.

    Returns:
        What it wrote (`stdout`, `stderr`) and its `exit_code`.
    """
    done = CliRunner().invoke(app, [str(one) for one in arguments], env={"COLUMNS": str(columns)})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert code in (None, done.exit_code), done.output
    return done
