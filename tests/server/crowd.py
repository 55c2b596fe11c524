"""Two hundred clients of a server, most of which behave badly.

python -m tests.server.crowd PORT RUN SECONDS     prints how many answers had which status, as JSON
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle

import msgspec

from . import flows
from .service import API

CLIENTS = 200
ANSWER_SECONDS_MAX = 60.0
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


class Crowd:
    """Clients of one server, with what it answered."""

    def __init__(self, port: int, run: int, seconds: float) -> None:
        """`run` is one that has ended; the clients go on for so many seconds."""
        self._port = port
        self._run = run
        self._until = time.monotonic() + seconds
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
        while time.monotonic() < self._until:
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


def main() -> None:
    """Be the clients of one server for a while."""
    port, run, seconds = sys.argv[1:]
    crowd = Crowd(int(port), int(run), float(seconds))
    asyncio.run(crowd.work())
    print(json.dumps(crowd.statuses))


if __name__ == "__main__":
    main()
