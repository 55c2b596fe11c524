"""Leases that a host gives back: at once if it has given none back for a moment, else together with the next ones."""

from __future__ import annotations

import math
import time

from resile.engine.host.releases import PAUSE_SECONDS, Releases
from resile.store.contract import Lease
from resile.store.lease import boot_seconds

from .harness import Hosts


def test_leases_are_released_together(hosts: Hosts) -> None:
    """The first is released at once; those that follow within the pause wait for its end."""
    runs = hosts.submit("steps: [{shell: 'true'}]", count=3)
    first, second, third = (lease for _, lease in hosts.tables.take_due(time.time(), boot_seconds(), 600.0, 3))

    def held() -> list[int]:
        return [run for run in runs if hosts.store.lease(run, boot_seconds()) is not None]

    releases = Releases(hosts.tables, lambda: None, lambda _: None)
    assert releases.look(100.0) == math.inf
    releases.end(first)
    assert releases.look(100.0) == math.inf
    assert held() == [second.run, third.run]
    releases.end(second)
    assert releases.look(100.01) == 100.0 + PAUSE_SECONDS
    releases.hand_back(third, time.time() + 600)
    assert releases.look(100.02) == 100.0 + PAUSE_SECONDS
    assert held() == [second.run, third.run]
    assert releases.look(100.0 + PAUSE_SECONDS) == math.inf
    assert held() == []


def test_a_host_that_leaves_releases_at_once(hosts: Hosts) -> None:
    """`wait` releases what the pause has kept back."""
    hosts.submit("steps: [{shell: 'true'}]", count=2)
    leases: list[Lease] = [lease for _, lease in hosts.tables.take_due(time.time(), boot_seconds(), 600.0, 2)]
    releases = Releases(hosts.tables, lambda: None, lambda _: None)
    for lease in leases:
        releases.hand_back(lease, None)
        releases.look(100.0)
    assert hosts.store.lease(leases[1].run, boot_seconds()) is not None
    releases.wait(1.0)
    assert hosts.store.lease(leases[1].run, boot_seconds()) is None
