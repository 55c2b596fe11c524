"""One host in the test's own process: it hands runs back that only wait, and stops with or without its steps."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from resile.engine.host import driven as driven_module
from resile.engine.host import host as host_module
from resile.engine.host.host import Host
from resile.store.lease import boot_seconds
from resile.store.open import open_store
from tests.executors.local.driver import lives, wait_for

from .harness import Hosts

LATER = "steps:\n  a: {shell: 'echo x >> effects; exit 1', retry: {max: 1, backoff: 600s}}"
RUNS = "steps:\n  a: {shell: 'echo $$ > pid.new; mv pid.new pid; exec sleep 600'}"


@contextmanager
def running(hosts: Hosts) -> Iterator[tuple[Host, list[str]]]:
    """A host of two slots, and what it logs; the test stops it."""
    said: list[str] = []
    store = open_store(hosts.database)
    host = Host(store, str(hosts.folder / "output"), slots=2, log=said.append)
    host.start()
    try:
        yield host, said
    finally:
        host.stop(kill=True)
        wait_for(lambda: host.wait(0.1))
        store.close()


def pid_of(hosts: Hosts) -> int:
    """The process of the step that runs, once it does."""
    wait_for(lambda: (hosts.folder / "pid").exists())
    return int((hosts.folder / "pid").read_text())


def test_a_run_that_only_waits_is_handed_back(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it has waited for a while it has no lease; it is due again when its timer is, and its log has a snapshot."""
    monkeypatch.setattr(driven_module, "IDLE_SECONDS", 0.2)
    (run,) = hosts.submit(LATER)
    with running(hosts) as (host, _):
        hosts.wait_for_effects(lambda lines: len(lines) == 1)
        hosts.wait_until_released(run)
        submission = hosts.tables.submission(run)
        assert submission is not None
        assert submission.due_at is not None
        assert 400 < submission.due_at - time.time() <= 600
        assert hosts.status(run) == "running"
        assert hosts.store.latest_snapshot(run) is not None
        assert host.statistics.taken == 1
        assert hosts.ask(run, "cancel", {"reason": "enough"}) == {"ok": True}
        hosts.wait(run, "canceled")
    assert hosts.tables.submission(run) is None
    assert (host.statistics.taken, host.statistics.ended, host.statistics.lease_losses) == (2, 1, 0)


