"""Helper processes that evaluations share: those of one run, or of all runs that a process drives.

    evaluation --ask--> the next idle helper, or a new one; at most HELPERS_MAX work at a time, further requests wait

Any thread may ask. A helper works on one request at a time. One that is lost or silent is replaced.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Lock, Semaphore

from resile.errors import ResileError
from resile.languages.javascript import limits
from resile.languages.javascript.helper import Helper, HelperLost, HelperSilent
from resile.languages.waiting import Abandoned, waiting


class SandboxSilent(ResileError):
    """No helper answered, although the code may be fine."""


class SandboxLost(Exception):
    """Helpers die over this request, or can't be started."""


class Helpers:
    """Starts helpers when they are needed, and keeps them for later requests."""

    def __init__(self) -> None:
        self.idle: list[Helper] = []
        self._busy: set[Helper] = set()
        self._places = Semaphore(limits.HELPERS_MAX)
        self._lock = Lock()
        # How often the helpers were closed.
        self._closed = 0

    def start(self) -> None:
        """Start a helper without waiting, so that the next request does not wait either."""
        if not self.idle:
            self.idle.append(Helper())

    def ask(self, request: bytes) -> bytes:
        """The answer of a helper, if need be of another one; raises SandboxSilent if none gets to run.

        The kernel ends code that takes too much CPU time, so silence is no error of the code: an answer decided by it
        would send a run the wrong way. And a dead helper may have died for another reason.
        """
        closed = self._closed
        silences = losses = 0
        with waiting(), self._places:
            while True:
                try:
                    return self._ask_one(request, closed)
                except HelperSilent as silent:
                    silences += 1
                    if silences == limits.SILENCES_MAX:
                        raise SandboxSilent(
                            "sandbox_silent",
                            f"the sandbox for expressions {silent}, {silences} times",
                            hint="the machine gives it no time to run; go on when there is less to do",
                        ) from None
                except HelperLost as lost:
                    losses += 1
                    if losses == limits.LOSSES_MAX:
                        raise SandboxLost(f"the sandbox {lost}") from None
                except OSError as error:
                    raise SandboxLost(f"the sandbox can't be started: {error}") from None

    def close(self) -> None:
        """Kill the helpers; who waits for one of them is abandoned. A later request would start another."""
        with self._lock:
            self._closed += 1
            idle, self.idle = self.idle, []
            # Their sockets belong to the threads that wait for an answer.
            for helper in self._busy:
                helper.end()
        for helper in idle:
            helper.kill()

    def _ask_one(self, request: bytes, closed: int) -> bytes:
        """The answer of one helper; one that gives none is replaced, ahead of the next request."""
        helper = self._take(closed)
        try:
            answer = helper.ask(request)
        except BaseException:
            self._put(helper, closed, works=False)
            raise
        self._put(helper, closed, works=True)
        return answer

    def _take(self, closed: int) -> Helper:
        """An idle helper, or a new one."""
        with self._lock:
            if self._closed != closed:
                raise Abandoned
            helper = self.idle.pop() if self.idle else Helper()
            self._busy.add(helper)
            return helper

    def _put(self, helper: Helper, closed: int, *, works: bool) -> None:
        """Keep a helper, or kill it and start the next; a failure to start shows with the next request."""
        with self._lock:
            self._busy.discard(helper)
            is_open = self._closed == closed
            if works and is_open:
                self.idle.append(helper)
                return
        helper.kill()
        if is_open:
            with suppress(OSError), self._lock:
                self.start()
