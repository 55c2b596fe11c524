"""Executes attempts on blocks of nodes. node/agent.py runs on the nodes; node/files.py has what both sides write.

    start --> waiting --submission, a task of Parsl--> a node takes it --> its spool --> reports

Only the files of the nodes say what became of an attempt; a future of Parsl just wakes the engine up. If the future
failed, or a node is gone, the executor gives up the submission. If no node has taken it, the executor submits the
attempt again.

A thread tends the pools: it starts Parsl, starts and ends blocks as the work needs them, and reads the nodes' files.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from typing import Any

from msgspec.structs import replace

from resile.executors.contract import MEASURED, Launch, Report, Withdrawn
from resile.executors.fence import Fence
from resile.executors.local import wire
from resile.executors.parsl.archive import write_archive
from resile.executors.parsl.attempts import AttemptsOnNodes
from resile.executors.parsl.cleanup import call_aside, end_blocks, first_number
from resile.executors.parsl.node import files
from resile.executors.parsl.nodes import Key
from resile.executors.parsl.on_order.shapes import settings_of, with_scheduler
from resile.executors.parsl.orders import BATCH_MAX, Item
from resile.executors.parsl.pools import Pool, Shape, now, shape_of
from resile.executors.parsl.providers import provider_maker
from resile.executors.parsl.tasks import encode_config, encode_task
from resile.executors.parsl.verdicts import explain, never_started, refusal_of
from resile.model.cluster import Cluster
from resile.model.executor import POOLS_MAX, ExecutorSettings

LOOK_SECONDS = 0.2
TEND_SECONDS = 1.0
NODES_SECONDS = 2.0
# The number of tasks that the executor keeps waiting at Parsl for each worker, besides the task that runs.
TASKS_AHEAD = 2


class ParslExecutor(AttemptsOnNodes):
    """Attempts on blocks of nodes; see the Executor contract for the methods."""

    def __init__(
        self,
        folder: str,
        *,
        settings: ExecutorSettings,
        cluster: Cluster | None = None,
        run: int,
        parallel: int,
        label: str,
        base_env: Mapping[bytes, bytes],
        directory: bytes,
        fence: Fence,
        secrets: Sequence[bytes] = (),
        clock_offset: float = 0.0,
        sample_seconds: float = 0.0,
        is_hosted: bool = False,
    ) -> None:
        """Open the run with this output folder, which all nodes see.

        Nodes measure attempts every `sample_seconds`; 0 means never. `is_hosted` says that a host drives other runs in
        this thread, too: `close` then returns at once, and the future `closing` is done when the blocks have ended.
        """
        super().__init__(os.path.abspath(folder), fence, clock_offset)
        self._settings, self._described = settings, cluster
        self._parallel, self._label, self._is_hosted = parallel, label, is_hosted
        self.closing: Future[None] | None = None
        write_archive(os.path.join(self._cluster, files.ARCHIVE))
        self._config = encode_config(
            label, fence, clock_offset, directory, settings.directory, secrets, base_env, sample_seconds
        )
        self._waiting: dict[Shape, list[Key]] = {}
        self._pools: dict[Shape, Pool] = {}
        self._make_provider = provider_maker(settings, run, label, self._numbers())
        self._submissions = 0
        self._problem: BaseException | None = None
        busy = self._former.busy_nodes()
        self._thread = threading.Thread(target=self._guard, args=(busy,), name="resile-blocks", daemon=True)
        self._thread.start()

    # --- the contract

    def fileno(self) -> int:
        return self._wakeup_fd

    def start(self, launches: Sequence[Launch]) -> None:
        self._fence.check()
        with self._lock:
            for launch in launches:
                key = launch.job, launch.attempt
                if wire.start_frame(launch) is None:
                    self._report(refusal_of(launch, self._now()))
                    continue
                if self._settings.provider != "local" and launch.memory_bytes in (0, MEASURED):
                    # Attempts share an allocation, so limit each to the memory that its step asks for.
                    launch = replace(launch, memory_bytes=launch.share.memory_bytes or launch.memory_bytes)
                self._items[key] = Item(launch=launch)
                self._waiting.setdefault(self._shape_of(launch), []).append(key)
            self._dispatch()
        self._has_work.set()

    def kill(self, job: int, attempt: int) -> None:
        with self._lock:
            key = job, attempt
            item = self._items.get(key)
            if item is None:
                return
            item.is_killed = True
            if self._give_up(key, item, files.END):
                self._end(key, Withdrawn(job, attempt, self._now()))
            elif item.node is not None and item.node.is_lonely():
                item.node.end_leftovers({key: item.leader})

    def drain(self) -> None:
        with self._lock:
            self._is_draining = True
            for key, item in list(self._items.items()):
                if item.node is None and self._give_up(key, item):
                    self._end(key, Withdrawn(*key, self._now()))
            files.append(self._orders, [b"%s %d" % (files.DRAIN, self._fence.number)])

    def reports(self) -> list[Report]:
        with suppress(BlockingIOError):
            os.eventfd_read(self._wakeup_fd)
        with self._lock:
            if self._problem is not None:
                raise explain(self._problem)
            self._collect()
            self._dispatch()
            ready, self._ready = self._ready, []
        return ready

    def queued_count(self) -> int:
        with self._lock:
            # Reports that the engine has not read count, too: it must not stop before it has read them.
            return sum(not item.begun for item in self._items.values()) + len(self._ready)

    def acknowledge(self) -> None:
        """Do nothing: the nodes never delete their files."""

    def close(self, *, finished: bool = False) -> None:
        self._is_closed.set()
        self._has_work.set()
        if self._is_hosted:
            self.closing = call_aside(lambda: self._close(finished))
        else:
            self._close(finished)

    def _close(self, finished: bool) -> None:
        """End the thread and the pools. If no attempt is left, also end the blocks, unless another engine has them."""
        self._thread.join()
        is_over = (finished or not self._items) and not self._fence.is_closed()
        # The stack calls the last callback first, and all of them even if one raises.
        with ExitStack() as left:
            left.callback(self._fence.close)
            left.callback(os.close, self._wakeup_fd)
            if is_over:
                left.callback(self._end_blocks)
            for pool in self._pools.values():
                left.callback(pool.close, cancel=is_over)

    def _end_blocks(self) -> None:
        """End all blocks of the run."""
        self._nodes.look()
        end_blocks(self._settings, self._label, self._nodes, keep=set())

    # --- on the way to a node

    def _numbers(self) -> Iterator[int]:
        """The numbers of the next blocks; it asks Slurm for the first one only when a block needs it."""
        yield from itertools.count(first_number(self._settings, self._label))

    def _shape_of(self, launch: Launch) -> Shape:
        """The shape of an attempt, with the scheduler that its step wants."""
        shape = shape_of(self._settings, launch.share, launch.timeout_seconds)
        return shape if self._described is None else with_scheduler(shape, self._settings, self._described, launch.step)

    def _dispatch(self) -> None:
        """Submit waiting attempts to open pools, up to TASKS_AHEAD tasks for each worker besides the one that runs."""
        if self._is_draining:
            return
        for shape, keys in self._waiting.items():
            pool = self._pools.get(shape)
            if not keys or pool is None or not pool.is_open:
                continue
            room = self._settings.slots * (1 + TASKS_AHEAD) - len(pool.tasks)
            in_flight = sum(bool(item.submission) for item in self._items.values()) if room > 0 else 0
            while keys and room > 0 and in_flight < self._parallel * (1 + TASKS_AHEAD):
                batch = self._next_batch(keys, max(1, len(keys) // (2 * self._settings.slots)))
                self._submit(pool, batch)
                in_flight += len(batch)
                room -= 1

    def _next_batch(self, keys: list[Key], fair: int) -> list[Key]:
        """Take the attempts for the next task: one, or up to `fair` short ones, so that other workers get some, too."""
        batch = [keys.pop(0)]
        if self._is_short(batch[0]):
            while keys and len(batch) < min(fair, BATCH_MAX) and self._is_short(keys[0]):
                batch.append(keys.pop(0))
        return batch

    def _is_short(self, key: Key) -> bool:
        launch = self._items[key].launch
        return launch is not None and self._durations.is_short(launch)

    def _submit(self, pool: Pool, batch: list[Key]) -> None:
        """Submit these attempts to Parsl as one task."""
        self._submissions += 1
        submission = f"{self._fence.number}.{self._submissions}"
        launches = []
        for key in batch:
            item = self._items[key]
            assert item.launch is not None
            item.submission, item.pool = submission, pool
            launches.append(item.launch)
        pool.tasks.add(submission)
        pool.submit(encode_task(self._config, submission, launches)).add_done_callback(
            self._make_callback(pool, batch, submission)
        )

    def _make_callback(self, pool: Pool, batch: list[Key], submission: str) -> Callable[[Future[None]], None]:
        """Make the callback for the end of a task: it submits attempts of a lost task again, and wakes the engine."""

        def wake(future: Future[None]) -> None:
            # Parsl swallows the exceptions of callbacks, so keep them: `reports` raises them.
            try:
                with self._lock:
                    pool.tasks.discard(submission)
                    is_lost = future.cancelled() or future.exception() is not None
                    if is_lost and not self._is_closed.is_set():
                        self._try_again(batch, submission)
            except BaseException as problem:
                self._problem = problem
            self._wake()

        return wake

    def _try_again(self, keys: Sequence[Key], submission: str) -> None:
        """Submit again the attempts of a task that Parsl has lost, except those that a node has taken: these go on."""
        self._collect()
        for key in keys:
            item = self._items.get(key)
            if item is None or item.submission != submission or item.launch is None or item.node is not None:
                continue
            if self._give_up(key, item) and not item.is_killed:
                item.submission, item.pool = "", None
                self._waiting.setdefault(self._shape_of(item.launch), []).insert(0, key)
        self._has_work.set()

    def _give_up(self, key: Key, item: Item, order: bytes = files.REVOKE) -> bool:
        """Give up a submission; True if no node will start the attempt, False if a node has it and gets `order`."""
        if not item.submission:
            for keys in self._waiting.values():
                if key in keys:
                    keys.remove(key)
            return item.node is None
        files.append(self._orders, [b"%s %d %d %s" % (order, *key, item.submission.encode())])
        if item.node is None:
            self._nodes.find_all()
            self._collect()
        return key in self._items and item.node is None

    # --- the thread that tends pools

    def _guard(self, busy: set[str]) -> None:
        """End earlier engines' blocks, except those of busy nodes; then tend the pools. `reports` raises errors."""
        try:
            end_blocks(self._settings, self._label, self._nodes, keep=busy)
            self._tend()
        except BaseException as problem:
            self._problem = problem
            self._wake()

    def _tend(self) -> None:
        """Start pools, start and end blocks as the work needs them, and read the nodes' files, until `close`."""
        tend_at = 0.0
        while not self._is_closed.is_set():
            with self._lock:
                shapes = [shape for shape in self._needed_shapes() if shape not in self._pools]
            for shape in shapes:
                self._open_pool(shape)
                tend_at = 0.0
            if now() >= tend_at:
                tend_at = now() + TEND_SECONDS
                self._tend_pools()
            if now() >= self._nodes_at:
                self._nodes_at = now() + NODES_SECONDS
                self._settle_gone()
            self._judge()
            with self._lock:
                if self._nodes.has_grown():
                    self._wake()
            if self._items:
                self._is_closed.wait(LOOK_SECONDS)
            else:
                self._rest()

    def _needed_shapes(self) -> list[Shape]:
        """The shapes that need a pool, because attempts wait."""
        return [shape for shape, keys in self._waiting.items() if keys]

    def _tend_pools(self) -> None:
        """Let each pool start and end blocks as its work needs them."""
        for pool in list(self._pools.values()):
            pool.tend(self._work_of(pool), self._busy_blocks(pool), now())
            self._refuse_stuck(pool)

    def _rest(self) -> None:
        """Wait for work, but not past the next time to tend the pools, whose idle blocks must end."""
        self._has_work.clear()
        if not self._items:
            self._has_work.wait(TEND_SECONDS)

    def _open_pool(self, shape: Shape) -> None:
        """Start the pool of a shape. At the limit of pools first end an idle one; if all have work, do nothing."""
        if len(self._pools) >= POOLS_MAX:
            idle = next((one for one, pool in self._pools.items() if not self._work_of(pool)), None)
            if idle is None:
                return
            self._pools.pop(idle).close(cancel=True)
        pool = self._make_pool(
            max((pool.index for pool in self._pools.values()), default=-1) + 1,
            shape,
            settings_of(self._settings, shape),
            folder=self._folder,
            run_folder=os.path.join(self._cluster, f"parsl-{self._fence.number}"),
            make_provider=self._make_provider,
        )
        pool.open()
        with self._lock:
            self._pools[shape] = pool
            self._dispatch()

    def _make_pool(self, *given: Any, **keys: Any) -> Pool:
        return Pool(*given, **keys)

    def _work_of(self, pool: Pool) -> int:
        """The number of attempts for a pool: those submitted to it, and those of its shape that wait here."""
        with self._lock:
            sent = sum(item.pool is pool for item in self._items.values())
            return sent + len(self._waiting.get(pool.shape, ()))

    def _busy_blocks(self, pool: Pool) -> Counter[str]:
        """The number of attempts that the nodes of each of a pool's blocks have."""
        with self._lock:
            nodes = [item.node for item in self._items.values() if item.pool is pool and item.node is not None]
            return Counter(node.identity.block for node in nodes if node.identity is not None)

    def _refuse_stuck(self, pool: Pool) -> None:
        """Fail the attempts of a pool if it has had no block that works for longer than the limit."""
        limit = self._settings.queue_limit_seconds
        if not pool.stuck_since or now() - pool.stuck_since < limit:
            return
        reason = pool.reason()
        with self._lock:
            pool.stuck_since = 0.0
            for key, item in list(self._items.items()):
                mine = item.pool is pool or key in self._waiting.get(pool.shape, ())
                if mine and item.node is None and self._give_up(key, item):
                    self._end(key, never_started(key, self._now(), f"no block came up within {limit:g} s: {reason}"))
