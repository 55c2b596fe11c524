"""Ctrl-C once and twice, SIGTERM, a closed terminal, and cancel from another process."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest

from tests.cli.program import Program, Started

HELD = """\
resile: 1
name: held
steps:
  hold: {shell: echo up > up; read line < gate; echo done >> effects}
  after: {shell: echo after >> effects, needs: [hold]}
  end: {shell: 'echo end ${execution.status} >> effects'}
"""

# What every answer of `cancel` begins with.
ANSWER = {"version": 1, "run": 1}


def effects(program: Program) -> list[str]:
    """What the steps left behind."""
    path = program.folder / "effects"
    return path.read_text().splitlines() if path.exists() else []


def start(program: Program, *words: str) -> Started:
    """The held run, when its first step is running."""
    program.write(HELD)
    up = program.gate("up")
    started = program.start("run", "flow.yaml", *words)
    up.wait()
    return started


def test_the_first_interrupt_lets_running_steps_finish(program: Program) -> None:
    """After one Ctrl-C the running step finishes, nothing new starts, exit 130, and `resume` does the rest once."""
    gate = program.gate("gate")
    with start(program) as run:
        run.until("err", "hold started")
        run.send(signal.SIGINT)
        run.until("err", "resile: stopping: waiting for 1 running step; press Ctrl-C again to kill it\n")
        gate.open()
        assert run.end() == 130
        assert "run 1 held interrupted after" in run.text["out"]
        assert "  resile resume 1  # go on\n" in run.text["out"]
    assert effects(program) == ["done"]
    assert program.json("status", "1")["status"] == "interrupted"
    assert program.json("resume", "1")["status"] == "completed"
    assert effects(program) == ["done", "after", "end completed"]


def test_the_second_interrupt_kills(program: Program) -> None:
    """After two signals the running step is ended, exit 130, and `resume` runs it again at no cost."""
    gate = program.gate("gate")
    with start(program) as run:
        run.until("err", "hold started")
        run.send(signal.SIGINT)
        run.until("err", "stopping: ")
        run.send(signal.SIGTERM)
        run.until("err", "resile: killing 1 running step\n")
        assert run.end() == 130
    assert effects(program) == []
    gate.open()
    document = program.json("resume", "1")
    assert document["status"] == "completed"
    assert document["first_failure"] is None
    assert effects(program) == ["done", "after", "end completed"]


def test_a_signal_that_comes_twice_at_once_is_one(program: Program) -> None:
    """`timeout` sends its signal to a process and to its group: the running step is waited for all the same."""
    gate = program.gate("gate")
    with start(program) as run:
        run.until("err", "hold started")
        subprocess.run(["kill", "-TERM", str(run.process.pid), str(run.process.pid)], check=True)
        run.until("err", "stopping: waiting for 1 running step; ")
        gate.open()
        assert run.end() == 130
    assert "killing" not in run.text["err"]
    assert effects(program) == ["done"]


def test_an_adopted_step_is_waited_for_and_killed_too(program: Program) -> None:
    """After a resume Ctrl-C waits for a step that outlived its engine, and the second signal ends it."""
    gate = program.gate("gate")
    with start(program) as run:
        run.until("err", "hold started")
        run.send(signal.SIGKILL)
        run.end()
    with program.start("resume", "1") as resumed:
        resumed.until("err", "hold attempt adopted")
        resumed.send(signal.SIGINT)
        resumed.until("err", "stopping: waiting for 1 running step; ")
        resumed.send(signal.SIGTERM)
        assert resumed.end() == 130
    assert effects(program) == []
    gate.open()
    assert program.json("resume", "1")["first_failure"] is None
    assert effects(program) == ["done", "after", "end completed"]


def test_the_time_of_an_adopted_step_counts_from_its_start(program: Program) -> None:
    """A step that another engine started took as long as it ran, not as long as this engine looked on."""
    gate = program.gate("gate")
    with start(program) as run:
        run.until("err", "hold started")
        run.send(signal.SIGKILL)
        run.end()
    with program.start("resume", "1") as resumed:
        resumed.until("err", "hold attempt adopted")
        gate.open()
        assert resumed.end() == 0
    (shown,) = re.findall(r"hold completed in ([0-9.]+) s\n", resumed.text["err"])
    seconds = program.json("status", "1")["jobs"][0]["seconds"]
    # Starting the second engine alone takes longer than what is rounded away.
    assert seconds > 0.05
    assert float(shown) == pytest.approx(seconds, abs=0.06)
    assert re.search(r" run resumed: 0 of 2 steps done\n", resumed.text["err"])


def test_sigterm_is_like_ctrl_c(program: Program) -> None:
    """SIGTERM stops gently, also with --json, whose document then says interrupted."""
    gate = program.gate("gate")
    with start(program, "--json") as run:
        run.until("err", "run 1\n")
        run.send(signal.SIGTERM)
        run.until("err", "stopping: ")
        gate.open()
        assert run.end() == 130
        assert '"status":"interrupted","exit_code":130' in run.text["out"]


def test_a_closed_terminal_leaves_the_run_resumable(program: Program) -> None:
    """SIGHUP ends the engine at once; the step goes on and `resume` adopts it."""
    gate = program.gate("gate")
    with start(program) as run:
        run.until("err", "hold started")
        run.send(signal.SIGHUP)
        assert run.end() == -signal.SIGHUP
    assert program.json("status", "1")["status"] == "interrupted"
    gate.open()
    document = program.json("resume", "1")
    assert (document["status"], document["jobs"][0]["attempts"]) == ("completed", 1)
    assert effects(program) == ["done", "after", "end completed"]


def test_cancel_from_another_process(program: Program) -> None:
    """`cancel` asks the engine: the running step is ended, the rest canceled, `end` runs, and the run exits 3."""
    program.gate("gate")
    with start(program) as run:
        run.until("err", "hold started")
        assert program.json("cancel", "1", "--reason", "enough") == ANSWER | {"status": "running", "requested": True}
        assert run.end() == 3
        assert ": enough\n" in run.text["err"]
    assert effects(program) == ["end canceled"]
    document = program.json("status", "1")
    assert [job["status"] for job in document["jobs"]] == ["terminated", "canceled", "completed"]
    assert program.json("resume", "1", code=3)["status"] == "canceled"
    assert program.json("cancel", "1") == ANSWER | {"status": "canceled", "requested": False}


def test_cancel_where_no_engine_is_left(program: Program) -> None:
    """`cancel` of an interrupted run takes it to its end itself."""
    gate = program.gate("gate")
    with start(program) as run:
        run.until("err", "hold started")
        run.send(signal.SIGINT)
        run.until("err", "stopping: ")
        gate.open()
        assert run.end() == 130
    done = program.call("cancel", "1", code=0)
    assert done.stdout == "run 1 was canceled\n"
    assert effects(program) == ["done", "end canceled"]


def test_resume_of_a_driven_run(program: Program) -> None:
    """A run that another engine drives can't be resumed: exit 2, and the message says who drives it."""
    gate = program.gate("gate")
    with start(program) as run:
        document = program.json("resume", "1", code=2)
        assert str(run.process.pid) in document["error"]["message"]
        gate.open()
        assert run.end() == 0


