"""Runs the attempts of a worker with a launcher; only the worker's main thread uses this module.

Assignment --> entry in the book --> launcher --> start and end in the book --> the thread that reports (worker.py)
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from itertools import count

from msgspec.structs import replace

from resile.executors.contract import Adopted, Ended, Launch, Lost, Report, Returned, Started, Withdrawn
from resile.executors.fence import Fence
from resile.executors.local import processes, wire
from resile.executors.local.server_executor import ServerExecutor
from resile.executors.local.shared_records import write_down
from resile.executors.worker.book import Book, Entry
from resile.executors.worker.messages import Assignment, End, Profile, Start
from resile.executors.worker.shared_folder import attempt_folder
from resile.model.failure import LogRange
from resile.model.folders import make_folder

ATTEMPT = 1
# How long the worker keeps the settings of a run after it last used them, if it holds no attempt of the run.
PROFILE_SECONDS = 60.0


class _Known:
    """The settings of a run, and the number by which the launcher knows them."""

    def __init__(self, profile: Profile, number: int) -> None:
        self.profile = profile
        self.number = number
        self.used_at = time.monotonic()


class Runner:
    """Starts, watches and ends attempts."""

    def __init__(self, book: Book, slots: int, env: dict[bytes, bytes], shared_output: str = "") -> None:
        """`env` is the environment of all steps; a run adds its own variables.

        If `shared_output` names a folder, the launcher writes output there, where the server reads it.
        """
        self._book = book
        self._env = env
        self._shared_output = shared_output
        self._fence = Fence(book.folder, time.time_ns() // 1000, lambda: None)
        self._executor = ServerExecutor(
            book.folder,
            slots=slots,
            label="worker",
            base_env={},
            directory=b"/",
            fence=self._fence,
            clock_offset=time.time() - processes.boot_seconds(),
        )
        self._known: dict[int, _Known] = {}
        # Profile numbers in the launcher: they begin above all numbers of earlier workers in this folder.
        self._profiles = count(time.time_ns() // 1_000_000)
        self._numbers = count(1)
        # The attempts that have not ended, by the job numbers that the launcher uses.
        self.unfinished: dict[int, Entry] = {}
        self._killed: set[int] = set()
        self._adopt()

    def fileno(self) -> int:
        """The descriptor that becomes readable when the launcher has a report."""
        return self._executor.fileno()

    def _adopt(self) -> None:
        """Ask the launcher for the attempts that an earlier worker in this folder left running."""
        left = [entry for entry in self._book.entries.values() if entry.end is None]
        for entry in self._book.entries.values():
            self._executor.know_folder(entry.profile, self._book.output_folder(entry))
            if entry.end is not None:
                entry.end = replace(entry.end, segment=self._segment_of(entry, entry.log))
        self._book.drop_profiles({entry.profile for entry in self._book.entries.values()})
        if left:
            self.unfinished = {entry.job: entry for entry in left}
            doubt = self._executor.records != "here"
            self._executor.find({(entry.job, ATTEMPT): doubt for entry in left})
        self._executor.drop_spooled({job for job, _ in self._executor.spooled_keys()})

    def start(self, attempts: Iterable[Assignment], profiles: Iterable[Profile]) -> None:
        """Record attempts in the book, then start them."""
        by_number = {profile.number: profile for profile in profiles}
        launches: list[Launch] = []
        entries: list[Entry] = []
        for assignment in attempts:
            known = self._use(by_number[assignment.profile])
            entry = Entry(assignment.token, known.number, next(self._numbers), assignment.share_memory_bytes)
            if self._shared_output:
                entry.profile = next(self._profiles)
                entry.shared = attempt_folder(self._shared_output, assignment.run, assignment.epoch, assignment.token)
                self._define(entry.profile, known.profile, entry.shared)
            entries.append(entry)
            launches.append(self._launch(assignment, known, entry))
        if launches:
            self._book.keep(entries)
            self.unfinished |= {entry.job: entry for entry in entries}
            self._executor.start(launches)

    def _use(self, profile: Profile) -> _Known:
        """Return the settings of a run; define them in the launcher if they are new or have changed."""
        known = self._known.get(profile.number)
        if known is None or known.profile != profile:
            known = self._known[profile.number] = _Known(profile, next(self._profiles))
            if not self._shared_output:
                folder = self._book.profile_folder(known.number)
                self._define(known.number, profile, folder)
                write_down(folder, self._book.folder, known.number)
        known.used_at = time.monotonic()
        return known

    def _define(self, number: int, profile: Profile, folder: str) -> None:
        """Define in the launcher the settings that attempts share, and the folder for their output.

        In a shared output each attempt has a folder of its own. The server does not see the launcher's records, which
        say where in a segment the output of an attempt ends; in such a folder it may take all of it.
        """
        make_folder(os.path.join(folder, wire.FOLDER))
        own = {**self._env, **dict(profile.env), b"RESILE_PYTHON": os.fsencode(sys.executable)}
        self._executor.define(
            number,
            fence=self._fence.path,
            folder=folder,
            directory=self._directory(profile),
            secrets=profile.secrets,
            env=own,
        )

    def _directory(self, profile: Profile) -> bytes:
        """The directory in which the steps of a run run on this machine."""
        if profile.own_directory and not os.path.isdir(profile.directory):
            return os.fsencode(self._book.run_folder(profile.run))
        return profile.directory

    def _launch(self, assignment: Assignment, known: _Known, entry: Entry) -> Launch:
        """Build the launch of an attempt: replace the server's paths of files and Python by those of this machine."""
        here = {
            path: self._book.write_file(assignment.token, number, content)
            for number, (path, content) in enumerate(assignment.files)
        }
        here[known.profile.python] = os.fsencode(sys.executable)
        return Launch(
            entry.job,
            ATTEMPT,
            tuple(here.get(word, word) for word in assignment.argv),
            tuple(assignment.env),
            assignment.cwd,
            assignment.timeout_seconds,
            assignment.grace_seconds,
            tuple(here.get(word, word) for word in assignment.fallback),
            memory_bytes=assignment.memory_bytes,
        )

    def kill(self, entry: Entry) -> None:
        """End an attempt, unless it has ended or the runner has already ordered its end."""
        if entry.job in self.unfinished and entry.job not in self._killed:
            self._killed.add(entry.job)
            self._executor.kill(entry.job, ATTEMPT)

    def collect(self) -> bool:
        """Read the launcher's reports; return whether there were any.

        The ends are in the book's journal before the launcher may forget them.
        """
        reports = self._executor.reports()
        ended: list[Entry] = []
        for report in reports:
            entry = self.unfinished.get(report.job)
            if entry is not None:
                self._note(entry, report)
                ended += [entry] if entry.end is not None else []
        self._book.keep(ended)
        self._executor.acknowledge()
        return bool(reports)

    def _note(self, entry: Entry, report: Report) -> None:
        """Note the launcher's report in the entry of its attempt."""
        if isinstance(report, Started | Adopted):
            entry.log = report.log
            entry.start = Start(entry.token, report.at, report.pid, self._segment_of(entry, report.log))
            return
        del self.unfinished[report.job]
        self._killed.discard(report.job)
        entry.end = _end_of(entry, report)
        if isinstance(report, Ended):
            entry.log = report.log
            entry.end = replace(entry.end, segment=self._segment_of(entry, report.log))
        if entry.shared:
            self._executor.forget(entry.profile)
        self._book.drop_files(entry.token)

    def _segment_of(self, entry: Entry, log: LogRange | None) -> str:
        """The segment that the server reads in the shared output; empty if the worker sends the output."""
        if log is None or not self._shared_output or not entry.shared.startswith(self._shared_output + "/"):
            return ""
        return os.path.basename(log.segment)

    def drop_unused(self) -> None:
        """Forget settings and output of runs without attempts here, PROFILE_SECONDS after the last one was started."""
        used = {entry.profile for entry in self._book.entries.values()}
        latest = time.monotonic() - PROFILE_SECONDS
        for number, known in list(self._known.items()):
            if known.number not in used and known.used_at < latest:
                del self._known[number]
                self._executor.forget(known.number)
        self._book.drop_profiles(used | {known.number for known in self._known.values()})

    def close(self, *, finished: bool) -> None:
        """Disconnect from the launcher; running attempts go on."""
        self._executor.close(finished=finished)


def _end_of(entry: Entry, report: Report) -> End:
    """The message to the server for an attempt that ended."""
    match report:
        case Withdrawn():
            return End(token=entry.token, kind="withdrawn", at=report.at)
        case Lost():
            return End(token=entry.token, kind="lost", at=report.at, why=report.why)
        case Ended():
            is_stopped = entry.is_stopped and not entry.is_killed and report.reason == "killed"
            return End(
                token=entry.token,
                kind="stopped" if is_stopped else "ended",
                at=report.at,
                started_at=report.started_at,
                pid=report.pid or (entry.start.pid if entry.start is not None else 0),
                wait_status=report.wait_status,
                cpu_seconds=report.cpu_seconds,
                rss_bytes_max=report.rss_bytes_max,
                out_length=report.log.out_length,
                err_length=report.log.err_length,
                reason=report.reason,
                spawn_error=report.spawn_error,
                spawn_stage=report.spawn_stage,
                oom_kills=report.oom_kills,
            )
        case Started() | Adopted() | Returned():
            raise AssertionError(report)
