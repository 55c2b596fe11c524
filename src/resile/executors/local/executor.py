"""The local executor: the engine's side of the launcher (launcher.py), and what to do when either of them dies.

    folder/launcher/   socket, TOKEN.spool, TOKEN-SLOT-N.o, TOKEN-SLOT-N.e

An attempt is ours when we started it or found it running. Lines about ours become reports at once; lines about
others are kept until `find` asks. When the launcher dies its spool tells what ended, the processes it left are
killed, and what had started is lost; the next `start` gets a fresh launcher. An attempt may end without a
`Started` before it: when nothing could be started, and when both facts come from a spool.
"""

from __future__ import annotations

import _socket
import os
import select
import time
from collections.abc import Mapping, Sequence
from errno import EINVAL

from resile.errors import ResileError
from resile.executors.contract import Adopted, Ended, Launch, Lost, Report, Withdrawn
from resile.executors.local import prestart, processes, recovery
from resile.executors.local.launcher import system_calls
from resile.executors.local.prestart import Prestarted
from resile.executors.local.recovery import Author, Key, Past
from resile.executors.local.spool import SUFFIX, identity
from resile.model.failure import LogRange

RECEIVE_BYTES = 256 * 1024
ACKNOWLEDGE_BYTES = 128 * 1024
SEND_SECONDS_MAX = 60
GREETING_SECONDS_MAX = 15.0
CONNECT_SECONDS_MAX = 5.0
CONNECT_AGAIN_SECONDS = 0.01
SILENT_DEATHS_MAX = 10


