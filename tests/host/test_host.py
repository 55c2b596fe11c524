"""One process drives many runs: fair slots, nothing twice after a kill, nothing in memory for runs that only wait."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from resile.engine.host import driven as driven_module
from resile.engine.host import host as host_module
from resile.engine.host.host import LEASE_SECONDS, RENEW_SECONDS, Host
from resile.store.lease import boot_seconds
from resile.store.open import open_store
from tests.executors.local.driver import wait_for

from .harness import RESILE, ROOT, TAKE_OVER_SECONDS_MAX, Hosts

CHAIN = """
steps:
  a: {shell: 'echo $RESILE_WORKFLOW_ID a >> effects'}
  b: {shell: 'echo $RESILE_WORKFLOW_ID b >> effects', needs: [a]}
  c: {shell: 'echo $RESILE_WORKFLOW_ID c >> effects', needs: [b]}
"""
GATED = """
steps:
  a: {shell: 'echo $RESILE_WORKFLOW_ID a >> effects; while ! [ -e gate ]; do sleep 0.02; done'}
  b: {shell: 'echo $RESILE_WORKFLOW_ID b >> effects', needs: [a]}
"""
PARKED = """
steps:
  a: {shell: 'test -e fixed', park: true}
  b: {shell: 'echo $RESILE_WORKFLOW_ID b >> effects', needs: [a]}
