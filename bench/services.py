"""Servers that are measured: ours and a bare Starlette route, with their CPU time and memory from /proc.

They listen on loopback, and end when the block that started them ends.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.cases import Bench, environment
from bench.measure import CommandFailed

READY_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 60.0
API = "/api/v1"

_BARE = """
import socket, sys
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

async def answer(request):
    return JSONResponse(DOCUMENT)

DOCUMENT = __import__("json").load(open(sys.argv[1]))
app = Starlette(routes=[Route("/healthz", answer), Route("/api/v1/runs/{run:int}", answer)])
listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
listener.bind(("127.0.0.1", 0))
listener.listen(64)
print(f"listening on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
settings = {"ws": "none", "lifespan": "off", "log_config": None, "access_log": False, "timeout_keep_alive": 60}
config = uvicorn.Config(app, loop="asyncio", http="httptools", **settings)
uvicorn.Server(config).run([listener])
"""


class Service(NamedTuple):
    """A server process that listens, and how long it took until it said so."""

    pid: int
    port: int
    started_seconds: float

    def connect(self) -> http.client.HTTPConnection:
        """A connection that is kept alive."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=READY_SECONDS_MAX)

    def rss_bytes(self) -> int:
        """The memory of the process now."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def cpu_seconds(self) -> float:
        """The CPU time of the process so far, without that of its children."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def resile_server(bench: Bench, slots: int = 2) -> Iterator[Service]:
    """Our server on the database of the benchmark."""
    words = [bench.resile, "server", "--port", "0", "--slots", str(slots)]
    with _service(words, bench.folder) as service:
        yield service


@contextmanager
def bare_server(bench: Bench, document: object) -> Iterator[Service]:
    """A Starlette route under uvicorn that answers with this JSON, and does nothing else."""
    (bench.folder / "bare.py").write_text(_BARE)
    (bench.folder / "document.json").write_text(json.dumps(document))
    with _service([sys.executable, "bare.py", "document.json"], bench.folder) as service:
        yield service


@contextmanager
def _service(words: Sequence[str], folder: Path) -> Iterator[Service]:
    environ = {**os.environ, **environment(folder)}
    begin = time.perf_counter()
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(
            words, cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        started_seconds = time.perf_counter() - begin
        found = re.fullmatch(r"listening on http://127\.0\.0\.1:(\d+)\n", line)
        if found is None:
            raise CommandFailed(f"{' '.join(words[:2])} does not listen\n{(folder / 'server.log').read_text()[-2000:]}")
        yield Service(process.pid, int(found[1]), started_seconds)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def wait_ready(service: Service) -> None:
    """Wait until our server has loaded everything and drives runs."""
    deadline = time.monotonic() + READY_SECONDS_MAX
    while time.monotonic() < deadline:
        connection = service.connect()
        try:
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        finally:
            connection.close()
        time.sleep(0.05)
    raise CommandFailed("the server is not ready")


def get(connection: http.client.HTTPConnection, path: str) -> bytes:
    """One request on a connection that stays open."""
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read()
    if response.status != 200:
        raise CommandFailed(f"GET {path}: {response.status} {body[:300]!r}")
    return body


def submit(connection: http.client.HTTPConnection, text: str) -> int:
    """Start a run; its number."""
    connection.request("POST", f"{API}/runs", json.dumps({"text": text}), {"Content-Type": "application/json"})
    response = connection.getresponse()
    body = response.read()
    if response.status != 201:
        raise CommandFailed(f"POST /runs: {response.status} {body[:300]!r}")
    return int(json.loads(body)["run"])


def wait_for_runs(connection: http.client.HTTPConnection, status: str, count: int, seconds_max: float) -> None:
    """Wait until so many runs have this status, by the server's own figures."""
    deadline = time.monotonic() + seconds_max
    wanted = f'resile_runs{{status="{status}"}} {float(count)}'.encode()
    while wanted not in get(connection, "/metrics").splitlines():
        if time.monotonic() > deadline:
            raise CommandFailed(f"no {count} runs are {status} after {seconds_max:g} s")
        time.sleep(0.05)