class LocalExecutor:
    """Attempts as processes of this machine; see the Executor contract for the verbs."""

    def __init__(
        self,
        folder: str,
        *,
        slots: int,
        label: str,
        base_env: Mapping[bytes, bytes],
        directory: bytes,
        secrets: Sequence[bytes] = (),
        launcher: Prestarted | None = None,
    ) -> None:
        """Open the run whose output folder this is.

        `label` names run and epoch, without spaces; `launcher` comes from `prestart`.
        """
        self._folder = os.path.join(os.path.abspath(folder), recovery.FOLDER)
        self._label = label
        self._config = (slots, directory, tuple(secrets), dict(base_env))
        self._socket: _socket.socket | None = None
        self._token = ""
        self._inbox = b""
        self._heard = self._told = self._recorded = self._acknowledged = 0
        # What `reports` will say; of an attempt that has just begun the words of its line, and where they are.
        self._ready: list[Report | list[bytes] | None] = []
        self._begun: dict[Key, int] = {}
        self._begun_last = 0
        self._ours: dict[Key, bool] = {}
        self._queued = 0
        self._past: dict[Key, Past] = {}
        self._dead: list[str] = []
        self._silent_deaths = 0
        self._rung = False
        self._epoll = select.epoll()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._bell, select.EPOLLIN)
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        spools = [name for name in os.listdir(self._folder) if name.endswith(SUFFIX)]
        if spools:
            self._meet(spools)
        if self._socket is None:
            self._open(launcher or prestart.prestart())
        elif launcher is not None:
            launcher.socket.close()

    # --- the contract

    def fileno(self) -> int:
        """Readable when reports wait."""
        return self._epoll.fileno()

    def start(self, launches: Sequence[Launch]) -> None:
        """Queue attempts; each starts when one of the launcher's slots is free, in order."""
        if self._socket is None:
            self._open(prestart.prestart())
        frames: list[bytes] = []
        for launch in launches:
            body = encode(launch)
            if body is None:
                self._refuse(launch)
                continue
            frames += (len(body).to_bytes(4, "big"), body)
            self._ours[launch.job, launch.attempt] = False
            self._queued += 1
        self._send(b"".join(frames))

    def kill(self, job: int, attempt: int) -> None:
        """SIGTERM, grace, SIGKILL to everything the attempt started; a queued one is withdrawn."""
        if (job, attempt) in self._ours:
            self._send(frame(b"K", b"%d" % job, b"%d" % attempt))

    def find(self, attempts: Sequence[Key]) -> None:
        """After a resume: report what became of each of these (Adopted, Ended, Withdrawn or Lost)."""
        self._receive()
        self._settle(attempts)

    def drain(self) -> None:
        """Start nothing more: withdraw everything queued; running attempts go on."""
        self._send(frame(b"D"))

    def reports(self) -> list[Report]:
        """Whatever has been heard since the last call; never blocks."""
        self._receive()
        reports = [recovery.parse_started(item) if isinstance(item, list) else item for item in self._ready if item]
        self._ready, self._begun, self._begun_last = [], {}, 0
        self._told = self._heard
        if self._rung:
            self._rung = False
            os.eventfd_read(self._bell)
        return reports

    def queued(self) -> int:
        """How many attempts are waiting for a slot, as far as is known here."""
        return self._queued

    def acknowledge(self) -> None:
        """Everything returned by `reports` so far is on disk."""
        self._recorded = self._told
        if self._recorded - self._acknowledged >= ACKNOWLEDGE_BYTES:
            self._acknowledge()
        if self._dead and not self._ready:
            self._forget_dead()

    def close(self) -> None:
        """Let go; attempts still running keep running. What was not acknowledged is there for the next engine."""
        if self._socket is not None:
            if self._recorded > self._acknowledged:
                self._acknowledge()
            self._socket.close()
            self._socket = None
        self._epoll.close()
        os.close(self._bell)
        prestart.reap()

    # --- talking

    def _open(self, launcher: Prestarted) -> None:
        """Give a fresh launcher its orders; before that, have its spool say that there is one."""
        self._token = os.urandom(6).hex()
        path = os.path.join(self._folder, self._token + SUFFIX)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, identity(self._token, self._label, launcher.pid))
            finally:
                os.close(descriptor)
        except OSError as error:
            launcher.socket.close()
            raise ResileError("output_folder", f"can't write: {error.strerror}", where=path) from None
        self._attach(launcher.socket)
        self._configure()

    def _attach(self, connection: _socket.socket) -> None:
        """Talk to this launcher from now on."""
        self._socket = connection
        self._inbox = b""
        self._heard = self._told = self._recorded = self._acknowledged = 0
        connection.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDTIMEO, timeval(SEND_SECONDS_MAX))
        self._epoll.register(connection.fileno(), select.EPOLLIN)

    def _configure(self) -> None:
        """Tell the launcher what all attempts of the run share."""
        slots, directory, secrets, base_env = self._config
        head = (self._token.encode(), os.fsencode(self._folder), b"%d" % slots, directory)
        values = [secret.hex().encode() for secret in secrets]
        pairs = [name + b"=" + value for name, value in base_env.items()]
        self._send(frame(b"C", *head, b"%d" % len(values), *values, *pairs))

    def _send(self, data: bytes) -> None:
        """Send frames. The launcher always reads, so this waits only for a launcher that was stopped."""
        if self._socket is None:
            return
        try:
            self._socket.sendall(data)
        except BlockingIOError:
            hint = "it may have been stopped (SIGSTOP); continue it, or kill it and resume the run"
            raise ResileError("launcher_stuck", "the launcher takes no orders", hint=hint) from None
        except OSError:
            # It died: reading says so too, and settles what is outstanding.
            pass

    def _receive(self) -> None:
        """Take in what the launcher said."""
        while self._socket is not None:
            try:
                data = self._socket.recv(RECEIVE_BYTES, _socket.MSG_DONTWAIT)
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
        """Act on every complete line."""
        text = self._inbox + data
        end = text.rfind(b"\n") + 1
        self._inbox = text[end:]
        self._heard += end
        for line in text[:end].splitlines():
            self._hear(line)

    def _hear(self, line: bytes) -> None:
        """One line: a report where the attempt is ours, else kept for `find`."""
        fields = line.split()
        kind, key = fields[0], (int(fields[1]), int(fields[2]))
        started = self._ours.get(key)
        if kind == b"B" and started is not None:
            return
        if started is None:
            author = Author(self._token, 0, 0, "", self._label)
            recovery.fold([line], author, self._past)
            return
        if not started:
            self._queued -= 1
        match kind:
            case b"S":
                self._ours[key] = True
                self._begun[key] = len(self._ready)
                self._ready.append(fields)
            case b"E":
                del self._ours[key]
                self._ready.append(recovery.parse_ended(fields, self._unsaid(key)))
            case _:
                del self._ours[key]
                self._ready.append(recovery.parse_withdrawn(fields))

    def _unsaid(self, key: Key) -> int:
        """Take back the start of an attempt that is over before anybody heard of it: one report says both. Its pid.

        Not where a later one overtook it: starts are told in their order.
        """
        place = self._begun.pop(key, None)
        begun = None if place is None or place < self._begun_last else self._ready[place]
        if place is None or not isinstance(begun, list):
            return 0
        self._begun_last = place
        self._ready[place] = None
        return int(begun[4])

    def _acknowledge(self) -> None:
        """Let the launcher forget what has been recorded."""
        self._send(frame(b"A", b"%d" % self._recorded))
        self._acknowledged = self._recorded

    def _refuse(self, launch: Launch) -> None:
        """An attempt whose words hold a NUL can't be started anywhere."""
        now = time.time()
        log = LogRange("")
        self._report(Ended(launch.job, launch.attempt, now, now, 0, 0.0, 0, log, "", EINVAL, "exec"))

    def _report(self, report: Report) -> None:
        """Have a report that no launcher sent."""
        self._ready.append(report)
        self._rung = True
        os.eventfd_write(self._bell, 1)

    # --- deaths and resumes

    def _meet(self, spools: list[str]) -> None:
        """Connect to the launcher that still serves this folder, and read what dead ones left."""
        paths = sorted((os.path.join(self._folder, name) for name in spools), key=os.path.getmtime)
        authors = [author for author, _ in map(recovery.read_spool, paths) if author is not None]
        living, heard = self._connect(authors)
        for path in paths:
            # Read again: what was alive a moment ago may have written its last lines since.
            author, lines = recovery.read_spool(path)
            if author is None or living is None or author.token != living.token:
                self._dead.append(path)
                if author is not None and author.label == self._label:
                    recovery.fold(lines, author, self._past)
                elif author is not None:
                    self._end_all(author, lines)
        if living is not None:
            # The newest word on an attempt that was given out twice; then what came behind the greeting.
            recovery.fold(heard, living, self._past)
            self._take(b"")

    def _connect(self, authors: list[Author]) -> tuple[Author | None, list[bytes]]:
        """Hear the greeting of a living launcher of this run; who it is and what it said, if any lives."""
        deadline = time.monotonic() + CONNECT_SECONDS_MAX
        while any(author.lives() for author in authors):
            connection = system_calls.connect(os.fsencode(self._folder))
            lines, since = greeting(connection) if connection is not None else ([], b"")
            author = recovery.parse_author(lines[0]) if lines else None
            if connection is not None and author is not None and author.label == self._label:
                self._token = author.token
                self._attach(connection)
                self._configure()
                self._inbox = since
                return author, lines
            if connection is not None:
                dismiss(connection)
            if time.monotonic() > deadline:
                pids = ", ".join(str(author.pid) for author in authors if author.lives())
                hint = f"end process {pids} and resume again"
                raise ResileError("launcher_unreachable", "the run's launcher lives but does not answer", hint=hint)
            time.sleep(CONNECT_AGAIN_SECONDS)
        return None, []

    def _launcher_died(self) -> None:
        """The launcher is gone: read its spool, settle what is outstanding, and be ready for a fresh one."""
        assert self._socket is not None
        self._socket.close()
        self._socket = None
        self._silent_deaths = 0 if self._heard else self._silent_deaths + 1
        path = os.path.join(self._folder, self._token + SUFFIX)
        author, lines = recovery.read_spool(path)
        if author is not None:
            recovery.fold(lines, author, self._past)
            self._dead.append(path)
        outstanding = list(self._ours)
        self._ours.clear()
        self._queued = 0
        self._settle(outstanding, author)
        if self._silent_deaths >= SILENT_DEATHS_MAX:
            raise ResileError("launcher_failed", "the launcher dies as soon as it is started", hint=self._death_hint())

    def _death_hint(self) -> str:
        """Why launchers die at once, as far as it can be told from here."""
        try:
            __import__("_ctypes")
        except ImportError:
            return "this Python was built without ctypes, by which steps are started; use one that has it"
        return f"see {self._folder}/*.crash"

    def _settle(self, attempts: Sequence[Key], author: Author | None = None) -> None:
        """Report what became of these; kill what dead launchers left of them."""
        now = time.time()
        doubtful: list[Key] = []
        for key in attempts:
            past = self._past.pop(key, None)
            if past is not None and past.over is not None:
                self._report(past.over)
            elif past is not None and past.started is not None and self._lives(past.author):
                self._ours[key] = True
                started = past.started
                self._report(Adopted(*key, started.at, started.pid, started.log))
            else:
                if past is not None:
                    self._past[key] = past
                doubtful.append(key)
        gone = self._end_orphans(doubtful, author)
        for key in doubtful:
            past = self._past.pop(key, None)
            if past is not None:
                self._report(Lost(*key, now, "the launcher died while it ran"))
            elif key in gone:
                self._report(Lost(*key, now, "the launcher died as it started"))
            else:
                self._report(Withdrawn(*key, now))

    def _lives(self, author: Author) -> bool:
        """Is this the launcher that we talk to?"""
        return self._socket is not None and author.token == self._token

    def _end_orphans(self, attempts: Sequence[Key], author: Author | None) -> set[Key]:
        """Kill what is left of attempts whose launcher is dead; those of which something was there."""
        if not attempts:
            return set()
        tokens = {os.path.basename(path).removesuffix(SUFFIX) for path in self._dead}
        if author is not None:
            tokens.add(author.token)
        wanted: dict[bytes, tuple[int, float]] = {}
        keys: dict[bytes, Key] = {}
        boot = processes.boot_id().decode()
        for key in attempts:
            for token in tokens:
                mark = f"{token}:{key[0]}:{key[1]}".encode()
                wanted[mark] = (0, 0.0)
                keys[mark] = key
            past = self._past.get(key)
            if past is not None and past.started is not None and past.author.boot == boot:
                wanted[past.author.mark(key)] = (past.started.pid, past.born)
        return {keys[mark] for mark in processes.end_orphans(wanted) if mark in keys}

    def _end_all(self, author: Author, lines: list[bytes]) -> None:
        """Kill what a dead launcher of another epoch left."""
        past: dict[Key, Past] = {}
        recovery.fold(lines, author, past)
        running = {key: entry.started for key, entry in past.items() if entry.started and not entry.over}
        processes.end_orphans({author.mark(key): (started.pid, past[key].born) for key, started in running.items()})

    def _forget_dead(self) -> None:
        """What dead launchers left has been told and recorded."""
        for path in self._dead:
            if os.path.exists(path):
                os.unlink(path)
        self._dead.clear()