"""


def test_fifty_runs_at_once_run_each_step_once(hosts_on_any: Hosts) -> None:
    """Fifty runs of three steps complete in one process, with the output of each in its own run."""
    runs = hosts_on_any.submit(CHAIN, count=50)
    hosts_on_any.start(slots=4)
    for run in runs:
        hosts_on_any.wait(run)
    assert hosts_on_any.effects() == sorted(f"{run} {step}" for run in runs for step in "abc")
    assert hosts_on_any.tables.submission(runs[0]) is None


def test_a_run_with_little_to_do_is_not_kept_waiting(hosts: Hosts) -> None:
    """With one slot and ten steps ready in the first run, which has waited longest, a later run comes second."""
    wait = "until test -e gate; do sleep 0.05; done"
    many = "\n".join(f"  s{n}: {{shell: 'echo first >> effects; {wait}'}}" for n in range(10))
    (first,) = hosts.submit(f"steps:\n{many}")
    hosts.start(slots=1)
    hosts.wait_for_effects(lambda lines: len(lines) == 1)
    (second,) = hosts.submit("steps:\n  s: {shell: 'cp effects seen'}")
    hosts.wait_for_queue(second)
    (hosts.folder / "gate").touch()
    hosts.wait(second)
    assert hosts.effects("seen") == ["first", "first"]
    hosts.wait(first)
    assert len(hosts.effects()) == 10


def test_a_run_with_priority_comes_first(hosts: Hosts) -> None:
    """Of two runs that wait for the one slot, that with the higher priority gets it, although it came later."""
    (busy,) = hosts.submit(GATED)
    hosts.start(slots=1)
    hosts.wait_for_effects(lambda lines: len(lines) == 1)
    waiting = hosts.submit("steps:\n  s: {shell: 'echo low >> order'}")
    waiting += hosts.submit("steps:\n  s: {shell: 'echo high >> order'}", priority=5)
    for run in waiting:
        hosts.wait_for_queue(run)
    (hosts.folder / "gate").touch()
    for run in (busy, *waiting):
        hosts.wait(run)
    assert (hosts.folder / "order").read_text().split() == ["high", "low"]


def test_its_own_limit_holds_for_a_run(hosts: Hosts) -> None:
    """A run that may run one step at a time does, although there are four slots."""
    text = "\n".join(f"  s{n}: {{shell: 'mkdir busy && sleep 0.05 && rmdir busy'}}" for n in range(6))
    (run,) = hosts.submit(f"steps:\n{text}", parallel=1)
    hosts.start(slots=4)
    hosts.wait(run)
    assert all(row.attempt == 1 for row in hosts.attempts(run))


def test_steps_outlive_a_killed_host_and_the_next_one_takes_over(hosts_on_any: Hosts) -> None:
    """After kill -9 in the middle the next host on the machine adopts what runs: every effect happens once."""
    runs = hosts_on_any.submit(GATED, count=4)
    first = hosts_on_any.start(slots=4)
    hosts_on_any.wait_for_effects(lambda lines: len(lines) == 4)
    hosts_on_any.kill(first)
    began = time.monotonic()
    hosts_on_any.start(slots=4)
    for run in runs:
        wait_for(lambda run=run: any(note.type == "attempt_adopted" for note in hosts_on_any.store.notes(run)))
    assert time.monotonic() - began < TAKE_OVER_SECONDS_MAX
    (hosts_on_any.folder / "gate").touch()
    for run in runs:
        hosts_on_any.wait(run)
    assert hosts_on_any.effects() == sorted(f"{run} {step}" for run in runs for step in "ab")
    assert all(row.attempt == 1 for run in runs for row in hosts_on_any.attempts(run))


def test_a_host_that_lives_adopts_the_steps_of_one_that_dies(hosts_on_any: Hosts) -> None:
    """After kill -9 the other host of the machine watches what runs, wherever its own output is; so does a third."""
    output = "output" if hosts_on_any.database.startswith("postgresql") else "elsewhere"
    runs = hosts_on_any.submit(GATED, count=3)
    first = hosts_on_any.start(slots=3)
    hosts_on_any.wait_for_effects(lambda lines: len(lines) == 3)
    second = hosts_on_any.start(slots=1, output=output)
    for count, (dies, slots) in enumerate(((first, 0), (second, 2)), 1):
        hosts_on_any.kill(dies)
        if slots:
            hosts_on_any.start(slots=slots, output=output)
        for run in runs:
            # A host that could not open a run tries again after half a minute.
            wait_for(lambda run=run, count=count: hosts_on_any.count_notes(run, "attempt_adopted") == count, 100.0)
    (hosts_on_any.folder / "gate").touch()
    for run in runs:
        hosts_on_any.wait(run)
    assert hosts_on_any.effects() == sorted(f"{run} {step}" for run in runs for step in "ab")
    assert all(row.attempt == 1 for run in runs for row in hosts_on_any.attempts(run))


def test_an_adopted_step_is_ended_by_a_cancel(hosts: Hosts) -> None:
    """A host can end what runs in the launcher of another, and leaves that launcher once nothing runs in it."""
    (run,) = hosts.submit(GATED)
    first = hosts.start()
    hosts.wait_for_effects(lambda lines: len(lines) == 1)
    hosts.start(slots=1)
    hosts.kill(first)
    wait_for(lambda: hosts.count_notes(run, "attempt_adopted") == 1)
    hosts.store.request(run, time.time(), "cancel", {"by": "ann", "reason": "test"})
    hosts.wait(run, "canceled")
    assert hosts.effects() == [f"{run} a"]
    lock = next((hosts.folder / "output").glob("**/servers/*-0/lock"))
    with lock.open() as file:
        wait_for(lambda: _is_free(file.fileno()))


def _is_free(descriptor: int) -> bool:
    """Does no process hold the lock of this file?"""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def test_what_ended_while_no_host_was_there_is_not_run_again(hosts: Hosts) -> None:
    """A step that ends between two hosts is found by the second one with its outcome, and what it printed is whole."""
    (run,) = hosts.submit(GATED.replace("sleep 0.02; done", "sleep 0.02; done; echo said; echo x > over"))
    first = hosts.start()
    hosts.wait_for_effects(lambda lines: len(lines) == 1)
    hosts.kill(first)
    (hosts.folder / "gate").touch()
    hosts.wait_for_effects(lambda lines: len(lines) == 1, "over")
    hosts.start()
    hosts.wait(run)
    assert hosts.effects() == [f"{run} a", f"{run} b"]
    assert not any("output_lost" in note.data for note in hosts.store.notes(run))


def test_a_stopped_host_leaves_steps_to_the_next(hosts_on_any: Hosts) -> None:
    """SIGTERM: the host goes with exit 0, its step runs on, and the next host adopts it."""
    (run,) = hosts_on_any.submit(GATED)
    first = hosts_on_any.start()
    hosts_on_any.wait_for_effects(lambda lines: len(lines) == 1)
    hosts_on_any.terminate(first)
    submission = hosts_on_any.tables.submission(run)
    assert submission is not None
    assert submission.due_at is not None
    hosts_on_any.start()
    (hosts_on_any.folder / "gate").touch()
    hosts_on_any.wait(run)
    assert hosts_on_any.effects() == [f"{run} a", f"{run} b"]


def test_a_parked_run_is_let_go_and_driven_again_after_a_judgement(hosts_on_any: Hosts) -> None:
    """A parked run has no lease; of two judgements one wins, and the run completes."""
    (run,) = hosts_on_any.submit(PARKED)
    hosts_on_any.start()
    hosts_on_any.wait(run, "parked")
    submission = hosts_on_any.tables.submission(run)
    assert submission is not None
    assert submission.due_at is None
    assert hosts_on_any.ask(run, "resume") == {"ok": True}
    hosts_on_any.wait(run, "parked")
    (hosts_on_any.folder / "fixed").touch()
    assert hosts_on_any.ask(run, "judge", {"job": 1, "verdict": "retry"}) == {"ok": True, "job": 1, "step": "a"}
    hosts_on_any.wait(run)
    late = hosts_on_any.ask(run, "judge", {"job": 1, "verdict": "fail"})
    assert late["error"]["code"] == "run-ended"
    assert hosts_on_any.effects() == [f"{run} b"]


@pytest.mark.slow
def test_a_long_timer_holds_nothing(hosts: Hosts) -> None:
    """A run whose retry is far off is handed back until then, and goes on when its time has come."""
    text = "steps:\n  a: {shell: 'echo x >> effects; test $(wc -l < effects) = 2', retry: {max: 1, backoff: 12s}}"
    (run,) = hosts.submit(text)
    hosts.start()
    hosts.wait_for_effects(lambda lines: len(lines) == 1)
    hosts.wait_until_released(run)
    submission = hosts.tables.submission(run)
    assert submission is not None
    assert submission.due_at is not None
    assert 0 < submission.due_at - time.time() < 12
    hosts.wait(run)
    assert len(hosts.effects()) == 2


def test_requests_are_answered_with_results(hosts: Hosts) -> None:
    """Cancel ends a run; then a rerun runs it again in the next epoch, and a resume is refused."""
    (run,) = hosts.submit(GATED)
    hosts.start()
    hosts.wait_for_effects(lambda lines: len(lines) == 1)
    assert hosts.ask(run, "resume")["error"]["code"] == "run-active"
    assert hosts.ask(run, "rerun")["error"]["code"] == "run-active"
    assert hosts.ask(run, "cancel", {"reason": "enough"}) == {"ok": True}
    hosts.wait(run, "canceled")
    assert hosts.ask(run, "resume")["error"]["code"] == "run-ended"
    (hosts.folder / "gate").touch()
    assert hosts.ask(run, "rerun") == {"ok": True, "epoch": 2}
    hosts.wait(run)
    assert hosts.effects() == sorted([f"{run} a", f"{run} a", f"{run} b"])


def test_two_hosts_share_a_database(hosts_on_any: Hosts) -> None:
    """Two hosts drive forty runs between them, each run once."""
    hosts_on_any.start(slots=2)
    hosts_on_any.start(slots=2)
    runs = hosts_on_any.submit(CHAIN, count=40)
    for run in runs:
        hosts_on_any.wait(run)
    assert hosts_on_any.effects() == sorted(f"{run} {step}" for run in runs for step in "abc")


def test_the_command_line_works_beside_a_host(hosts: Hosts) -> None:
    """`resile run` drives a run of its own on the database that a host serves."""
    runs = hosts.submit(CHAIN, count=10)
    hosts.start()
    path = hosts.folder / "mine.yaml"
    path.write_text(f"resile: 1\nname: mine\n{CHAIN}")
    done = hosts.resile("run", str(path))
    assert done.returncode == 0, done.stderr
    for run in runs:
        hosts.wait(run)
    assert len(hosts.effects()) == 33


def test_the_command_line_resumes_what_a_dead_host_left(hosts: Hosts) -> None:
    """`resile resume` after kill -9 of the host: a recorded end counts, a step that runs is ended and lost."""
    text = """
