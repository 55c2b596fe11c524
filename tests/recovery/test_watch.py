"""`watch`: it waits for a run, and with --recover nobody else is needed."""

from __future__ import annotations

import signal

import pytest

from tests.cli.program import Program

PIPELINE = """\
resile: 1
name: pipeline
steps:
  prepare: {shell: 'true'}
  solve:
    needs: [prepare]
    resources: {memory: 60m}
    shell: python3 -c 'import time; x = bytearray(b"x") * (180 << 20); time.sleep(3)'
  report: {shell: 'echo done > report', needs: [solve]}
"""


@pytest.mark.slow
def test_a_step_that_needs_three_times_its_memory_ends_well(program: Program) -> None:
    """Nobody intervenes; the plan says why, and what it was granted."""
    program.call("run", program.write(PIPELINE), code=1)
    done = program.call("watch", "1", "--recover", "--interval", "1s", code=0)
    assert "solve, job 2: oom: out of memory: it used " in done.stdout
    assert "memory 60 MiB -> " in done.stdout
    assert "runs again: solve, report" in done.stdout
    assert "run 1 completed after" in done.stdout
    assert (program.folder / "report").read_text() == "done\n"


def test_it_waits_for_the_run_and_then_recovers_it(program: Program) -> None:
    """Started while the run goes on: the engine's run fails, the watcher's round completes it."""
    gate, ready = program.gate("gate"), program.gate("ready")
    flow = """\
resile: 1
name: waits
steps:
  wait:
    shell: echo > ready; read line < gate; test -e fed
    resources: {memory: 1m, enforce: false}
"""
    with program.start("run", program.write(flow)) as engine:
        ready.wait()
        with program.start("watch", "1", "--recover", "--interval", "0.1s") as watcher:
            gate.open()
            assert engine.end() == 1
            ready.wait()
            (program.folder / "fed").touch()
            gate.open()
            assert watcher.end() == 0
            assert "wait, job 1: oom: " in watcher.text["out"]
    assert program.call("watch", "1", code=0).stdout == "run 1 completed\n"


def test_a_run_whose_engine_died_is_resumed(program: Program) -> None:
    """After kill -9 of the engine the watcher goes on with the run."""
    gate, ready = program.gate("gate"), program.gate("ready")
    steps = "  wait: {shell: 'echo > ready; read line < gate'}\n  next: {shell: 'true', needs: [wait]}\n"
    flow = f"resile: 1\nname: dies\nsteps:\n{steps}"
    with program.start("run", program.write(flow)) as engine:
        ready.wait()
        engine.send(signal.SIGKILL)
        engine.process.wait()
        assert program.call("watch", "1", "--interval", "0.1s", code=130).stdout == "run 1 is interrupted\n"
        with program.start("watch", "1", "--recover", "--interval", "0.1s") as watcher:
            watcher.until("err", "it is resumed")
            gate.open()
            assert watcher.end() == 0
    assert "--memory-max goes with --recover" in program.call("watch", "1", "--memory-max", "8g", code=2).stderr
