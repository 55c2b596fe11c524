"""Files that hold values (scripts, prompts, standard input, settings) are gone when their attempt has ended."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.cli.program import Program

LONG = 140_000
FLOW = f"""
resile: 1
inputs: {{word: text}}
steps:
  stdin: {{shell: cat, stdin: "${{inputs.word}}"}}
  fails: {{shell: "cat; exit 3", stdin: "${{inputs.word}}", on_failure: true}}
  slow: {{shell: "sleep 60", stdin: "${{inputs.word}}", timeout: 0.1, grace: 0.1, on_failure: true}}
  prompt: {{agent: {{command: cat, prompt_by: stdin, prompt: "${{inputs.word}}"}}}}
  script: {{shell: ": {"x" * LONG} ${{inputs.word}}"}}
"""
GATED = """
resile: 1
steps:
  waits: {shell: "cat > fed; echo > began; read go < gate", stdin: "held value"}
"""


def held(program: Program) -> list[Path]:
    """The files that hold the value."""
    files = [path for path in program.folder.rglob("*") if path.is_file() and path.parent.name == "scripts"]
    return [path for path in files if b"held value" in path.read_bytes()]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """The program in a folder with its database."""
    return Program(tmp_path)


def test_no_file_with_a_value_outlives_its_attempt(program: Program) -> None:
    """Not after success, failure or a timeout, whether it was a script, a prompt or standard input."""
    program.write(FLOW)
    document = program.json("run", "flow.yaml", "--input", "word=held value")
    assert {job["step"]: job["status"] for job in document["jobs"]} == {
        "stdin": "completed",
        "fails": "failed",
        "slow": "failed",
        "prompt": "completed",
        "script": "completed",
        "end": "completed",
    }
    folder = next(program.folder.rglob("scripts"))
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("fate", ["ends", "lost"])
def test_a_file_of_a_killed_engine_is_removed_by_the_next(program: Program, fate: str) -> None:
    """After kill -9 the file is there until the resume has settled its attempt, however that ended."""
    began, gate = program.gate("began"), program.gate("gate")
    program.write(GATED)
    with program.start("run", "flow.yaml") as engine:
        began.wait()
        launcher = int(Path(f"/proc/{engine.process.pid}/task/{engine.process.pid}/children").read_text().split()[0])
        if fate == "lost":
            os.kill(launcher, signal.SIGKILL)
            os.kill(engine.process.pid, signal.SIGKILL)
        else:
            engine.send(signal.SIGKILL)
            engine.end()
            gate.open()
        engine.end()
    assert (len(held(program)), (program.folder / "fed").read_text()) == (1, "held value")
    with program.start("resume", "1") as engine:
        # An attempt that was lost begins again, and waits at the gate.
        gate.open(2)
        assert engine.end() == 0
    assert held(program) == []


def test_a_withdrawn_attempt_leaves_no_file(program: Program) -> None:
    """An attempt that was prepared and never started, because the step before it failed, leaves nothing behind."""
    began, gate = program.gate("began"), program.gate("gate")
    program.write(
        'resile: 1\nsteps:\n  first: {shell: "echo > began; read go < gate; exit 3"}\n'
        '  other: {shell: cat, stdin: "held value", needs: [first]}\n'
    )
    with program.start("run", "flow.yaml") as engine:
        began.wait()
        prepared = len(held(program))
        gate.open()
        assert engine.end() == 1
    assert (prepared, held(program)) == (1, [])