steps:
  over: {shell: 'echo over >> effects; sleep 0.3'}
  runs: {shell: 'echo runs >> effects; echo $$ > pid; test -e gate || exec sleep 600'}
  last: {shell: 'echo last >> effects', needs: [over, runs]}
"""
    (run,) = hosts.submit(text)
    host = hosts.start()
    hosts.wait_for_effects(lambda lines: len(lines) == 2)
    wait_for(lambda: (hosts.folder / "pid").exists())
    hosts.kill(host)
    (spool,) = hosts.folder.glob("output/servers/*/launcher/*.spool")
    wait_for(lambda: spool.read_bytes().count(b"\nE ") == 1)
    (hosts.folder / "gate").touch()
    done = hosts.resile("resume", str(run))
    assert done.returncode == 0, done.stdout + done.stderr
    assert hosts.effects() == ["last", "over", "runs", "runs"]
    notes = [(note.type, note.step) for note in hosts.store.notes(run)]
    assert ("attempt_lost", "runs") in notes
    assert ("attempt_lost", "over") not in notes


def leave_by_command_line(hosts: Hosts, text: str = GATED) -> None:
    """Kill the `resile run` of run 1 while its step runs."""
    path = hosts.folder / "mine.yaml"
    path.write_text(f"resile: 1\nname: mine\n{text}")
    command = [*RESILE, "run", "--db", hosts.database, "--output", "output", str(path)]
    engine = subprocess.Popen(command, cwd=hosts.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    hosts.wait_for_effects(lambda lines: len(lines) == 1)
    engine.kill()
    engine.wait()


def test_a_host_goes_on_with_what_the_command_line_left(hosts: Hosts) -> None:
    """A run whose `resile run` was killed is handed to a host, which adopts the step that still runs."""
    leave_by_command_line(hosts)
    hosts.start()
    assert hosts.ask(1, "resume") == {"ok": True}
    wait_for(lambda: hosts.count_notes(1, "attempt_adopted") == 1)
    assert has_records(hosts)
    (hosts.folder / "gate").touch()
    hosts.wait(1)
    assert hosts.effects() == ["1 a", "1 b"]
    wait_for(lambda: not has_records(hosts))


def test_a_run_that_waits_needs_no_records_of_its_former_launcher(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step that the host adopted failed, and its retry is far off: the launcher of `resile run` forgets it."""
    monkeypatch.setattr(driven_module, "IDLE_SECONDS", 0.1)
    wait = "while ! [ -e gate ]; do sleep 0.02; done"
    text = f"steps:\n  a: {{shell: 'echo a >> effects; {wait}; exit 1', retry: {{max: 1, backoff: 300s}}}}"
    leave_by_command_line(hosts, text)
    with closing(open_store(hosts.database)) as store:
        host = Host(store, str(hosts.folder / "output"), slots=1)
        host.start()
        assert hosts.ask(1, "resume") == {"ok": True}
        wait_for(lambda: hosts.count_notes(1, "attempt_adopted") == 1)
        assert has_records(hosts)
        (hosts.folder / "gate").touch()
        hosts.wait_until_released(1)
        wait_for(lambda: not has_records(hosts))
        assert (hosts.status(1), hosts.count_notes(1, "attempt_failed")) == ("running", 1)
        host.stop()
        wait_for(lambda: host.wait(0.1))


