"""Processes that attempts left behind, and other processes whose exit the launcher waits for.

The launcher is a subreaper: the kernel makes every living descendant of an ended leader a child of the launcher's first
thread, while the leaders are children of their slots' threads. So all children of the first thread are orphans.

Runs inside the launcher, so only built-in modules are imported.
"""

from __future__ import annotations

import posix
import select

from resile.executors.local import processes
from resile.executors.local.launcher import system_calls
from resile.executors.local.launcher.memory import PAGE_BYTES


class Orphans:
    """The known orphans; the launcher's first thread creates this object."""

    def __init__(self, epoll: select.epoll) -> None:
        self.epoll = epoll
        self.children = system_calls.open_children() if system_calls.become_subreaper() else -1
        self.known: set[int] = set()
        # pidfd -> pid of each process whose exit the launcher waits for.
        self.expected: dict[int, int] = {}
        self.expected_max = 1

    def can_be_found(self) -> bool:
        """Does the kernel list the children of a thread?"""
        return self.children >= 0

    def find(self) -> list[processes.Process]:
        """Return new living orphans, and reap new ones that have already ended."""
        children = b""
        # The kernel returns at most one page for each read.
        while piece := posix.pread(self.children, PAGE_BYTES, len(children)):
            children += piece
        found = []
        for pid in map(int, children.split()):
            if pid in self.known:
                continue
            entry = processes.read_process(pid)
            if entry is None or not entry.alive:
                system_calls.take_exit(pid)
                continue
            if self.expect_exit_of(pid):
                self.known.add(pid)
            found.append(entry)
        return found

    def expect_exit_of(self, pid: int) -> bool:
        """Have epoll report the exit of a process; False if that is impossible."""
        if pid not in self.expected.values():
            if len(self.expected) >= self.expected_max:
                return False
            try:
                descriptor = posix.pidfd_open(pid)
            except OSError:
                return False
            self.expected[descriptor] = pid
            self.epoll.register(descriptor, select.EPOLLIN)
        return True

    def take_exit_of(self, descriptor: int) -> None:
        """Close the pidfd of a process that has ended, and reap it if it is our child."""
        pid = self.expected.pop(descriptor)
        posix.close(descriptor)
        self.known.discard(pid)
        system_calls.take_exit(pid)
