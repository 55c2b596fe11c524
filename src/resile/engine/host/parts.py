"""What a host opens before it drives runs: a writer, the bell of its store, its folder, and the hub with a launcher.

If one of them can't be opened, the others are closed again: a server tries until its database works.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from resile.executors.shared.open_hub import ServerFolder, open_hub
from resile.store.errors import StoreError

if TYPE_CHECKING:
    from resile.executors.shared.hub import Hub
    from resile.executors.shared.places import Room
    from resile.store.contract import Bell, Writer
    from resile.store.server_tables import SharedStore


class HostParts:
    """The parts of one host."""

    def __init__(self, store: SharedStore, output: str, slots: int, labels: frozenset[str], room: Room) -> None:
        """Open them. The database comes first, because it is what a server may have to wait for."""
        with ExitStack() as opened:
            self.writer: Writer = store.writer()
            opened.callback(self._close_writer)
            self.bell: Bell | None = store.bell(0)
            if self.bell is not None:
                opened.callback(self.bell.close)
            folder = ServerFolder.take(output)
            opened.callback(folder.close)
            self.hub: Hub = open_hub(folder, slots, labels, room)
            opened.callback(self.hub.close)
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Close them; the next host may take over the launcher."""
        self._opened.close()

    def _close_writer(self) -> None:
        with suppress(StoreError):
            self.writer.close()
