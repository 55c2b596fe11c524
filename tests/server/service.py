"""A server process in a folder of its own, and requests to it by the standard library."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.cli.program import SOURCES

DEADLINE_SECONDS = 60.0
API = "/api/v1"
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?Z?)?|\d\d:\d\d:\d\d|\b\d+(\.\d+)? (ms|s)\b")
_NUMBERS = re.compile(r'"(duration_seconds|seconds|repair_seconds)":[\d.]+')


class Answer:
    """The answer to a request."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        """The document in the body."""
        return msgspec.json.decode(self.body)

    @property
    def code(self) -> str:
        """The code of a problem; its form is checked by the way."""
        assert self.headers["content-type"] == "application/problem+json", self.body
        problem = self.json
        assert (problem["status"], problem["type"]) == (self.status, f"urn:resile:problem:{problem['code']}")
        assert problem["title"]
        assert problem["detail"]
        return str(problem["code"])


class Api:
    """Sends requests to one server, as one caller."""

    def __init__(self, port: int, token: str = "") -> None:
        self.port = port
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self.port}"

    def call(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        """Send one request; a body that is no bytes is sent as JSON. Underscores in names of headers are dashes."""
        with self.open(method, path, body, **headers) as response:
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())

    @contextmanager
    def open(self, method: str, path: str, body: object = None, **headers: str) -> Iterator[http.client.HTTPResponse]:
        """Send one request, and read its answer step by step."""
        given = {**self._headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        data = body if isinstance(body, bytes) or body is None else msgspec.json.encode(body)
        if data is not None and not any(name.lower() == "content-type" for name in given):
            given["Content-Type"] = "application/json"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_SECONDS)
        try:
            connection.request(method, path, data, given)
            yield connection.getresponse()
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        """Read something below the base path."""
        return self.call("GET", API + path, **headers)

    def post(self, path: str, body: object = None, **headers: str) -> Answer:
        """Change something below the base path."""
        return self.call("POST", API + path, body, **headers)

    def start(self, text: str, **more: object) -> int:
        """Start a run; its number."""
        answer = self.post("/runs", {"text": text, **more})
        assert answer.status == 201, answer.body
        return int(answer.json["run"])

    def events(self, path: str, **headers: str) -> Iterator[dict[str, Any]]:
        """The events of a stream as they come: their `id`, `event` and `data`."""
        with self.open("GET", API + path, **headers) as response:
            assert response.status == 200, response.read()
            assert response.headers["content-type"].startswith("text/event-stream")
            found: dict[str, Any] = {}
            for line in response:
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if not name and found:
                    yield found
                    found = {}
                elif name:
                    found[name] = msgspec.json.decode(value) if name == "data" else value

    def wait_for(self, run: int, *kinds: str) -> dict[str, Any]:
        """The first event of one of these types; without any the last event of the run."""
        last: dict[str, Any] = {}
        for event in self.events(f"/runs/{run}/events/stream"):
            last = event
            if event["event"] in kinds:
                return event
        assert not kinds, f"run {run} ended without {kinds}"
        return last

    def finish(self, text: str, **more: object) -> int:
        """Start a run and wait for its end; its number."""
        run = self.start(text, **more)
        self.wait_for(run)
        return run


class Server:
    """A server process."""

    def __init__(self, folder: Path, *options: str, db: str = "", **env: str) -> None:
        self.folder = folder
        self.db = db or str(folder / "resile.db")
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("RESILE_")}
        self.env |= {"PYTHONPATH": SOURCES, "XDG_STATE_HOME": str(folder / "state"), **env}
        self._log = open(folder / "server.log", "ab")  # noqa: SIM115
        argv = [*self.argv("server"), "--port", "0", "--json", *options]
        self.process = subprocess.Popen(
            argv, cwd=folder, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._log
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log()
        self.said = msgspec.json.decode(line)
        self.port = int(self.said["url"].rpartition(":")[2])
        self.api = Api(self.port)

    def argv(self, *words: str) -> list[str]:
        """The command line of a command on the same database."""
        return [sys.executable, "-m", "resile.cli.main", *words, "--db", self.db]

    def resile(self, *words: str, code: int = 0) -> str:
        """Run a command on the same database; what it prints."""
        done = subprocess.run(
            self.argv(*words), cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=DEADLINE_SECONDS
        )
        assert done.returncode == code, done
        return done.stdout

    def token(self, name: str, role: str, *options: str) -> str:
        """Make a token; its secret."""
        made = msgspec.json.decode(self.resile("token", "create", name, "--role", role, *options, "--json"))
        return str(made["secret"])

    def log(self) -> str:
        """What the server has logged so far."""
        return (self.folder / "server.log").read_text()

    def stop(self) -> int:
        """Ask the server to stop; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE_SECONDS)

    def close(self) -> None:
        """End the process, however it is."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(DEADLINE_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._log.close()


class Caller:
    """Runs commands, on the database of a server or through it."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def call(self, *words: str, remote: bool, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        """Run one command in the folder of the server."""
        place = {"RESILE_SERVER": self.server.api.url} if remote else {"RESILE_DB": self.server.db}
        return subprocess.run(
            [sys.executable, "-m", "resile.cli.main", *words],
            cwd=self.server.folder,
            env={**self.server.env, **place, **env},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=DEADLINE_SECONDS,
        )

    def remote(self, *words: str, code: int = 0, **env: str) -> str:
        """What a command prints through the server."""
        done = self.call(*words, remote=True, **env)
        assert done.returncode == code, done
        return done.stdout

    def file(self, name: str, text: str) -> str:
        """Write a file into the folder."""
        (self.server.folder / name).write_text(text)
        return name


def masked(text: str) -> str:
    """A text without what differs from second to second."""
    return _NUMBERS.sub(r'"\1":0', _TIME.sub("TIME", text))