IGNORE = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
WAITED_FOR = """\
resile: 1
name: waited-for
steps:
- {id: fails, shell: "echo fails >> effects; exit 3", on_failure: {shell: echo fixed >> effects}}
- {id: decided, when: "${steps.fails.exit_code} === 3", shell: echo decided >> effects}
"""


def test_below_a_caller_that_ignores_its_children(program: Program) -> None:
    """Below a process that ignores SIGCHLD, which programs inherit, each exit code is known and each step runs once."""
    program.write(WAITED_FOR)
    argv = [sys.executable, "-c", f"{IGNORE}os.execv(sys.argv[1], sys.argv[1:])", *program.argv, "run", "flow.yaml"]
    assert subprocess.run(argv, cwd=program.folder, env=program.env, timeout=60).returncode == 0
    assert effects(program) == ["fails", "fixed", "decided"]
    fails = program.json("status", "1")["jobs"][0]
    assert (fails["status"], fails["attempts"], fails["exit_code"]) == ("completed", 1, 3)


def test_a_program_that_ignores_its_children(program: Program) -> None:
    """A Python program that ignores SIGCHLD is told so before any step starts."""
    program.write(WAITED_FOR)
    argv = [sys.executable, "-c", f"{IGNORE}import resile; resile.run('flow.yaml')"]
    done = subprocess.run(argv, cwd=program.folder, env=program.env, capture_output=True, text=True, timeout=60)
    assert "ignores SIGCHLD" in done.stderr.splitlines()[-2], done.stderr
    assert effects(program) == []
