"""Pools of blocks: one of Parsl's HighThroughputExecutors for each shape of attempts.

A pool starts blocks while there is work for more, and ends idle ones. The first pool imports Parsl.
"""

from __future__ import annotations

import math
import os
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from resile.errors import ResileError
from resile.executors.contract import Share
from resile.executors.parsl import slurm
from resile.executors.parsl.node import files
from resile.model.executor import ExecutorSettings

if TYPE_CHECKING:
    from parsl.executors import HighThroughputExecutor

# The program that a worker of Parsl executes: it hands the task to the agent of its node, and waits.
_TASK = b"""
import os, socket
with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as agent:
    agent.connect(os.environ["RESILE_NODE_SOCKET"])
    agent.sendall(len(task).to_bytes(8, "big") + task)
    if agent.recv(1) != b"1":
        raise ConnectionError("the agent of the node is gone")
"""
HEARTBEAT_SECONDS = 5
HEARTBEAT_SECONDS_MAX = 30
AGAIN_SECONDS = 1.0
AGAIN_SECONDS_MAX = 30.0
# If the batch system does not answer for this time, the executor fails and the run stops.
SILENT_SECONDS_MAX = 600.0


class Kind(Struct, frozen=True):
    """A kind of block that a workflow describes: the name and the options of its scheduler, if any, and its nodes.

    `on_order` blocks have one worker, or one `per_node`. A worker runs as many attempts at once as fit, at most
    `parallel` (0: no limit).
    """

    scheduler: str
    options: tuple[str, ...] = ()
    nodes: int = 1
    per_node: bool = True
    parallel: int = 0
    on_order: bool = False


class Shape(Struct, frozen=True):
    """The resources that an attempt asks of a node; attempts of one shape share a pool."""

    cpus: float = 0.0
    memory_bytes: int = 0
    gpus: int = 0
    walltime_seconds: float = 0.0
    kind: Kind | None = None

    def __str__(self) -> str:
        """The shape in words."""
        parts = [
            f"scheduler {self.kind.scheduler!r}" if self.kind is not None and self.kind.scheduler else "",
            f"{self.kind.nodes} nodes" if self.kind is not None and self.kind.nodes > 1 else "",
            f"{self.cpus:g} CPUs" if self.cpus else "",
            f"{self.memory_bytes >> 20} MiB" if self.memory_bytes else "",
        ]
        parts += [
            f"{self.gpus} GPUs" if self.gpus else "",
            f"{self.walltime_seconds:g} s" if self.walltime_seconds else "",
        ]
        return ", ".join(filter(None, parts)) or "no request"


NO_SHAPE = Shape()


def shape_of(settings: ExecutorSettings, share: Share, time_limit_seconds: float) -> Shape:
    """The shape of an attempt; on this machine all attempts have the same.

    If the attempt may run longer than blocks last, its shape asks for longer blocks: for its time limit and the grace,
    because a block ends its steps that much earlier.
    """
    if settings.provider == "local":
        return NO_SHAPE
    is_longer = time_limit_seconds > settings.walltime_seconds
    longer = time_limit_seconds + settings.grace_seconds if is_longer else 0.0
    kind = Kind("", nodes=share.nodes, per_node=False, parallel=1) if share.nodes > 1 else None
    return Shape(share.cpus, share.memory_bytes, share.gpus, longer, kind)


class Block(Struct):
    """One block: its job in the batch system, when the pool asked for it, and whether an attempt has begun in it."""

    id: str
    job: str
    asked_at: float
    has_worked: bool = False


