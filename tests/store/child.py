"""Another process at the same store: a program with a few verbs, and the handle by which a test runs it.

hold PATH RUN    take the lease, say its pid, keep it until stdin ends
race PATH RUN    open the store, say "ready", on a line of stdin ask for the lease, say "won" or "held"
write PATH RUN   take the lease and write batch after batch, saying the ticket of each once it is durable
open PATH        on a line of stdin open (and make) the store, say its runs
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import IO

from resile.store.contract import AttemptRow
from resile.store.errors import LeaseHeld
from resile.store.lease import boot_seconds
from resile.store.sqlite.store import SqliteStore
from tests.store.samples import WAIT_SECONDS_MAX, batch, entry, job, wait_for

ROOT = Path(__file__).parent.parent.parent
TICKETS_MAX = 100_000


class Child:
    """A process of this program; killed when the test is done with it."""

    def __init__(self, *words: str) -> None:
        env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.store.child", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
            text=True,
            bufsize=1,
        )

    def __enter__(self) -> Child:
        """The handle itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Leave no process behind."""
        self.kill()
        self.pipe("stdin").close()
        self.pipe("stdout").close()

    def pipe(self, name: str) -> IO[str]:
        """One of the process's pipes."""
        found: IO[str] = getattr(self.process, name)
        return found

    def line(self) -> str:
        """The next line it says, waited for with a deadline."""
        out = self.pipe("stdout")
        assert select.select([out], [], [], WAIT_SECONDS_MAX)[0], "the child says nothing"
        return out.readline().strip()

    def go(self) -> None:
        """Let it go on."""
        self.pipe("stdin").write("go\n")
        self.pipe("stdin").flush()

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self.process.kill()
        self.process.wait()


def say(text: object) -> None:
    """One line to the parent."""
    print(text, flush=True)


def hold(path: str, run: int) -> None:
    """Keep the lease of a run."""
    store = SqliteStore(path)
    store.acquire_lease(run, boot_seconds(), 3600.0)
    say(os.getpid())
    sys.stdin.read()


def race(path: str, run: int) -> None:
    """Ask for the lease together with others, and stay alive until told."""
    store = SqliteStore(path)
    say("ready")
    sys.stdin.readline()
    try:
        store.acquire_lease(run, boot_seconds(), 3600.0)
        say("won")
    except LeaseHeld:
        say("held")
    sys.stdin.read()


def write(path: str, run: int) -> None:
    """Write without end; batch n has entry n, job n and attempt n, and job 1 counts the batches."""
    store = SqliteStore(path)
    lease = store.acquire_lease(run, boot_seconds(), 3600.0)
    writer = store.writer()
    first = len(list(store.entries(run))) + 1
    for number in range(first, first + TICKETS_MAX):
        rows = (job(1, 4, number), job(number + 1, 5, 1))
        ticket = writer.submit(batch(lease, entry(number, 1), jobs=rows, attempts=(AttemptRow(number, 1, 1),)))
        # Some batches gather, so that a kill also falls between the parts of a group.
        if number % 3 == 0:
            wait_for(writer, ticket)
            say(number)


def make(path: str) -> None:
    """Open a store together with others."""
    say("ready")
    sys.stdin.readline()
    store = SqliteStore(path)
    say(len(store.runs()))
    store.close()


def main(words: list[str]) -> None:
    """Do what the verb says."""
    verb, path = words[0], words[1]
    if verb == "open":
        make(path)
    else:
        {"hold": hold, "race": race, "write": write}[verb](path, int(words[2]))


if __name__ == "__main__":
    main(sys.argv[1:])