def test_a_run_with_a_timer_soon_stays(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer that fires before a run counts as idle leaves it where it is: the host takes it once."""
    monkeypatch.setattr(driven_module, "IDLE_SECONDS", 60.0)
    text = "steps:\n  a: {shell: 'echo x >> effects; test $(wc -l < effects) = 2', retry: {max: 1, backoff: 300ms}}"
    (run,) = hosts.submit(text)
    with running(hosts) as (host, _):
        hosts.wait(run)
    assert len(hosts.effects()) == 2
    assert (host.statistics.taken, host.statistics.ended) == (1, 1)


def test_a_stop_leaves_steps_and_a_kill_ends_them(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a plain stop the step runs on and the run is due at once; a host that is to kill ends it first."""
    monkeypatch.setattr(host_module, "SECOND_STOP_SECONDS", 0.0)
    (run,) = hosts.submit(RUNS)
    with running(hosts) as (host, _):
        pid = pid_of(hosts)
        wait_for(lambda: hosts.jobs(run)["a"] == "running")
        host.stop()
        wait_for(lambda: host.wait(0.1))
    assert lives(pid)
    assert hosts.store.lease(run, boot_seconds()) is None
    submission = hosts.tables.submission(run)
    assert submission is not None
    assert submission.due_at is not None
    assert submission.due_at <= time.time()
    assert hosts.jobs(run)["a"] == "running"
    with running(hosts) as (host, _):
        wait_for(lambda: hosts.count_notes(run, "attempt_adopted") == 1)
        host.stop(kill=True)
        wait_for(lambda: host.wait(0.1))
    assert not lives(pid)
    assert hosts.jobs(run)["a"] != "running"
    assert hosts.store.lease(run, boot_seconds()) is None


def test_a_kill_after_a_stop_is_heard(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """While steps run a host that stops waits for the order to kill them; a later plain stop does not take it back."""
    monkeypatch.setattr(host_module, "SECOND_STOP_SECONDS", 60.0)
    (run,) = hosts.submit(RUNS)
    with running(hosts) as (host, said):
        pid = pid_of(hosts)
        host.stop()
        assert not host.wait(0.3)
        host.stop(kill=True)
        host.stop()
        wait_for(lambda: host.wait(0.1))
    assert not lives(pid)
    assert hosts.jobs(run)["a"] != "running"
    assert said == []


def test_a_host_that_stops_keeps_its_leases(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """While steps run, and it waits for the order to kill them, no other host may take their runs."""
    monkeypatch.setattr(host_module, "SECOND_STOP_SECONDS", 60.0)
    monkeypatch.setattr(host_module, "RENEW_SECONDS", 0.05)
    (run,) = hosts.submit(RUNS)

    ends: set[float] = set()

    def is_renewed() -> bool:
        """Was the lease of the run renewed three times?"""
        lease = hosts.store.lease(run, boot_seconds())
        assert lease is not None
        ends.add(lease.expires_boot_seconds)
        return len(ends) > 3

    with running(hosts) as (host, _):
        pid_of(hosts)
        wait_for(lambda: (host.statistics.driven, host.statistics.running, host.statistics.waiting) == (1, 1, 0))
        host.stop()
        assert not host.wait(0.1)
        wait_for(is_renewed)


def test_a_run_without_a_folder_is_tried_again_later(hosts: Hosts) -> None:
    """The host says why it can't drive it, releases it until then, and goes on with other runs."""
    (first,) = hosts.submit("steps:\n  s: {shell: 'true'}")
    runs, aside = hosts.folder / "output" / "runs", hosts.folder / "aside"
    with running(hosts) as (host, said):
        hosts.wait(first)
        runs.rename(aside)
        runs.touch()
        (run,) = hosts.submit("steps:\n  s: {shell: 'true'}")
        host.ring()
        wait_for(lambda: said)
        hosts.wait_until_released(run)
        assert said == [f"run {run} can't be driven: can't make the folder of a run: Not a directory"]
        submission = hosts.tables.submission(run)
        assert submission is not None
        assert submission.due_at is not None
        assert 0 < submission.due_at - time.time() <= host_module.AGAIN_SECONDS
        runs.unlink()
        aside.rename(runs)
        hosts.tables.enqueue(run, time.time())
        hosts.wait(run)
    assert len(said) == 1
    assert (host.statistics.taken, host.statistics.ended) == (2, 2)


def test_a_host_without_steps_stops_at_once(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to kill, so it does not wait for that order; a call is answered after the end, too."""
    monkeypatch.setattr(host_module, "SECOND_STOP_SECONDS", 1000.0)
    with running(hosts) as (host, _):
        assert host.call(lambda workers: workers.count()).result(30) == 0
        with pytest.raises(ZeroDivisionError):
            host.call(lambda workers: workers.count() // 0).result(30)
        host.stop()
        wait_for(lambda: host.wait(0.1))
        assert host.call(lambda workers: workers.count()).result(30) == 0


def test_a_run_that_another_process_takes_is_lost(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next renewal finds out: the host ends what runs of it, says so, and does not write its row."""
    monkeypatch.setattr(host_module, "RENEW_SECONDS", 0.05)
    (run,) = hosts.submit(RUNS)
    with running(hosts) as (host, said):
        pid = pid_of(hosts)
        lease = hosts.store.lease(run, boot_seconds())
        assert lease is not None
        taken = hosts.store.acquire_lease(run, lease.expires_boot_seconds + 60.0, 1000.0)
        wait_for(lambda: not lives(pid))
        wait_for(lambda: host.statistics.lease_losses == 1)
        assert said == [f"run {run} was taken over by another process"]
        assert hosts.status(run) == "running"
        hosts.store.renew_lease(taken, boot_seconds(), 10.0)


def test_steps_have_the_environment_of_their_host(hosts: Hosts) -> None:
    """Without another the steps have that of the process."""
    (run,) = hosts.submit("steps:\n  s: {shell: 'echo $PATH > seen'}")
    with running(hosts):
        hosts.wait(run)
    assert hosts.effects("seen") == [os.environ["PATH"]]


def test_a_request_to_a_run_that_has_ended_is_answered(hosts: Hosts) -> None:
    """Each run hears what was asked of it, also the second of two, which no engine drives any more."""
    runs = hosts.submit("steps:\n  s: {shell: 'true'}", count=2)
    with running(hosts):
        for run in runs:
            hosts.wait(run)
            result = hosts.ask(run, "cancel", {"reason": "late"})
            assert result["error"]["code"] == "run-ended"
            assert result["error"]["message"] == f"run {run} has ended (completed)"
        hosts.wait(runs[1])