def has_records(hosts: Hosts) -> bool:
    """Are there records of a launcher that served one run alone?"""
    return any((hosts.folder / "output").glob("runs/*/launcher/*.spool"))


def test_a_stopped_host_leaves_to_the_next_what_the_command_line_left(hosts: Hosts) -> None:
    """SIGTERM: the step that the host adopted runs on in the launcher of `resile run`, and the next host adopts it."""
    leave_by_command_line(hosts)
    first = hosts.start()
    assert hosts.ask(1, "resume") == {"ok": True}
    wait_for(lambda: hosts.count_notes(1, "attempt_adopted") == 1)
    hosts.terminate(first)
    hosts.start()
    wait_for(lambda: hosts.count_notes(1, "attempt_adopted") == 2)
    (hosts.folder / "gate").touch()
    hosts.wait(1)
    assert hosts.effects() == ["1 a", "1 b"]


def test_a_host_polls_nothing_of_a_run_that_has_ended(hosts: Hosts) -> None:
    """A host that has ended a run with a step of another launcher sleeps while the step of the next run does."""
    leave_by_command_line(hosts)
    host = hosts.start()
    assert hosts.ask(1, "resume") == {"ok": True}
    (hosts.folder / "gate").touch()
    hosts.wait(1)
    before = processor_seconds(host.pid)
    (run,) = hosts.submit("steps: {s: {shell: sleep 1.5}}")
    hosts.wait(run)
    assert processor_seconds(host.pid) - before < 0.25


