"""The real command in whatever a shell makes of its streams: closed, full, unread, without our letters."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import forked
import pytest

import anchorlens
from anchorlens.cli import interruption

ROOT = Path(anchorlens.__file__).parents[1]
SHIPPED = ROOT / "anchorlens/training/checkpoints/phase3.pt"
INTERRUPTED = f"anchorlens: {interruption.INTERRUPTED}\n".encode()
FULL = b"anchorlens: cannot write the output: No space left on device\n"
ROOM = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "TERM")}


def shell(line, **environment):
    """A line of shell in which `run` is the command; its exit code, stdout and stderr."""
    line = f'run() {{ "{sys.executable}" -m anchorlens "$@"; }}; {line}'
    done = subprocess.run(["bash", "-c", line], capture_output=True, cwd=ROOT, env={**ROOM, **environment})
    return done.returncode, done.stdout, done.stderr


class TestClosed:
    @pytest.mark.parametrize("streams", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
    def test_is_as_dev_null(self, streams):
        code, out, words = shell(f"run --version {streams}")
        assert (code, words, out) == (0, b"", b"" if " >&-" in f" {streams}" else b"0.1.0\n")
        code, out, words = shell(f"run train {streams}")  # --out must be the folder of the run, got none
        assert (code, out) == (2, b"") and words.count(b"\n") == ("2>&-" not in streams)

    def test_no_file_takes_the_place_of_a_closed_stream(self, tmp_path):
        code = (
            "import os; from anchorlens.cli.streams import prepare_streams; prepare_streams();"
            "file = open('result', 'w'); assert file.fileno() > 2, file.fileno();"
            "print('lost'); os.system('echo lost'); file.write('kept')"
        )
        line = f'"{sys.executable}" -c "{code}" <&- >&- 2>&-'
        subprocess.run(["bash", "-c", line], check=True, cwd=tmp_path, env={**ROOM, "PYTHONPATH": str(ROOT)})
        assert (tmp_path / "result").read_text() == "kept"


class TestFull:
    @pytest.mark.parametrize("arguments", ["--help", "--version", "train --help"])
    def test_stdout_is_one_line_and_exit_1(self, arguments):
        assert shell(f"run {arguments} >/dev/full") == (1, b"", FULL)

    def test_stderr_changes_no_exit_code(self):
        assert shell("run train 2>/dev/full") == (2, b"", b"")

    def test_a_stdout_that_cannot_be_written_says_so(self):
        words = b"anchorlens: cannot write the output: Bad file descriptor\n"
        assert shell("run --version 1</dev/null") == (1, b"", words)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_nobody_reads_is_silence_and_exit_141(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "anchorlens", *arguments]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, cwd=ROOT)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


class TestLetters:
    @pytest.mark.parametrize("encoding", ["ascii", "ascii:strict", "latin-1:strict"])
    def test_boxes_and_ours_are_replaced(self, encoding):
        code, out, words = shell("run train --gama", PYTHONIOENCODING=encoding)
        assert (code, out) == (2, b"") and b"+- Error ---" in words and b"\\u" not in words

    def test_that_an_encoding_lacks_are_escaped(self):
        code = (
            "import sys; from anchorlens.cli.streams import prepare_streams; prepare_streams()\n"
            "for stream in (sys.stdout, sys.stderr): print('± · 漢 \\udcff', file=stream)"
        )
        environment = {**ROOM, "PYTHONIOENCODING": "ascii:strict"}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, env=environment)
        assert done.stdout == done.stderr == b"\\xb1 \\xb7 \\u6f22 \\udcff\n"

    @pytest.mark.needs()
    def test_of_a_path_do_not_fail(self):
        code, _, words = shell("run status 'no ± · 漢'", PYTHONIOENCODING="ascii:strict")
        assert code == 3 and words.count(b"\n") == 1 and words.startswith(b"anchorlens: no ")

    @pytest.mark.needs()
    def test_that_are_none_do_not_fail(self):
        code, _, words = shell("run status $'no \\xff'")
        assert code == 3 and words.count(b"\n") == 1 and b"Traceback" not in words


@pytest.fixture(scope="module")
def help_text():
    return command("--help")[1]


def command(*arguments, **environment):
    """The command in a forked process; its exit code, stdout and stderr."""
    words = [sys.executable, "-m", "anchorlens", *arguments]
    done = forked.run(words, capture_output=True, cwd=ROOT, env={**ROOM, **environment})
    return done.returncode, done.stdout, done.stderr


class TestSizes:
    @pytest.mark.parametrize("columns", ["0", "1", "19", "abc", "", "²", "-5", "9" * 5000])
    def test_that_are_none_are_left_out(self, columns, help_text):
        sizes = {"COLUMNS": columns, "LINES": columns, "TERMINAL_WIDTH": columns}
        assert command("--help", **sizes) == (0, help_text, b"")

    def test_that_are_narrow_or_wide_hold(self, help_text):
        for columns in (20, 200):
            code, out, words = command("--help", COLUMNS=str(columns))
            assert (code, words) == (0, b"") and out != help_text
            assert max(map(len, out.decode().splitlines())) <= columns


AT_IMPORT = """
import signal, sys

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            {what}

