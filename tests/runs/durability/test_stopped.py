"""An engine that is stopped (SIGSTOP) for longer than its lease, while another one drives its run on."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from tests.executors.local.driver import wait_for
from tests.runs.durability.harness import Runs, times

# The command line with leases of a second, which gives up the workers of stopped engines after a second.
LEASE_SECONDS = 1.0
STOPS = times("RESILE_STOPS", 17)
STOPS_OF_ONE_RUN = 4
SHORT = f"""
import sys
from resile.engine import session
from resile.engine.neighbours import lease_keeper
from resile.executors.functions import pool
lease_keeper.LEASE_SECONDS = session.LEASE_SECONDS = {LEASE_SECONDS}
pool.SILENT_SECONDS_MAX = 1.0
from resile.cli.main import main
sys.argv[0] = "resile"
sys.exit(main())
"""
# The same, but the process stops itself when it has the lease of the run and has not begun to drive it.
STOPPED_BEFORE = SHORT.replace(
    "from resile.cli.main",
    """import os, signal
opening = session.Session.open
def open_stopped(*given, **keys):
    os.kill(os.getpid(), signal.SIGSTOP)
    return opening(*given, **keys)
session.Session.open = open_stopped
from resile.cli.main""",
)
GATED = """resile: 1
name: t
max_parallel: 2
steps:
  a: {shell: 'echo a >> $EFFECTS; read line < gate; echo $line'}
  b: {shell: 'echo b >> $EFFECTS', needs: [a]}
  c: {shell: 'echo c >> $EFFECTS', needs: [b]}
"""
GATED_FUNCTION = """
from resile import Workflow, step

@step
def a():
    with open("begun", "w"), open("gate") as gate:
        gate.read()

with Workflow("t", workers="processes") as flow:
    a()
"""
CALLS = 60
FUNCTIONS = """
import os, time
from resile import Workflow, step

@step
def put(number):
    time.sleep(0.02)
    with open(os.environ["EFFECTS"], "a") as file:
        file.write(f"n{number}\\n")
    return number

@step
def total(numbers):
    return sum(numbers)

with Workflow("t", max_parallel=2, workers=WORKERS) as flow:
    total([put(number) for number in range(CALLS)])
"""
STEPS = 60
SHELL = "resile: 1\nname: t\nmax_parallel: 2\nsteps:\n" + "".join(
    f"  s{n}: {{shell: 'sleep 0.02; echo n{n} >> $EFFECTS; echo out-{n}'"
    + (f", needs: [s{n // 3}]}}\n" if n else "}\n")
    for n in range(STEPS)
)


class ShortLeases(Runs):
    """Runs whose engines have short leases."""

    def start(self, *words: str, program: str = SHORT) -> subprocess.Popen[bytes]:
        """Start a command without waiting for its end."""
        return subprocess.Popen(
            [sys.executable, "-c", program, *words],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def stop(self, engine: subprocess.Popen[bytes]) -> None:
        """Stop an engine at a moment when it does not lock the database: others could never write to it."""
        while True:
            os.kill(engine.pid, signal.SIGSTOP)
            db = apsw.Connection(self.env["RESILE_DB"], flags=apsw.SQLITE_OPEN_READWRITE)
            try:
                db.execute("BEGIN IMMEDIATE; ROLLBACK")
                return
            except (apsw.BusyError, apsw.ProtocolError):
                os.kill(engine.pid, signal.SIGCONT)
            finally:
                db.close()

    def take_over(self) -> subprocess.Popen[bytes]:
        """Resume the run, again and again until the lease of its stopped engine has expired."""
        while True:
            engine = self.start("resume", str(self.number()))
            while self.driver() != engine.pid:
                try:
                    engine.wait(0.05)
                    break
                except subprocess.TimeoutExpired:
                    continue
            else:
                return engine
            assert engine.stderr is not None
            if b"is driven by process" not in engine.stderr.read():
                return engine

    def driver(self) -> int:
        """The process id of the engine that holds the lease of the newest run."""
        from resile.store.lease import boot_seconds
        from resile.store.open import open_store

        store = open_store(self.env["RESILE_DB"], readonly=True)
        try:
            lease = store.lease(self.number(), boot_seconds())
            return lease.pid if lease is not None else 0
        finally:
            store.close()


def write_flow(folder: Path, kind: str) -> str:
    """Write a workflow of shell steps, or of functions in processes or threads; return the name of its file."""
    if kind == "shell":
        (folder / "flow.yaml").write_text(SHELL)
        return "flow.yaml"
    (folder / "flow.py").write_text(FUNCTIONS.replace("WORKERS", repr(kind)).replace("CALLS", str(CALLS)))
    return "flow.py"


def wait_for_end(engine: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Wait for the end of a command; return its exit code and what it wrote to stderr."""
    _, errors = engine.communicate(timeout=60)
    return engine.returncode, errors.decode()