def frame(*fields: bytes) -> bytes:
    """One frame: its length and its fields."""
    body = b"\0".join(fields)
    return len(body).to_bytes(4, "big") + body


def encode(launch: Launch) -> bytes | None:
    """The body of a START frame; nothing where a field holds a NUL and so could not be told from two."""
    fields = [
        b"S",
        b"%d" % launch.job,
        b"%d" % launch.attempt,
        b"%.6f" % launch.timeout_seconds,
        b"%.6f" % launch.grace_seconds,
        launch.cwd,
        b"%d" % len(launch.argv),
        b"%d" % len(launch.fallback),
        b",".join([b"%d %d" % key for key in launch.after]),
        *launch.argv,
        *launch.fallback,
    ]
    if launch.env:
        fields += [name + b"=" + value for name, value in launch.env]
    body = b"\0".join(fields)
    return body if body.count(b"\0") == len(fields) - 1 else None


def timeval(seconds: int) -> bytes:
    """A struct timeval, as socket options take it."""
    import struct

    return struct.pack("@ll", seconds, 0)


def greeting(connection: _socket.socket) -> tuple[list[bytes], bytes]:
    """What a launcher says to an engine that connects, and what it has said since; nothing where it dies meanwhile."""
    connection.settimeout(GREETING_SECONDS_MAX)
    text = b""
    try:
        while (end := text.find(b"\nR\n")) < 0:
            data = connection.recv(RECEIVE_BYTES)
            if not data:
                return [], b""
            text += data
    except OSError:
        return [], b""
    connection.settimeout(None)
    return text[:end].split(b"\n"), text[end + 3 :]


def dismiss(connection: _socket.socket) -> None:
    """End a launcher of another epoch, with all it runs, and wait until it has gone."""
    try:
        connection.settimeout(GREETING_SECONDS_MAX)
        connection.sendall(frame(b"T"))
        while connection.recv(RECEIVE_BYTES):
            pass
    except OSError:
        pass
    finally:
        connection.close()
