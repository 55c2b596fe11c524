"""What a host opens: if one part can't be opened, the others are closed again."""

from __future__ import annotations

import os

import pytest

from resile.engine.host.parts import HostParts
from resile.errors import ResileError
from resile.executors.shared.open_hub import ServerFolder
from resile.executors.shared.places import Room
from resile.store.errors import StoreError

from .harness import Hosts

ROOM = Room(2, 2**30, [])


def test_a_database_that_gives_no_writer_leaves_no_folder_behind(hosts: Hosts) -> None:
    """Then nothing else is opened: neither a folder is locked, nor a launcher started."""
    output = str(hosts.folder / "output")
    writer = hosts.store.writer()
    for _ in range(3):
        with pytest.raises(StoreError, match="already has its writer"):
            HostParts(hosts.store, output, 1, frozenset(), ROOM)
    writer.close()
    assert not os.path.exists(output)


def test_a_folder_that_can_not_be_made_leaves_the_database_free(hosts: Hosts) -> None:
    """The writer is closed, so that the next try may open it, and takes the first folder."""
    output = hosts.folder / "output"
    output.mkdir(mode=0o700)
    (output / "servers").write_text("")
    for _ in range(3):
        with pytest.raises((ResileError, OSError)):
            HostParts(hosts.store, str(output), 1, frozenset(), ROOM)
    (output / "servers").unlink()
    parts = HostParts(hosts.store, str(output), 1, frozenset(), ROOM)
    assert ServerFolder.lock(f"{output}/servers/{os.uname().nodename}-0") is None
    parts.close()
    assert os.listdir(output / "servers") == [f"{os.uname().nodename}-0"]