def test_a_stopped_engine_comes_back_and_changes_nothing(tmp_path: Path) -> None:
    """The second engine adopts the running step, and the first one does not kill it and says that it lost the run."""
    os.mkfifo(tmp_path / "gate")
    (tmp_path / "flow.yaml").write_text(GATED)
    runs = ShortLeases(tmp_path)
    first = runs.start("run", "flow.yaml")
    wait_for(lambda: runs.counted()["a"] == 1)
    os.kill(first.pid, signal.SIGSTOP)
    second = runs.take_over()
    wait_for(lambda: "attempt_adopted" in {note.type for note in runs.notes()})
    os.kill(first.pid, signal.SIGCONT)
    code, errors = wait_for_end(first)
    (tmp_path / "gate").write_text("go\n")
    assert wait_for_end(second)[0] == 0
    assert code == 130
    assert f"this engine no longer drives run 1; process {second.pid} on" in errors
    assert runs.counted() == {"a": 1, "b": 1, "c": 1}
    assert set(runs.attempts().values()) == {1}
    assert not list(tmp_path.rglob("*.fence"))


def test_an_engine_that_was_stopped_before_it_began_is_interrupted(tmp_path: Path) -> None:
    """An engine that finds on waking up that another one has its run exits with 130, not with 2 as for a wrong call."""
    os.mkfifo(tmp_path / "gate")
    (tmp_path / "flow.py").write_text(GATED_FUNCTION)
    runs = ShortLeases(tmp_path)
    dead = runs.start("run", "flow.py")
    wait_for((tmp_path / "begun").exists)
    dead.kill()
    wait_for_end(dead)
    first = runs.start("resume", "1", program=STOPPED_BEFORE)
    os.waitid(os.P_PID, first.pid, os.WSTOPPED | os.WNOWAIT)
    second = runs.take_over()
    wait_for(lambda: "attempt_adopted" in {note.type for note in runs.notes()})
    os.kill(first.pid, signal.SIGCONT)
    code, errors = wait_for_end(first)
    (tmp_path / "gate").write_text("go\n")
    assert wait_for_end(second)[0] == 0
    assert (code, "this engine no longer drives run 1" in errors) == (130, True), errors


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["shell", "processes", "threads"])
def test_engines_stopped_again_and_again_double_nothing(tmp_path: Path, kind: str) -> None:
    """No finished step runs again, no output changes, no attempt number is used twice, and what ran again was lost."""
    chance = random.Random(13)
    stops = round_number = 0
    while stops < STOPS:
        folder = tmp_path / str(round_number)
        round_number += 1
        folder.mkdir()
        runs = ShortLeases(folder)
        engine = runs.start("run", write_flow(folder, kind))
        wait_for(lambda runs=runs: runs.number())
        stopped: list[subprocess.Popen[bytes]] = []
        # No run is stopped more often than this, because it would never end.
        while len(stopped) < STOPS_OF_ONE_RUN:
            try:
                engine.wait(chance.uniform(0.0, 1.0))
                break
            except subprocess.TimeoutExpired:
                runs.stop(engine)
            stops += 1
            stopped.append(engine)
            engine = runs.take_over()
            if chance.random() < 0.5:
                # This engine goes on while the next one works; the others only at the end.
                os.kill(stopped[-1].pid, signal.SIGCONT)
        outcomes = []
        for one in stopped:
            os.kill(one.pid, signal.SIGCONT)
            outcomes.append(wait_for_end(one))
        # A run that was over when its engine was stopped can't be resumed.
        was_over = any(code == 0 for code, _ in outcomes)
        code, errors = wait_for_end(engine)
        assert code in ((0, 2) if was_over else (0,)), errors
        for code, errors in outcomes:
            assert code == 0 or (code, "no longer drives run 1" in errors) == (130, True), errors
        check(runs, kind)


def check(runs: ShortLeases, kind: str) -> None:
    """Check that the disturbed run has the outcome, effects and output of an undisturbed one."""
    document = runs.call("status", "1")[1]
    assert document["status"] == "completed"
    lost = runs.noted("attempt_lost")
    assert set(runs.noted("attempt_succeeded").values()) == {1}
    assert set(runs.attempts().values()) == {1}
    names = (
        {f"n{n}": f"s{n}" for n in range(STEPS)}
        if kind == "shell"
        else {f"n{n}": "put" if not n else f"put-{n + 1}" for n in range(CALLS)}
    )
    effects = runs.counted()
    assert effects.keys() == names.keys()
    again = {names[effect]: count - 1 for effect, count in effects.items() if count > 1}
    assert all(lost[name] >= count for name, count in again.items()), (again, lost)
    if kind == "shell":
        assert not again
        expected = "".join(f"==> s{n}, attempt 1, stdout <==\nout-{n}\n" for n in range(STEPS))
        assert runs.output() == expected
