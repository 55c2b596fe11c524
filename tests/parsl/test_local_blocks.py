"""Runs on blocks of this machine: what steps see, what reaches them, and that nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.parsl.cluster_runs import Place, place, wait_for

__all__ = ["place"]
pytestmark = pytest.mark.slow


def pid_in(path: Path) -> int:
    """Wait until a step has written its process."""
    return int(wait_for(f"{path.name} is written", lambda: path.exists() and path.read_text().strip()))


def is_alive(pid: int) -> bool:
    """Does a process run?"""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_steps_see_what_they_see_locally(place: Place) -> None:
    """Environment, folder, output, values between steps and exit codes are those of a local run; nothing is left."""
    done = place.run(
        "resile: 1\nsteps:\n"
        "  a: {shell: 'echo $RESILE_JOB_ID/$RESILE_ATTEMPT_ID/$RESILE_JOB_NAME; pwd; echo oops >&2'}\n"
        "  b: {shell: 'echo ${steps.a.output}', needs: [a]}\n"
        "  c: {shell: 'sleep 1000', timeout: 300ms, grace: 1s, needs: [b]}\n"
    )
    assert done.returncode == 1, done.stderr
    assert place.call("logs", "1", "b").stdout.count(f"1/1/a\n{place.folder}") == 1
    assert "oops" in place.call("logs", "1", "a", "--stderr").stdout
    (failed,) = [one["data"] for one in place.events() if one["type"] == "attempt_failed"]
    assert failed["kind"] == "timeout"
    wait_for("no process of a block is left", lambda: not place.processes(), 60)


def test_nodes_sample_their_steps(place: Place) -> None:
    """The samples come from the node, because only there the pids mean these processes; a plot shows them."""
    done = place.run("resile: 1\nresource_monitor: {interval: 0.1s}\nsteps:\n  a: {shell: 'sleep 1'}\n")
    assert done.returncode == 0, done.stderr
    (step,) = msgspec.json.decode(place.call("resources", "1", "--json", "--plot", "out.svg").stdout)["steps"]
    (series,) = step["series"]
    assert (series["job"], series["attempt"]) == (1, 1)
    assert len(series["samples"]) >= 2
    assert all(rss_bytes > 0 for _, rss_bytes, _ in series["samples"])
    assert "<svg" in (place.folder / "out.svg").read_text()


def test_a_cancel_reaches_the_process(place: Place) -> None:
    """`cancel` through the engine ends the step on its node, and the blocks end with the run."""
    engine = place.start("resile: 1\nsteps:\n  a: {shell: 'echo $$ > pid; exec sleep 1000', grace: 1s}\n")
    pid = pid_in(place.folder / "pid")
    assert place.call("cancel", "1").returncode == 0
    wait_for("the step has ended", lambda: not is_alive(pid))
    out, err = engine.communicate(timeout=120)
    assert engine.returncode == 3, (out, err)
    wait_for("no process of a block is left", lambda: not place.processes(), 60)


def test_a_resume_adopts_what_runs(place: Place) -> None:
    """After kill -9 of the engine the step goes on; the next engine takes it over, and it ran once."""
    text = "resile: 1\nsteps:\n  a: {shell: 'echo x >> starts; echo $$ > pid; until test -e go; do sleep 0.05; done'}\n"
    engine = place.start(text)
    pid = pid_in(place.folder / "pid")
    engine.kill()
    engine.communicate()
    resumed = place.popen("resume", "1")
    wait_for("it is adopted", lambda: any(one["type"] == "run_resumed" for one in place.events()))
    assert is_alive(pid)
    (place.folder / "go").touch()
    out, err = resumed.communicate(timeout=120)
    assert resumed.returncode == 0, (out, err)
    assert (place.folder / "starts").read_text() == "x\n"
    assert [one["data"] for one in place.events() if one["type"] == "attempt_lost"] == []
    wait_for("no process of a block is left", lambda: not place.processes(), 60)


def test_blocks_without_an_engine_end(place: Place) -> None:
    """After kill -9 of the engine its blocks finish what they have, and then end by themselves."""
    place.describe(provider="local", idle="5s")
    engine = place.start("resile: 1\nsteps:\n  a: {shell: 'echo $$ > pid; until test -e go; do sleep 0.05; done'}\n")
    pid_in(place.folder / "pid")
    os.kill(engine.pid, signal.SIGKILL)
    engine.communicate()
    (place.folder / "go").touch()
    wait_for("all blocks have ended", lambda: not place.processes())
    done = place.call("resume", "1")
    assert done.returncode == 0, done.stderr
    started = [one["attempt"] for one in place.events() if one["type"] == "attempt_started" and one["step"] == "a"]
    assert started == [1]


def test_work_after_the_death_of_a_manager_has_a_new_block(place: Place) -> None:
    """What ran below the manager goes on, and what comes later does not wait for it, even if it would fit beside it."""
    place.describe(provider="local", workers_per_node=2, blocks_max=2, idle="10s")
    engine = place.start(
        "resile: 1\nmax_parallel: 2\nsteps:\n"
        "  a: {shell: 'echo x >> starts; echo $$ > pid; until test -e go; do sleep 0.05; done'}\n"
        "  b: {shell: 'until test -e killed; do sleep 0.05; done'}\n"
        "  c: {shell: 'touch go', needs: [b]}\n"
    )
    pid_in(place.folder / "pid")
    managers = [line for line in place.processes() if "process_worker_pool.py" in line and "-S -E" not in line]
    for line in managers:
        os.kill(int(line.split()[0]), signal.SIGKILL)
    (place.folder / "killed").touch()
    _, err = engine.communicate(timeout=120)
    assert (engine.returncode, managers != []) == (0, True), err
    assert (place.folder / "starts").read_text() == "x\n"
    wait_for("no process of a block is left", lambda: not place.processes(), 60)


def test_an_interrupt_of_the_terminal_reaches_the_engine_only(place: Place) -> None:
    """Ctrl-C goes to all processes of the terminal: those of Parsl are not among them, and the step ends in peace."""
    flow = place.write("resile: 1\nsteps:\n  a: {shell: 'echo $$ > pid; until test -e go; do sleep 0.1; done'}\n")
    words = [sys.executable, "-m", "resile", "run", str(flow), "--executor", str(place.toml)]
    engine = subprocess.Popen(
        words, cwd=place.folder, env=place.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    pid_in(place.folder / "pid")
    os.killpg(engine.pid, signal.SIGINT)
    (place.folder / "go").touch()
    _, err = engine.communicate(timeout=240)
    assert "Traceback" not in err
    assert [one["type"] for one in place.events() if one["step"] == "a"][-1] == "step_completed"
