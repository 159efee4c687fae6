"""How errors end on the command line: one line that says what it is about."""

import pytest
from typer import Exit

from anchorlens.cli.shared import one_line_errors


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (TimeoutError(), "TimeoutError"),
        (TimeoutError("no answer in 30 s"), "no answer in 30 s"),
        (OSError(28, "No space left on device", "/disk/a"), "/disk/a: No space left on device"),
        (OSError(28, "No space left on device"), "No space left on device"),
    ],
)
def test_an_error_without_a_file_names_none(error, line, capsys):
    @one_line_errors
    def command():
        raise error

    with pytest.raises(Exit) as end:
        command()
    assert end.value.exit_code == 1 and capsys.readouterr().err == f"anchorlens: {line}\n"
