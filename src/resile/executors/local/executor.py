"""The local executor: the engine's side of the launcher (launcher/main.py), and recovery when either of them dies.

    folder/launcher/   socket, TOKEN.spool, TOKEN-SLOT-N.o, TOKEN-SLOT-N.e

An attempt is ours if this executor started it or found it running. The executor turns lines about our attempts into
reports at once, and keeps lines about others until `find` asks for them. When the launcher dies, the executor reads its
spool, kills the processes that it left, and reports running attempts as lost; the next `start` gets a new launcher. If
the launcher of an earlier engine does not answer, the executor kills it, and treats it as dead. An attempt may end
without a `Started` before it: if its start failed, or if both lines come from a spool.

A newer engine takes over the launcher. The older engine finds its connection and its fence (fence.py) closed, and ends.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from errno import EINVAL, EIO

from msgspec.structs import replace

from resile.errors import ResileError
from resile.executors.contract import Adopted, Ended, Launch, Lost, Records, Report, Withdrawn
from resile.executors.fence import Fence
from resile.executors.local import prestart, processes, recovery, wire
from resile.executors.local.greeting import RECEIVE_BYTES, dismiss, read_greeting
from resile.executors.local.launcher import system_calls
from resile.executors.local.launcher.system_calls import socket
from resile.executors.local.prestart import Prestarted
from resile.executors.local.recovery import Author, Key, SpooledAttempt
from resile.executors.local.segments import SegmentReader
from resile.executors.local.shared_records import SharedRecords, servers_of
from resile.executors.local.spool import SUFFIX
from resile.model.failure import LogRange
from resile.model.folders import make_folder

ACKNOWLEDGE_BYTES = 128 * 1024
SEND_SECONDS_MAX = 60
GREETING_SECONDS_MAX = 15.0
# Together with the greeting less than a minute: after that the executor kills a launcher that does not answer.
CONNECT_SECONDS_MAX = 30.0
CONNECT_RETRY_SECONDS = 0.01
SILENT_DEATHS_MAX = 10


class LocalExecutor(SegmentReader):
    """Attempts as processes of this machine; see the Executor contract for the methods."""

    def __init__(
        self,
        folder: str,
        *,
        slots: int,
        label: str,
        base_env: Mapping[bytes, bytes],
        directory: bytes,
        fence: Fence,
        secrets: Sequence[bytes] = (),
        launcher: Prestarted | None = None,
        clock_offset: float = 0.0,
        starts: bool = True,
        besides: Collection[str] = (),
    ) -> None:
        """Open the run with this output folder.

        `label` names run and epoch, without spaces; `launcher` comes from `prestart`. Reports have the time since the
        boot plus `clock_offset`. Without `starts` the executor only watches attempts that earlier engines left. It
        ignores the records of the servers with the folders `besides`.
        """
        super().__init__(folder)
        self._folder = os.path.join(os.path.abspath(folder), wire.FOLDER)
        self._label = label
        self._fence = fence
        self._config = (slots, clock_offset, directory, tuple(secrets), dict(base_env))
        # The frames of the profiles, for the next launcher.
        self._profiles: dict[int, bytes] = {}
        # The folders with the output of each profile, where many runs share a launcher.
        self._epoch_folders: dict[int, str] = {}
        self._socket: socket.socket | None = None
        self._token, self._inbox = "", b""
        self._received = self._reported = self._recorded = self._acknowledged = 0
        # The next result of `reports`. A start is here as the words of its line; `_start_index` says at which index.
        self._ready: list[Report | list[bytes] | None] = []
        self._start_index: dict[Key, int] = {}
        self._merged_index = 0
        self._ours: dict[Key, bool] = {}
        self._queued = 0
        self._spooled: dict[Key, SpooledAttempt] = {}
        self._dead: list[str] = []
        self._silent_deaths = 0
        self.records: Records = "none"
        # The tokens of launchers whose spool must still have every line.
        self._uncompacted: set[str] = set()
        self._is_woken = False
        self._epoll = select.epoll()
        self._wakeup_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._wakeup_fd, select.EPOLLIN)
        make_folder(self._folder)
        spools = [name for name in os.listdir(self._folder) if name.endswith(SUFFIX)]
        if spools:
            self._recover(spools)
        if servers := servers_of(folder, besides):
            self._add_shared(SharedRecords(servers))
        if self._socket is None:
            if starts:
                self._open(launcher or prestart.prestart())
        elif launcher is not None:
            launcher.socket.close()

    # --- the contract

    def fileno(self) -> int:
        return self._epoll.fileno()

    def start(self, launches: Sequence[Launch]) -> None:
        if self._socket is None:
            self._open(prestart.prestart())
        frames: list[bytes] = []
        for launch in launches:
            frame = wire.start_frame(launch)
            if frame is None:
                self._refuse(launch)
                continue
            frames.append(frame)
            self._ours[launch.job, launch.attempt] = False
            self._queued += 1
        self._send(b"".join(frames))

    def kill(self, job: int, attempt: int) -> None:
        if (job, attempt) in self._ours:
            self._send(wire.kill_frame(job, attempt))

    def find(self, attempts: Mapping[Key, bool]) -> None:
        self._receive()
        self._settle(attempts)

    def knows(self, job: int, attempt: int) -> bool:
        """Has an earlier launcher, or engine, left a record of this attempt?"""
        return (job, attempt) in self._spooled

    def lacks_end(self, job: int, attempt: int, log: LogRange) -> bool:
        spooled = self._spooled.get((job, attempt))
        token = os.path.basename(log.segment).partition("-")[0]
        return token in self._uncompacted and (spooled is None or spooled.end is None)

    def drain(self) -> None:
        self._send(wire.frame(wire.DRAIN))

    def reports(self) -> list[Report]:
        self._receive()
        reports = [wire.read_started(item) if isinstance(item, list) else item for item in self._ready if item]
        self._ready, self._start_index, self._merged_index = [], {}, 0
        self._reported = self._received
        if self._is_woken:
            self._is_woken = False
            os.eventfd_read(self._wakeup_fd)
        return reports

    def queued_count(self) -> int:
        return self._queued

    def acknowledge(self) -> None:
        self._acknowledge_to(self._reported)

    def _acknowledge_to(self, reported: int) -> None:
        """Note that the engines have recorded the first `reported` bytes of the launcher's lines."""
        self._recorded = reported
        if self._recorded - self._acknowledged >= ACKNOWLEDGE_BYTES:
            self._acknowledge()
        # Keep dead launchers' spools until the next one has its own: without any, the records would seem to be lost.
        if self._dead and not self._ready and self._socket is not None:
            for path in self._dead:
                with suppress(FileNotFoundError):
                    os.unlink(path)
            self._dead.clear()

    def close(self, *, finished: bool = False) -> None:
        if self._socket is not None:
            if finished:
                self._acknowledge(last=True)
            self._socket.close()
            self._socket = None
        self._epoll.close()
        os.close(self._wakeup_fd)
        self._fence.close()
        prestart.reap()

    # --- the connection

    def _open(self, launcher: Prestarted) -> None:
        """Write the header of a fresh launcher's spool, then configure the launcher."""
        self._fence.check()
        self._token = os.urandom(6).hex()
        path = os.path.join(self._folder, self._token + SUFFIX)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, recovery.header_line(self._author_of(launcher.pid)))
            finally:
                os.close(descriptor)
        except OSError as error:
            launcher.socket.close()
            raise ResileError("output_folder", f"can't write: {error.strerror}", where=path) from None
        self._attach(launcher.socket)
        self._configure()

    def _author_of(self, pid: int) -> Author:
        launcher = processes.read_process(pid)
        ticks = launcher.start_ticks if launcher else 0
        return Author(self._token, pid, ticks, processes.boot_id().decode(), self._label)

    def _attach(self, connection: socket.socket) -> None:
        """Use this launcher from now on."""
        import struct

        self._socket = connection
        self._inbox = b""
        self._received = self._reported = self._recorded = self._acknowledged = 0
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", SEND_SECONDS_MAX, 0))
        self._epoll.register(connection.fileno(), select.EPOLLIN)

    def _configure(self) -> None:
        """Send the launcher the settings that all attempts of the run share."""
        slots, offset, directory, secrets, base_env = self._config
        pairs = [name + b"=" + value for name, value in base_env.items()]
        fence = self._fence.number, os.fsencode(self._fence.path)
        files = self._token.encode(), os.fsencode(self._folder)
        own = wire.configure_frame(*fence, *files, slots, offset, directory, secrets, pairs)
        self._send(own + b"".join(self._profiles.values()))

    def _send(self, data: bytes) -> None:
        """Send frames. The launcher always reads, so this blocks only if the launcher was stopped."""
        if self._socket is None:
            return
        try:
            self._socket.sendall(data)
        except BlockingIOError:
            hint = "it may have been stopped (SIGSTOP); continue it, or kill it and resume the run"
            raise ResileError("launcher_stuck", "the launcher takes no orders", hint=hint) from None
        except OSError:
            # The launcher died: the next read notices that and settles its attempts.
            pass

    def _receive(self) -> None:
        """Read the lines that the launcher sent."""
        while self._socket is not None:
            try:
                data = self._socket.recv(RECEIVE_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._launcher_died()
                return
            self._take(data)
            if len(data) < RECEIVE_BYTES:
                return

    def _take(self, data: bytes) -> None:
        """Handle every complete line."""
        text = self._inbox + data
        end = text.rfind(b"\n") + 1
        self._inbox = text[end:]
        self._received += end
        for line in text[:end].splitlines():
            self._handle(line)

    def _handle(self, line: bytes) -> None:
        """Turn one line into a report if the attempt is ours, else keep it for `find`."""
        words = line.split()
        kind, key = words[0], wire.decode_attempt(words)
        started = self._ours.get(key)
        if kind == wire.BEGINS and started is not None:
            return
        if started is None:
            author = Author(self._token, 0, 0, "", self._label)
            recovery.fold([line], author, self._spooled)
            return
        if not started:
            self._queued -= 1
        match kind:
            case wire.STARTED:
                self._ours[key] = True
                self._start_index[key] = len(self._ready)
                self._ready.append(words)
            case wire.ENDED:
                del self._ours[key]
                self._ready.append(wire.read_ended(words, self._not_yet_reported(key)))
            case _:
                del self._ours[key]
                self._ready.append(wire.read_end(words))

    def _not_yet_reported(self, key: Key) -> int:
        """Merge the unreported start of an attempt into the report of its end; return its pid, or 0 if it was reported.

        If a later start was merged already, do not merge this one, because starts are reported in order.
        """
        index = self._start_index.pop(key, None)
        words = None if index is None or index < self._merged_index else self._ready[index]
        if index is None or not isinstance(words, list):
            return 0
        self._merged_index = index
        self._ready[index] = None
        return wire.decode_pid(words)

    def _acknowledge(self, last: bool = False) -> None:
        self._send(wire.acknowledge_frame(self._recorded, last))
        self._acknowledged = self._recorded

    def _refuse(self, launch: Launch) -> None:
        """Report the end of an attempt with a NUL in an argument: no process can get one."""
        now = processes.boot_seconds() + self._config[1]
        log = LogRange("")
        self._report(Ended(launch.job, launch.attempt, now, now, 0, 0.0, 0, log, "", EINVAL, "exec"))

    def _report(self, report: Report) -> None:
        self._ready.append(report)
        self._is_woken = True
        os.eventfd_write(self._wakeup_fd, 1)

    # --- deaths and resumes

    def _recover(self, spools: list[str]) -> None:
        """Connect to the launcher that still serves this folder, and read the spools of dead ones."""
        paths = sorted((os.path.join(self._folder, name) for name in spools), key=os.path.getmtime)
        authors = {path: author for path in paths if (author := recovery.read_spool(path)[0]) is not None}
        if ours := [path for path, author in authors.items() if author.label == self._label]:
            is_of_this_boot = any(authors[path].boot == processes.boot_id().decode() for path in ours)
            self.records = "here" if is_of_this_boot and not any(map(recovery.is_cut, ours)) else "former"
        living, greeted = self._connect(list(authors.values()))
        for path in paths:
            # Read again: a launcher that was alive a moment ago may have written its last lines since.
            author, lines = recovery.read_spool(path)
            if author is not None and author.label == self._label and recovery.has_all_lines(path, lines):
                self._uncompacted.add(author.token)
            if author is None or living is None or author.token != living.token:
                self._dead.append(path)
                if author is not None and author.label == self._label:
                    recovery.fold(lines, author, self._spooled)
                elif author is not None:
                    self._end_all(author, lines)
        if living is not None:
            # The living launcher last, because it has the latest state of an attempt that was started twice; then the
            # lines after its greeting.
            recovery.fold(greeted, living, self._spooled)
            self._take(b"")

    def _add_shared(self, shared: SharedRecords) -> None:
        """Add the attempts of this run that servers have started to the known ones."""
        self._spooled = {**shared.attempts, **self._spooled}
        self._uncompacted |= shared.uncompacted
        if self.records != "here" and shared.found:
            self.records = "here" if shared.of_this_boot else "former"

    def _connect(self, authors: list[Author]) -> tuple[Author | None, list[bytes]]:
        """Connect to the living launcher of this run; return its author and the lines of its greeting.

        Kill launchers that do not answer, for example because they were stopped; their attempts are lost.
        """
        deadline = processes.boot_seconds() + CONNECT_SECONDS_MAX
        while any(map(recovery.is_alive, authors)):
            connection = self._connect_once()
            if connection is not None:
                connection.settimeout(GREETING_SECONDS_MAX)
                self._attach(connection)
                self._configure()
                lines, self._inbox = read_greeting(connection)
                author = recovery.decode_author(lines[0]) if lines else None
                if author is not None and author.label == self._label:
                    self._token = author.token
                    return author, lines
                self._epoll.unregister(connection.fileno())
                self._socket = None
                if author is not None:
                    dismiss(connection)
                connection.close()
                # The launcher may have refused this engine, because there is a newer one.
                self._fence.confirm()
            if processes.boot_seconds() > deadline:
                self._fence.confirm()
                for author in authors:
                    recovery.end(author)
            time.sleep(CONNECT_RETRY_SECONDS)
        return None, []

    def _connect_once(self) -> socket.socket | None:
        """Connect to the socket in the folder; None if no launcher listens there."""
        try:
            return system_calls.connect(os.fsencode(self._folder))
        except PermissionError:
            where = os.path.join(self._folder, os.fsdecode(system_calls.SOCKET_NAME))
            hint = "remove the socket, end the launcher's process, and resume again"
            message = "a process of another user listens on the socket of the run's launcher"
            raise ResileError("launcher_foreign", message, where=where, hint=hint) from None

    def _launcher_died(self) -> None:
        """Read the spool of a dead launcher, settle its attempts, and prepare for a new launcher."""
        assert self._socket is not None
        self._socket.close()
        self._socket = None
        # A launcher that a newer engine has taken over is not dead.
        self._fence.check()
        self._silent_deaths = 0 if self._received else self._silent_deaths + 1
        path = os.path.join(self._folder, self._token + SUFFIX)
        author, lines = recovery.read_spool(path)
        has_records = author is not None and not recovery.is_cut(path)
        if author is not None:
            recovery.fold(lines, author, self._spooled)
            self._dead.append(path)
        # Without the whole spool there is no record of attempts that are about to start.
        outstanding = {key: not has_records or started for key, started in self._ours.items()}
        self._ours.clear()
        self._queued = 0
        self._settle(outstanding, self._token)
        if self._silent_deaths >= SILENT_DEATHS_MAX:
            raise ResileError("launcher_failed", "the launcher dies as soon as it is started", hint=self._death_hint())

    def _death_hint(self) -> str:
        """Why launchers die at once, as far as the engine can tell."""
        try:
            import ctypes  # noqa: F401
        except ImportError:
            return "this Python was built without ctypes, by which steps are started; use one that has it"
        return f"see {self._folder}/*.crash"

    def _settle(self, attempts: Mapping[Key, bool], dead: str = "") -> None:
        """Report the state of these attempts (see `find`); kill the processes that dead launchers left of them."""
        now = processes.boot_seconds() + self._config[1]
        doubtful: list[Key] = []
        for key, in_doubt in attempts.items():
            spooled = self._spooled.pop(key, None)
            # The engine may start an attempt again after its withdrawal, so an old withdrawal does not settle a doubt.
            if spooled and spooled.end and not (in_doubt and isinstance(spooled.end, Withdrawn)):
                self._report(self._mark_lost_output(spooled.end))
            elif spooled and spooled.started and self._socket and spooled.author.token == self._token:
                self._ours[key] = True
                started = spooled.started
                self._report(Adopted(*key, started.at, started.pid, started.log))
            else:
                if spooled is not None:
                    self._spooled[key] = spooled
                doubtful.append(key)
        killed = self._end_orphans(doubtful, dead)
        for key in doubtful:
            spooled = self._spooled.pop(key, None)
            if spooled is not None:
                self._report(Lost(*key, now, "the launcher died while it ran"))
            elif key in killed:
                self._report(Lost(*key, now, "the launcher died as it started"))
            elif attempts[key]:
                self._report(Lost(*key, now, "the machine stopped, or the launcher's records are gone"))
            else:
                self._report(Withdrawn(*key, now))

    def _mark_lost_output(self, end: Ended | Withdrawn | Lost) -> Ended | Withdrawn | Lost:
        """Mark an end from a spool as failed if its output is missing, as after a power cut."""
        if isinstance(end, Ended) and not end.spawn_error and not self._output_of(end.job).is_whole(end.log):
            return replace(end, spawn_error=EIO, spawn_stage="output")
        return end

    def _output_of(self, job: int) -> SegmentReader:
        """The reader of a job's output."""
        del job
        return self

    def _end_orphans(self, attempts: Sequence[Key], dead: str) -> set[Key]:
        """Kill what dead launchers, also the one with the token `dead`, left; return attempts that had a process."""
        if not attempts:
            return set()
        tokens = {os.path.basename(path).removesuffix(SUFFIX) for path in self._dead}
        if dead:
            tokens.add(dead)
        wanted: dict[bytes, tuple[int, float] | None] = {}
        keys: dict[bytes, Key] = {}
        boot = processes.boot_id().decode()
        for key in attempts:
            for token in tokens:
                tag = processes.attempt_tag(token.encode(), wire.key_of(*key))
                wanted[tag] = None
                keys[tag] = key
            spooled = self._spooled.get(key)
            if spooled is not None and spooled.author.boot == boot:
                tag = recovery.tag_of(spooled.author, key, spooled.profile)
                wanted[tag] = (spooled.started.pid, spooled.born) if spooled.started is not None else (0, 0.0)
                keys.setdefault(tag, key)
        return {keys[tag] for tag in processes.end_orphans(wanted) if tag in keys}

    def _end_all(self, author: Author, lines: list[bytes]) -> None:
        """Kill the processes that a dead launcher of another epoch left."""
        spooled: dict[Key, SpooledAttempt] = {}
        recovery.fold(lines, author, spooled)
        running = {key: entry.started for key, entry in spooled.items() if entry.started and not entry.end}
        processes.end_orphans(
            {recovery.tag_of(author, key): (started.pid, spooled[key].born) for key, started in running.items()}
        )
