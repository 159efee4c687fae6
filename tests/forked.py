"""Processes of Python that begin with the libraries loaded: `run` and `Popen`, as in `subprocess`.

A server, started once for all workers of a run of the tests, has imported torch, TransformerLens and other
libraries, and not the package. For each command it forks a child, which then is what `python -c CODE`,
`python -m MODULE` or `python SCRIPT` would be: its arguments, folder, environment, streams, session, exit
code and signals are those of a process of its own. What a test claims about starting Python (what is
imported, options, closed streams, a Ctrl-C that nobody catches, memory) needs `subprocess`.
"""

import array
import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import select
import socket
import struct
import subprocess
import sys
import tempfile
import types
from pathlib import Path

from filelock import FileLock

STATUS = struct.Struct("i")
ROOT = Path(__file__).parents[1]
LIBRARIES = (
    "torch",
    "transformer_lens",
    "circuitsvis",
    "jinja2",
    "loky",
    "pandas",
    "plotly.graph_objects",
    "plotly.subplots",
    "psutil",
    "pydantic",
    "rich.console",
    "rich.progress",
    "rich.table",
    "safetensors.torch",
    "scipy.stats",
    "sklearn.decomposition",
    "sklearn.linear_model",
    "sklearn.manifold",
    "typer",
)


class Popen(subprocess.Popen):
    """`subprocess.Popen` for a command that begins with `sys.executable`, forked from the server."""

    def __init__(self, command, *, cwd=None, env=None, start_new_session=False, **options):
        words = [os.fspath(word) for word in command]
        assert words[0] == sys.executable and (words[1] in ("-c", "-m") or not words[1].startswith("-")), (
            words
        )
        self._request = {
            "words": words[1:],
            "cwd": os.fspath(cwd or os.getcwd()),
            "env": dict(os.environ if env is None else env),
            "start_new_session": start_new_session,
        }
        super().__init__(words, **options)

    def _execute_child(self, *given):
        """Have the server fork the child; `given` by `subprocess.Popen`, with the ends of the streams."""
        ends = given[10:16]
        child_reads, _, _, child_writes, _, child_reports = ends
        self._status, status = socket.socketpair()
        asked = (child_reads, child_writes, child_reports)
        streams = [own if end == -1 else end for own, end in enumerate(asked)]
        content = json.dumps(self._request).encode()
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [*streams, status.fileno()]))]
        server().sendmsg([STATUS.pack(len(content))], ancillary)
        server().sendall(content)
        status.close()
        self._child_created = True
        (self.pid,) = STATUS.unpack(self._status.recv(STATUS.size, socket.MSG_WAITALL))
        self._close_pipe_fds(*ends)

    def _try_wait(self, wait_flags):
        """The status of the child as `os.waitpid` gives it; the pid 0 while it runs."""
        flags = socket.MSG_DONTWAIT if wait_flags & os.WNOHANG else socket.MSG_WAITALL
        try:
            content = self._status.recv(STATUS.size, flags)
        except BlockingIOError:
            return 0, 0
        self._status.close()
        return self.pid, STATUS.unpack(content)[0]

    def _internal_poll(self, _deadstate=None, **_):
        """As `poll`, by way of the server's answer."""
        if self.returncode is None:
            pid, status = self._try_wait(os.WNOHANG)
            if pid == self.pid:
                self._handle_exitstatus(status)
        return self.returncode


def run(command, *, input=None, timeout=None, check=False, capture_output=False, **options):
    """`subprocess.run` for a command that begins with `sys.executable`."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen(command, **options) as process:
        try:
            output, errors = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, output, errors)
    if check:
        done.check_returncode()
    return done


@functools.cache
def server():
    """A connection to the server, which ends when the last process of the tests has ended."""
    run_of_tests = os.environ.get("PYTEST_XDIST_TESTRUNUID", os.getpid())
    path = Path(tempfile.gettempdir()) / f"anchorlens-{os.getuid()}-{run_of_tests}"
    connection = socket.socket(socket.AF_UNIX)
    with FileLock(f"{path}.lock"):
        try:
            connection.connect(str(path))
        except (FileNotFoundError, ConnectionRefusedError):
            start_server(path)
            connection.connect(str(path))
    atexit.register(connection.close)
    return connection


def start_server(path):
    """Start it in a session of its own, so that no signal to a group ends it, and wait until it listens."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()
    process = subprocess.Popen(
        [sys.executable, __file__, str(listening.fileno()), str(path)],
        pass_fds=[listening.fileno()], cwd=ROOT, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    process.returncode = 0  # nobody waits for it
    listening.close()


def serve(listening):
    """Fork a child for each request; in the child, return what it was asked for."""
    connections = [listening, listening.accept()[0]]
    while len(connections) > 1:
        for one in select.select(connections, [], [])[0]:
            if one is listening:
                connections.append(listening.accept()[0])
                continue
            content, rights, *_ = one.recvmsg(STATUS.size, socket.CMSG_SPACE(4 * STATUS.size))
            if not content:
                connections.remove(one)
                one.close()
                continue
            descriptors = array.array("i", rights[0][2])
            request = json.loads(one.recv(*STATUS.unpack(content), socket.MSG_WAITALL))
            watcher = os.fork()
            if watcher == 0:
                for each in connections:
                    each.close()
                return in_child(request, *descriptors)
            for each in descriptors:
                os.close(each)
            os.waitpid(watcher, 0)
    os.unlink(sys.argv[2])
    os.unlink(f"{sys.argv[2]}.lock")
    os._exit(0)


def in_child(request, child_reads, child_writes, child_reports, status):
    """Become the child; its parent, forked between it and the server, tells how it ended."""
    if os.fork():
        os._exit(0)  # the server need not wait for the parent
    child = os.fork()
    if child:
        os.write(status, STATUS.pack(child))
        for one in (child_reads, child_writes, child_reports):
            os.close(one)
        _, ended = os.waitpid(child, 0)
        os.write(status, STATUS.pack(ended))
        os._exit(0)
    os.close(status)
    if request["start_new_session"]:
        os.setsid()
    for own, end in enumerate((child_reads, child_writes, child_reports)):
        os.dup2(end, own)
        os.close(end)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    return request["words"]


def become(words, path):
    """Run what `python WORDS` would run, as `__main__`; `path` is where it finds what is installed."""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    how, *rest = words
    first = {"-c": "", "-m": os.getcwd()}.get(how, str(Path(how).resolve().parent))
    sys.path[:] = [first, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *path]
    if how == "-m":
        sys.argv = ["-m", *rest[1:]]
        return runpy._run_module_as_main(rest[0])
    if how == "-c":
        sys.argv, code, name = ["-c", *rest[1:]], rest[0], "<string>"
    else:
        sys.argv, code, name = words, Path(how).read_text(encoding="utf-8"), how
        main.__file__ = name
    return exec(compile(code, name, "exec"), main.__dict__)


if __name__ == "__main__":
    here, *installed = sys.path
    installed = [one for one in installed if one not in os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    for name in LIBRARIES:
        importlib.import_module(name)
    gc.freeze()
    become(serve(socket.socket(fileno=int(sys.argv[1]))), installed)
