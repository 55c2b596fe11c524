"""A warm interpreter that forks for each command: the real program without the start of an interpreter.

    test --(words, folder, environment, two pipes)--> warm process --fork--> resile.cli.main --> exit code

Most tests of whole runs ask what a run does and not how the program starts; they call it a thousand times. What the
start itself does is tested with real starts (`Program.call`).
"""

from __future__ import annotations

import atexit
import os
import socket
import struct
import subprocess
import sys
import traceback
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

LENGTH = struct.Struct("<I")
ROOT = Path(__file__).parents[2]


class WarmProcess:
    """The test's side: one warm process for each process of the test suite."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        argv = [sys.executable, "-m", "tests.cli.warm", str(theirs.fileno())]
        self._process = subprocess.Popen(argv, cwd=ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        theirs.close()
        self._socket = ours
        atexit.register(self.close)

    def run(self, words: list[str], folder: str, env: dict[str, str], timeout: float) -> tuple[int, str, str]:
        """The exit code of a command and what it printed."""
        import select
        import time

        out, out_end = os.pipe()
        err, err_end = os.pipe()
        request = msgspec.msgpack.encode([words, folder, env])
        socket.send_fds(self._socket, [LENGTH.pack(len(request))], [out_end, err_end])
        self._socket.sendall(request)
        os.close(out_end)
        os.close(err_end)
        texts = {out: bytearray(), err: bytearray()}
        open_pipes, deadline = [out, err], time.monotonic() + timeout
        while open_pipes:
            ready, _, _ = select.select(open_pipes, [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{words} did not end in {timeout} s: {texts}"
            for pipe in ready:
                data = os.read(pipe, 65536)
                texts[pipe] += data
                if not data:
                    open_pipes.remove(pipe)
                    os.close(pipe)
        (code,) = struct.unpack("<i", self._socket.recv(4, socket.MSG_WAITALL))
        return code, texts[out].decode(), texts[err].decode()

    def close(self) -> None:
        """End the warm process."""
        self._socket.close()
        self._process.wait()


@cache
def warm_process() -> WarmProcess:
    """The warm process of this process."""
    return WarmProcess()


def serve(connection: socket.socket) -> None:
    """Fork for each request until the test's side is gone."""
    load()
    while True:
        head, pipes, _, _ = socket.recv_fds(connection, LENGTH.size, 2)
        if not head:
            return
        data = connection.recv(LENGTH.unpack(head)[0], socket.MSG_WAITALL)
        child = os.fork()
        if child == 0:
            connection.close()
            carry_out(*msgspec.msgpack.decode(data), pipes)
        for pipe in pipes:
            os.close(pipe)
        _, status = os.waitpid(child, 0)
        connection.sendall(struct.pack("<i", os.waitstatus_to_exitcode(status)))


def load() -> None:
    """Import what commands need, so that no forked process has to."""
    import importlib
    import pkgutil

    import resile.commands
    import resile.engine
    import resile.store.sqlite

    for package in (resile.commands, resile.engine, resile.store.sqlite):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(found.name)
    importlib.import_module("resile.cli.main")


def carry_out(words: list[str], folder: str, env: dict[str, str], pipes: Any) -> None:
    """Become the program, in the forked process; never returns."""
    code = 70
    try:
        os.dup2(pipes[0], 1)
        os.dup2(pipes[1], 2)
        for pipe in pipes:
            os.close(pipe)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(env)
        sys.argv = ["resile", *words]
        from resile.cli.main import main

        ended = main()
        code = ended if isinstance(ended, int) else 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
