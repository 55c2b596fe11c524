"""The agent's side of a node's launcher: sends it frames, reads its lines, and ends the attempts of a dead launcher.

Only modules of Python itself are imported.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from contextlib import suppress

from resile.executors.local import prestart, processes, wire
from resile.executors.local.launcher import system_calls
from resile.executors.local.spool import CHECKED_VERSION, SUFFIX
from resile.executors.parsl.node import files

RECEIVE_BYTES = 256 * 1024
SECONDS_MAX = 10.0

Key = tuple[int, int]


class Config:
    """The settings of the run that the engine sends with each task (parsl/tasks.py); bytes are text in Latin-1."""

    def __init__(self, given: dict) -> None:  # type: ignore[type-arg]
        self.number: int = given["number"]
        self.fence: bytes = given["fence"].encode("latin-1")
        self.label: str = given["label"]
        self.boot: str = given["boot"]
        self.offset: float = given["offset"]
        self.sample_seconds: float = given["sample"]
        self.directory: bytes = given["directory"].encode("latin-1")
        self.otherwise: bytes = given["otherwise"].encode("latin-1")
        self.secrets: list[bytes] = [text.encode("latin-1") for text in given["secrets"]]
        self.env: list[bytes] = [text.encode("latin-1") for text in given["env"]]

    def clock_offset(self) -> float:
        """The offset from this boot's clock to the time of the run: the engine's on its own machine, else measured."""
        if self.boot == processes.boot_id().decode():
            return self.offset
        return time.time() - processes.boot_seconds()


class NodeLauncher:
    """One launcher, its folder, and its open attempts."""

    def __init__(self, epoch_folder: str, identity: dict[str, object], slots: int, config: Config) -> None:
        self.token = os.urandom(6).hex()
        self.folder = os.path.join(epoch_folder, wire.FOLDER, self.token)
        self.config = config
        # For each attempt that has not ended: whether it began, and its leader's pid and birth.
        self.open: dict[Key, tuple[bool, tuple[int, float] | None]] = {}
        self.is_alive = True
        self._inbox = b""
        # The number of lines that the launcher has sent.
        self._received = 0
        started = prestart.prestart()
        self.pid = started.pid
        self.spool = os.path.join(self.folder, self.token + SUFFIX)
        own = processes.read_process(started.pid)
        head = (
            wire.HEADER.decode(),
            CHECKED_VERSION.decode(),
            self.token,
            started.pid,
            own.start_ticks if own else 0,
            processes.boot_id().decode(),
            config.label,
        )
        self._make_folder(" ".join(map(str, head)).encode(), {**identity, "number": config.number})
        files.announce(epoch_folder, self.token)
        self.connection = socket.socket(fileno=started.socket.detach())
        environment = [pair for pair in config.env if not pair.startswith(_OF_THE_NODE)]
        environment += [os.fsencode(f"{name}={text}") for name, text in os.environ.items() if _is_of_the_node(name)]
        directory = config.directory if os.path.isdir(config.directory) else config.otherwise
        self.send(
            wire.configure_frame(
                config.number,
                config.fence,
                self.token.encode(),
                os.fsencode(self.folder),
                slots,
                config.clock_offset(),
                directory,
                config.secrets,
                environment,
            )
        )

    def _make_folder(self, head: bytes, identity: dict[str, object]) -> None:
        """Make the folder with all its files at once, because a shared disk may cache that a file is missing."""
        above, token = os.path.split(self.folder)
        folder = os.path.join(above, files.UNFINISHED + token)
        os.makedirs(folder, 0o700)
        files.append(os.path.join(folder, os.path.basename(self.spool)), [head])
        files.append(os.path.join(folder, files.TAKEN), [])
        with open(os.path.join(folder, files.NODE), "w") as file:
            json.dump(identity, file)
        os.rename(folder, self.folder)

    def beat(self) -> None:
        """Give a sign of life: touch the file of the node. A disk error is ignored; the next beat tries again."""
        with suppress(OSError):
            os.utime(os.path.join(self.folder, files.NODE))

    def take(self, words: list[bytes]) -> None:
        """Record that the node takes these attempts, or (with `X`) that it drops them."""
        files.append(os.path.join(self.folder, files.TAKEN), words)

    def start(self, key: Key, frame: bytes) -> None:
        """Start an attempt."""
        self.open[key] = (False, None)
        self.send(frame)

    def send(self, frame: bytes) -> None:
        """Send a frame; if the launcher is dead, the next read notices that."""
        with suppress(OSError):
            self.connection.sendall(frame)

    def receive(self) -> list[Key]:
        """Read new lines; return the attempts that have ended. Raises TimeoutError if the connection has a timeout."""
        try:
            data = self.connection.recv(RECEIVE_BYTES)
        except TimeoutError:
            raise
        except OSError:
            data = b""
        if not data:
            return self._bury()
        text = self._inbox + data
        end = text.rfind(b"\n") + 1
        self._inbox = text[end:]
        return self._note(text[:end].splitlines())

    def _note(self, lines: list[bytes]) -> list[Key]:
        """Note the launcher's next lines; return the attempts that have ended."""
        self._received += len(lines)
        ended = []
        for line in lines:
            words = line.split()
            key = wire.decode_attempt(words)
            if words[0] == wire.BEGINS:
                self.open[key] = (True, None)
            elif words[0] == wire.STARTED:
                self.open[key] = (True, (wire.decode_pid(words), wire.decode_born(words)))
            else:
                self.open.pop(key, None)
                ended.append(key)
        return ended

    def _bury(self) -> list[Key]:
        """Kill the processes that a dead launcher left, and write to its spool how its attempts ended."""
        self.is_alive = False
        self.connection.close()
        prestart.reap()
        # The launcher writes a line to the spool before it sends it, so the spool may have more lines.
        ended = self._note(files.Tail(self.spool).read()[1 + self._received :])
        left = {self._tag(key): leader for key, (begun, leader) in self.open.items() if begun}
        processes.end_orphans(left)
        now = processes.boot_seconds() + self.config.clock_offset()
        lines = [
            (wire.lost_line if begun else wire.withdrawn_line)(wire.key_of(*key), now).rstrip()
            for key, (begun, _) in self.open.items()
        ]
        files.append(self.spool, lines)
        ended += self.open
        self.open.clear()
        return ended

    def _tag(self, key: Key) -> bytes:
        return processes.attempt_tag(self.token.encode(), wire.key_of(*key))

    def end(self, why: str) -> None:
        """End all attempts because the node has to stop, and wait until the launcher is gone."""
        if not self.is_alive:
            return
        self.write_fate(why)
        self.send(wire.frame(wire.TERMINATE))
        self.connection.settimeout(SECONDS_MAX)
        while self.is_alive:
            try:
                self.receive()
            except TimeoutError:
                with suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)

    def write_fate(self, why: str) -> None:
        """Write why the attempts here are about to end."""
        with open(os.path.join(self.folder, files.FATE), "w") as file:
            file.write(why)

    def close(self) -> None:
        """Disconnect from the launcher, which then exits, because nothing runs."""
        if self.is_alive:
            self.connection.close()
            system_calls.unlink_socket(os.fsencode(self.folder))


_OF_THE_NODE = (
    *(b"SLURM_", b"SLURMD_", b"PBS_", b"LSB_"),
    *(b"TMPDIR=", b"CUDA_VISIBLE_DEVICES=", b"HOSTNAME="),
)


def _is_of_the_node(name: str) -> bool:
    """Does a variable describe the node, so that attempts need the node's value and not the engine's?"""
    return os.fsencode(name + "=").startswith(_OF_THE_NODE)
