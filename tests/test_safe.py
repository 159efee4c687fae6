"""Foreign texts and files: shown as one printable line, read whole and bounded, or refused in one line."""

import io
import os
import pickle
from pathlib import PurePosixPath

import pytest
from rich.table import Table

from anchorlens.safe import read_bytes, read_json, read_toml
from anchorlens.safe.pickles import read_pickle
from anchorlens.show.terminal.console import Terminal
from anchorlens.texts import LONGEST, safe_repr, safe_text

STEERING = "a\x1b]52;c;aGk=\x07b\x1b[31m\x9b1m\r\n‮:smile:[red]x\udcff"


def test_printable_is_one_harmless_line():
    line = safe_text(STEERING)
    assert line.isprintable() and "\n" not in line and line.isascii()
    assert line.startswith("a\\x1b]52;c;aGk=\\x07b") and ":smile:[red]" in line
    assert safe_text("plain – text ± 3") == "plain – text ± 3"


def test_long_texts_are_cut():
    assert len(safe_text("x" * 5_000_000)) == LONGEST
    for value in ("x" * 5_000_000, ["x" * 5_000_000], {"a": list(range(10**6))}, 10**6000, b"x" * 10**6):
        assert len(safe_repr(value)) <= LONGEST
    assert safe_repr([1, "two", None]) == "[1, 'two', None]"


def test_a_terminal_obeys_no_text():
    out = io.StringIO()
    terminal = Terminal(file=out, force_terminal=True, width=200)
    terminal.print(STEERING)
    table = Table(STEERING, title=STEERING)
    table.add_row(STEERING)
    terminal.print(table)
    terminal.print("a\nb")
    text = out.getvalue()
    for steering in ("\x1b]52", "\x07", "\x1b[31m", "\x9b", "\r", "‮", "😄", "\udcff"):
        assert steering not in text
    assert text.count(":smile:[red]x") == 4
    assert text.endswith("a\nb\n")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_no_part_of_a_text(encoding):
    """Notepad and PowerShell write one."""
    assert read_json('{"a": "é"}'.encode(encoding)) == {"a": "é"}
    assert read_toml('a = "é"'.encode(encoding)) == {"a": "é"}
    assert read_json("\ufeff[]") == [] and read_json('["\ufeff"]') == ["\ufeff"]


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("[" * 100_000, "nested at most 64 levels"),
        ("[" * 65 + "]" * 65, "nested at most 64 levels"),
        ("[1, NaN]", "only finite numbers, got NaN"),
        ("1e999999999", "only finite numbers, got 1e999999999"),
        ("9" * 31, "integers of at most 30 digits"),
        ("9" * 10_000, "integers of at most 30 digits"),
        ("{" * 3, "must be valid JSON, got an error"),
        (b"\xff", "must be UTF-8 text, got byte 0xff"),
        ("[" + "0," * 1_000_001 + "0]", "must have at most 1,000,000 values"),
    ],
)
def test_what_is_no_plain_json(text, cause):
    with pytest.raises(ValueError, match=cause):
        read_json(text)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("a = " + "[" * 100_000, "nested at most 64 levels"),
        ("a = " + "[" * 65 + "]" * 65, "nested at most 64 levels"),
        (".".join("a" * 20_000) + " = 1", "nested at most 64 levels"),
        ("[" + ".".join("a" * 66) + "]", "nested at most 64 levels"),
        ("a = nan", "only finite numbers, got nan"),
        ("a = 1e999", "only finite numbers, got inf"),
        ("a = " + "9" * 31, "integers of at most 30 digits"),
        ("a = " + "9" * 10_000, "integers of at most 30 digits"),
        ("a = ", "must be valid TOML, got an error: "),
        (b"\xff", "must be UTF-8 text, got byte 0xff"),
    ],
)
def test_what_is_no_plain_toml(text, cause):
    with pytest.raises(ValueError, match=cause):
        read_toml(text)


def test_plain_data_is_read_as_it_is():
    assert read_json('{"a": [1, 2.5, null, "x", 123456789012345678901234567890]}') == {
        "a": [1, 2.5, None, "x", 123456789012345678901234567890]
    }
    assert read_toml(b"a = [1, 2.5]") == {"a": [1, 2.5]}
    many = [k + 0.5 for k in range(100)]
    assert read_toml(f"a.b.c = {many}") == {"a": {"b": {"c": many}}}


def test_only_ordinary_files_of_bounded_size_are_read(tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 100)
    assert read_bytes(tmp_path / "file", 100) == b"x" * 100
    with pytest.raises(ValueError, match="at most 99 bytes, got 100"):
        read_bytes(tmp_path / "file", 99)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(ValueError, match="must name an ordinary file"):
            read_bytes(path)
    with pytest.raises(OSError, match="Is a directory"):
        read_bytes(tmp_path)
    with pytest.raises(OSError, match="No such file"):
        read_bytes(tmp_path / "none")


def test_nothing_is_read_of_a_file_that_says_it_is_empty():
    """/proc/kmsg, /proc/PID/mem: such files may wait for more, or answer "not now"."""
    for path in ("/proc/self/maps", "/proc/kmsg"):
        if os.path.exists(path) and os.access(path, os.R_OK):
            assert read_bytes(path) == b""


def test_no_object_is_shown_with_its_address():
    class Thing:
        pass

    def function():
        pass

    for value in (Thing(), function, [Thing(), {"a": function}], test_printable_is_one_harmless_line):
        assert " at 0x" not in safe_repr(value) and (
            "Thing" in safe_repr(value) or "function" in safe_repr(value)
        )
    assert safe_repr("a at 0x7f") == "'a at 0x7f'"


def of_pickle(value):
    return read_pickle(pickle.dumps(value, 2), {}, frozenset(), lambda identity: None)


class TestSharedLists:
    """A pickle writes a list once that others hold many times."""

    def test_a_few_are_read(self):
        row = [1, 2]
        assert of_pickle([row] * 100 + [{"a": row}]) == [row] * 100 + [{"a": row}]

    def test_many_are_refused(self):
        shared = 1
        for _ in range(7):
            shared = [shared] * 25
        with pytest.raises(ValueError, match="nested lists and dicts must have at most"):
            of_pickle({"a": shared})

    def test_a_list_in_itself_is_refused(self):
        shared = []
        shared.append([shared])
        with pytest.raises(ValueError, match="must not contain itself"):
            of_pickle(shared)

    def test_a_path_of_many_parts_and_a_long_name(self):
        assert of_pickle(PurePosixPath("a/b")) == "a/b"
        with pytest.raises(ValueError, match="valid objects"):
            of_pickle(PurePosixPath("a" * 5000))
        with pytest.raises(ValueError, match=r"the file would run a\.a\.a"):
            read_pickle(b"ca\n" + b"a." * 10**6 + b"\n.", {}, frozenset(), lambda identity: None)
