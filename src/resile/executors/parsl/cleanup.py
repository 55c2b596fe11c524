"""Ends the blocks of a run: those of this machine by their processes, those of Slurm by their allocations.

A killed engine leaves its blocks. The next engine of the run ends the blocks that have no attempts left.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread

from resile.executors.local import processes
from resile.executors.parsl import slurm
from resile.executors.parsl.node import files
from resile.executors.parsl.nodes import Identity, Nodes
from resile.model.executor import ExecutorSettings

SECONDS_MAX = 8.0
AGAIN_SECONDS = 0.05


def first_number(settings: ExecutorSettings, label: str) -> int:
    """The first block number above those of all the run's allocations in Slurm."""
    if settings.provider != "slurm" or not slurm.is_there():
        return 1
    used = [one.name.rpartition("-")[2] for one in slurm.allocations_of(label)]
    return max((int(number) for number in used if number.isdigit()), default=0) + 1


def end_blocks(settings: ExecutorSettings, label: str, nodes: Nodes, keep: set[str]) -> None:
    """End all blocks of a run, except those of the nodes to `keep`, which still run attempts."""
    kept = {node.identity for token, node in list(nodes.known.items()) if token in keep and node.identity is not None}
    # End the blocks on this machine even if Slurm does not answer.
    try:
        if settings.provider == "slurm" and slurm.is_there():
            kept_allocations = {identity.allocation for identity in kept}
            open_ones = [one for one in slurm.allocations_of(label) if not one.is_over]
            slurm.cancel(one.id for one in open_ones if one.id not in kept_allocations)
    finally:
        _end_processes(nodes, kept)


def _end_processes(nodes: Nodes, kept: set[Identity]) -> None:
    """End the agents on this machine, except those to keep, and then the other processes of their blocks."""
    found = {node.identity for node in list(nodes.known.values()) if node.identity is not None} - kept
    found = {identity for identity in found if identity.is_here() and identity.tag not in {one.tag for one in kept}}
    for identity in found:
        entry = identity.agent()
        if entry is not None:
            processes.send_all({entry.pid: entry}, signal.SIGTERM)
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline and any(identity.agent() is not None for identity in found):
        time.sleep(AGAIN_SECONDS)
    left = [entry for identity in found if (entry := identity.agent()) is not None]
    processes.kill_all(left, time.monotonic() + processes.KILL_SECONDS_MAX)
    processes.end_orphans({processes.attempt_tag(one.tag.encode(), files.BLOCK): None for one in found})


def call_aside(function: Callable[[], None]) -> Future[None]:
    """Call a function in a new daemon thread; the future is done when it returns."""
    future: Future[None] = Future()

    def call() -> None:
        """Call the function, and put its end or its exception into the future."""
        try:
            function()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(None)

    Thread(target=call, name="resile-aside", daemon=True).start()
    return future
