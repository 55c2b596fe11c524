"""A server under load: many clients that behave badly, servers that die, clients that race.

The times and counts are small; RESILE_LOAD_SECONDS, RESILE_LOAD_KILL_SECONDS, RESILE_LOAD_RUNS and RESILE_LOAD_RACES
make them larger.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count, cycle
from math import ceil
from pathlib import Path
from threading import Barrier

import msgspec
import pytest

from tests.cluster import Cluster, private_cluster

from . import flows
from .service import API, Api, Server

pytestmark = pytest.mark.slow

CLIENTS = 200
LOAD_SECONDS = float(os.environ.get("RESILE_LOAD_SECONDS", "15"))
KILL_SECONDS = float(os.environ.get("RESILE_LOAD_KILL_SECONDS", "20"))
KILL_EVERY_SECONDS = 3.0
RUNS = int(os.environ.get("RESILE_LOAD_RUNS", "40"))
RACES = int(os.environ.get("RESILE_LOAD_RACES", "50"))
END_SECONDS_MAX = 120.0
ANSWER_SECONDS_MAX = 60.0
GROWTH_BYTES_MAX = 64 * 1024 * 1024
OVERSIZE_BYTES = 33 * 1024 * 1024

_HEAD = "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
_MALFORMED = (
    b"GET\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64,
    b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
    b"POST /api/v1/runs HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
    b"POST /api/v1/runs HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 7\r\n\r\nabc",
    b"GET /api/v1/runs HTTP/1.1\r\n" + b"X: " + b"y" * 100_000 + b"\r\n\r\n",
    b"POST /api/v1/runs HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
)
_BAD_BODIES = (
    b"{",
    b"[]",
    b'{"text": 7}',
    b"\xff\xfe",
    b'{"text": "resile: 1\\nsteps: ["}',
    b'{"no_such": 1}',
    b"[" * 9999,
)


class _Crowd:
    """Clients of one server, with what it answered."""

    def __init__(self, port: int, run: int) -> None:
        self._port = port
        self._run = run
        self.until = time.monotonic() + LOAD_SECONDS
        self.statuses: Counter[int] = Counter()
        self.done: Counter[str] = Counter()

    async def work(self) -> None:
        """Let all clients go on until the time is over."""
        kinds = (
            self.read,
            self.read_slowly,
            self.half_open,
            self.oversize,
            self.malformed,
            self.bad_bodies,
            self.submit,
        )
        clients = [self._repeat(kind) for _, kind in zip(range(CLIENTS), cycle(kinds), strict=False)]
        await asyncio.gather(*clients)

    async def _repeat(self, kind: Callable[..., object]) -> None:
        while time.monotonic() < self.until:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            try:
                async with asyncio.timeout(ANSWER_SECONDS_MAX):
                    await kind(reader, writer)  # type: ignore[misc]
            except ConnectionError:
                # The server may close before it has read all that a bad client sends.
                self.done["closed early"] += 1
            finally:
                writer.transport.abort()
            self.done[kind.__name__] += 1

    def _head(self, method: str, path: str, **headers: object) -> bytes:
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        return (_HEAD.format(method=method, path=path, port=self._port) + lines + "\r\n").encode()

    async def _status(self, reader: asyncio.StreamReader) -> int:
        """The status of the next answer; 0 where the server has closed. The body is read."""
        line = await reader.readline()
        if not line:
            return 0
        status = int(line.split()[1])
        self.statuses[status] += 1
        length = 0
        while (header := await reader.readline()) not in (b"\r\n", b""):
            name, _, value = header.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        await reader.readexactly(length)
        return status

    async def read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A client that asks ten things on one connection."""
        for _ in range(10):
            path = random.choice(("/runs", f"/runs/{self._run}", f"/runs/{self._run}/events", "/failures", "/nothing"))
            writer.write(self._head("GET", API + path))
            assert await self._status(reader) == (404 if path == "/nothing" else 200)

    async def read_slowly(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A client that asks for much and reads a few bytes now and then, then goes."""
        writer.write(self._head("GET", f"{API}/runs?limit=1000") * 50)
        for _ in range(5):
            assert await reader.read(16)
            await _stay_silent(0.2)

    async def half_open(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A client that begins a request, says nothing more, and vanishes."""
        head = self._head("POST", f"{API}/runs", Content_Type="application/json", Content_Length=1000)
        writer.write(head[: random.randrange(1, len(head))] if random.random() < 0.5 else head + b'{"text')
        await writer.drain()
        await _stay_silent(random.uniform(0.5, 3.0))

    async def oversize(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A body over the limit is refused before it is sent."""
        writer.write(self._head("POST", f"{API}/runs", Content_Type="application/json", Content_Length=OVERSIZE_BYTES))
        assert await self._status(reader) == 413
        await _stay_silent(0.5)

    async def malformed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """What is no request is refused as the client's fault, or closed, or waited for."""
        writer.write(random.choice(_MALFORMED))
        writer.write_eof()
        assert await self._status(reader) in (0, 400, 421, 431)

    async def bad_bodies(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Bodies that are no run are refused."""
        for body in _BAD_BODIES:
            head = self._head("POST", f"{API}/runs", Content_Type="application/json", Content_Length=len(body))
            writer.write(head + body)
            assert await self._status(reader) in (400, 422)

    async def submit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A good client among them starts a run now and then."""
        body = msgspec.json.encode({"text": flows.HELLO})
        head = self._head("POST", f"{API}/runs", Content_Type="application/json", Content_Length=len(body))
        writer.write(head + body)
        assert await self._status(reader) == 201
        await _stay_silent(2.0)


async def _stay_silent(seconds: float) -> None:
    """Hold the connection for a while, as a slow client does."""
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), seconds)


def _rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _statuses(api: Api) -> Counter[str]:
    """How many runs have which status."""
    found: Counter[str] = Counter()
    cursor = ""
    while True:
        page = api.get(f"/runs?limit=1000{cursor}").json
        found.update(one["status"] for one in page["items"])
        if page["next_cursor"] is None:
            return found
        cursor = f"&cursor={page['next_cursor']}"


def _wait_for_all(api: Callable[[], Api], runs: int) -> Counter[str]:
    """Wait until all runs have ended; how."""
    deadline = time.monotonic() + END_SECONDS_MAX
    while True:
        found = _statuses(api())
        if sum(found.values()) == runs and not found.keys() & {"running", "parked", "pending"}:
            return found
        assert time.monotonic() < deadline, found
        api().call("GET", "/healthz")


def test_bad_clients_disturb_neither_the_server_nor_its_runs(serve: Callable[..., Server]) -> None:
    """No answer is the server's fault, memory does not grow, and every run that was accepted ends."""
    server = serve()
    first = server.api.finish(flows.HELLO)
    warm = _Crowd(server.port, first)
    warm.until = time.monotonic() + LOAD_SECONDS / 3
    asyncio.run(warm.work())
    before = _rss_bytes(server.process.pid)
    crowd = _Crowd(server.port, first)
    asyncio.run(crowd.work())
    assert not [status for status in crowd.statuses | warm.statuses if status >= 500], crowd.statuses
    assert min(crowd.done[kind] for kind in ("read", "read_slowly", "half_open", "oversize", "malformed")) > 0
    accepted = 1 + warm.statuses[201] + crowd.statuses[201]
    assert _wait_for_all(lambda: server.api, accepted) == {"completed": accepted}
    assert _rss_bytes(server.process.pid) - before < GROWTH_BYTES_MAX
    assert "Traceback" not in server.log()
    assert server.stop() == 0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL for these tests."""
    with private_cluster() as made:
        yield made


EFFECTS = """
resile: 1
name: effects
inputs: {file: {type: text, required: true}}
steps:
  a: {shell: 'echo "$RESILE_WORKFLOW_ID a $RESILE_ATTEMPT_ID" >> "$FILE"', env: {FILE: "${inputs.file}"}}
  b:
    shell: sleep 0.5; echo "$RESILE_WORKFLOW_ID b $RESILE_ATTEMPT_ID" >> "$FILE"
    env: {FILE: "${inputs.file}"}
    needs: [a]
"""


def test_servers_that_are_killed_lose_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """Each attempt has its effect once, or is lost and answered by another; every run ends, and the tables agree."""
    effects = tmp_path / "effects"
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()

    def start(number: int) -> Server:
        return Server(folders[number], db=cluster.url("load"))

    servers = [start(0), start(1)]
    try:
        begin = time.monotonic()
        submitted, turns = 0, count(1)
        while submitted < RUNS or time.monotonic() < begin + KILL_SECONDS:
            killed = next(turns) % 2
            pause_until = time.monotonic() + KILL_EVERY_SECONDS
            # So many in each turn that steps run whenever a server is killed.
            for number in range(submitted, min(RUNS, submitted + ceil(RUNS * KILL_EVERY_SECONDS / KILL_SECONDS))):
                assert servers[number % 2].api.start(EFFECTS, inputs={"file": str(effects)}) == number + 1
                submitted = number + 1
            while time.monotonic() < pause_until:
                assert servers[1 - killed].api.get("/runs?limit=10").status == 200
            servers[killed].process.kill()
            servers[killed].close()
            servers[killed] = start(killed)
        assert _wait_for_all(lambda: servers[0].api, RUNS) == {"completed": RUNS}
        _judge_effects(servers[0], effects.read_text().splitlines())
        servers[0].resile("db", "check")
    finally:
        for server in servers:
            server.close()


def _judge_effects(server: Server, lines: list[str]) -> None:
    """Every effect is of one attempt; a job with several has lost all but the last."""
    assert {line: times for line, times in Counter(lines).items() if times > 1} == {}
    told: set[str] = set()
    for run in range(1, RUNS + 1):
        for number, name in ((1, "a"), (2, "b")):
            history = server.api.get(f"/runs/{run}/jobs/{number}").json["history"]
            told |= {f"{run} {name} {one['attempt']}" for one in history}
            last = history[-1]
            assert last["exit_code"] == 0
            assert f"{run} {name} {last['attempt']}" in lines
            assert all(one["exit_code"] is None for one in history[:-1]), history
    assert set(lines) <= told


def test_of_two_that_race_for_a_retry_one_wins(serve: Callable[..., Server]) -> None:
    """Every time: the other learns that no retry is left."""
    server = serve()
    text = flows.FAILS
    run = server.api.finish(text)
    key = run * 2**32 + 1
    barrier = Barrier(2)

    def retry(limit: int) -> int:
        """Ask at the same time as the other."""
        barrier.wait(ANSWER_SECONDS_MAX)
        return server.api.post(f"/jobs/{key}/retry/1?max_retries={limit}").status

    with ThreadPoolExecutor(2) as pool:
        for attempts in range(1, RACES + 1):
            assert sorted(pool.map(retry, (attempts + 1,) * 2)) == [200, 422]
            _wait_until_failed(server.api, run, attempts + 1)
    assert len(server.api.get(f"/runs/{run}/jobs/1").json["history"]) == RACES + 1


def _wait_until_failed(api: Api, run: int, attempts: int) -> None:
    """Wait until a run has ended again, after so many attempts of its first job."""
    deadline = time.monotonic() + END_SECONDS_MAX
    while True:
        document = api.get(f"/runs/{run}").json
        if document["status"] == "failed" and document["jobs"][0]["attempts"] == attempts:
            return
        assert time.monotonic() < deadline, document
