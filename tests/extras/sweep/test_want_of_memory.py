"""Want of memory is the machine's, not a cell's: a sweep stops and records nothing; it can be continued."""

import json
import re
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path

import pytest
from sweeping import ROOT, tiny

from anchorlens.extras.sweep import run as driver
from anchorlens.extras.sweep.engines import SweepEngine
from anchorlens.extras.sweep.run import killed_for_memory
from anchorlens.extras.sweep.sweep_folder import SweepFolder
from anchorlens.models.devices import is_out_of_memory

IN_LITTLE_MEMORY = """
import json, resource, sys
sys.path.insert(0, "tests")
import psutil
from sweeping import tiny
from anchorlens.extras.sweep import open_sweep, sweep

def swept():
    return sweep([small, large], sys.argv[1], engine="serial", progress=False)

def limit(n_bytes):
    resource.setrlimit(resource.RLIMIT_AS, (n_bytes, resource.RLIM_INFINITY))

(small,), (large,) = tiny({"seed": [0]}), tiny({"seed": [1]}, n_samples=1_000_000, steps=2)
sweep([small], sys.argv[1], engine="serial", progress=False)
limit(psutil.Process().memory_info().vms + 40 * 2**20)  # its sequences take 70 MB
found = {"error": None}
try:
    swept()
except MemoryError as error:
    found["error"] = str(error)
limit(resource.RLIM_INFINITY)
found["stopped"] = open_sweep(sys.argv[1]).counts
found["continued"] = swept().counts
print(json.dumps(found))
"""


@pytest.mark.system
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit the memory of a process so")
def test_a_cell_that_the_memory_does_not_hold(tmp_path):
    command = [sys.executable, "-c", IN_LITTLE_MEMORY, str(tmp_path / "a")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert (
        re.match("the run [0-9a-f]{16} must fit into memory, got an error: ", found["error"])
        and "allocate" in found["error"]
    )
    assert found["stopped"] == {"finished": 1, "missing": 1} and found["continued"] == {"finished": 2}


@pytest.mark.parametrize(("n_killed", "recorded"), [(3, False), (0, True)])
def test_a_cell_whose_processes_were_killed(tmp_path, monkeypatch, n_killed, recorded):
    """By the kernel, which counts them, for lack of memory; or by anybody else, as a faulty cell's may be."""
    KilledWorker = type("KilledWorker", (Exception,), {})
    cells = SweepFolder(tmp_path).runs_with_ids(tiny({"seed": [0]}))
    monkeypatch.setattr(driver, "killed_for_memory", lambda: 0)
    engine = SweepEngine("serial")
    engine.name = "local"  # whose processes are on this machine
    taking = driver._Driver(cells, SweepFolder(tmp_path), engine)
    taking.show = lambda steps, text: None
    monkeypatch.setattr(driver, "killed_for_memory", lambda: n_killed)
    future = Future()
    future.set_exception(KilledWorker("3 times"))
    if recorded:
        assert taking._take_in(cells, future) == []
    else:
        with pytest.raises(MemoryError, match=f"the run {cells[0][0]} .*memory ran out"):
            taking._take_in(cells, future)
    assert SweepFolder(tmp_path).failure(cells[0][0]).exists() == recorded


def test_what_linux_counts(tmp_path):
    events = tmp_path / "vmstat"
    events.write_text("nr_free_pages 7\noom_kill 12\noom_kill_other 5\n")
    assert killed_for_memory(events) == 12 and killed_for_memory(Path("/nonexistent")) == 0
    events.write_text("")
    assert killed_for_memory(events) == 0 <= killed_for_memory()


def test_what_is_want_of_memory():
    torch_says = "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried to"
    OutOfMemoryError = type("OutOfMemoryError", (RuntimeError,), {})
    for error in (MemoryError(), RuntimeError(torch_says), OutOfMemoryError("CUDA out of memory")):
        assert is_out_of_memory(error)
    for error in (RuntimeError("shape"), ValueError("allocate memory")):
        assert not is_out_of_memory(error)
