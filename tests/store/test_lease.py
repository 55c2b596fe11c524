"""Who counts as alive: the rules of the lease that all stores share."""

from __future__ import annotations

import os
import subprocess

import pytest
from msgspec.structs import replace

from resile.store import lease as leases
from resile.store.errors import LeaseHeld


def test_this_process_holds_its_lease_until_its_time_is_up() -> None:
    """A living holder is a holder to the last moment, and not a moment longer."""
    mine = leases.take(1, now=10.0, seconds=5.0, wall=1000.0)
    assert (mine.run, mine.pid, mine.host) == (1, os.getpid(), os.uname().nodename)
    assert (mine.since, mine.expires_at, mine.expires_boot_seconds) == (1000.0, 1005.0, 15.0)
    assert [leases.is_free(mine, now) for now in (10.0, 14.9, 15.0)] == [False, False, True]
    assert leases.is_free(None, 10.0)


def test_a_process_that_is_gone_holds_nothing() -> None:
    """Dead and unreaped, and dead and reaped, are both dead."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        held = replace(leases.take(1, 10.0, 5.0), pid=process.pid, pid_started=leases._start_ticks_of(process.pid))
        assert not leases.is_free(held, 10.0)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert leases.is_free(held, 10.0)
    assert leases.is_free(held, 10.0)


def test_a_number_that_was_given_out_again_is_another_process() -> None:
    """The pid of this process with another start time is not this process."""
    assert leases.is_free(replace(leases.take(1, 10.0, 5.0), pid_started="1"), 10.0)


@pytest.mark.parametrize("hour", [-3600.0, 3600.0])
def test_a_wall_clock_that_is_set_frees_and_holds_no_lease(hour: float) -> None:
    """On the boot of its holder a lease lasts as long as it was given, whatever the wall clock says meanwhile."""
    mine = leases.take(1, 10.0, 5.0, wall=1000.0)
    other_namespace = replace(mine, boot=f"{leases.boot_id()} pid:[1]", host="container")
    for held in (mine, other_namespace):
        assert [leases.is_free(held, now, wall=1000.0 + hour) for now in (10.0, 14.9, 15.0)] == [False, False, True]


def test_a_lease_of_another_boot_of_this_machine_is_free_at_once() -> None:
    """No process survives a boot, so a run goes on as soon as its machine is up again."""
    mine = leases.take(1, 10.0, 5.0, wall=1000.0)
    assert leases.is_free(replace(mine, boot="another pid:[1]"), 10.0, wall=1000.0)
    assert not leases.is_free(replace(mine, boot="another pid:[1]", host="elsewhere"), 10.0, wall=1000.0)


def test_what_can_not_be_looked_up_counts_as_alive() -> None:
    """Another machine, or one without a known boot: only the wall clock ends such a lease."""
    gone = replace(leases.take(1, 10.0, 5.0, wall=1000.0), pid_started="1")
    elsewhere = [replace(gone, host="elsewhere", boot="another pid:[1]"), replace(gone, boot="")]
    assert [leases.is_free(held, 99.0, wall=1004.9) for held in elsewhere] == [False, False]
    assert [leases.is_free(held, 0.0, wall=1005.0) for held in elsewhere] == [True, True]


def test_a_process_with_an_odd_name_is_told_by_its_start() -> None:
    """Parentheses and spaces in a process's name do not move the field that is read."""
    with subprocess.Popen(
        ["sh", "-c", 'printf ") S 1 (" > /proc/self/comm; echo; cat'], stdin=-1, stdout=-1
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        assert leases._start_ticks_of(process.pid).isdigit()
        process.stdin.close()


def test_the_refusals_say_who_and_what_to_do() -> None:
    """A refused engine learns which process on which machine drives the run."""
    mine = replace(leases.take(3, 10.0, 5.0), host="h", pid=7)
    with pytest.raises(LeaseHeld) as held:
        leases.take(3, 11.0, 5.0, mine)
    assert held.value.message.startswith("run 3 is driven by process 7 on h since ")
    assert "resile cancel 3" in held.value.hint
    with pytest.raises(LeaseHeld) as lost:
        leases.check_holder(3, mine, "another token")
    assert lost.value.message == "this engine no longer drives run 3; process 7 on h drives it now"
    with pytest.raises(LeaseHeld) as lost:
        leases.check_holder(3, None, mine.token)
    assert lost.value.message == "this engine no longer drives run 3"
