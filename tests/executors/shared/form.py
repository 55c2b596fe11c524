"""The executor of one run of a server, in the form of an executor that stands alone: a hub, its launcher, one view."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from resile.executors.contract import Launch, Report
from resile.executors.fence import Fence
from resile.executors.local.prestart import Prestarted
from resile.executors.local.processes import boot_seconds
from resile.executors.shared.open_hub import ServerFolder, open_hub
from resile.executors.shared.open_view import open_view
from resile.executors.shared.places import Room

NEWS_SECONDS_MAX = 30.0


class SharedForm:
    """What a server does for the engine of one run, with the calls of an executor."""

    def __init__(
        self,
        folder: str,
        *,
        slots: int,
        label: str,
        base_env: Mapping[bytes, bytes],
        directory: bytes,
        fence: Fence,
        secrets: Sequence[bytes] = (),
        launcher: Prestarted | None = None,
        clock_offset: float = 0.0,
    ) -> None:
        """`folder` is that of the run's epoch; the server's own is inside of it."""
        if launcher is not None:
            launcher.socket.close()
        self._server = ServerFolder.take(os.path.join(folder, "server"))
        self._hub = open_hub(self._server, slots, frozenset(), Room(1e9, 2**62))
        self._open_view = partial(
            open_view,
            self._hub,
            folder,
            run=1,
            epoch=1,
            priority=0,
            parallel=2**31,
            is_new=False,
            label=label,
            base_env=base_env,
            directory=directory,
            secrets=secrets,
            clock_offset=clock_offset,
        )
        self._folder = folder
        self._view = self._open_view(fence=fence)
        self._epoll = select.epoll()
        for descriptor in (self._hub.fileno(), self._view.fileno()):
            self._epoll.register(descriptor, select.EPOLLIN)

    def leave(self) -> None:
        """Close the engine of the run, as a server does that can't drive it now; its steps go on."""
        self._epoll.unregister(self._view.fileno())
        self._view.close(finished=False)

    def take_again(self) -> None:
        """Drive the run again."""
        self._view = self._open_view(fence=Fence(self._folder, time.time_ns() // 1000, lambda: None))
        self._epoll.register(self._view.fileno(), select.EPOLLIN)

    def wait_for_news(self) -> None:
        """Wait until the launcher has told something, and take it though no engine is there."""
        assert self._epoll.poll(NEWS_SECONDS_MAX)
        self._hub.collect(boot_seconds())

    def end_records(self) -> None:
        """End what is left of the run, because another server has it."""
        self._hub.end_records(1)

    def kept(self) -> set[int]:
        """The runs of which attempts are known that no engine has."""
        return self._hub.recorded_runs()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)

    def fileno(self) -> int:
        """Readable when there is something to report."""
        return self._epoll.fileno()

    def start(self, launches: Sequence[Launch]) -> None:
        """Start attempts as slots get free."""
        self._view.start(launches)
        self._hub.assign()

    def reports(self) -> list[Report]:
        """What the host would hand to the engine, after which it gives out free slots."""
        self._hub.collect(boot_seconds())
        found = self._view.reports()
        self._hub.assign()
        return found

    def close(self, *, finished: bool = False) -> None:
        """End as a server does."""
        self._epoll.close()
        self._view.close(finished=finished)
        self._hub.close()
        self._server.close()