def processor_seconds(pid: int) -> float:
    """The seconds that a process has used a processor."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
def test_a_frozen_host_loses_its_runs_and_ends_its_steps(hosts: Hosts) -> None:
    """A host that was stopped past its leases finds out at once: it starts nothing more of a run that another has."""
    (run,) = hosts.submit(GATED)
    first = hosts.start()
    hosts.wait_for_effects(lambda lines: len(lines) == 1)
    os.kill(first.pid, signal.SIGSTOP)
    try:
        wait_for(lambda: hosts.store.lease(run, _now()) is None)
        hosts.start()
        wait_for(lambda: any(note.type == "run_resumed" for note in hosts.store.notes(run)))
    finally:
        os.kill(first.pid, signal.SIGCONT)
    (hosts.folder / "gate").touch()
    hosts.wait(run)
    assert hosts.effects().count(f"{run} b") == 1


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def test_a_job_is_retried_once_however_many_ask(hosts_on_any: Hosts) -> None:
    """Of five requests for one retry of a failed job one wins; the run that had ended goes on and completes."""
    text = "steps:\n  a: {shell: 'echo a >> effects; test -e fixed'}\n  b: {shell: 'echo b >> effects', needs: [a]}"
    (run,) = hosts_on_any.submit(text)
    hosts_on_any.start()
    hosts_on_any.wait(run, "failed")
    (hosts_on_any.folder / "fixed").touch()
    body = {"job": 1, "epoch": 1, "attempts_max": 2}
    store = hosts_on_any.store
    numbers = [store.request(run, time.time(), "retry", {"by": "ann", **body}) for _ in range(5)]
    hosts_on_any.tables.enqueue(run, time.time())
    results = [wait_for(lambda number=number: store.result(number)) for number in numbers]
    assert [result for result in results if result is not None and "ok" in result] == [
        {"ok": True, "job": 1, "step": "a", "attempt": 2}
    ]
    hosts_on_any.wait(run)
    assert hosts_on_any.effects() == ["a", "a", "b"]
    stale = hosts_on_any.ask(run, "retry", {"job": 1, "epoch": 7, "attempts_max": 9})
    assert stale["error"]["code"] == "run-id-stale"


def test_dead_letters_are_redriven(hosts: Hosts) -> None:
    """A redrive runs the items again that failed, and only those."""
    text = """
steps:
  m:
    map: {input: [1, 2, 3], agent_template: [{shell: 'echo ${item} >> effects; test ${item} != 2 -o -e fixed'}]}
"""
    (run,) = hosts.submit(text)
    hosts.start()
    hosts.wait(run, "failed")
    (hosts.folder / "fixed").touch()
    assert hosts.ask(run, "redrive") == {"ok": True, "items": ["m[1]"]}
    wait_for(lambda: any(note.type == "redrive_finished" for note in hosts.store.notes(run)))
    assert hosts.effects() == ["1", "2", "2", "3"]
    assert list(hosts.store.letters(run)) == []
    hosts.wait_until_released(run)
    assert [path.name for path in (hosts.folder / "output").rglob("items/redrive*")] == []


def test_a_run_that_goes_on_keeps_its_lease(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host renews the leases of the runs that it drives, though nothing happens in them."""
    monkeypatch.setattr(host_module, "RENEW_SECONDS", 0.05)
    (run,) = hosts.submit(GATED)
    with closing(open_store(hosts.database)) as store:
        host = Host(store, str(hosts.folder / "output"), slots=1)
        host.start()
        hosts.wait_for_effects(lambda lines: len(lines) == 1)

        def expiry() -> float:
            lease = hosts.store.lease(run, boot_seconds())
            assert lease is not None
            return lease.expires_boot_seconds

        first = expiry()
        wait_for(lambda: expiry() > first)
        (hosts.folder / "gate").touch()
        hosts.wait(run)
        host.stop()
        wait_for(lambda: host.wait(0.1))


def test_a_lease_lasts_as_long_as_the_guide_says() -> None:
    """People plan with these numbers: how long a dead server's runs wait, and how often a server writes."""
    promise = f"under a lease of {LEASE_SECONDS:g} s that it renews every {RENEW_SECONDS:g} s."
    assert promise in (ROOT / "docs" / "guides" / "server.md").read_text()
