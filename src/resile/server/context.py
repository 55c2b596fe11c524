"""The parts of a server that all its endpoints use."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from resile.commands.documents.base import timestamp
from resile.server.access.origin import OriginGuard
from resile.server.access.tokens import TokenBook
from resile.server.stores import Stores
from resile.server.streams.watcher import Watcher

if TYPE_CHECKING:
    from threading import Thread

    from resile.engine.host.host import Host
    from resile.server.metrics.tally import Tally


class ServerContext:
    """The parts of a running server. `begin` sets those without a value before the first endpoint is called."""

    host: Host
    keeper: Thread
    tally: Tally
    make_openapi: Callable[[], bytes]

    def __init__(
        self,
        *,
        stores: Stores,
        watcher: Watcher,
        tokens: TokenBook,
        guard: OriginGuard,
        output: str,
    ) -> None:
        self.stores = stores
        self.watcher = watcher
        self.tokens = tokens
        self.guard = guard
        self.output = output
        self.is_stopping = False
        # By how many seconds the event loop woke up late at the last measurement.
        self.loop_lag_seconds = 0.0

    def log(self, text: str) -> None:
        """Write one line of the log."""
        write_log(text)


def write_log(text: str) -> None:
    """Write one line of the server's log; any thread may call it."""
    line = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    sys.stderr.write(f"{timestamp(time.time())} {line}\n")
    sys.stderr.flush()
