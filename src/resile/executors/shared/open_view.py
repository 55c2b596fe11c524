"""Opens the view of a run: sends the launcher the run's settings, and finds attempts that earlier engines left."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from resile.executors.contract import Records
from resile.executors.fence import Fence
from resile.executors.local import wire
from resile.executors.local.executor import LocalExecutor
from resile.executors.local.shared_records import profile_of, servers_of, write_down, write_down_new
from resile.executors.local.spool import SUFFIX
from resile.executors.shared.enter_annex import enter_annexes
from resile.executors.shared.hub import Hub
from resile.executors.shared.places import Surroundings
from resile.executors.shared.view import RunView


def open_view(
    hub: Hub,
    folder: str,
    *,
    run: int,
    epoch: int,
    priority: int,
    parallel: int,
    is_new: bool,
    label: str,
    base_env: Mapping[bytes, bytes],
    directory: bytes,
    fence: Fence,
    secrets: Sequence[bytes],
    clock_offset: float,
) -> RunView:
    """Open the view of the run with this epoch folder; see LocalExecutor. `is_new`: the run had no engine before."""
    folder, server, profile = os.path.abspath(folder), hub.server, profile_of(run, epoch)
    was_here = not is_new and server in servers_of(folder)
    annexed = {} if is_new else enter_annexes(hub, folder, profile)
    former = None
    if not is_new and (_has_spools(folder) or servers_of(folder, (server, *annexed))):
        former = LocalExecutor(
            folder,
            slots=1,
            label=label,
            base_env=base_env,
            directory=directory,
            fence=fence,
            secrets=secrets,
            clock_offset=clock_offset,
            starts=False,
            besides=(server, *annexed),
        )
    records: Records = "none" if former is None else former.records
    own = hub.local.executor.records if was_here else "none"
    if own == "here" or profile in hub.profiles or "here" in annexed.values():
        records = "here"
    elif records == "none":
        records = own
    if not was_here:
        (write_down_new if is_new else write_down)(folder, server, profile)
    hub.local.executor.define(
        profile, fence=fence.path, folder=folder, directory=directory, secrets=secrets, env=base_env
    )
    view = RunView(
        hub,
        profile,
        folder,
        priority=priority,
        parallel=parallel,
        fence=fence,
        clock_offset=clock_offset,
        former=former,
        records=records,
        surroundings=Surroundings(directory, _is_below(directory, hub.output), base_env, tuple(secrets)),
    )
    hub.add(view, is_new=is_new)
    return view


def _is_below(directory: bytes, folder: str) -> bool:
    """Is the directory of a run inside the output folder, because the run was given none?"""
    return directory.startswith(os.fsencode(folder) + b"/")


def _has_spools(folder: str) -> bool:
    """Has a launcher that served only this run left records?"""
    try:
        return any(name.endswith(SUFFIX) for name in os.listdir(os.path.join(folder, wire.FOLDER)))
    except FileNotFoundError:
        return False
