"""The agent: the first process of Resile on a node. It runs Parsl's manager beside it and a launcher below it.

    batch system --> agent --> Parsl's manager --> Parsl's workers --a task: some attempts--> agent
                       \\--> launcher --> attempts

A task of Parsl is some attempts (one, or a batch of short ones). The worker hands them to the agent of its node through
a socket, and waits until all have ended. So the death of a worker or of the manager ends no attempt: when the manager
has gone, the agent takes no more tasks, lets its attempts end and exits. If the agent gets SIGTERM, because the
allocation is over, it ends its attempts at once.
A manager that gets no answer from its engine waits for ever: the agent ends it.

Some time before the allocation ends the agent ends its attempts gently, with SIGTERM first, so that they can save their
work.

    usage: node.pyz FOLDER POOL BLOCK SLOTS SECONDS GRACE PROVIDER COMMAND...

After SECONDS (0: never) the agent ends its attempts; GRACE is the time from then to the end of the allocation. SLOTS is
the number of attempts that run at once (slots.py).

Only modules of Python itself are imported.
"""

from __future__ import annotations

import ctypes
import glob
import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
from contextlib import suppress

from resile.executors.fence import FenceAt
from resile.executors.local import processes, wire
from resile.executors.parsl.node import files
from resile.executors.parsl.node.launchers import Config, Key, NodeLauncher
from resile.executors.parsl.node.sampling import NodeSampler
from resile.executors.parsl.node.slots import slots_on_node

# The variable by which Parsl's workers find the agent.
SOCKET_VARIABLE = "RESILE_NODE_SOCKET"
LENGTH_BYTES = 8
TASK_BYTES_MAX = 1 << 30
LOOK_SECONDS = 0.25
BEAT_SECONDS = 2.0
# The last part of the grace, in which the launcher kills attempts that did not end, and records that.
END_SECONDS = 5.0
# How long a manager may wait for the first answer of its engine, and what its log says without one and with it.
ANSWER_SECONDS_MAX = 30.0
LOG_BYTES_MAX = 1 << 20
UNANSWERED, ANSWERED = b"Failed to connect to interchange", b"Successfully connected to interchange"
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