class Pool:
    """The blocks of one shape."""

    # Does Parsl send a node tasks before it has a free worker? Then a free node may go without.
    fetches_ahead = True

    def __init__(
        self,
        index: int,
        shape: Shape,
        settings: ExecutorSettings,
        *,
        folder: str,
        run_folder: str,
        make_provider: Callable[[Shape], Any],
    ) -> None:
        """`folder` is the folder of the epoch, `run_folder` the folder for Parsl's own files."""
        self.index = index
        self.shape = shape
        self.settings = settings
        self.blocks: dict[str, Block] = {}
        # The submissions whose tasks Parsl has, except tasks that Parsl has lost and will give up later.
        self.tasks: set[str] = set()
        # Why the batch system refused the last block, or why a block does not come.
        self.problem = ""
        # Since when the pool has work, but no block in which an attempt has begun.
        self.stuck_since = 0.0
        self._folder = folder
        self._run_folder = os.path.join(run_folder, f"pool-{index}")
        self._make_provider = make_provider
        self._executor: HighThroughputExecutor | None = None
        self._again_at = 0.0
        self._again_seconds = AGAIN_SECONDS
        # When the batch system last stopped to answer; 0 while it answers.
        self._silent_since = 0.0
        # The tasks in blocks that are about to end, by block, and when to ask the batch system about these blocks.
        self._ending: dict[str, set[str]] = {}
        self._ask_at = 0.0
        self._ask_seconds = AGAIN_SECONDS

    @property
    def is_open(self) -> bool:
        """Has Parsl's executor started, so that it takes tasks?"""
        return self._executor is not None

    def open(self) -> None:
        """Start Parsl's executor; its interchange dies with this process."""
        from parsl.executors import HighThroughputExecutor
        from parsl.executors.high_throughput.executor import DEFAULT_LAUNCH_CMD

        settings = self.settings
        own = os.path.join(self._run_folder, "scripts")
        os.makedirs(own, 0o700, exist_ok=True)
        provider = self._make_provider(self.shape)
        provider.script_dir = own
        programs = sysconfig.get_path("scripts")
        archive = os.path.join(self._folder, files.CLUSTER, files.ARCHIVE)
        workers = settings.workers_per_node
        slots = self._slots_on_node()
        agent = " ".join(map(_quote, (sys.executable, "-S", "-E", archive, self._folder, str(self.index))))
        threshold = max(2 * HEARTBEAT_SECONDS, min(HEARTBEAT_SECONDS_MAX, int(settings.idle_seconds)))
        times = f"{self._seconds_of_block():.3f} {settings.grace_seconds:.3f}"
        manager = f"{_quote(programs)}/{DEFAULT_LAUNCH_CMD}"
        command = f"{agent} {{{{block_id}}}} {slots} {times} {settings.provider} {manager}"
        executor = HighThroughputExecutor(
            label=f"pool-{self.index}",
            provider=provider,
            launch_cmd=command,
            # In a session of its own, so that Ctrl-C in the terminal does not end it.
            interchange_launch_cmd=["setsid", "setpriv", "--pdeathsig", "KILL", f"{programs}/interchange.py"],
            address=settings.address or ("127.0.0.1" if settings.provider == "local" else None),
            max_workers_per_node=workers,
            cores_per_worker=1e-9,
            prefetch_capacity=workers if self.fetches_ahead else 0,
            heartbeat_period=HEARTBEAT_SECONDS,
            heartbeat_threshold=threshold,
            block_error_handler=False,
            encrypted=True,
        )
        executor.run_id = os.path.basename(self._run_folder)
        executor.run_dir = self._run_folder
        executor.start()
        self._executor = executor

    def _slots_on_node(self) -> str:
        """The number of attempts that run at once on a node, as a word for the agent (node/slots.py)."""
        return str(self.settings.workers_per_node)

    def _seconds_of_block(self) -> float:
        """The time after which a node ends its attempts, because its allocation is about to end; 0 for never."""
        if self.settings.provider == "local":
            return 0.0
        walltime = self.shape.walltime_seconds or self.settings.walltime_seconds
        return walltime - self.settings.grace_seconds

    def submit(self, task: bytes) -> Future[None]:
        """Submit a task for the agent of a node."""
        assert self._executor is not None
        context = {"task_executor": {"f": "builtins.exec", "a": ({"task": task},)}}
        future: Future[None] = self._executor.submit_payload(context, _TASK)
        return future

    # --- blocks

    def tend(self, work: int, busy: Mapping[str, int], now: float) -> None:
        """Bring the number of blocks to what `work` attempts need: ask for more, or end idle ones.

        `busy` has the number of attempts that the nodes of each block have.
        """
        assert self._executor is not None
        self._poll(now)
        status = self._executor.status_facade
        for name in [name for name in self.blocks if name not in status or status[name].terminal]:
            block = self.blocks.pop(name)
            # A block may fail after its nodes connected.
            if not block.has_worked:
                self._note_problem(_message_of(status.get(name)) or "a block ended before a step began in it", now)
        self._adapt(work, busy, now)
        if not work or any(block.has_worked for block in self.blocks.values()):
            self.stuck_since = 0.0
        elif not self.stuck_since:
            self.stuck_since = now

    def _adapt(self, work: int, busy: Mapping[str, int], now: float) -> None:
        """Ask for the blocks that are missing, or end those that are idle, the longest idle one first."""
        settings, idle = self.settings, self._idle_times()
        # The manager of such a block has gone: it takes no more attempts, and goes on for those that it has.
        closed = [name for name in self.blocks if name in busy and name not in idle]
        slots = settings.nodes_per_block * settings.workers_per_node
        needed = -(-(work - sum(busy[name] for name in closed)) // slots)
        wanted = min(settings.blocks_max, max(settings.blocks_min, needed) + len(closed))
        if len(self.blocks) < wanted and now >= self._again_at:
            self._ask(wanted - len(self.blocks), now)
        elif len(self.blocks) > wanted:
            # A block that is not busy and has no manager has not come up, or has nothing left to do.
            times = [(idle.get(name, math.inf), name) for name in self.blocks if name not in busy]
            over = [name for seconds, name in sorted(times, reverse=True) if seconds > settings.idle_seconds]
            for name in self._cancel(over[: len(self.blocks) - wanted]):
                del self.blocks[name]

    def _idle_times(self) -> dict[str, float]:
        """How long each block with a manager of Parsl has had no task; 0 if it has one."""
        assert self._executor is not None
        found: dict[str, float] = {}
        for manager in self._executor.connected_managers() if self.blocks else ():
            if manager["active"]:
                idle = 0.0 if manager["tasks"] else float(manager["idle_duration"])
                found[manager["block_id"]] = min(found.get(manager["block_id"], math.inf), idle)
        return found

    def _cancel(self, names: Sequence[str]) -> list[str]:
        """Have the batch system end these blocks; return those that it ends."""
        assert self._executor is not None
        assert self._executor.provider is not None
        for name in names:
            # From now on Parsl gives them no tasks.
            self._executor._hold_block(name)
        jobs = [self._executor.blocks_to_job_id[name] for name in names]
        done = self._executor.provider.cancel(jobs) if jobs else ()
        return [name for name, is_done in zip(names, done, strict=True) if is_done]

    def note_work(self, name: str) -> None:
        """Note that an attempt has begun in a block, and shorten the pause after the next problem again."""
        block = self.blocks.get(name)
        if block is not None:
            block.has_worked = True
            self._again_seconds = AGAIN_SECONDS

    def expect_end(self, name: str, task: str) -> None:
        """Note that a block with this task is about to end, so that the pool asks for a new block soon.

        Parsl alone would be slow: it looks at blocks once a minute, and gives up the tasks of an ended block only after
        several heartbeats are missing.
        """
        self._ending.setdefault(name, set()).add(task)

    def _hurry(self, now: float) -> None:
        """Have Parsl ask at once, then at growing intervals, about ending blocks; forget the tasks of ended ones."""
        assert self._executor is not None
        for name in [name for name in self._ending if name not in self.blocks]:
            self.tasks -= self._ending.pop(name)
        if not self._ending:
            self._ask_at, self._ask_seconds = 0.0, AGAIN_SECONDS
        elif now >= self._ask_at:
            self._executor._last_poll_time = 0.0
            self._ask_at = now + self._ask_seconds
            self._ask_seconds = min(2 * self._ask_seconds, AGAIN_SECONDS_MAX)

    def _poll(self, now: float) -> None:
        """Ask the batch system for the states of blocks; raise its error after SILENT_SECONDS_MAX without an answer."""
        assert self._executor is not None
        self._hurry(now)
        try:
            self._executor.poll_facade()
        except Exception as error:
            self._silent_since = self._silent_since or now
            if now - self._silent_since > SILENT_SECONDS_MAX:
                raise
            self.problem = f"the batch system does not say how its jobs are: {error}"
        else:
            self._silent_since = 0.0

    def _ask(self, count: int, now: float) -> None:
        """Ask the batch system for this many blocks."""
        assert self._executor is not None
        for name in self._executor.scale_out_facade(count):
            self.blocks[name] = Block(name, str(self._executor.blocks_to_job_id[name]), now)
        if not self.blocks:
            failed = [one for one in self._executor.status_facade.values() if one.terminal and one.message]
            self._note_problem(refusal_in(failed[-1]) if failed else "", now)

    def _note_problem(self, text: str, now: float) -> None:
        """Note why a block did not come; try again after a pause, which doubles each time."""
        self.problem = text or self.problem
        self._again_at = now + self._again_seconds
        self._again_seconds = min(2 * self._again_seconds, AGAIN_SECONDS_MAX)

    def reason(self) -> str:
        """Why no block comes, in the words of the batch system."""
        try:
            jobs = [block.job for block in self.blocks.values()]
            known = slurm.look_up(jobs) if self.settings.provider == "slurm" else {}
        except ResileError as error:
            return error.message
        return "; ".join(map(str, known.values())) or self.problem or "the batch system gives no reason"

    def close(self, *, cancel: bool) -> None:
        """Stop Parsl's executor; with `cancel` end the blocks, else they go on with their attempts."""
        if self._executor is None:
            return
        executor, self._executor = self._executor, None
        try:
            running = [job for name, job in executor.blocks_to_job_id.items() if name in self.blocks]
            if cancel and running:
                assert executor.provider is not None
                executor.provider.cancel(running)
        finally:
            executor.shutdown()


def _message_of(status: Any) -> str:
    """Parsl's message about a block that ended, with the end of its stderr, in one line."""
    text = " ".join(str(status.message or "").split()) if status is not None else ""
    tail = " ".join(str(getattr(status, "stderr_summary", None) or "").split())
    return f"{text} {tail}".strip()[:500]


def refusal_in(status: Any) -> str:
    """Why the batch system refused a block: its stderr, if Parsl's message has that, else the whole message."""
    before, _, after = str(status.message or "").partition("stderr=")
    return " ".join((after or before).split())[:500]


def _quote(text: str) -> str:
    """Quote a word for the shell, and for Parsl, which formats the command twice."""
    import shlex

    return shlex.quote(text).replace("{", "{{{{").replace("}", "}}}}")


def now() -> float:
    """The monotonic clock, by which pools measure."""
    return time.monotonic()
