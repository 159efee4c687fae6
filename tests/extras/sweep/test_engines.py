"""Engines with real processes: killed workers, a scheduler that is restarted, Slurm, a full disk."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time

import psutil
import pytest
from sweeping import ROOT, finished, flags, start, tiny, wait_for, workers_of

from anchorlens import load_checkpoint
from anchorlens.extras.shared.in_this_process import InThisProcess
from anchorlens.extras.sweep import open_sweep, sweep
from anchorlens.extras.sweep.engines import EngineError
from anchorlens.extras.sweep.sweep_folder import SweepFolder

pytest.importorskip("distributed", reason="needs the extra [cluster]")
AXES = {"gamma": "0.3,0.5", "seed": "0:2"}


def same_bits(cells, others):
    for cell, other in zip(cells, others, strict=True):
        ours, theirs = (load_checkpoint(c.path / "ckpt.pt").weights for c in (cell, other))
        assert all((ours[name] == theirs[name]).all() for name in theirs)
        first, second = ({k: v for k, v in c.numbers.items() if k != "seconds"} for c in (cell, other))
        assert first == second


@pytest.fixture(scope="module")
def serial(tmp_path_factory, all_questions):
    return sweep(tiny(AXES), tmp_path_factory.mktemp("serial") / "a", engine="serial")


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """One sweep of the real command, during which a worker is killed; where it listened."""
    out = tmp_path_factory.mktemp("local") / "a"
    command = [
        "sweep",
        "--engine",
        "local",
        "--workers",
        2,
        "--out",
        out,
        *flags(AXES, state_every_seconds=0),
    ]
    process = start(*command)
    try:
        wait_for(lambda: (out / "unfinished").exists() and any((out / "unfinished").glob("*/log.jsonl")))
        addresses = {
            connection.laddr.ip
            for one in [psutil.Process(process.pid), *workers_of(process.pid)]
            for connection in one.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        }
        killed = workers_of(process.pid)[0]
        killed.kill()
        stdout, stderr = process.communicate(timeout=300)
    finally:
        end(process)
    return out, process.returncode, stdout, stderr, addresses


@pytest.mark.slow
class TestLocal:
    def test_finishes_every_cell(self, watched):
        out, code, stdout, stderr, _ = watched
        assert code == 0, stderr
        assert "4 finished" in stdout and open_sweep(out).counts == {"finished": 4}
        assert "Traceback" not in stderr and "4 runs\n  gamma: 0.3 0.5\n  seed: 0 1" in stderr

    def test_listens_on_the_loopback_interface_alone(self, watched):
        assert watched[4] == {"127.0.0.1"}

    def test_gives_the_bits_of_the_serial_engine(self, watched, serial):
        theirs = {(c.fields["gamma"], c.fields["seed"]): c for c in serial}
        ours = {(c.fields["gamma"], c.fields["seed"]): c for c in open_sweep(watched[0])}
        for place, cell in ours.items():
            weights, expected = (load_checkpoint(c.path / "ckpt.pt").weights for c in (cell, theirs[place]))
            assert all((weights[name] == expected[name]).all() for name in expected)


def end(process):
    """Leave nothing running."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()  # and close its pipes


