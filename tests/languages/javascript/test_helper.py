"""The life of the helper process: it is replaced when it dies or hangs, and it never outlives the engine."""

from __future__ import annotations

import os
import resource
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from resile.languages.javascript import helper, limits
from resile.languages.javascript.evaluate import Sandbox
from resile.languages.javascript.helpers import SandboxSilent

PATIENCE_SECONDS = 20.0

ENGINE = """
import sys
from resile.languages.javascript.evaluate import Sandbox
box = Sandbox()
assert box.evaluate("1", {}, now=0.0, seed="", form="expression").value == 1
print(box.helpers.idle[0].pid, flush=True)
sys.stdin.read()
"""


def keeper(sandbox: Sandbox) -> int:
    """The process that the sandbox started."""
    (helper,) = sandbox.helpers.idle
    return helper.pid


def worker(sandbox: Sandbox) -> int:
    """The process that evaluates; it is there once an evaluation was answered."""
    pid = keeper(sandbox)
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def gone(pidfd: int) -> bool:
    """Wait until a process has ended."""
    with open(pidfd, "rb", buffering=0):
        return bool(select.select([pidfd], [], [], PATIENCE_SECONDS)[0])


def works(sandbox: Sandbox) -> bool:
    """Does an evaluation give the right answer?"""
    answer = sandbox.evaluate("[x, x + 1]", {"x": 1}, now=0.0, seed="", form="expression")
    return (answer.value, answer.problem) == ([1, 2], "")


def test_nothing_starts_before_it_is_needed() -> None:
    """A sandbox that is never asked has no process, and code that is too long starts none."""
    sandbox = Sandbox()
    assert sandbox.evaluate("1" * 9_000, {}, now=0.0, seed="", form="expression").kind == "too_large"
    assert sandbox.helpers.idle == []
    sandbox.close()


def test_a_worker_that_the_kernel_ended_is_replaced_by_its_keeper(sandbox: Sandbox) -> None:
    """After a native bomb the same keeper has another worker, and the answer was a timeout."""
    assert works(sandbox)
    before, first = keeper(sandbox), worker(sandbox)
    bomb = sandbox.evaluate("(3n ** 600000n).toString()", {}, now=0.0, seed="", form="expression")
    assert (bomb.kind, bomb.problem) == ("timeout", "the code took more than 25 ms of CPU time")
    assert works(sandbox)
    assert keeper(sandbox) == before
    assert worker(sandbox) != first


def test_dead_processes_are_replaced(sandbox: Sandbox) -> None:
    """Whichever process was killed between two evaluations, the next one is right."""
    for victim in (worker, keeper):
        assert works(sandbox)
        pid = victim(sandbox)
        pidfd = os.pidfd_open(pid)
        os.kill(pid, signal.SIGKILL)
        assert gone(pidfd)
        assert works(sandbox)
    # Without its keeper a worker goes on until it dies; the tests below look for both.
    sandbox.close()


def test_a_helper_that_does_not_answer_is_replaced(sandbox: Sandbox) -> None:
    """A worker that gets no time to run costs the time that it was given, and another one answers."""
    assert works(sandbox)
    before = os.pidfd_open(keeper(sandbox))
    os.kill(worker(sandbox), signal.SIGSTOP)
    answer = sandbox.evaluate("1", {}, now=0.0, seed="", form="expression")
    assert (answer.value, answer.problem) == (1, "")
    assert answer.milliseconds >= 140
    assert gone(before)


def test_on_a_machine_that_gives_no_helper_time_nothing_is_decided(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silence is no answer: it raises an error of its own, and the next evaluation has a helper again."""
    monkeypatch.setattr(limits, "SILENCES_MAX", 1)
    assert works(sandbox)
    os.kill(worker(sandbox), signal.SIGSTOP)
    with pytest.raises(SandboxSilent, match="the sandbox for expressions does not answer, 1 times"):
        sandbox.evaluate("1", {}, now=0.0, seed="", form="expression")
    monkeypatch.undo()
    assert works(sandbox)


def test_a_helper_that_is_only_slow_is_waited_for(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """A helper that says nothing for many looks of the engine keeps its request, and the same worker answers it."""
    assert works(sandbox)
    before = worker(sandbox)
    monkeypatch.setattr(helper, "SILENCE_SECONDS", 1e-5)
    code = "let n = 0; for (let i = 0; i < 1e5; i++) n += i; return n"
    answer = sandbox.evaluate(code, {}, now=0.0, seed="", form="body")
    assert (answer.value, answer.problem) == (4999950000, "")
    assert worker(sandbox) == before


def test_closing_ends_both_processes() -> None:
    """After close neither keeper nor worker is left, and the sandbox can be used again."""
    sandbox = Sandbox()
    assert works(sandbox)
    both = [os.pidfd_open(keeper(sandbox)), os.pidfd_open(worker(sandbox))]
    sandbox.close()
    assert [gone(pidfd) for pidfd in both] == [True, True]
    assert works(sandbox)
    sandbox.close()
    sandbox.close()


def test_the_helper_does_not_outlive_a_killed_engine() -> None:
    """When the engine is killed with SIGKILL its helper goes too."""
    engine = subprocess.Popen([sys.executable, "-c", ENGINE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert engine.stdout is not None
    pidfd = os.pidfd_open(int(engine.stdout.readline()))
    engine.kill()
    engine.wait(PATIENCE_SECONDS)
    assert gone(pidfd)
    engine.stdout.close()
    assert engine.stdin is not None
    engine.stdin.close()


def test_the_helper_gets_nothing_of_the_engine(sandbox: Sandbox) -> None:
    """The helper has no environment, no file of the engine, and limits that let it open, write and start nothing."""
    assert works(sandbox)
    process = Path(f"/proc/{worker(sandbox)}")
    names = {entry.partition(b"=")[0] for entry in (process / "environ").read_bytes().split(b"\0") if entry}
    assert names <= {b"LD_LIBRARY_PATH"}
    assert sorted(os.listdir(process / "fd")) == ["0", "1", "2"]
    limits = {line[:25].strip(): line[25:].split()[:2] for line in (process / "limits").read_text().splitlines()}
    assert limits["Max file size"] == ["0", "0"]
    assert limits["Max core file size"] == ["0", "0"]
    assert limits["Max processes"] == ["0", "0"]
    assert limits["Max open files"] == ["8", "8"]
    assert limits["Max address space"] == [str(512 * 1024 * 1024)] * 2


def test_memory_does_not_grow_with_evaluations(sandbox: Sandbox) -> None:
    """Two thousand evaluations leave the worker as small as it was."""
    context = {"items": list(range(500))}

    def resident_kilobytes() -> int:
        status = Path(f"/proc/{worker(sandbox)}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])

    assert works(sandbox)
    before = resident_kilobytes()
    for _ in range(2_000):
        assert sandbox.evaluate("items.length", context, now=0.0, seed="", form="expression").value == 500
    assert resident_kilobytes() < before + 4_096


def test_a_system_without_room_for_a_process_is_a_problem_and_no_exception() -> None:
    """Where no helper can be started the evaluation says so, and the next one works once there is room again."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    sandbox = Sandbox()
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        answer = sandbox.evaluate("1", {}, now=0.0, seed="", form="expression")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert answer.kind == "lost"
    assert answer.problem.startswith("the sandbox can't be started: ")
    assert works(sandbox)
    sandbox.close()
