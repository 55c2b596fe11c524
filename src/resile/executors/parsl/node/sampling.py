"""Samples what the attempts of a node use, if the workflow asks for it; the agent calls it from its loop.

Only modules of Python itself are imported.
"""

from __future__ import annotations

import time
from contextlib import suppress

from resile.executors.parsl.node.launchers import Key, NodeLauncher
from resile.executors.samples import Watched, append_series, encode_series, sample_sessions


class NodeSampler:
    """Takes samples of the attempts that run on a node; without an `interval` it takes none."""

    def __init__(self) -> None:
        self.interval = 0.0
        self._due = 0.0
        self._watched: dict[tuple[str, Key], Watched] = {}

    def sample(self, launchers: list[NodeLauncher]) -> None:
        """Take samples of all attempts that run, if it is time."""
        now = time.monotonic()
        if not self.interval or now < self._due:
            return
        self._due = now + self.interval
        leaders = {
            leader[0]: (launcher.token, key)
            for launcher in launchers
            for key, (_, leader) in launcher.open.items()
            if leader is not None
        }
        for pid, (rss_bytes, cpu_ticks) in sample_sessions(frozenset(leaders)).items() if leaders else ():
            self._watched.setdefault(leaders[pid], Watched(self.interval)).add(now, rss_bytes, cpu_ticks)

    def end(self, launcher: NodeLauncher, keys: list[Key]) -> None:
        """Write the series of attempts that have ended; a full disk is ignored, because attempts matter more."""
        for key in keys:
            watched = self._watched.pop((launcher.token, key), None)
            if watched is not None:
                with suppress(OSError):
                    append_series(launcher.folder, encode_series(*key, watched.interval, watched.samples))

    def close(self, launchers: list[NodeLauncher]) -> None:
        """Write the series of all attempts that are left."""
        for launcher in launchers:
            self.end(launcher, [key for token, key in self._watched if token == launcher.token])
