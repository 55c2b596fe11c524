"""`--verbose`: every line that steps print, as it is printed, behind the name of its step, and nothing twice."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import msgspec

from tests.cli.program import Program
from tests.cli.terminal import Terminal

CHILD = "resile: 1\nname: inner\nsteps: [{id: hello, shell: echo from the child}]\n"
FLOW = """\
resile: 1
name: talk
max_parallel: 1
secrets: [API_TOKEN]
steps:
- {id: build, shell: "echo one; echo two >&2; printf three"}
- {id: each, map: {input: [a, b], max_parallel: 1, steps: [{id: say, shell: 'echo ${item}'}]}}
- {id: inner, workflow: inner.yaml}
- {id: leak, shell: 'echo "<$API_TOKEN>"'}
- id: bad
  shell: echo try; exit 3
  retry: {max: 1, backoff: 1ms}
"""
SAID = [
    "build | one",
    "build ! two",
    "build | three",
    "each[0]/say | a",
    "each[1]/say | b",
    "inner/hello | from the child",
    "leak | <***>",
    "bad | try",
    "bad | try",
]


def said(text: str) -> list[str]:
    """The lines of steps."""
    return [line for line in text.splitlines() if " | " in line or " ! " in line]


def test_each_line_has_its_step(program: Program) -> None:
    """Both streams, items, children, both attempts; a secret is redacted; an end is told after all output before it."""
    program.env["API_TOKEN"] = "hush-hush-hush"
    program.write(CHILD, "inner.yaml")
    program.write(FLOW)
    done = program.call("run", "flow.yaml", "-v", code=1)
    assert said(done.stderr) == SAID
    lines = done.stderr.splitlines()
    place = lines.index("build | three")
    assert lines[place + 1].endswith(" s")
    assert " build completed in " in lines[place + 1]
    assert lines[place - 3].endswith(" build started")
    assert done.stdout.startswith("run 1 talk failed after ")


def test_json_stays_one_document(program: Program) -> None:
    """With --json the lines are on stderr, beside the number of the run, and stdout has the document."""
    program.env["API_TOKEN"] = "hush-hush-hush"
    program.write(CHILD, "inner.yaml")
    program.write(FLOW)
    done = program.call("run", "flow.yaml", "--verbose", "--json", code=1)
    assert done.stderr.splitlines() == ["run 1", *SAID]
    assert msgspec.json.decode(done.stdout)["status"] == "failed"


def test_lines_come_while_the_step_runs(program: Program) -> None:
    """A line is shown before the step goes on; the beginning of a line only when the rest comes."""
    gate = program.gate("gate")
    program.write(
        "resile: 1\nname: x\nsteps: [{id: slow, shell: 'echo first; printf sec; read go < gate; echo ond'}]\n"
    )
    with program.start("run", "flow.yaml", "-v") as run:
        run.until("err", "slow | first\n")
        assert "sec" not in run.text["err"]
        gate.open()
        assert run.end() == 0
    assert said(run.text["err"]) == ["slow | first", "slow | second"]


def test_control_characters_are_harmless(program: Program) -> None:
    """A pipe gets no control character, a terminal colors alone, which end with the line."""
    program.write(r"""
resile: 1
name: x
steps:
- {id: loud, shell: "printf '\\033[31mred\\033[0m \\033]0;title\\007 back\\010\\n\\033[32mgreen\\n'"}
""")
    lines = ["red \\x1b]0;title\\x07 back\\x08", "green"]
    assert said(program.call("run", "flow.yaml", "-v", code=0).stderr) == [f"loud | {line}" for line in lines]
    with Terminal(program, "run", "flow.yaml", "-v") as terminal:
        assert terminal.end() == 0
    assert "\x1b[36mloud\x1b[0m | \x1b[31mred\x1b[0m \\x1b]0;title\\x07 back\\x08\x1b[0m\r\n" in terminal.raw
    assert "\x1b[36mloud\x1b[0m | \x1b[32mgreen\x1b[0m\r\n" in terminal.raw


def test_nothing_is_lost_of_large_output(program: Program) -> None:
    """Two steps that print megabytes at once are shown whole; a line without end in pieces."""
    program.write("""
resile: 1
name: x
steps:
  many: {shell: 'yes 0123456789 | head -n 200000'}
  long: {shell: "head -c 1000000 /dev/zero | tr '\\\\0' x"}
""")
    lines = program.call("run", "flow.yaml", "-v", "--max-parallel", "2", code=0).stderr.splitlines()
    assert lines.count("many | 0123456789") == 200_000
    assert sum(len(line.removeprefix("long | ")) for line in lines if line.startswith("long | ")) == 1_000_000


def test_a_resume_shows_what_it_adopts_and_what_it_starts(program: Program) -> None:
    """The output of a step that outlived its engine, and no output of steps that were over before."""
    gate = program.gate("gate")
    program.write("""
resile: 1
name: x
steps:
- {id: over, shell: echo over}
- {id: goes-on, shell: 'echo before; read go < gate; echo after'}
- {id: next, shell: echo next}
""")
    with program.start("run", "flow.yaml", "-v") as run:
        run.until("err", "goes-on | before\n")
        run.send(signal.SIGKILL)
        run.end()
    with program.start("resume", "1", "--verbose") as resume:
        resume.until("err", "goes-on attempt adopted\n")
        gate.open()
        assert resume.end() == 0
    assert said(resume.text["err"]) == ["goes-on | before", "goes-on | after", "next | next"]


def test_rerun_and_redrive_show_what_they_run(program: Program) -> None:
    """`rerun` and `dlq retry` take it too; only what they run is shown."""
    program.write("""
resile: 1
name: x
steps:
- id: each
  map: {input: [a, b], max_parallel: 1, steps: [{id: say, shell: 'echo ${item}; test ${item} = a -o -e ok'}]}
""")
    program.call("run", "flow.yaml", code=1)
    (program.folder / "ok").touch()
    assert said(program.call("dlq", "retry", "1", "-v", code=0).stderr) == ["each[1]/say | b"]
    assert said(program.call("rerun", "1", "-v", code=0).stderr) == ["each[0]/say | a", "each[1]/say | b"]


def test_a_quiet_step_costs_nothing(program: Program) -> None:
    """While a step prints nothing, the program is not busy: it wakes up at most a few times in a second."""
    gate, up = program.gate("gate"), program.gate("up")
    program.write("""
resile: 1
name: x
steps: [{id: quiet, shell: 'for n in 1 2 3 4 5 6; do sleep 0.5; done; echo up > up; read go < gate'}]
""")

    def wakeups(process: int) -> int:
        """How often the threads of a process have waited so far."""
        tasks = Path(f"/proc/{process}/task").iterdir()
        texts = [(task / "status").read_text() for task in tasks]
        return sum(int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0]) for text in texts)

    with program.start("run", "flow.yaml", "-v") as run:
        run.until("err", "quiet started\n")
        before = wakeups(run.process.pid)
        up.wait()
        assert wakeups(run.process.pid) - before <= 60
        gate.open()
        assert run.end() == 0


def test_a_closed_stderr_does_not_end_the_run(program: Program) -> None:
    """The run goes on although its output can't be shown."""
    program.write("resile: 1\nname: x\nsteps: [{id: s, shell: seq 1 1000}]\n")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*program.argv, "run", "flow.yaml", "-v"],
        cwd=program.folder,
        env=program.env,
        stdout=subprocess.PIPE,
        stderr=writer,
    )
    os.close(writer)
    assert (done.returncode, done.stdout.partition(b" after")[0]) == (0, b"run 1 x completed")
