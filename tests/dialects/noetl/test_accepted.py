"""Playbooks that NoETL runs although something in them is odd: Resile runs them too, and says what it makes of that."""

from __future__ import annotations

from pathlib import Path

from tests.dialects.noetl.playbooks import Run, compiled


def findings(text: str) -> list[tuple[str, str]]:
    """The findings about a playbook, with their severity."""
    return [(finding.severity, finding.message) for finding in compiled(text).diagnostics]


def test_the_last_of_two_equal_keys_counts(tmp_path: Path) -> None:
    """NoETL's own parser takes the last value of a key, and `check` warns of it."""
    text = """
    workflow:
      - step: start
        tool:
          kind: python
          args: {x: 1}
          code: "def main(x): return x"
          args: {x: 2}
    """
    assert findings(text) == [("warning", "the key `args` is here twice: this one counts, not the one at 8:7")]
    assert Run(tmp_path, text).value("start") == 2


def test_the_first_of_two_equal_steps_counts(tmp_path: Path) -> None:
    """NoETL finds a step by the first of its name, so the second never runs, and `check` warns of it."""
    text = """
    workflow:
      - {step: start, tool: {kind: python, code: "result = 1"}, next: a}
      - {step: a, tool: {kind: python, code: "result = 2"}}
      - {step: a, tool: {kind: python, code: "result = 3"}}
      - {step: end, tool: {kind: python, code: "result = 4"}}
      - {step: End, tool: {kind: python, code: "result = 5"}}
    """
    assert findings(text) == [
        ("warning", "the step `a` is here twice: the one at 6:12 runs, this one never does"),
        ("warning", "the step `end` is here twice: the one at 8:12 runs, this one never does"),
    ]
    assert Run(tmp_path, text).document["outputs"] == {"start": 1, "a": 2, "end": 4}


def test_code_with_quotes_that_were_escaped_once_too_often(tmp_path: Path) -> None:
    """Code that is Python only without the backslashes before its quotes is taken without them, with a warning."""
    text = r"""
    workflow:
      - step: start
        tool:
          kind: python
          code: |
            def main():
                return {\"a\": 1}
    """
    said = 'the code is Python only without the backslashes before its quotes: `\\"` is read as `"`'
    assert findings(text) == [("warning", said)]
    assert Run(tmp_path, text).value("start") == {"a": 1}


OLDER = """
workbook: [{name: double, type: python, with: {k: 2, j: 1}, code: "def main(k, j): return [k * 2, j]"}]
workflow:
  - {step: start, next: [{step: route}]}
  - {step: route, desc: a router without a tool, next: [{step: a}, {step: b}]}
  - {step: a, call: {type: workbook, name: double, with: {k: 5}}}
  - {step: b, call: {type: python, code: "def main(): return 7"}}
"""


def test_the_forms_of_older_playbooks(tmp_path: Path) -> None:
    """`call` with a `type` is the tool, a router has no tool, and an entry of the workbook has default arguments."""
    run = Run(tmp_path, OLDER)
    assert (run.value("a"), run.value("b")) == ([10, 1], 7)
    assert run.statuses() == dict.fromkeys(("start", "route", "a", "b", "end"), "completed")


def test_what_older_forms_may_not_say() -> None:
    """A `call` without a tool, one beside a tool, a loop of nothing and a playbook that nobody waits for are errors."""
    tool = '{kind: python, code: "result = 1"}'
    text = f"""
    workflow:
      - {{step: start, call: {{step: a}}, next: a}}
      - {{step: a, call: {{type: python, code: "result = 1"}}, tool: {tool}, next: b}}
      - {{step: b, loop: {{in: [1], iterator: x}}, next: c}}
      - {{step: c, tool: {{kind: playbook, path: other, wait: false}}}}
    """
    found = [message for severity, message in findings(text) if severity == "error"]
    assert [message.partition(":")[0] for message in found if "no playbook" not in message] == [
        "expected a tool with its `type`; a `call` of another step belongs into `then` of a case, not a mapping",
        "`call` and `tool` say the same thing",
        "a `loop` needs a `tool`",
        "a step always waits for its playbook, and has its result",
    ]