sys.meta_path.insert(0, Interrupts())
sys.argv[1:] = {arguments!r}
from anchorlens.cli import main
main()
"""


def python(*arguments, interrupt=signal.SIG_DFL):
    """A Python that hears Ctrl-C, or ignores it, whatever this process does (`make test &` ignores it)."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, interrupt),
    )


def at_import(module, *arguments, what="signal.raise_signal(signal.SIGINT)", interrupt=signal.SIG_DFL):
    """The command in a process in which something happens when it comes to import a module."""
    code = AT_IMPORT.format(module=module, arguments=list(arguments), what=what)
    return python("-c", code, interrupt=interrupt)


class TestInterruption:
    @pytest.mark.needs()
    @pytest.mark.parametrize(
        "module", ["anchorlens.cli.streams", "typer", "anchorlens.extras.sweep.commands", "torch"]
    )
    def test_in_an_import_is_one_line_and_exit_130(self, module):
        process = at_import(module, "classify", str(SHIPPED))
        assert (*process.communicate(), process.returncode) == (b"", INTERRUPTED, 130)

    def test_where_python_cannot_raise_it_is_one_line_and_exit_130(self):
        code = (
            "import signal; from anchorlens.cli.interruption import interrupted\n"
            "signal.signal(signal.SIGINT, interrupted)\n"
            "class Dies:\n    def __del__(self): signal.raise_signal(signal.SIGINT)\n"
            "Dies()\nprint('this was lost')"
        )
        process = python("-c", code)
        assert (*process.communicate(), process.returncode) == (b"", INTERRUPTED, 130)

    def test_whenever_it_comes_there_is_no_traceback(self):
        """From the first moment that is ours to the last, and beyond it."""
        codes = set()
        for number in range(10):
            process = at_import("anchorlens.cli.streams", "--help", what="sys.stderr.write('.')")
            assert process.stderr is not None and process.stderr.read(1) == b"."
            time.sleep(0.03 * number)
            process.send_signal(signal.SIGINT)
            words = process.communicate()[1]
            assert words in (b"", INTERRUPTED)
            codes.add(process.returncode)
        assert 130 in codes and codes <= {0, 130}

    @pytest.mark.parametrize(
        ("when", "code"), [("atexit.register(signal.raise_signal, signal.SIGINT)", 130), ("None", 0)]
    )
    def test_during_the_exit_it_is_exit_130(self, when, code):
        """A handler of the exit that was registered after the start runs before Ctrl-C is ignored."""
        process = at_import("anchorlens.cli.streams", "--version", what=f"import atexit; {when}")
        out, words = process.communicate()
        assert (process.returncode, out) == (code, b"0.1.0\n") and words == (INTERRUPTED if code else b"")

    def test_that_is_ignored_stays_ignored(self):
        """As under nohup, or behind `&` in a script."""
        process = at_import("typer", "--version", interrupt=signal.SIG_IGN)
        assert (*process.communicate(), process.returncode) == (b"0.1.0\n", b"", 0)

    @pytest.mark.slow
    def test_of_a_training_is_one_line_and_it_continues(self, tmp_path):
        arguments = ["train", "--n-layers", "1", "--d-model", "16", "--d-head", "8", "--d-mlp", "16"]
        arguments += [
            "--n-samples",
            "600",
            "--steps",
            "1000000",
            "--log-every",
            "1",
            "--out",
            str(tmp_path / "run"),
        ]
        process = python("-m", "anchorlens", *arguments)
        while not list((tmp_path / "run").glob("*.jsonl")) and process.poll() is None:
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, words = process.communicate()
        assert (process.returncode, out) == (130, b"") and words.endswith(b"\n" + INTERRUPTED)
        assert words.startswith(b"training gpt2, 1 layer") and words.count(b"\n") == 2


