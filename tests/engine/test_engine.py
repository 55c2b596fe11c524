"""The engine with real processes: logs, limits, adoption after kill -9, resources, another epoch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.engine.conftest import Place, statuses


def test_log_files_have_the_names_that_people_look_for(place: Place) -> None:
    """One pair for each attempt, only where there is output."""
    code, _ = place.run("""
resile: 1
steps:
  quiet: {shell: 'true'}
  loud: {shell: 'echo out$RESILE_ATTEMPT_ID; echo err >&2; test $RESILE_ATTEMPT_ID = 2', retry: 1}
""")
    assert code == 0
    logs = place.state / "output" / "job_stdio"
    assert {path.name: path.read_text() for path in logs.iterdir()} == {
        "job_wf1_j2_r1_a1.o": "out1\n",
        "job_wf1_j2_r1_a1.e": "err\n",
        "job_wf1_j2_r1_a2.o": "out2\n",
        "job_wf1_j2_r1_a2.e": "err\n",
    }
    assert all(path.stat().st_mode & 0o077 == 0 for path in logs.iterdir())


def test_a_timeout_kills_the_whole_tree_and_is_a_failure_of_its_own_kind(place: Place) -> None:
    """Also a child that escaped by setsid; the exit code is the signal's."""
    code, document = place.run("""
resile: 1
grace: 200ms
steps:
  a: {shell: 'setsid sleep 300 & echo $! > escaped; sleep 300', timeout: 300ms}
""")
    assert (code, document["first_failure"]["kind"]) == (1, "timeout")
    assert not Path(f"/proc/{place.text('escaped').strip()}").exists()


def test_a_signal_is_told_apart_from_an_exit_code(place: Place) -> None:
    """Exit code 128+N, kind signal."""
    code, document = place.run("resile: 1\nsteps:\n  a: {shell: 'kill -SEGV $$'}\n")
    assert (code, document["first_failure"]["kind"], document["first_failure"]["exit_code"]) == (1, "signal", 139)


def test_a_step_that_never_fits_is_refused_before_anything_runs(place: Place) -> None:
    """Exit 2 with the place in the file."""
    code, document = place.run(
        "resile: 1\nsteps:\n  a:\n    shell: touch ran\n    resources: {cpus: 2}\n", "--cpus", "1"
    )
    assert (code, document["error"]["code"]) == (2, "does-not-fit")
    assert document["error"]["where"].startswith("flow.yaml:3:")
    assert not (place.folder / "ran").exists()


def test_resources_are_respected_when_packing(place: Place) -> None:
    """Six steps that take half the machine each never run more than two at a time."""
    steps = "".join(
        f"  s{n}:\n    shell: mkdir run{n}; ls -d run* | wc -l >> seen; sleep 0.1; rmdir run{n}\n"
        "    resources: {memory: 1g}\n"
        for n in range(6)
    )
    code, _ = place.run(f"resile: 1\nmax_parallel: 6\nsteps:\n{steps}", "--memory", "2g")
    assert code == 0
    assert {int(word) for word in place.text("seen").split()} <= {1, 2}