class Client:
    """A worker of Parsl that has handed attempts to the agent, and waits for their ends."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.inbox = bytearray()
        self.waits_for: set[Key] = set()
        self.has_task = False


class Agent:
    """Runs the attempts of one node."""

    def __init__(
        self, folder: str, pool: str, block: str, slots: int, seconds: float, grace: float, provider: str
    ) -> None:
        self.folder = folder
        self.slots = slots
        own = processes.read_process(os.getpid())
        self.identity: dict[str, object] = {
            "host": os.uname().nodename,
            "boot": processes.boot_id().decode(),
            "pid": os.getpid(),
            "born": own.start_ticks if own else 0,
            "pool": pool,
            "block": block,
            "tag": os.urandom(6).hex(),
            # A block on the engine's machine is no allocation, even if the engine itself runs in one.
            "allocation": os.environ.get("SLURM_JOB_ID", "") if provider == "slurm" else "",
            "node": os.environ.get("SLURMD_NODENAME", "") or os.uname().nodename,
        }
        self.launchers: list[NodeLauncher] = []
        self.sampler = NodeSampler()
        self.taken: dict[Key, str] = {}
        self.clients: dict[int, Client] = {}
        self.orders = files.Tail(os.path.join(folder, files.CLUSTER, files.ORDERS))
        self.revoked: set[tuple[Key, str]] = set()
        self.private = tempfile.mkdtemp(prefix="resile-node-")
        self.address = os.path.join(self.private, "socket")
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self.address)
        self.listener.listen(1024)
        self.poll = select.epoll()
        self.poll.register(self.listener.fileno(), select.EPOLLIN)
        self.manager = 0
        self.manager_fd = -1
        # Where managers of this block log, and when the agent looks whether an engine has answered.
        self.manager_logs = ""
        self.answer_at = 0.0
        self.signals, self.signal_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.poll.register(self.signals, select.EPOLLIN)
        self.is_terminated = False
        self.expires_at = time.monotonic() + seconds if seconds else 0.0
        self.grace = grace

    # --- the manager of Parsl

    def start_manager(self, command: list[str]) -> None:
        """Start Parsl's manager in a session of its own; it dies with the agent."""
        tag = processes.attempt_tag(str(self.identity["tag"]).encode(), files.BLOCK)
        environment = {**os.environ, SOCKET_VARIABLE: self.address, processes.TAG_VARIABLE.decode(): tag.decode()}
        libc = ctypes.CDLL(None)
        # If the manager is killed, its workers become children of the agent, which reaps them.
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
        parent = os.getpid()
        self.manager = os.fork()
        if not self.manager:
            try:
                os.setsid()
                libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() == parent:
                    os.execvpe(command[0], command, environment)
            finally:
                os._exit(127)
        logs = [word.partition("=")[2] for word in command if word.startswith("--logdir=")]
        if logs:
            self.manager_logs = os.path.join(glob.escape(logs[-1]), f"block-{self.identity['block']}/*/manager.log")
            self.answer_at = time.monotonic() + ANSWER_SECONDS_MAX
        self.manager_fd = os.pidfd_open(self.manager)
        self.poll.register(self.manager_fd, select.EPOLLIN)

    def end_manager(self) -> None:
        """End Parsl's manager with its workers."""
        if self.manager:
            with suppress(OSError):
                os.killpg(self.manager, signal.SIGKILL)
        tag = processes.attempt_tag(str(self.identity["tag"]).encode(), files.BLOCK)
        processes.end_orphans({tag: None})
        with suppress(OSError):
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                if pid == self.manager:
                    # From now on another process may get this pid.
                    self.manager = 0

    def _has_no_engine(self) -> bool:
        """Did the engine die before the managers of this block could reach it?"""
        said = b""
        for path in glob.glob(self.manager_logs):
            with suppress(OSError), open(path, "rb") as file:
                said += file.read(LOG_BYTES_MAX)
        return UNANSWERED in said and ANSWERED not in said and not self.launchers

    # --- the loop

    def run(self) -> int:
        """Serve until the manager has gone and nothing runs, or a signal comes."""
        look_at = beat_at = 0.0
        manager_is_gone = False
        while not self.is_terminated:
            for descriptor, _ in self.poll.poll(min(LOOK_SECONDS, self.sampler.interval or LOOK_SECONDS)):
                if descriptor == self.listener.fileno():
                    self._accept()
                elif descriptor == self.manager_fd:
                    manager_is_gone = True
                    self.poll.unregister(self.manager_fd)
                    self.end_manager()
                elif descriptor == self.signals:
                    self.is_terminated = True
                elif descriptor in self.clients:
                    self._read(self.clients[descriptor])
                else:
                    self._hear(descriptor)
            now = time.monotonic()
            if now >= look_at:
                look_at = now + LOOK_SECONDS
                self._obey()
            if now >= beat_at:
                beat_at = now + BEAT_SECONDS
                for launcher in self.launchers:
                    launcher.beat()
            self.sampler.sample(self.launchers)
            if self.answer_at and now >= self.answer_at:
                self.answer_at = 0.0
                if self._has_no_engine():
                    self.end_manager()
            if self.expires_at and now >= self.expires_at:
                self.expires_at = 0.0
                self._expire()
            if manager_is_gone and not any(launcher.open for launcher in self.launchers):
                break
        self._stop()
        return 0

    def _expire(self) -> None:
        """End the manager and the attempts, with SIGTERM first, because the allocation is about to end."""
        self.end_manager()
        for launcher in self.launchers:
            launcher.write_fate(files.EXPIRES)
            for key in launcher.open:
                launcher.send(wire.kill_frame(*key, max(self.grace - END_SECONDS, self.grace / 2)))

    def _stop(self) -> None:
        """End everything on this node."""
        for launcher in self.launchers:
            if self.is_terminated and launcher.open:
                launcher.end("the node was told to stop (SIGTERM)")
            launcher.close()
        self.sampler.close(self.launchers)
        self.end_manager()
        shutil.rmtree(self.private, ignore_errors=True)

    def _accept(self) -> None:
        """Accept the connection of a worker."""
        connection, _ = self.listener.accept()
        connection.setblocking(False)
        self.clients[connection.fileno()] = Client(connection)
        self.poll.register(connection.fileno(), select.EPOLLIN)

    def _read(self, client: Client) -> None:
        """Read a worker's task; if the worker is gone, close its connection, and its attempts go on."""
        try:
            data = client.connection.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or client.has_task:
            self._dismiss(client, b"")
            return
        client.inbox += data
        size = int.from_bytes(client.inbox[:LENGTH_BYTES], "big")
        if size > TASK_BYTES_MAX:
            self._dismiss(client, b"")
        elif len(client.inbox) >= LENGTH_BYTES + size:
            client.has_task = True
            task = json.loads(client.inbox[LENGTH_BYTES:])
            client.inbox.clear()
            self._take(client, Config(task["config"]), task["attempts"])

    def _dismiss(self, client: Client, word: bytes) -> None:
        """Send a worker this word, which ends its wait, and close its connection."""
        self.poll.unregister(client.connection.fileno())
        del self.clients[client.connection.fileno()]
        with suppress(OSError):
            client.connection.send(word)
        client.connection.close()

    # --- attempts

    def _launcher(self, config: Config) -> NodeLauncher:
        """The living launcher, or a new one."""
        if not self.launchers or not self.launchers[-1].is_alive:
            launcher = NodeLauncher(self.folder, self.identity, self.slots, config)
            self.sampler.interval = config.sample_seconds
            self.launchers.append(launcher)
            self.poll.register(launcher.connection.fileno(), select.EPOLLIN)
        return self.launchers[-1]

    def _take(self, client: Client, config: Config, attempts: list[tuple[int, int, str, str]]) -> None:
        """Record that the node takes these attempts, check the orders and the fence, and start them."""
        launcher = self._launcher(config)
        fresh = [entry for entry in attempts if self.taken.get((entry[0], entry[1])) != entry[2]]
        launcher.take([_words(files.TAKES, *entry[:3]) for entry in fresh])
        self._obey()
        is_fenced = FenceAt(config.fence).is_closed()
        dropped = []
        for job, attempt, submission, frame in fresh:
            key = job, attempt
            # Never start an attempt a second time while it runs here.
            if is_fenced or (key, submission) in self.revoked or key in launcher.open:
                dropped.append(_words(files.DROPS, job, attempt, submission))
                continue
            self.taken[key] = submission
            client.waits_for.add(key)
            launcher.start(key, frame.encode("latin-1"))
        if dropped:
            launcher.take(dropped)
        if not client.waits_for:
            self._dismiss(client, b"1")

    def _hear(self, descriptor: int) -> None:
        """Read a launcher's lines, and dismiss the workers whose attempts have all ended."""
        for launcher in self.launchers:
            if launcher.is_alive and launcher.connection.fileno() == descriptor:
                ended = launcher.receive()
                self.sampler.end(launcher, ended)
                for key in ended:
                    self.taken.pop(key, None)
                for client in list(self.clients.values()):
                    if client.waits_for and client.waits_for.intersection(ended):
                        client.waits_for.difference_update(ended)
                        if not client.waits_for:
                            self._dismiss(client, b"1")

    def _obey(self) -> None:
        """Execute the orders that the engine has written since the last look.

        It opens the file each time, because on a shared disk `stat` may give an old size.
        """
        for line in self.orders.read():
            words = line.split()
            if words[0] == files.DRAIN:
                for launcher in self.launchers:
                    if launcher.is_alive and launcher.config.number == int(words[1]):
                        launcher.send(wire.frame(wire.DRAIN))
                continue
            key, submission = wire.decode_attempt(words), words[3].decode()
            self.revoked.add((key, submission))
            if words[0] == files.END and self.taken.get(key) == submission:
                for launcher in self.launchers:
                    if key in launcher.open:
                        launcher.send(wire.kill_frame(*key))


def _words(kind: bytes, job: int, attempt: int, submission: str) -> bytes:
    return b"%s %d %d %s" % (kind, job, attempt, submission.encode())


def main() -> None:
    """Run the agent of a node."""
    folder, pool, block, slots, seconds, grace, provider, *command = sys.argv[1:]
    count = slots_on_node(slots, os.environ)
    agent = Agent(folder, pool, block, count, float(seconds), float(grace), provider)
    signal.signal(signal.SIGTERM, lambda *_: os.write(agent.signal_write, b"!"))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Of two equal options the last one counts, so this replaces Parsl's own.
    agent.start_manager([*command, f"--max_workers_per_node={count}"])
    sys.exit(agent.run())
