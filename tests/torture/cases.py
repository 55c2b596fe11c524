"""One run of one workflow with its own database: started, disturbed, resumed and looked at."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
from pathlib import Path

from tests.torture.places import Place
from tests.torture.workflows import Workflow

LEASE_SECONDS = 2.0
# Nothing waits longer than this; a command that does has hung.
SECONDS_MAX = 120.0
DESCRIPTORS = (64, 100, 256)
FAKETIME = next(map(str, Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), "")
PROGRAM = f"""
import sys
import resile.engine.neighbours.lease_keeper
resile.engine.neighbours.lease_keeper.LEASE_SECONDS = {LEASE_SECONDS}
from resile.cli.main import main
sys.exit(main())
"""


class Case:
    """A workflow and its database in a place, and the command that drives it now."""

    def __init__(self, place: Place, name: str, workflow: Workflow, chance: random.Random, machine: list[Case]) -> None:
        self.place, self.name, self.workflow, self.chance = place, name, workflow, chance
        # All cases that share the machine, this one among them.
        self.machine = machine
        machine.append(self)
        self.effects = place.outside / f"effects-{name}"
        self.counts = place.outside / f"counts-{name}"
        self.counts.mkdir()
        self.effects.touch()
        self.said = place.outside / f"said-{name}"
        self.folder = place.folder / name
        self.folder.mkdir()
        for file, text in workflow.files.items():
            (self.folder / file).write_text(text)
        os.sync()
        # Both databases of a round stand in one folder.
        self.db = place.folder / f"{name}.db"
        self.clock = place.outside / f"clock-{name}"
        self.clock.write_text("+0")
        self.env = {**os.environ, "RESILE_DB": str(self.db), "EFFECTS": str(self.effects), "COUNTS": str(self.counts)}
        self.env |= {"RESILE_OUTPUT_DIR": str(place.folder / "output")}
        self.main = next(iter(workflow.files))
        self.losses = 0
        self.begun = False
        self.process = self.start("run", self.main)

    def start(self, *words: str, descriptors: int = 0) -> subprocess.Popen[bytes]:
        """A command that goes on by itself; what it says is kept outside."""
        env = dict(self.env)
        if FAKETIME:
            env |= {"LD_PRELOAD": FAKETIME, "FAKETIME_TIMESTAMP_FILE": str(self.clock)}
            env |= {"FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        argv = self.place.command([sys.executable, "-c", PROGRAM, *words])
        limit = (descriptors, descriptors) if descriptors else resource.getrlimit(resource.RLIMIT_NOFILE)
        with self.said.open("ab") as said:
            said.write(f"--- {' '.join(words)}\n".encode())
            said.flush()
            return subprocess.Popen(
                argv,
                cwd=self.folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, limit),
            )

    def call(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        """A command to its end."""
        argv = self.place.command([sys.executable, "-c", PROGRAM, *words])
        return subprocess.run(
            argv, cwd=self.folder, env=self.env, capture_output=True, timeout=SECONDS_MAX, check=False
        )

    def go_on(self, descriptors: int = 0) -> None:
        """Start the run if it does not exist yet, else resume it."""
        self.begun = self.begun or self.exists()
        words = ("resume", "1") if self.begun else ("run", self.main)
        self.process = self.start(*words, descriptors=descriptors)

    def exists(self) -> bool:
        """Is the run in the database?"""
        return self.db.exists() and self.call("status", "1", "--json").returncode != 2

    def wait(self, seconds: float) -> bool:
        """Wait for the command that drives the run; has it ended?"""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def processes(self) -> list[int]:
        """Every process of this case, by the variable that all inherit."""
        mark = f"EFFECTS={self.effects}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if mark in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
                except OSError:
                    continue
        return found

    def signal_all(self, number: int) -> None:
        """Send a signal to every process of this case, until none appears any more."""
        seen: set[int] = set()
        while new := set(self.processes()) - seen:
            for pid in new:
                send(pid, number)
            seen |= new
        if number == signal.SIGKILL:
            self.process.wait()


def send(pid: int, number: int) -> bool:
    """Send a signal; False if the process is gone."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True
