"""A value that is too large for its way is never cut: it streams, or its step fails and says what to do instead."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.cli.program import Program
from tests.runs.values.conftest import failure_of

LINES = 800_000
MAKE = f'python3 -c \'import sys; sys.stdout.write("\\n\\n" + "".join("%d é\\n" % n for n in range({LINES})))\''
TEXT = "".join(f"{number} é\n" for number in range(LINES)).strip()
FLOW = """\
resile: 1
name: flow
steps:
  big:
    shell: MAKE
  use:
    needs: [big]
"""


def flow(keys: str, more: str = "") -> str:
    """A step that prints 9 MB, and one with these keys after it."""
    return FLOW.replace("MAKE", MAKE).replace("  use:", f"{more}  use:") + "".join(
        f"    {line}\n" for line in keys.splitlines()
    )


def digest(data: bytes) -> str:
    """Compared instead of megabytes."""
    return hashlib.sha256(data).hexdigest()


WHOLE = digest(TEXT.encode())


@pytest.mark.parametrize(
    "keys",
    [
        'shell: cat >got\nstdin: "${steps.big.output}"',
        'write_file: {path: got, content: "${steps.big.output}"}',
        "python: {source: \"def main(text): open('got', 'w').write(text)\"}\ninputs: {text: \"${steps.big.output}\"}",
    ],
)
def test_ways_that_take_any_size(program: Program, keys: str) -> None:
    """Standard input, a file and the input of Python code get all of a large output, trimmed."""
    program.write(flow(keys))
    assert program.json("run", "flow.yaml")["status"] == "completed"
    assert digest((program.folder / "got").read_bytes()) == WHOLE


def test_a_large_value_that_is_checked(program: Program) -> None:
    """A file whose content is checked takes any size too: what is JSON is written, what is none fails the step."""
    make = "python3 -c 'print(list(range(900000)))'"
    text = flow('write_file: {path: got, content: "${steps.big.output}", format: json}').replace(MAKE, make)
    assert program.json("run", program.write(text, "numbers.yaml"))["status"] == "completed"
    assert json.loads((program.folder / "got").read_bytes()) == list(range(900_000))
    (program.folder / "got").unlink()
    program.write(flow('write_file: {path: got, content: "${steps.big.output}", format: json}'))
    assert "JSON" in failure_of(program)
    assert not (program.folder / "got").exists()


def test_text_around_a_large_value(program: Program) -> None:
    """Other text and other values stay around it, in order."""
    program.write(flow('write_file: {path: got, content: "<${steps.big.exit_code}|${steps.big.output}>"}'))
    program.json("run", "flow.yaml")
    assert (program.folder / "got").read_text() == f"<0|{TEXT}>"


def test_a_map_over_a_large_output(program: Program) -> None:
    """Every line is an item, and the last one is there."""
    keys = 'map:\n  input: "${steps.big.output}"\n  filter: item.startsWith("799999")\n'
    keys += '  steps: [{shell: "echo ${item} >got"}]'
    program.write(flow(keys))
    assert program.json("run", "flow.yaml")["status"] == "completed"
    assert (program.folder / "got").read_text() == "799999 é\n"


def test_an_output_captured_to_a_file(program: Program) -> None:
    """The name is the path of a file with the whole stdout."""
    text = flow("shell: cp ${BIG} got").replace(MAKE, f"{MAKE}\n    capture: {{BIG: file}}")
    program.write(text)
    assert program.json("run", "flow.yaml")["status"] == "completed"
    assert digest((program.folder / "got").read_bytes().strip()) == WHOLE


@pytest.mark.parametrize(
    "keys",
    [
        "shell: echo ${steps.big.output}",
        'shell: "true"\nenv: {A: "${steps.big.output}"}',
        "when: outputs.big.length > 3\nshell: echo",
    ],
)
def test_elsewhere_the_step_fails(program: Program, keys: str) -> None:
    """It says how large the value is, what the limit is and which ways take any size."""
    program.write(flow(keys))
    message = failure_of(program)
    assert f"the output of 'big' has {len(TEXT.encode()) + 3} bytes, here a value has 4194304: " in message
    assert "`stdin`, `write_file`, the `input` of a map and `capture: {NAME: file}` take any size" in message


def test_a_capture_that_is_too_large_names_the_way(program: Program) -> None:
    """The step fails, and its message has the form that takes any size."""
    program.write(flow("shell: echo").replace(MAKE, f"{MAKE}\n    capture: BIG"))
    assert failure_of(program).endswith("more than 4194304: `capture: {BIG: file}` takes any size")


def test_a_large_output_that_nothing_names(program: Program) -> None:
    """Expressions that use other outputs are decided as without it."""
    when = "when: outputs.small == 'x' && !outputs?.['none']"
    program.write(flow(f"{when}\nshell: echo on >got", "  small: {shell: echo x}\n"))
    text = (program.folder / "flow.yaml").read_text().replace("needs: [big]", "needs: [big, small]")
    program.write(text)
    assert program.json("run", "flow.yaml")["status"] == "completed"
    assert Path(program.folder, "got").read_text() == "on\n"
