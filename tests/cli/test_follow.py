"""`logs -f`: what steps of a live run print, item by item, at a price that does not grow with what is over."""

from __future__ import annotations

import os
from pathlib import Path

from tests.cli.program import Program

MANY = 1_500
ITEMS = """\
resile: 1
name: items
steps:
- {id: first, shell: 'echo first; echo up > up; read go < gate'}
- id: each
  map:
    input: [a, b]
    max_parallel: 1
    steps:
    - {id: say, shell: 'echo ${item} one; echo up > up; read go < gate; echo ${item} two'}
"""
LARGE = f"""\
resile: 1
name: large
steps:
- {{id: each, map: {{input: seq 1 {MANY}, steps: [{{id: work, shell: 'echo ${{item}}'}}]}}}}
- id: last
  shell: |
    for n in 1 2 3 4 5 6 7 8 9 10; do echo "line $n"; echo up > up; read go < gate; done
"""


def cpu_seconds(process: int) -> float:
    """What a process has used so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_items_are_followed_as_they_come(program: Program) -> None:
    """Each line when it is written, under the name of its item, and nothing twice; the end comes with the run's."""
    gate, up = program.gate("gate"), program.gate("up")
    program.write(ITEMS)
    with program.start("run", "flow.yaml") as run:
        up.wait()
        with program.start("logs", "1", "-f") as logs, program.start("logs", "1", "say", "-f") as some:
            logs.until("out", "first\n")
            gate.open()
            for item in "ab":
                up.wait()
                for follower in (logs, some):
                    follower.until("out", f"{item} one\n")
                    assert f"{item} two" not in follower.text["out"]
                gate.open()
            assert (logs.end(), some.end(), run.end()) == (0, 0, 0)
    said = "".join(
        f"==> each[{index}]/say, attempt 1, stdout <==\n{item} one\n{item} two\n" for index, item in enumerate("ab")
    )
    assert some.text["out"] == said
    assert logs.text["out"] == f"==> first, attempt 1, stdout <==\nfirst\n{said}"
    assert program.call("logs", "1", code=0).stdout == logs.text["out"]


def test_following_a_large_run_costs_little_more_than_reading_it(program: Program) -> None:
    """While a step goes on behind many that are over, those are not looked at again."""
    gate, up = program.gate("gate"), program.gate("up")
    program.write(LARGE)
    with program.start("run", "flow.yaml", "--max-parallel", "2") as run:
        up.wait()
        with program.start("logs", "1", "-f") as logs:
            logs.until("out", f"each[{MANY - 1}]/work, attempt 1, stdout <==\n{MANY}\n")
            read = cpu_seconds(logs.process.pid)
            for number in range(2, 11):
                gate.open()
                up.wait()
                logs.until("out", f"line {number}\n")
            followed = cpu_seconds(logs.process.pid) - read
            gate.open()
            assert (logs.end(), run.end()) == (0, 0)
    lines = logs.text["out"].splitlines()
    assert [line for line in lines if line.startswith("line")] == [f"line {number}" for number in range(1, 11)]
    assert sum(line.startswith("==> each[") for line in lines) == MANY
    assert followed <= read / 2


def test_logs_of_a_rerun_are_those_of_its_items(program: Program) -> None:
    """Items of the first epoch do not stand beside those of the second."""
    program.write(
        "resile: 1\nname: x\nsteps:\n- {id: m, map: {input: [1, 2], steps: [{id: s, shell: 'echo ${item}'}]}}\n"
    )
    program.call("run", "flow.yaml", code=0)
    first = program.call("logs", "1", code=0).stdout
    program.call("rerun", "1", code=0)
    assert program.call("logs", "1", code=0).stdout == first
