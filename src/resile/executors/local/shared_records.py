"""The records that the launchers of servers have of the attempts of one run.

    FOLDER-OF-EPOCH/servers     a line for each server that drove the epoch: the run's profile there, its folder
    FOLDER-OF-SERVER/pointer    one such line for all new runs, with `+` for the profile: the epoch's folder names it
    FOLDER-OF-SERVER/launcher/  the spools; a line about an attempt has the run's profile in the number of its job

A server records its folder there before it starts any attempt of the run. So any later engine of the run finds the
recorded ends, and never mistakes an attempt that runs there for one that did not start. In the folder of a new run,
`servers` is a hard link to the server's `pointer`, because making a file for each run would cost more.
"""

from __future__ import annotations

import os
from collections.abc import Collection

from resile.executors.contract import Ended
from resile.executors.local import processes, recovery, wire
from resile.executors.local.recovery import Key, SpooledAttempt
from resile.executors.local.spool import SUFFIX
from resile.model.folders import create_file

POINTER, SHARED_POINTER = "servers", "pointer"
OWN = "+"
EPOCH_BITS = 20
_JOB_MASK = (1 << wire.JOB_BITS) - 1


def profile_of(run: int, epoch: int) -> int:
    """The profile of an epoch of a run: its number in the launcher of a server."""
    return run << EPOCH_BITS | epoch


def run_of(profile: int) -> int:
    """The run of a profile."""
    return profile >> EPOCH_BITS


def epoch_of(profile: int) -> int:
    """The epoch of a profile."""
    return profile & (1 << EPOCH_BITS) - 1


def widen(profile: int, job: int) -> int:
    """The number of a job that is unique over all runs."""
    return profile << wire.JOB_BITS | job


def narrow(job: int) -> tuple[int, int]:
    """The profile, and the number of the job in its own run, from a number that is unique over all runs."""
    return job >> wire.JOB_BITS, job & _JOB_MASK


def servers_of(folder: str, besides: Collection[str] = ()) -> dict[str, int]:
    """The folders of the servers that drove the epoch with this folder, each with the epoch's profile there.

    Servers with the folders `besides` are left out.
    """
    try:
        with open(os.path.join(folder, POINTER), encoding="utf-8", errors="surrogateescape") as file:
            lines = [line.partition(" ") for line in file.read().splitlines()]
    except FileNotFoundError:
        return {}
    found = {server: profile for profile, _, server in lines if server and server not in besides}
    own = _profile_in(folder)
    return {
        server: own if profile == OWN else int(profile)
        for server, profile in found.items()
        if profile.isdigit() or profile == OWN
    }


def _profile_in(folder: str) -> int:
    """The profile of an epoch, from the name of its folder, such as wf7_r1."""
    run, _, epoch = os.path.basename(folder).removeprefix("wf").partition("_r")
    return profile_of(int(run), int(epoch)) if run.isdigit() and epoch.isdigit() else 0


def write_down(folder: str, server: str, profile: int) -> None:
    """Record in the epoch's `folder` that this server drives it; `server` is the server's folder."""
    known = servers_of(folder)
    if server not in known:
        # Make a new file: the present one may be a hard link that other runs share.
        path = os.path.join(folder, POINTER)
        with create_file(f"{path}.new") as file:
            for name, number in {**known, server: profile}.items():
                file.write(b"%d %s\n" % (number, os.fsencode(name)))
        os.replace(f"{path}.new", path)


def write_down_new(folder: str, server: str, profile: int) -> None:
    """Like `write_down`, for a new run: make a hard link to the server's `pointer` if possible."""
    shared, path = os.path.join(server, SHARED_POINTER), os.path.join(folder, POINTER)
    try:
        os.link(shared, path)
    except FileExistsError:
        write_down(folder, server, profile)
    except OSError:
        # There is no `pointer` yet, or it has as many links as a file can have, or the file system has no hard links.
        write_down(folder, server, profile)
        with create_file(f"{shared}.new") as file:
            file.write(b"%s %s\n" % (OWN.encode(), os.fsencode(server)))
        os.replace(f"{shared}.new", shared)


def find_end(folder: str, token: str, job: int, attempt: int) -> Ended | None:
    """The end of an attempt, if the server's launcher with this token has recorded it."""
    for server, profile in servers_of(folder).items():
        spool = os.path.join(server, wire.FOLDER, token + SUFFIX)
        ended = recovery.find_end(spool, widen(profile, job), attempt)
        if ended is not None:
            return ended
    return None


class SharedRecords:
    """The attempts of one profile in the spools of some servers, by the numbers of the run's own jobs."""

    def __init__(self, servers: dict[str, int]) -> None:
        self.attempts: dict[Key, SpooledAttempt] = {}
        self.found = False
        self.of_this_boot = False
        is_cut = False
        # The tokens of launchers whose spool must still have every line.
        self.uncompacted: set[str] = set()
        boot = processes.boot_id().decode()
        for server, profile in servers.items():
            for path in _spools_in(server):
                author, lines = recovery.read_spool(path)
                if author is None:
                    continue
                self.found = True
                self.of_this_boot = self.of_this_boot or author.boot == boot
                is_cut = is_cut or recovery.is_cut(path)
                if recovery.has_all_lines(path, lines):
                    self.uncompacted.add(author.token)
                wide: dict[Key, SpooledAttempt] = {}
                recovery.fold(lines, author, wide)
                for (job, attempt), spooled in wide.items():
                    owner, own = narrow(job)
                    if owner == profile:
                        self.attempts[own, attempt] = recovery.renumber(spooled, own, profile)
        self.of_this_boot = self.of_this_boot and not is_cut


def _spools_in(server: str) -> list[str]:
    """The spools of a server's launchers, the oldest first."""
    folder = os.path.join(server, wire.FOLDER)
    try:
        names = [name for name in os.listdir(folder) if name.endswith(SUFFIX)]
    except FileNotFoundError:
        return []
    return sorted((os.path.join(folder, name) for name in names), key=os.path.getmtime)