def test_the_demo_says_what_it_does_before_it_imports_anything_heavy(tmp_path):
    process = at_import("torch", "demo", "--out", str(tmp_path))
    out, words = process.communicate()
    assert (out, process.returncode) == (b"", 130)
    first, second = words.decode().splitlines()
    assert first.startswith("classifying four small checkpoints of Phases 1, 2, 2 with commutativity and 3,")
    assert f"{tmp_path}/report.html; this takes about a minute" in first and second in INTERRUPTED.decode()


COMMAND = """
import sys
sys.argv[1:] = ["--version"]
from anchorlens.cli import main
try:
    main()
except SystemExit:
    pass
"""
WAITING = """
import os
from anchorlens.training.child_processes import process_pool
with process_pool(1) as executor:
    found = executor.submit(os.getenv, "OMP_WAIT_POLICY").result()
print(os.environ.get("OMP_WAIT_POLICY"), found)
"""


@pytest.mark.parametrize(
    ("begins", "chosen", "found"),
    [
        (COMMAND, {}, [b"0.1.0", b"PASSIVE PASSIVE"]),
        (COMMAND, {"OMP_WAIT_POLICY": "active"}, [b"0.1.0", b"active active"]),
        (COMMAND, {"GOMP_SPINCOUNT": "5"}, [b"0.1.0", b"None None"]),
        ("", {}, [b"None PASSIVE"]),
        ("", {"OMP_WAIT_POLICY": "active"}, [b"active active"]),
    ],
)
def test_threads_sleep_while_they_wait_in_commands_and_in_children_unless_the_user_chose(
    begins, chosen, found
):
    environment = {k: v for k, v in ROOM.items() if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")} | chosen
    done = subprocess.run(
        [sys.executable, "-c", begins + WAITING], capture_output=True, cwd=ROOT, env=environment
    )
    assert done.stdout.splitlines() == found, done.stderr


@pytest.mark.slow
class TestOfLongCommands:
    """The same where torch is loaded."""

    @pytest.mark.parametrize(
        "arguments", [f"classify {SHIPPED}", f"classify --json {SHIPPED}", "train --dry-run"]
    )
    def test_full_unread_and_ascii(self, arguments):
        assert shell(f"run {arguments} >/dev/full") == (1, b"", FULL)
        assert shell(f"run {arguments} | true; exit ${{PIPESTATUS[0]}}") == (141, b"", b"")
        code, out, words = shell(f"run {arguments}", PYTHONIOENCODING="ascii:strict", COLUMNS="0")
        assert (code, words) == (0, b"") and out.isascii()
        assert shell(f"run {arguments} <&- >&- 2>&-")[0] == 0

    @pytest.mark.parametrize("arguments", [f"evaluate {SHIPPED}", "probe --list"])
    def test_full_and_ascii(self, arguments):
        assert shell(f"run {arguments} >/dev/full") == (1, b"", FULL)
        code, out, words = shell(f"run {arguments}", PYTHONIOENCODING="ascii:strict", COLUMNS="1")
        assert (code, words) == (0, b"") and out.isascii()

    def test_a_status_of_a_sweep(self, tmp_path):
        tiny = "--n-layers 1 --d-model 16 --d-head 8 --d-mlp 16 --n-samples 600 --steps 4"
        code, _, words = shell(f"run sweep {tiny} --seed 0,1 --engine serial --out {tmp_path}/s")
        assert code == 0, words
        assert shell(f"run status {tmp_path}/s >/dev/full") == (1, b"", FULL)
        assert shell(f"run status --json {tmp_path}/s >/dev/full") == (1, b"", FULL)
        code, out, words = shell(f"run status --cells {tmp_path}/s", PYTHONIOENCODING="ascii", COLUMNS="20")
        assert (code, words) == (0, b"") and out.isascii()