@contextlib.contextmanager
def running(*command):
    """A process of Dask's own, from its command line."""
    process = subprocess.Popen(
        [sys.executable, "-m", *map(str, command)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        end(process)


@pytest.mark.slow
def test_a_cluster_whose_scheduler_is_restarted(tmp_path, serial):
    """The scheduler is killed in the middle of a sweep; its workers end, others take their place."""
    out, file, port = tmp_path / "a", tmp_path / "scheduler.json", free_port()
    scheduler = ["distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", port]
    scheduler += ["--no-dashboard", "--scheduler-file", file]
    worker = ["distributed.cli.dask_worker", "--nthreads", 1, "--scheduler-file", file, "--no-dashboard"]
    with contextlib.ExitStack() as first:
        first.enter_context(running(*scheduler))
        wait_for(file.exists)
        first.enter_context(running(*worker, "--host", "127.0.0.1"))
        process = start("sweep", "--engine", f"tcp://127.0.0.1:{port}", "--out", out, *flags(AXES))
        first.callback(lambda: process.poll() is None or end(process))
        wait_for(lambda: finished(out))
        before = finished(out)
    with contextlib.ExitStack() as second:
        second.callback(end, process)
        second.enter_context(running(*scheduler))
        second.enter_context(running(*worker, "--host", "127.0.0.1"))
        stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 0, stderr
    assert "4 finished" in stdout
    assert before.items() <= finished(out).items()
    same_bits(open_sweep(out), serial)


def free_port():
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (None, "no answer within 1 s"),
        (b"", "no answer within 1 s"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n" * 9, "the answer of another program"),
    ],
    ids=["nobody", "silence", "another protocol"],
)
def test_no_scheduler_at_the_address(tmp_path, monkeypatch, answer, why):
    """Nobody, a port that accepts and says nothing, and one such as that of Dask's web page."""
    import socket

    from anchorlens.extras.sweep import engines

    monkeypatch.setattr(engines, "CONNECT_SECONDS", 1)

    def answering(one):
        peer, _ = one.accept()
        with peer:
            peer.sendall(answer)
            peer.recv(1 << 20)

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        if answer is not None:
            one.listen()
        if answer:
            threading.Thread(target=answering, args=(one,), daemon=True).start()
        began = time.monotonic()
        with pytest.raises(EngineError, match=f"a Dask scheduler must answer at.*{why}"):
            sweep(tiny({"seed": [0]}), tmp_path / "a", engine=f"tcp://127.0.0.1:{one.getsockname()[1]}")
        assert time.monotonic() - began < 60  # without end before
    assert open_sweep(tmp_path / "a").counts == {"missing": 1}


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        (["cpu"], (0, False)),
        (["auto", "cpu"], (2, True)),
        (["cuda"], (2, True)),
        (["cuda:1"], (1, False)),  # a worker that sees one GPU alone calls it cuda:0
        (["cuda:0", "cuda:1", "cuda:1"], (2, False)),
    ],
)
def test_the_gpus_of_a_machine_with_two(monkeypatch, devices, expected):
    from anchorlens.extras.sweep.clusters import gpus_for

    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert gpus_for([tiny({"seed": [0]}, device=device)[0] for device in devices]) == expected


def test_each_worker_sees_the_gpu_of_its_number(monkeypatch):
    from types import SimpleNamespace

    from anchorlens.extras.sweep.clusters import OneGPU

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    plugin = OneGPU(2)
    for name, seen in ((0, "4"), (1, "6"), (2, "4")):
        plugin.setup(SimpleNamespace(name=name))
        assert os.environ["CUDA_VISIBLE_DEVICES"] == seen


@pytest.mark.parametrize("method", ["__enter__", "__exit__"])
def test_a_cluster_that_does_not_answer_in_time_is_an_engine_that_broke(tmp_path, monkeypatch, method):
    """Dask's TimeoutErrors, of its start and its end too, are no errors of a file."""
    from anchorlens.extras.sweep import engines, run

    class Late(InThisProcess):
        pass

    def late(*arguments):
        raise TimeoutError

    setattr(Late, method, late)
    monkeypatch.setattr(engines, "InThisProcess", Late)
    monkeypatch.setattr(run, "PAUSE_SECONDS", 0)
    runs = tiny({"seed": [0]})
    if method == "__enter__":
        with pytest.raises(
            EngineError,
            match=r"'serial'.*4 failures.*TimeoutError",
        ):
            sweep(runs, tmp_path / "a", engine="serial")
        assert open_sweep(tmp_path / "a").counts == {"missing": 1}
    else:  # what is finished is finished
        assert sweep(runs, tmp_path / "a", engine="serial").counts == {"finished": 1}


@pytest.mark.slow
def test_slurm(tmp_path, serial, monkeypatch):
    """Jobs are handed to `sbatch`; here it is a script that runs them on this machine."""
    commands = tmp_path / "bin"
    commands.mkdir()
    stand_in(
        commands / "sbatch",
        f"""\
        cp "$1" {tmp_path}/job.sh
        stat -c %a {tmp_path}/a/unfinished/.tls-*{{,/key.pem}} > {tmp_path}/rights
        setsid bash {tmp_path}/job.sh > {tmp_path}/job.log 2>&1 < /dev/null &
        echo "Submitted batch job $!"
        """,
    )
    stand_in(commands / "scancel", 'kill -- -"$1" 2>/dev/null || true\n')
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    from dask import config

    job = {"cores": 1, "memory": "2GB", "processes": 1, "interface": "lo", "python": sys.executable}
    with config.set({"jobqueue.slurm": {**config.get("jobqueue.slurm", {}), **job}}):
        result = sweep(tiny(AXES), tmp_path / "a", engine="slurm", workers=1)
    script = (tmp_path / "job.sh").read_text()
    assert "#SBATCH" in script and "export PYTHONSAFEPATH=1" in script
    assert " tls://" in script and "--tls-key" in script, "anybody in the network would be heard"
    assert (tmp_path / "rights").read_text() == "700\n600\n"
    assert not list((tmp_path / "a").rglob("key.pem"))
    same_bits(result, serial)


