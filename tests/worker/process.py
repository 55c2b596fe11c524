"""A worker process in a folder of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.executors.local.driver import wait_for
from tests.server.service import DEADLINE_SECONDS, Api, Server


class WorkerProcess:
    """One worker of a server."""

    def __init__(self, folder: Path, server: Server, name: str, *options: str, **env: str) -> None:
        self.name = name
        self.api = server.api
        self.folder = folder / name
        self._log = open(folder / f"{name}.log", "ab")  # noqa: SIM115
        argv = [sys.executable, "-m", "resile.cli.main", "worker", "--server", server.api.url, "--name", name]
        self.process = subprocess.Popen(
            [*argv, "--directory", str(self.folder), *options],
            cwd=folder,
            env={**server.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )

    def log(self) -> str:
        """What it has said so far."""
        return Path(self._log.name).read_text()

    def document(self, api: Api | None = None) -> dict[str, Any]:
        """What the server says of it; empty where it does not know it."""
        listed = (api or self.api).get("/workers").json["items"]
        return next((one for one in listed if one["name"] == self.name), {})

    def wait_until_known(self, api: Api | None = None) -> None:
        """Wait until the server lists it as active."""
        wait_for(lambda: self.process.poll() is not None or self.document(api).get("status") == "active")
        assert self.process.poll() is None, self.log()

    def send(self, number: signal.Signals) -> None:
        """Send the worker a signal; its steps get none."""
        self.process.send_signal(number)

    def end(self) -> int:
        """Wait for its end; its exit code."""
        return self.process.wait(DEADLINE_SECONDS)

    def close(self) -> None:
        """End it, its launcher and its steps."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait(DEADLINE_SECONDS)
        self._log.close()
        for spool in self.folder.glob("launcher/*.spool"):
            words = spool.read_text().split("\n", 1)[0].split()
            if len(words) > 3 and _is_launcher(int(words[3])):
                os.kill(int(words[3]), signal.SIGTERM)


def _is_launcher(pid: int) -> bool:
    """Is this still the launcher, and not another process with its number?"""
    try:
        return b"launcher" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return False