def test_a_running_step_outlives_its_engine_and_is_adopted(place: Place) -> None:
    """kill -9, resume: the step ran once, its result counts, the log says who was adopted."""
    gate = place.folder / "gate"
    os.mkfifo(gate)
    started = place.folder / "started"
    os.mkfifo(started)
    (place.folder / "flow.yaml").write_text(
        "resile: 1\nsteps:\n"
        "  a: {shell: 'echo a >> effects; echo go > started; cat gate; echo done-a'}\n"
        "  b: {shell: 'echo b ${steps.a.output} >> effects', needs: [a]}\n"
    )
    engine = subprocess.Popen(
        [sys.executable, "-m", "resile.cli.main", "run", "flow.yaml"],
        cwd=place.folder,
        env=place.env,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    assert started.read_text() == "go\n"
    engine.send_signal(signal.SIGKILL)
    engine.wait()
    assert place.call("status", "1")[1]["status"] == "interrupted"
    resumed = subprocess.Popen(
        [sys.executable, "-m", "resile.cli.main", "resume", "1"],
        cwd=place.folder,
        env=place.env,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    assert resumed.stderr is not None
    assert b"run 1" in resumed.stderr.readline()
    follower = subprocess.Popen(
        [sys.executable, "-m", "resile.cli.main", "events", "follow", "1", "--type", "attempt_adopted"],
        cwd=place.folder,
        env=place.env,
        stdout=subprocess.PIPE,
    )
    assert follower.stdout is not None
    assert b"attempt_adopted" in follower.stdout.readline()
    gate.write_text("open\n")
    assert follower.wait(timeout=60) == 0
    assert resumed.wait(timeout=60) == 0
    assert place.text("effects") == "a\nb open\ndone-a\n"
    types = [event["type"] for event in place.events(1) if event["step"] == "a"]
    assert types == [
        "step_started",
        "attempt_started",
        "attempt_adopted",
        "attempt_succeeded",
        "step.exit",
        "step_completed",
    ]


def test_another_epoch_keeps_its_own_logs_and_attempts(place: Place) -> None:
    """`rerun --failed-only` runs what had not completed, from attempt 1, under r2."""
    text = (
        "resile: 1\nsteps:\n- {id: a, shell: echo a >> effects}\n- {id: b, shell: echo b >> effects; test -e fixed}\n"
    )
    assert place.run(text)[0] == 1
    (place.folder / "fixed").touch()
    code, document = place.call("rerun", "1", "--failed-only")
    assert (code, document["epoch"], statuses(document)["b"]) == (0, 2, "completed")
    assert place.text("effects").split() == ["a", "b", "b"]
    assert [job["attempts"] for job in document["jobs"]] == [1, 1, 1]


def test_resume_of_an_ended_run_gives_its_exit_code_and_does_nothing(place: Place) -> None:
    """The same exit code, no new event."""
    assert place.run("resile: 1\nsteps:\n  a: {shell: 'echo x >> effects; exit 5'}\n")[0] == 1
    before = place.events(1)
    assert place.call("resume", "1")[0] == 1
    assert (place.events(1), place.text("effects")) == (before, "x\n")


def test_canceling_a_run_that_nobody_drives_runs_end_once(place: Place) -> None:
    """A parked run: the cancel takes it to its end, which starts exactly once."""
    text = """
resile: 1
steps:
  a: {shell: exit 1, park: true}
  end: {shell: 'echo end ${execution.status} >> effects'}
"""
    assert place.run(text)[0] == 4
    assert place.call("cancel", "1")[1]["status"] == "canceled"
    assert place.text("effects") == "end canceled\n"
    types = [event["type"] for event in place.events(1) if event["step"] == "end"]
    assert types == ["step_started", "attempt_started", "attempt_succeeded", "step.exit", "step_completed"]


def test_a_run_that_nobody_drives_does_not_grow_older(place: Place) -> None:
    """The times of a parked run stand still, and a job that was never tried has no attempts."""
    assert place.run("resile: 1\nsteps:\n  a: {shell: exit 1, park: true}\n  b: {shell: 'true', needs: [a]}\n")[0] == 4
    first, second = (place.call("status", "1")[1] for _ in range(2))
    assert first == second
    assert [job["attempts"] for job in first["jobs"]] == [1, 0, 0]


def test_an_output_folder_that_cannot_be_made_is_refused_before_anything_is_stored(place: Place) -> None:
    """Exit 2, no run."""
    (place.folder / "file").touch()
    code, document = place.run("resile: 1\nsteps:\n  a: {shell: 'true'}\n", "--output", "file/out")
    assert (code, document["error"]["code"]) == (2, "output-unusable")
    assert not place.state.exists()


def test_gpu_numbers_are_those_that_the_caller_may_see(place: Place) -> None:
    """Two of the caller's devices, handed out one by one."""
    text = "resile: 1\nsteps:\n" + "".join(
        f"  s{n}: {{shell: echo $CUDA_VISIBLE_DEVICES >> seen, resources: {{gpus: 1}}}}\n" for n in range(4)
    )
    code, _ = place.run(text, "--max-parallel", "1", env={"CUDA_VISIBLE_DEVICES": "5,7"})
    assert code == 0
    assert set(place.text("seen").split()) <= {"5", "7"}
    (place.folder / "seen").unlink()
    code, _ = place.run(text.replace("gpus: 1", "gpus: 2"), env={"CUDA_VISIBLE_DEVICES": "5,7"})
    assert (code, set(place.text("seen").split())) == (0, {"5,7"})


def _stored_but_never_started(place: Place) -> None:
    """A run as it is when its engine dies right after storing it."""
    from resile.commands.load import compile_workflow
    from resile.core.events import Capacity, RunStarted
    from resile.engine.session import create
    from resile.model import codec
    from resile.store.open import open_store

    text = "resile: 1\ninputs: {who: nobody}\nsteps:\n  a: {shell: 'echo ${inputs.who} >> effects'}\n"
    text += "  end: {shell: 'echo end >> effects'}\n"
    (place.folder / "flow.yaml").write_text(text)
    workflow = compile_workflow(str(place.folder / "flow.yaml"))
    store = open_store(place.env["RESILE_DB"])
    first = RunStarted(1.0, Capacity(1), {"who": "me"})
    folders = {"output": str(place.state / "output"), "directory": str(place.folder)}
    create(store, workflow, codec.encode(workflow), first, **folders)
    store.close()


def test_a_run_that_was_stored_but_never_started_is_started_by_resume(place: Place) -> None:
    """With the inputs that it was stored with."""
    _stored_but_never_started(place)
    assert place.call("status", "1")[1]["status"] == "interrupted"
    assert place.call("resume", "1")[0] == 0
    assert place.text("effects") == "me\nend\n"
    assert [event["type"] for event in place.events(1)][:2] == ["playbook_started", "workflow_initialized"]


def test_a_run_that_was_stored_but_never_started_can_be_canceled(place: Place) -> None:
    """Nothing but `end` runs."""
    _stored_but_never_started(place)
    assert place.call("cancel", "1")[1]["status"] == "canceled"
    assert place.text("effects") == "end\n"
