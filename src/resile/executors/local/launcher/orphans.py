"""Processes that attempts left behind, and others whose end the launcher waits for.

Every living descendant of a leader that has ended falls to the launcher, which is a subreaper: as a child of its first
thread, while the leaders are children of their slots' threads. So what the kernel lists as children of the first
thread are orphans and nothing else.

Runs inside the launcher, so only built-in modules are imported.
"""

from __future__ import annotations

import posix
import select

from resile.executors.local import processes
from resile.executors.local.launcher import system_calls

CHILDREN_BYTES = 4096
CHILDREN_BYTES_MAX = 1024 * 1024


class Orphans:
    """Those that are known; made by the launcher's first thread."""

    def __init__(self, epoll: select.epoll) -> None:
        self.epoll = epoll
        self.children = system_calls.open_children() if system_calls.become_subreaper() else -1
        self.known: set[int] = set()
        # Of processes whose end somebody waits for: by their pidfds.
        self.mortals: dict[int, int] = {}

    def can_be_found(self) -> bool:
        """Does the system tell of them?"""
        return self.children >= 0

    def find(self) -> list[processes.Process]:
        """Living ones that were not known; what has ended meanwhile is let go."""
        children = posix.pread(self.children, CHILDREN_BYTES, 0)
        if len(children) == CHILDREN_BYTES:
            children = posix.pread(self.children, CHILDREN_BYTES_MAX, 0)
        found = []
        for pid in map(int, children.split()):
            if pid in self.known:
                continue
            entry = processes.process(pid)
            if entry is None or not entry.alive:
                system_calls.take_exit(pid)
                continue
            if self.mourn(pid):
                self.known.add(pid)
            found.append(entry)
        return found

    def mourn(self, pid: int) -> bool:
        """Have the end of a process noticed; False where that can't be."""
        if pid not in self.mortals.values():
            try:
                descriptor = posix.pidfd_open(pid)
            except OSError:
                return False
            self.mortals[descriptor] = pid
            self.epoll.register(descriptor, select.EPOLLIN)
        return True

    def bury(self, descriptor: int) -> None:
        """A process has ended; if it fell to us, its exit is taken."""
        pid = self.mortals.pop(descriptor)
        posix.close(descriptor)
        self.known.discard(pid)
        system_calls.take_exit(pid)
