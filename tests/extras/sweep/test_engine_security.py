"""Who is heard by the processes of a sweep: nobody without its certificate."""

import asyncio
import http.client
import os
import subprocess
import sys

import psutil
import pytest
from sweeping import ROOT, flags, start, tiny, wait_for

from anchorlens.extras.sweep import sweep
from anchorlens.extras.sweep.engines import EngineError, SweepEngine

pytest.importorskip("distributed", reason="needs the extra [cluster]")
from dask import config  # noqa: E402
from distributed import LocalCluster, Security  # noqa: E402
from distributed.core import connect  # noqa: E402

PAGES = (
    "/info/main/workers.html",
    "/json/counts.json",
    "/metrics",
    "/health",
    "/status",
    "/proxy/80/127.0.0.1",
)


def heard(address, security=None):
    """What kind of server answers a question; None where it does not listen to us."""

    async def ask():
        arguments = security.get_connection_args("client") if security else {}
        comm = await connect(address, timeout=3, **arguments)
        try:
            await comm.write({"op": "identity", "reply": True})
            return await asyncio.wait_for(comm.read(), 3)
        finally:
            comm.abort()

    try:
        return asyncio.run(ask())["type"]
    except OSError:  # closed, refused by TLS, or silent
        return None


def listening():
    """Ports of this process and those below it."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    connections = [one for process in processes for one in process.net_connections("inet")]
    return {c.laddr.port for c in connections if c.status == psutil.CONN_LISTEN}


def test_an_open_scheduler_hears_everybody():
    with LocalCluster(
        n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0", protocol="tcp"
    ) as open_:
        assert heard(open_.scheduler_address) == "Scheduler"


def test_a_local_sweep_hears_nobody_without_its_certificate(tmp_path):
    """The scheduler, the nanny, the worker, and the ports of their pages."""
    environment, path, ports = dict(os.environ), list(sys.path), listening()
    with SweepEngine("local", 1).executor(tiny({"seed": [0]}), tmp_path) as executor:
        assert executor.submit(os.getpid).result() != os.getpid()
        inside = executor._client.security
        ports = listening() - ports
        kinds = dict.fromkeys(ports)

        def all_have_answered():  # on a busy machine not at once
            silent = [port for port, kind in kinds.items() if kind is None]
            kinds.update({port: heard(f"tls://127.0.0.1:{port}", inside) for port in silent})
            return {"Scheduler", "Nanny", "Worker"} <= set(kinds.values())

        wait_for(all_have_answered)
        stranger = Security.temporary()
        for port, kind in kinds.items():
            if kind is None:  # of pages
                assert [page(port, name) for name in PAGES] == [404] * len(PAGES)
                continue
            assert heard(f"tcp://127.0.0.1:{port}") is None, f"{kind} hears a client without TLS"
            assert heard(f"tls://127.0.0.1:{port}", stranger) is None, f"{kind} takes another certificate"
        scratch = [folder for folder in sys.path if folder not in path]
        assert scratch and all("anchorlens-" in folder for folder in scratch)
        private = scratch[0].partition("/dask-scratch-space")[0]
        assert os.stat(private).st_mode & 0o777 == 0o700
    assert (dict(os.environ), sys.path) == (environment, path), "the caller's process has changed"
    assert not os.path.exists(private)


def page(port, name):
    """The status of a page."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", name)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Dask's configuration in a process's environment: a certificate that vouches for itself, and its key."""
    folder, made = tmp_path_factory.mktemp("tls"), Security.temporary()
    (folder / "cert.pem").write_text(made.tls_client_cert)
    (folder / "key.pem").write_text(made.tls_client_key)
    roles = ("client", "scheduler", "worker")
    of_roles = {f"{role}.{kind}": folder / f"{kind}.pem" for role in roles for kind in ("cert", "key")}
    return configuration({"ca-file": folder / "cert.pem", **of_roles})


def configuration(tls):
    """Keys of Dask's configuration -> their values."""
    return {f"distributed.comm.tls.{name}": str(path) for name, path in tls.items()}


def variables(keys):
    """Variables that set these keys of Dask's configuration."""
    return {f"DASK_{name.upper().replace('.', '__').replace('-', '_')}": keys[name] for name in keys}


@pytest.mark.slow
def test_a_cluster_that_asks_for_certificates(files, tmp_path, monkeypatch):
    from anchorlens.extras.sweep import engines, run

    file = tmp_path / "scheduler.json"
    common = ["--no-dashboard", "--protocol", "tls", "--host", "127.0.0.1", "--scheduler-file", file]
    servers = [
        subprocess.Popen(
            [sys.executable, "-m", *map(str, command)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env={**os.environ, **variables(files)},
        )
        for command in (
            ["distributed.cli.dask_scheduler", "--port", 0, *common],
            ["distributed.cli.dask_worker", "--nthreads", 1, "--no-nanny", *common],
        )
    ]
    try:
        wait_for(file.exists)
        out = tmp_path / "a"
        given = ["--engine", file, "--out", out, *flags({"seed": "0:2"}, steps=2)]
        with monkeypatch.context() as environment:
            for name, value in variables(files).items():
                environment.setenv(name, value)
            process = start("sweep", *given)
        stdout, stderr = process.communicate(timeout=300)
        assert process.returncode == 0 and "2 finished" in stdout, stderr
        process = start("sweep", *given)
        _, stderr = process.communicate(timeout=300)
        assert process.returncode == 2 and "set distributed.comm.tls.ca-file" in stderr
        monkeypatch.setattr(engines, "CONNECT_SECONDS", 2)
        monkeypatch.setattr(run, "PAUSE_SECONDS", 0)
        stranger = Security.temporary()
        other = {"ca-file": stranger.tls_ca_file}
        other |= {"client.cert": stranger.tls_client_cert, "client.key": stranger.tls_client_key}
        with (
            config.set(configuration(other)),
            pytest.raises(EngineError, match="a Dask scheduler must answer"),
        ):
            sweep(tiny({"seed": [7]}), out, engine=str(file))
        with config.set(files):
            assert sweep(tiny({"seed": [8]}), out, engine=str(file)).counts == {"finished": 1}
    finally:
        for server in servers:
            server.kill()
            server.wait()


class TestArguments:
    def refused(self, match, *arguments, **options):
        with pytest.raises(ValueError, match=match):
            SweepEngine(*arguments, **options)

    def test_certificates_where_they_are_needed(self, tmp_path):
        self.refused("must use certificates, got none.*distributed.comm.tls.ca-file", "tls://127.0.0.1:1")
        file = tmp_path / "scheduler.json"
        file.write_text('{"address": "tls://127.0.0.1:1"}')
        self.refused("the connection to tls://127.0.0.1:1 must use certificates", str(file))
        file.write_text("[]")
        self.refused("must be a scheduler file", str(file))

    def test_no_plain_connection_where_the_configuration_wants_encryption(self):
        with config.set({"distributed.comm.require-encryption": True}):
            self.refused("must use certificates, got no tls://.*require-encryption", "tcp://127.0.0.1:1")

    def test_files_that_are_no_certificates(self, tmp_path):
        (tmp_path / "a.pem").write_text("hello")
        path = tmp_path / "a.pem"
        for bad in (path, tmp_path / "none.pem"):
            with config.set(configuration({"ca-file": bad, "client.cert": path, "client.key": path})):
                self.refused("must use certificates, got an error.*PEM files", "tls://127.0.0.1:1")
        with config.set(configuration({"ca-file": path})):
            self.refused("distributed.comm.tls.client.cert", "tls://127.0.0.1:1")