def stand_in(path, script):
    path.write_text("#!/bin/bash\n" + textwrap.dedent(script))
    path.chmod(0o755)


@pytest.mark.slow
def test_a_full_disk_stops_the_sweep_and_loses_nothing(tmp_path):
    """On a file system of 1 MB of its own, which only a user with namespaces may make."""
    disk = tmp_path / "disk"
    disk.mkdir()
    given = " ".join(flags({"seed": "0:16"}, steps=2))
    script = f"""
        mount -t tmpfs -o size=1m tmpfs {disk} || exit 77
        {sys.executable} -m anchorlens sweep --engine serial --out {disk}/a {given}
        echo "code $?"; ls {disk}/a/cells
        cp -r {disk}/a {tmp_path}/kept
    """
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare")
    done = subprocess.run(["unshare", "-rm", "bash", "-c", script], capture_output=True, text=True, cwd=ROOT)
    if "code" not in done.stdout:
        pytest.skip(f"this user may not mount a file system: {done.stderr.strip()[:80]}")
    assert "code 1" in done.stdout and "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    kept = open_sweep(tmp_path / "kept")
    n_finished = kept.counts["finished"]
    assert 0 < n_finished < 16 and set(kept.counts) == {"finished", "missing"}
    before = finished(kept.out)
    assert sweep([c.run for c in kept], kept.out, engine="serial").counts == {"finished": 16}
    assert before.items() <= finished(kept.out).items()


@pytest.mark.slow
def test_a_script_without_a_main_guard_is_told(tmp_path):
    """Its workers import it, and each would start the sweep again."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys; sys.path.insert(0, 'tests')\n"
        "from sweeping import tiny\nfrom anchorlens.extras.sweep import sweep\n"
        f"sweep(tiny({{'seed': [0]}}), {str(tmp_path / 'a')!r}, engine='local', workers=1)\n"
    )
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, cwd=ROOT, timeout=120, env=os.environ
    )
    assert done.returncode and "if __name__ == '__main__'" in done.stderr


@pytest.mark.slow
def test_a_cell_that_kills_its_workers_is_recorded(tmp_path):
    """Whatever process trains the second of three cells is killed on sight."""
    runs = tiny({"seed": "0:3"}, steps=400)
    folder = SweepFolder(tmp_path / "a")
    from anchorlens.extras.sweep.cells import cell_id

    poison = folder.unfinished(cell_id(runs[1]))
    stop = threading.Event()

    def kill():
        while not stop.wait(0.02):
            for worker in workers_of(os.getpid()):
                with contextlib.suppress(psutil.Error):
                    if any(file.path.startswith(str(poison) + "/") for file in worker.open_files()):
                        worker.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        result = sweep(runs, folder.out, engine="local", workers=2)
    finally:
        stop.set()
        killer.join()
    assert [cell.status for cell in result] == ["finished", "failed", "finished"]
    assert "every process that trained it was killed" in result.cells[1].error


@pytest.mark.slow
def test_twenty_random_kills_lose_no_finished_cell_and_repeat_none(tmp_path):
    """A sweep of 60 cells: workers killed at random, and every fifth time the whole command, begun again."""
    import random

    random = random.Random(6)
    out = tmp_path / "a"
    command = [
        "sweep",
        "--engine",
        "local",
        "--workers",
        2,
        "--out",
        out,
        *flags({"seed": "0:60"}, steps=300),
    ]
    process, seen, kills = start(*command), {}, 0
    try:
        while process.poll() is None or len(finished(out)) < 60:
            deadline = time.monotonic() + random.uniform(2, 9)
            while time.monotonic() < deadline and process.poll() is None:
                now = finished(out)
                assert seen.items() <= now.items(), "a finished cell was lost or trained again"
                seen = now
                time.sleep(0.05)
            if process.poll() is not None:
                assert process.returncode == 0 or len(seen) < 60, process.communicate()
                if len(seen) < 60:
                    end(process)
                    process = start(*command)
                continue
            workers = workers_of(process.pid)
            if kills >= 20 or not workers:
                continue
            kills += 1
            if kills % 5 == 0:
                end(process)
                process = start(*command)
            else:
                with contextlib.suppress(psutil.Error):
                    random.choice(workers).kill()
    finally:
        end(process)
    assert kills == 20
    assert seen.items() <= finished(out).items() and open_sweep(out).counts == {"finished": 60}
