"""The engine's side of the helper process: starts it, sends requests, and kills it if it does not answer in time.

A helper answers each request once and in order. One that did not answer is killed with its worker, so that an answer is
never mistaken for that of another request.
"""

from __future__ import annotations

import _socket
import os
import sys
import time
from contextlib import suppress
from importlib.machinery import PathFinder

from resile.errors import ResileError
from resile.languages.javascript.limits import PATIENCE_SECONDS, RESULT_BYTES_MAX, SILENCE_SECONDS, START_SECONDS_MAX

# Make packages of these names without running their __init__, so that the helper loads only its three files.
_BOOT = (
    "import sys\n"
    "path = sys.argv[1]\n"
    "for name in ('resile', 'resile.languages', 'resile.languages.javascript'):\n"
    "    module = sys.modules[name] = type(sys)(name)\n"
    "    module.__path__ = [path + name[6:].replace('.', '/')]\n"
    "sys.path.append(sys.argv[2])\n"
    "from resile.languages.javascript.helper_process import main\n"
    "main()\n"
)
_SIGKILL = 9
RECEIVE_BYTES = 64 * 1024
_killed: set[int] = set()


class HelperLost(Exception):
    """The helper died, or violated the protocol."""


class HelperSilent(Exception):
    """The helper did not answer in time."""


class Helper:
    """One helper process and our end of its socket."""

    def __init__(self) -> None:
        reap()
        here = os.path.dirname(os.path.abspath(__file__))
        argv = [sys.executable, "-I", "-S", "-c", _BOOT, os.path.dirname(os.path.dirname(here)), _engine_folder()]
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM, 0)
        # Pass nothing of the engine's environment, least of all secrets, except what the interpreter needs to start.
        environment = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        actions = (
            (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        )
        self.pid = os.posix_spawn(sys.executable, argv, environment, file_actions=actions, setsid=True, setsigmask=())
        theirs.close()
        self._socket = ours
        self._greeted = False

    def ask(self, request: bytes) -> bytes:
        """The answer to a request; the start of a new helper does not count towards the time."""
        try:
            if not self._greeted:
                self._greeted = self._answer(START_SECONDS_MAX) == b"H"
            return self._answer(PATIENCE_SECONDS, request)
        except TimeoutError:
            raise HelperSilent("does not answer" if self._greeted else "does not start") from None
        except OSError:
            raise HelperLost("died over this code" if self._greeted else "can't be started") from None

    def _answer(self, seconds: float, request: bytes | None = None) -> bytes:
        """Send a request, if there is one, and receive the next frame."""
        deadline = time.monotonic() + seconds
        if request is not None:
            self._socket.settimeout(seconds)
            self._socket.sendall(len(request).to_bytes(4, "big") + request)
        data = bytearray()
        length = 4
        while len(data) < length:
            self._socket.settimeout(SILENCE_SECONDS)
            try:
                more = self._socket.recv(RECEIVE_BYTES)
            except TimeoutError:
                if time.monotonic() > deadline or self._is_stopped():
                    raise
                continue
            data += more
            if len(data) >= 4:
                length = 4 + int.from_bytes(data[:4], "big")
            if not more or length > 4 + RESULT_BYTES_MAX or len(data) > length:
                raise ConnectionError
        return bytes(data[4:])

    def _is_stopped(self) -> bool:
        """Did a signal stop the helper or its worker? Then it would never answer."""
        with suppress(OSError):
            with open(f"/proc/{self.pid}/task/{self.pid}/children", encoding="ascii") as file:
                workers = file.read().split()
            for pid in (self.pid, *workers):
                with open(f"/proc/{pid}/stat", "rb") as file:
                    if file.read().rpartition(b")")[2].split()[0] in (b"T", b"t"):
                        return True
        return False

    def kill(self) -> None:
        """Kill the helper and its worker, without waiting for them."""
        self._socket.close()
        self.end()
        _killed.add(self.pid)
        reap()

    def end(self) -> None:
        """Let both processes end; a thread that waits for an answer then learns that the helper is lost."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, _SIGKILL)


def reap() -> None:
    """Reap the killed helpers that have exited."""
    for pid in tuple(_killed):
        try:
            done = os.waitpid(pid, os.WNOHANG)[0]
        except ChildProcessError:
            done = pid
        if done:
            _killed.discard(pid)


def _engine_folder() -> str:
    """The folder of the JavaScript engine, for the helper, which starts without site-packages."""
    spec = PathFinder.find_spec("_quickjs")
    if spec is None or spec.origin is None:
        raise ResileError(
            "sandbox_missing", "the JavaScript engine is not installed", hint="install the package quickjs-ng"
        )
    return os.path.dirname(spec.origin)
