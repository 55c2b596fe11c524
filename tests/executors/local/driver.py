"""What these tests share: an executor that is driven until something has been reported, and looks at /proc."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar, cast

from resile.executors.contract import Ended, Launch, Report, Started
from resile.executors.fence import Fence
from resile.executors.local import processes, recovery
from resile.executors.local.executor import LocalExecutor
from resile.executors.local.prestart import Prestarted
from resile.executors.local.shared_records import profile_of, widen

DEADLINE_SECONDS = 30.0
# The variable that says which form of an executor is tested; engines in other processes see it, too.
FORM = "TESTED_FORM"
T = TypeVar("T")
# Words before a command that is to run as a user whose processes are limited: not as root, for whom the kernel has no
# limit. Nothing else runs as this user, who keeps the one privilege to use the folders of the tests.
USER = 60_000 + os.getpid() % 5_000
_PRIVILEGE = "-all,+dac_override"
_SETPRIV = f"setpriv --reuid {USER} --clear-groups --inh-caps {_PRIVILEGE} --ambient-caps {_PRIVILEGE}"
DROP = f"{_SETPRIV} --bounding-set {_PRIVILEGE} --".split() if os.geteuid() == 0 else []


def _form() -> type[LocalExecutor]:
    """The executor of a run that stands alone; in tests of the other form what a server gives each of its runs."""
    if os.environ.get(FORM) != "shared":
        return LocalExecutor
    from tests.executors.shared.form import SharedForm

    return cast("type[LocalExecutor]", SharedForm)


def launcher_folder(folder: Path) -> Path:
    """The folder of the launcher's records: below that of the run, or of the server."""
    if os.environ.get(FORM) != "shared":
        return folder / "launcher"
    return wait_for(lambda: next(folder.glob("server/servers/*/launcher"), None))


def number_of(job: int) -> int:
    """The number of a job in the records of the launcher: its own, or the one that it has in a server."""
    return widen(profile_of(1, 1), job) if os.environ.get(FORM) == "shared" else job


class Driver:
    """An executor and everything that it has reported."""

    def __init__(
        self,
        folder: Path,
        slots: int = 2,
        secrets: tuple[bytes, ...] = (),
        label: str = "1:1",
        clock_offset: float = 0.0,
        directory: Path | None = None,
        confirm: Callable[[], None] = lambda: None,
        fence: Fence | None = None,
        launcher: Prestarted | None = None,
        kind: type[LocalExecutor] | None = None,
    ) -> None:
        self.folder = str(folder)
        self.executor = (kind or _form())(
            self.folder,
            slots=slots,
            label=label,
            base_env=dict(os.environb),
            directory=os.fsencode(directory or folder),
            fence=fence or Fence(self.folder, time.time_ns() // 1000, confirm),
            secrets=secrets,
            launcher=launcher,
            clock_offset=clock_offset,
        )
        self.reports: list[Report] = []

    def until(self, enough: Callable[[list[Report]], bool]) -> list[Report]:
        """Take reports until there are enough; all of them so far."""
        poll = select.poll()
        poll.register(self.executor.fileno(), select.POLLIN)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not enough(self.reports):
            left = deadline - time.monotonic()
            assert left > 0, f"still waiting, with {self.reports}"
            poll.poll(left * 1000)
            for report in self.executor.reports():
                if isinstance(report, Ended) and report.pid:
                    # One report for both: these tests look at each by itself.
                    self.reports.append(Started(report.job, report.attempt, report.started_at, report.pid, report.log))
                self.reports.append(report)
        return self.reports

    def until_count(self, kind: type[Report], count: int) -> list[Report]:
        """Take reports until so many of a kind have come; those of that kind."""
        self.until(lambda reports: sum(isinstance(report, kind) for report in reports) >= count)
        return [report for report in self.reports if isinstance(report, kind)]

    def run(self, *launches: Launch) -> dict[int, Ended]:
        """Run attempts to their ends, by job."""
        self.executor.start(launches)
        jobs = {launch.job for launch in launches}
        self.until(lambda reports: jobs <= {report.job for report in reports if isinstance(report, Ended)})
        return {report.job: report for report in self.reports if isinstance(report, Ended)}

    def shell(self, text: str, job: int = 1, timeout_seconds: float = 0.0, grace_seconds: float = 10.0) -> Ended:
        """Run one shell command to its end."""
        return self.run(sh(job, text, timeout_seconds, grace_seconds))[job]

    def started(self, job: int) -> Started:
        """Wait for the start of a job's attempt."""
        self.until(lambda reports: any(isinstance(report, Started) and report.job == job for report in reports))
        return next(report for report in self.reports if isinstance(report, Started) and report.job == job)

    def out(self, ended: Ended) -> bytes:
        """What an attempt wrote to stdout."""
        return self.executor.read_output(ended.log, "out")

    def err(self, ended: Ended) -> bytes:
        """What an attempt wrote to stderr."""
        return self.executor.read_output(ended.log, "err")

    def launcher_pid(self) -> int:
        """The process of the launcher, as its spool names it."""
        spool = wait_for(lambda: next(Path(self.folder).rglob("launcher/*.spool"), None))
        author = wait_for(lambda: recovery.read_spool(str(spool))[0])
        assert author is not None
        return author.pid


def sh(job: int, text: str, timeout_seconds: float = 0.0, grace_seconds: float = 10.0, attempt: int = 1) -> Launch:
    """An attempt that runs a shell command."""
    argv = (b"sh", b"-c", text.encode())
    return Launch(job, attempt, argv, timeout_seconds=timeout_seconds, grace_seconds=grace_seconds)


def wait_for(look: Callable[[], T | None], seconds: float = DEADLINE_SECONDS) -> T:
    """Look again and again until there is something; for facts that no descriptor tells of."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, "it never came"
        select.select([], [], [], 0.002)


def lives(pid: int) -> bool:
    """Is there a living process of this number?"""
    entry = processes.read_process(pid)
    return entry is not None and entry.alive


def wait_until_gone(pid: int) -> None:
    """Wait until a process has ended."""
    wait_for(lambda: not lives(pid))


def read_pid(path: Path) -> int:
    """A pid that a command wrote to a file, once it is there."""
    return int(wait_for(lambda: path.exists() and path.read_text().strip()) or "0")


@contextmanager
def driving(folder: Path, slots: int = 2, secrets: tuple[bytes, ...] = (), label: str = "1:1") -> Iterator[Driver]:
    """A driver whose attempts are all over when the test is."""
    driver = Driver(folder, slots, secrets, label)
    try:
        yield driver
    finally:
        driver.executor.close()
