"""Takes over the launchers of servers of this machine that have ended, with the steps that run in them.

    the folder of the epoch names the servers that drove the run --> one has ended, and a step of the run is open there
    --> lock its folder, so that no other server takes it --> its launcher is an annex of this hub

If another living server has the launcher, or the launcher does not run, this server only reads its records.
"""

from __future__ import annotations

from contextlib import suppress

from resile.errors import ResileError
from resile.executors.contract import Records
from resile.executors.local import processes
from resile.executors.local.recovery import is_alive
from resile.executors.local.shared_records import SharedRecords, servers_of
from resile.executors.shared.annex import Annex
from resile.executors.shared.hub import Hub
from resile.executors.shared.open_hub import ServerFolder, open_executor


def enter_annexes(hub: Hub, folder: str, profile: int) -> dict[str, Records]:
    """Watch the launchers of ended servers in which attempts of this epoch are open.

    Return the folders of these servers, each with the state of its records.
    """
    known = {annex.folder.path: annex for annex in hub.annexes}
    found: dict[str, Records] = {}
    for server, number in servers_of(folder, (hub.server,)).items():
        annex = known.get(server)
        if annex is None and ServerFolder.is_of_this_machine(server) and _has_open(server, number):
            annex = _enter(hub, server)
        if annex is not None:
            annex.executor.know_folder(profile, folder)
            found[server] = annex.executor.records
    return found


def _has_open(server: str, profile: int) -> bool:
    """Is an attempt of this profile open in a launcher that lives and is not stopped?"""
    for spooled in SharedRecords({server: profile}).attempts.values():
        if spooled.end is None and is_alive(spooled.author):
            launcher = processes.read_process(spooled.author.pid)
            return launcher is not None and not launcher.stopped
    return False


def _enter(hub: Hub, server: str) -> Annex | None:
    """Take over the launcher in this server's folder; None if the server lives or the launcher can't be opened."""
    with suppress(OSError):
        folder = ServerFolder.lock(server)
        if folder is None:
            return None
        try:
            executor = open_executor(folder, 1, starts=False)
        except ResileError:
            folder.close()
            return None
        annex = Annex(folder, executor, hub.local, folder.clock_offset() - hub.clock_offset)
        hub.add_annex(annex)
        return annex
    return None
