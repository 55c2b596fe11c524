"""Tells which process drives a run, and whether it is still alive. Shared by all stores.

    free      no lease, an expired one, one of another boot of this machine, or its holder ran on this boot and is dead
    held      anything else: a process that can't be looked up from here counts as alive until the lease expires

A process is identified by its number and start time, so a reused number is not the old holder. The number is unique
only within one boot and one pid namespace (containers share boots), so both are recorded.

On the boot of its holder a lease expires by CLOCK_BOOTTIME, which can't be set; elsewhere by the wall clock.
"""

from __future__ import annotations

import os
import time
from functools import cache

from resile.store.contract import Lease
from resile.store.errors import LeaseHeld


def take(
    run: int, now: float, seconds: float, holder: Lease | None = None, wall: float | None = None, last: int = 0
) -> Lease:
    """A new lease for this process; raises LeaseHeld if the `holder` of the present lease still drives the run.

    `last` is the number of the run's last lease.
    """
    wall = time.time() if wall is None else wall
    if holder is not None and not is_free(holder, now, wall):
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder.since))
        raise LeaseHeld(
            "lease-held",
            f"run {run} is driven by process {holder.pid} on {holder.host} since {since}",
            hint=f"wait for it, watch it with `resile status {run}`, or stop it with `resile cancel {run}`",
        )
    pid = os.getpid()
    return Lease(
        run=run,
        token=os.urandom(16).hex(),
        host=os.uname().nodename,
        boot=_boot(),
        pid=pid,
        pid_started=_own_start_ticks(pid),
        since=wall,
        expires_at=wall + seconds,
        expires_boot_seconds=now + seconds,
        # The time makes the number rise even in a database that was restored from a copy; `last + 1` helps if the clock
        # was set back.
        number=max(last + 1, time.time_ns() // 1000),
    )


def expiry(now: float, seconds: float) -> dict[str, float]:
    """The fields of a lease that change when it is renewed."""
    return {"expires_at": time.time() + seconds, "expires_boot_seconds": now + seconds}


def is_free(lease: Lease | None, now: float, wall: float | None = None) -> bool:
    """May another engine take this run? `now` is the time since the boot, `wall` that of the wall clock."""
    if lease is None:
        return True
    boot, theirs = boot_id(), lease.boot.partition(" ")[0]
    if boot and theirs and boot != theirs and lease.host == os.uname().nodename:
        return True
    if boot and boot == theirs and lease.expires_boot_seconds:
        return lease.expires_boot_seconds <= now or _is_gone(lease)
    # Another machine, or a lease of an older Resile.
    return lease.expires_at <= (time.time() if wall is None else wall) or _is_gone(lease)


def check_holder(run: int, holder: Lease | None, token: str) -> None:
    """Refuse an engine whose lease, which has this token, is no longer the present one."""
    if holder is None or holder.token != token:
        by = f"; process {holder.pid} on {holder.host} drives it now" if holder else ""
        raise LeaseHeld("lease-lost", f"this engine no longer drives run {run}{by}", hint=f"see `resile status {run}`")


def _is_gone(lease: Lease) -> bool:
    """Is the holder surely dead? That can be known only of a process in this boot and pid namespace."""
    if lease.pid == os.getpid() and lease.pid_started == _own_start_ticks(lease.pid):
        # A shortcut, because most leases that a server checks are its own.
        return False
    if not lease.boot or lease.host != os.uname().nodename or lease.boot != _boot():
        return False
    return _start_ticks_of(lease.pid) != lease.pid_started


@cache
def _own_start_ticks(pid: int) -> str:
    return _start_ticks_of(pid)


def own_process() -> tuple[str, int, str]:
    """The boot, the number and the start of this process, as its leases name it."""
    pid = os.getpid()
    return _boot(), pid, _own_start_ticks(pid)


def _boot() -> str:
    """This boot of this machine and this pid namespace; empty without /proc."""
    return _boot_of(os.getpid())


@cache
def _boot_of(_pid: int) -> str:
    """`_boot`, cached for a process number: a process keeps its namespace, and a forked process has another number."""
    try:
        return f"{boot_id()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def boot_seconds() -> float:
    """Seconds since the machine started, by the clock that never jumps and goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@cache
def boot_id() -> str:
    """The id of this boot; empty without /proc."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def _start_ticks_of(pid: int) -> str:
    """The start time of a process in ticks since boot; empty for one that is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in parentheses may contain any character, so count the fields after its end.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()
