"""A forked process is, to who starts it, the process that `subprocess` would start."""

import os
import signal
import subprocess
import sys

import forked
import pytest

ENDS = {
    "well": "print(6 * 7)",
    "with a code": "import sys; print('half'); sys.exit(3)",
    "with words": "raise SystemExit('in words')",
    "in an error": "1 / 0",
    "by a signal": "import os; os.kill(os.getpid(), 15)",
    "at once": "import os; print('lost'); os._exit(4)",
    "after its exit functions": "import atexit; atexit.register(print, 'last')",
}
SEEN = """
import json, os, sys
seen = {"argv": sys.argv, "folder": os.getcwd(), "environment": dict(os.environ), "input": sys.stdin.read()}
seen |= {"name": __name__, "main": sys.modules["__main__"].__dict__ is globals(), "path": sys.path}
seen |= {"session": os.getsid(0) == os.getpid(), "terminal": sys.stdout.isatty()}
print(json.dumps(seen))
"""


@pytest.mark.parametrize("code", ENDS.values(), ids=ENDS)
def test_it_ends_alike(code):
    command = [sys.executable, "-c", code]
    real, ours = (how.run(command, capture_output=True, text=True) for how in (subprocess, forked))
    assert (ours.returncode, ours.stdout) == (real.returncode, real.stdout)
    assert ours.stderr.splitlines()[-1:] == real.stderr.splitlines()[-1:]


@pytest.mark.parametrize("how", ["-c", "a script"])
@pytest.mark.parametrize("alone", [False, True])
def test_it_sees_the_same(tmp_path, how, alone):
    script = tmp_path / "seen.py"
    script.write_text(SEEN)
    command = [sys.executable, *(["-c", SEEN] if how == "-c" else [str(script)]), "one", "--two"]
    given = {"cwd": tmp_path, "env": {**os.environ, "OWN": "ä"}, "start_new_session": alone, "text": True}
    real, ours = (
        each.run(command, capture_output=True, input="typed", **given) for each in (subprocess, forked)
    )
    assert ours.stdout == real.stdout and ours.stderr == real.stderr == ""


def test_a_command_is_the_same():
    for words in (["--version"], ["probe", "no_such_probe", "x.pt"]):
        command = [sys.executable, "-m", "anchorlens", *words]
        real, ours = (how.run(command, capture_output=True, text=True) for how in (subprocess, forked))
        assert (ours.returncode, ours.stdout, ours.stderr) == (real.returncode, real.stdout, real.stderr)


def test_it_can_be_waited_for_and_killed():
    code = "import time; print('begun', flush=True); time.sleep(100)"
    with forked.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"begun\n" and process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == -signal.SIGTERM
    with pytest.raises(subprocess.CalledProcessError):
        forked.run([sys.executable, "-c", "raise SystemExit(1)"], check=True)
