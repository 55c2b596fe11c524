"""What is wrong with a playbook is said by name, with its place and what to do; nothing of it runs."""

from __future__ import annotations

import sys

import pytest

from resile.dialects.noetl.tools.keys import KINDS_REFUSED
from tests.dialects.noetl.playbooks import compiled, errors

SH = "{kind: shell, cmds: ['true']}"


@pytest.mark.parametrize("kind", sorted(KINDS_REFUSED))
def test_a_tool_that_is_not_run_is_refused_by_name(kind: str) -> None:
    """A kind of tool that needs a service is refused when the file is loaded, where it stands."""
    found = errors(f"workflow:\n  - {{step: start, tool: {{kind: {kind}}}}}\n")
    needs = KINDS_REFUSED[kind]
    assert found == [(f"`{kind}` tools are not run by Resile: they need {needs}", 2, 32)]


@pytest.mark.parametrize(("kind", "package"), [("duckdb", "duckdb"), ("postgres", "psycopg")])
def test_a_tool_whose_package_is_missing_is_refused_with_a_hint(
    kind: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool that is an extra says what to install."""
    monkeypatch.setitem(sys.modules, package, None)
    result = compiled(f"workflow: [{{step: start, tool: {{kind: {kind}, command: select 1}}}}]")
    (finding,) = result.diagnostics
    assert finding.message == f"`{kind}` tools need the package {package}, which is not installed"
    assert finding.hint == f"pip install 'resile[{kind}]'"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("workflow: [{step: start, tool: {kind: pyton}}]", ["there is no tool `pyton`"]),
        ("workflow: []", ["a playbook needs `workflow`, a list of steps"]),
        ("workflow: [{tool: noop}]", ["a step needs `step`, its name"]),
        ("workflow: [{step: start, tool: noop}, {step: a}]", ["the step `a` needs `tool`"]),
        ("workflow: [{step: start, tool: noop, next: nosuch}]", ["there is no step `nosuch`"]),
        ("workflow: [{step: start, tool: noop, next: [-step: end]}]", ["`-step` is no key"]),
        ("workflow: [{step: start, tool: noop}, {step: end, next: start}]", ["nothing follows `end`"]),
        (
            "workflow: [{step: start, tool: {kind: shell}, cmds: [a]}]",
            ["`cmds` belongs into `tool` of `start`", "a shell tool needs `cmds` or `command`"],
        ),
        ("workflow: [{step: start, tool: [1]}]", ["expected a tool with `kind`, or one under its label, not `1`"]),
        (
            "workflow: [{step: start, tool: {kind: python, code: '{{ env.CODE }}'}}]",
            ["`{{ env.CODE }}` is no code: a value never decides on what runs"],
        ),
        (
            "workflow: [{step: start, tool: {kind: python, code: 'def main(:'}}]",
            ["the code does not parse: invalid syntax (its line 1)"],
        ),
        (
            "workflow: [{step: start, tool: {kind: python, code: 'x = 1'}}]",
            ["the code has no `main` and leaves no `result`"],
        ),
        (
            "workflow: [{step: start, tool: {kind: playbook, path: '{{ workload.p }}'}}]",
            ["`{{ workload.p }}`: a value never decides on what runs"],
        ),
        ("workflow: [{step: start, tool: {kind: playbook, path: a/b}}]", ["there is no playbook `a/b`"]),
        ("workflow: [{step: start, tool: {kind: workbook, name: w}}]", ["the workbook has no `w`"]),
        (
            "workflow: [{step: start, tool: {kind: shell, cmds: ['echo {{ a | zzz }}']}}]",
            ["this is no template that can be rendered: No filter named 'zzz'."],
        ),
        (
            "workflow: [{step: start, tool: {kind: shell, cmds: [\"{% include 'f' %}\"]}}]",
            ["this is no template that can be rendered: of Jinja's statements only if, for, set are run here"],
        ),
        (
            "workflow: [{step: start, tool: noop, case: [{when: 'a and', then: {}}]}]",
            ["this is no condition that can be asked: unexpected 'end of print statement'"],
        ),
        (
            "workflow: [{step: start, tool: noop, retry: {retry_on: [sunspots]}}]",
            ["there is no kind of failure `sunspots`"],
        ),
        (
            "workflow: [{step: start, tool: noop, case: [{when: \"event.name == 'step.enter'\", then: {next: end}}]}]",
            ["at `step.enter` only `set` is run, not `next`"],
        ),
        (
            "workflow: [{step: start, tool: {kind: http, url: 'http://h/{{ keychain.a.b }}'}}]",
            ["the keychain has no `a`"],
        ),
        (
            "workflow: [{step: start, tool: noop, loop: {in: '{{ x }}', iterator: i, concurrency: 3}}]",
            ["a sequential loop runs one item at a time"],
        ),
        (
            "workflow: [{step: start, tool: noop, case: [{when: a, then: {collect: {into: v, from: a, data: 1}}}]}]",
            ["`from` and `data` both say what is added"],
        ),
        (
            "workflow: [{step: start, tool: noop, retry: {retry_when: error, retry_on: [timeout]}}]",
            ["`retry_when` and `retry_on` both say what is tried again"],
        ),
        (
            "workflow: [{step: start, tool: {kind: python, script: {uri: f.py, source: {code: 'result = 1'}}}}]",
            ["`code` is for a source of the type `inline`"],
        ),
        (
            "workflow: [{step: start, tool: noop, sink: {tool: event_log, args: {a: 1}, table: t}}]",
            ["`table` means nothing for a event_log sink"],
        ),
        (
            "workflow: [{step: start, tool: noop, case: [{when: '{{ 1 }}', then: {fail: {error: a, reason: b}}}]}]",
            ["`reason` says once more why the step fails"],
        ),
        (
            "workflow: [{step: start, tool: noop, case: [{when: '{{ true }}', then: {fail: false}}]}]",
            ["`fail: false` fails nothing"],
        ),
    ],
)
def test_what_is_wrong_is_said(text: str, found: list[str]) -> None:
    """Each mistake has its own words and a place."""
    told = errors(text)
    assert sorted(message.partition(" (line 1 of the text)")[0] for message, _, _ in told) == sorted(found)
    assert all(line == 1 and column for _, line, column in told)


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (
            "tool: noop, sink: {tool: event_log, args: {a: 1}, when: '{{ true }}'}",
            [
                "`args` adds nothing: the result of a step is in the run's log in any case",
                "`when` adds nothing: the result of a step is in the run's log in any case",
            ],
        ),
        (
            f"tool: {SH}, retry: {{max_attempts: 2, backoff: 5, max_delay: 9}}",
            ["`max_delay` changes nothing beside `backoff: 5`"],
        ),
        (
            f"tool: {SH}, retry: {{max_attempts: 2, backoff: none, initial_delay: 9}}",
            ["`initial_delay` changes nothing beside `backoff: none`"],
        ),
        (
            "tool: {kind: python, script: {uri: x.py, source: {type: inline, code: 'result = 1'}}}",
            ["`uri` changes nothing beside inline code"],
        ),
    ],
)
def test_what_changes_nothing_is_a_warning(step: str, told: list[str]) -> None:
    """A key of real files that has no effect where it stands is no reason to refuse them, and is said."""
    result = compiled(f"workflow: [{{step: start, {step}}}]")
    assert result.workflow is not None
    assert [(found.severity, found.code, found.message) for found in result.diagnostics] == [
        ("warning", "no-effect", message) for message in told
    ]


def test_a_name_that_nothing_gives_is_a_warning() -> None:
    """A template that names something unknown compiles, and `check` says so with the nearest name."""
    result = compiled(
        """
        workload: {message: hi}
        workflow: [{step: start, tool: {kind: shell, cmds: ["echo {{ mesage }}", "echo {{ other | default(1) }}"]}}]
        """
    )
    assert result.workflow is not None
    (finding,) = result.diagnostics
    assert (finding.severity, finding.message) == ("warning", "nothing in this playbook is called `mesage`")
    assert finding.hint == "did you mean `message`?"


def test_playbooks_that_call_each_other_for_ever_are_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A playbook that runs itself, at whatever remove, is refused when it is loaded."""
    from resile.dialects.compile import compile_file

    folder = tmp_path_factory.mktemp("round")
    for name, other in (("a", "b"), ("b", "a")):
        text = (
            f"metadata: {{name: {name}}}\nworkflow: [{{step: start, tool: {{kind: playbook, path: {other}.yaml}}}}]\n"
        )
        (folder / f"{name}.yaml").write_text(text)
    result = compile_file(folder / "a.yaml")
    assert result.workflow is None
    messages = [finding.message for finding in result.diagnostics]
    assert "this workflow calls itself: `a.yaml` calls `b.yaml` calls `a.yaml`" in messages


@pytest.mark.parametrize(
    ("final", "steps", "message"),
    [
        ("nobody", "{step: b, NOOP}", "there is no step `nobody`"),
        ("b", "{step: b, NOOP}, {step: End}", "`b` is to run last, and so is `end`, which is here as well"),
        ("a", "{step: b, NOOP}", "a run can't end with the step that it begins with"),
        ("b", "{step: b, NOOP, next: a}", "nothing follows `end`"),
        ("[b]", "{step: b, NOOP}", "expected the name of a step, not a list"),
    ],
)
def test_a_final_step_that_can_not_be_the_end(final: str, steps: str, message: str) -> None:
    """A step that is to run last is one of the file, not its first, the only one of that kind, and leads nowhere."""
    text = f"executor: {{spec: {{final_step: {final}}}}}\nworkflow: [{{step: a, NOOP, next: b}}, {steps}]"
    assert [told for told, _, _ in errors(text.replace("NOOP", "tool: {kind: noop}"))] == [message]


def test_a_final_step_is_told_of() -> None:
    """Somebody who looks for the step finds it under the name that every last step has."""
    text = "executor: {spec: {final_step: b}}\nworkflow: [{step: a, tool: noop, next: b}, {step: b, tool: noop}]"
    told = [found.message for found in compiled(text).diagnostics]
    assert told == ["`b` runs last, after every path: here it is `end`"]
