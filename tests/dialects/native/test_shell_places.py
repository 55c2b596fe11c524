"""Values in places that a shell, or a second interpreter, reads twice: errors and warnings with their places."""

# ruff: noqa: E501 - a table reads better with one case in a line
from __future__ import annotations

import pytest

from tests.dialects.native.test_native_errors import findings


def second(column: int, reader: str, hint: str) -> list[str]:
    """The warning of a value that a second interpreter reads as code."""
    return [
        f"f:5:{column}: warning: `${{v}}`: `{reader}` reads the value a second time, as code [second-shell]\n  hint: {hint}"
    ]


EVAL = "keep the code in single quotes: x=${v}; eval '… \"$x\" …'"
AS_ARGUMENT = "pass it as an argument: sh -c '… \"$1\"' sh ${v}"


def refused(column: int, reason: str) -> list[str]:
    """The error of a value in a place that the shell reads twice."""
    return [f"f:5:{column}: error: `${{v}}`: no value can be put here safely: {reason} [shell-place]"]


def computed(column: int) -> list[str]:
    """The warning of a value behind a command whose name is computed."""
    problem = "the name of the command is computed, so it may read the value as code"
    return [f"f:5:{column}: warning: `${{v}}`: {problem} [second-shell]\n  hint: write its name: NAME ${{v}}"]


@pytest.mark.parametrize(
    ("shell", "expected"),
    [
        ("bash -c \"echo ${v}\"", second(31, "sh -c", AS_ARGUMENT)),
        ("sh -c ''echo \"$1\"'' sh ${v}", []),
        ("sh -c \"echo \\\\\"hi\\\\\"\" sh ${v}; echo ${v}", []),
        ("A=${v} sh -ec ''cd x; echo $0'' ${v}", []),
        ("eval ls; echo ${v}", []),
        ("true && sh -c ''a; echo ''${v}", second(43, "sh -c", AS_ARGUMENT)),
        ("/bin/sh -c ${v}", second(28, "sh -c", AS_ARGUMENT)),
        ("eval ls ${v}", second(25, "eval", EVAL)),
        ("sh -c ''echo $1'' sh ${v} | bash -c \"x ${v}\"", second(56, "sh -c", AS_ARGUMENT)),
        ("eval ${v} ${v}", [*second(22, "eval", EVAL), *second(27, "eval", EVAL)]),
        ("sed \"s/a/${v}/\" f", second(26, "sed", "pass it to another program as an environment variable: X=${v} awk "
                                       "'{gsub(/…/, ENVIRON[\"X\"])} 1'")),
        ("echo \"rm ${v}\" | sudo sh", second(26, "sh", "pass it as an argument, and quote the code: sh -s -- ${v} "
                                            "<<'EOF', with \"$1\" in it")),
        ("echo ${v} | sh -s -- ${v}", second(22, "sh", "pass it as an argument, and quote the code: sh -s -- ${v} "
                                            "<<'EOF', with \"$1\" in it")),
        ("trap \"rm ${v}\" EXIT", refused(26, "the shell runs the text of a trap as code; write x=${v}; "
                                          "trap '… \"$x\"' EXIT")),
        ("trap ${v} EXIT", refused(22, "the shell runs the text of a trap as code; write x=${v}; trap '… \"$x\"' EXIT")),
        ("PS4=${v}", refused(21, "the shell evaluates it for every line; write x=${v}; PS4='$x '")),
        ("make >& ${v}", []),
        ("x=${v}; eval \"$x\"", second(19, "eval", EVAL)),
        ("x=${v}; eval ''echo \"$x\"''", []),
        ("$TOOL ${v}", computed(23)),
        ("${v} ${v}", computed(22)),
        ("{eval,x,${v}}", second(25, "eval", EVAL)),
        ("true; {ls,-l} ${v}", []),
        ("echo {a,${v}}", []),
        ("make; exec $TOOL -o ${v}", computed(37)),
        ("$HOME/bin/tool ${v}", []),
        ("tool=make; $tool ${v}", []),
    ],
)  # fmt: skip
def test_places_that_are_read_twice(shell: str, expected: list[str]) -> None:
    """A value that would be code is an error at its place, or a warning where the code is another program's."""
    text = (
        "resile: 1\ninputs: {target: x}\nsteps:\n  build: {shell: x, capture: {v: json}}\n"
        f"  s: {{  shell: '{shell}', needs: [build]}}\n  other: {{shell: y}}\n"
    )
    assert findings(text) == expected


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("bash", refused(25, "bash reads a file name behind `>&` twice; write > ${v} 2>&1")),
        ("sh", []),
        ("dash", []),
        ("zsh", []),
    ],
)
def test_the_shell_of_a_step_decides_what_is_refused(program: str, expected: list[str]) -> None:
    """A place that only bash reads twice is refused for bash alone."""
    text = (
        "resile: 1\ninputs: {target: x}\nsteps:\n  build: {shell: x, capture: {v: json}}\n"
        f"  s: {{  shell: 'make >& ${{v}}', needs: [build], shell_program: {program}}}\n"
    )
    assert findings(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            'version: "1.0"\nchecks:\n  a:\n    type: command\n    exec: |\n      set -e; {% if pr %}echo{% endif %} "{{ pr.title }}"\n'
            "      python3 -c \"print('{{ pr.title }}')\"\n",
            "f:7:26: warning: `{{ pr.title }}`: `python -c` reads the value a second time, as code [second-shell]\n"
            "  hint: pass it as an argument: python3 -c '… sys.argv[1] …' {{ pr.title }}",
        ),
        (
            "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: x, path: x}\nworkload: {t: a}\nworkflow:\n- step: start\n"
            "  tool: {kind: shell, command: 'echo {{ workload.t }} | sh -c \"echo {{ workload.t }}\"'}\n",
            "f:7:69: warning: `{{ workload.t }}`: `sh -c` reads the value a second time, as code [second-shell]\n"
            "  hint: pass it as an argument: sh -c '… \"$1\"' sh {{ workload.t }}",
        ),
    ],
)
def test_outputs_of_templates_that_are_read_twice(text: str, expected: str) -> None:
    """The same warning for `{{ ... }}`, at the output that stands in the code."""
    assert findings(text) == [expected]
