"""Playbooks of the newer form that really run: pipelines of tools with rules, admission, arcs that speak of events."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.program import Program
from tests.dialects.noetl.playbooks import (
    COMPLETED,
    FAILED,
    PROLOGUE,
    Run,
    errors,
    failed,
    killed_and_resumed,
    ok,
    written,
)
from tests.dialects.pages import Pages, serving


@pytest.fixture
def server() -> Iterator[str]:
    """The address of a server on this machine."""
    with serving() as address:
        yield address


PAGES = """
workload: {{api: "{server}"}}
workflow:
  - step: start
    tool:
      - begin: {{kind: noop, spec: {{policy: {{rules: [{{else: {{then: {{set_iter: {{page: 1, all: []}}}}}}}}]}}}}}}
      - fetch:
          kind: http
          url: "{{{{ workload.api }}}}/list"
          params: {{page: "{{{{ iter.page }}}}", flaky: 2}}
          spec:
            policy:
              rules:
                - when: "{{{{ outcome.status == 'error' and outcome.http.status == 503 }}}}"
                  then: {{do: retry, attempts: 3, backoff: none}}
                - when: "{{{{ outcome.status == 'error' }}}}"
                  then: {{do: fail}}
                - else: {{then: {{set_iter: {{all: "{{{{ iter.all + outcome.result.data['items'] }}}}"}}}}}}
      - {{name: count, kind: python, code: "def main(fetch, _prev, iter): return [len(iter['all']), _prev == fetch]"}}
      - turn:
          kind: noop
          spec:
            policy:
              rules:
                - when: "{{{{ fetch.paging.more }}}}"
                  then: {{do: jump, to: fetch, set_iter: {{page: "{{{{ iter.page + 1 }}}}"}}}}
                - else: {{then: {{do: break, set_ctx: {{total: "{{{{ iter.all | sum }}}}"}}}}}}
      - never: {{kind: shell, cmds: ['touch reached']}}
    next: show
  - {{step: show, tool: {{kind: python, code: "def main(start, total): return [start, total]"}}}}
"""


def test_a_pipeline_turns_pages(tmp_path: Path, server: str) -> None:
    """Tools run one after the other, a broken page is tried again, a jump goes back, and `break` ends it."""
    run = Run(tmp_path, PAGES.format(server=server))
    assert run.value("show") == [[5, True], 15]
    assert Pages.asked == ["/list?page=1&flaky=2", *["/list?page=2&flaky=2"] * 2, "/list?page=3&flaky=2"]
    assert not (tmp_path / "reached").exists()
    jobs = {job["step"]: (job["status"], job["attempts"]) for job in run.document["jobs"] if job["scope"] == "start"}
    assert (jobs["fetch"], jobs["turn"], jobs["never"]) == (("completed", 4), ("completed", 3), ("skipped", 0))
    assert run.statuses() == {"start": "completed", "show": "completed", "end": "completed"}


def test_the_events_of_a_pipeline(tmp_path: Path) -> None:
    """Its tools are told as steps inside the step, which begins before them and ends after them."""
    run = Run(
        tmp_path,
        """
        workflow:
          - step: start
            tool: [{a: {kind: shell, cmds: ['true']}}, {kind: shell, cmds: ['exit 3']}, {b: {kind: noop}}]
        """,
        code=1,
    )
    outer = failed("start")
    inner = [*ok("a"), *failed("task_2"), "step_skipped b SKIPPED"]
    assert run.lines() == [*PROLOGUE, *outer[:2], *inner, *outer[2:], *ok("end"), *FAILED]
    mine = [event for event in run.events if event["type"] == "action_failed" and event["scope"] == "root"]
    assert "child_status" not in mine[0]["data"]
    assert run.message() == "exit code 3"


@pytest.mark.parametrize(
    ("spec", "code", "value"),
    [
        ("", 1, None),
        (", spec: {policy: {rules: [{when: \"{{ outcome.status == 'ok' }}\", then: {do: fail}}]}}", 1, None),
        (", spec: {policy: {rules: [], on_unmatched: continue}}", 0, "last"),
        (", spec: {policy: {rules: [{else: {then: {do: break}}}]}}", 0, "first"),
        (", spec: {policy: {rules: [{else: {then: {do: jump, to: c}}}]}}", 0, "last"),
        (", spec: {policy: {rules: [{else: {then: {do: retry, attempts: 2, backoff: none}}}]}}", 1, None),
    ],
)
def test_what_follows_from_a_tool_that_fails(tmp_path: Path, spec: str, code: int, value: str | None) -> None:
    """A failure that no rule answers fails the step; one that is answered leads where the rule says."""
    run = Run(
        tmp_path,
        f"""
        workflow:
          - step: start
            tool:
              - a: {{kind: shell, cmds: ['echo first']}}
              - b: {{kind: shell, cmds: ['exit 3']{spec}}}
              - c: {{kind: shell, cmds: ['echo last']}}
            next: show
          - {{step: show, tool: {{kind: python, code: "def main(start): return start"}}}}
        """,
        code=code,
    )
    assert run.value("show") == value


def test_a_pipeline_for_each_item(tmp_path: Path) -> None:
    """Each item has tools and variables of its own; what the last tool gave is what the item gave."""
    run = Run(
        tmp_path,
        """
        workflow:
          - step: start
            loop: {in: "{{ [3, 1, 2] }}", iterator: n, spec: {mode: parallel, max_in_flight: 3, policy: {exec: local}}}
            tool:
              - a: {kind: python, code: "def main(n): return n * 10",
                    spec: {policy: {rules: [{else: {then: {set_iter: {ten: "{{ outcome.result }}"}}}}]}}}
              - b: {kind: python, args: {k: 2}, code: "def main(k, iter, a): return [iter['n'], iter['ten'] * k, a]"}
            next: {arcs: [{step: show, when: "{{ event.name == 'loop.done' }}"}]}
          - {step: show, tool: {kind: python, code: "def main(start): return start"}}
        """,
    )
    assert run.value("show") == [[3, 60, 30], [1, 20, 10], [2, 40, 20]]


def test_another_engine_goes_on_in_a_pipeline(tmp_path: Path) -> None:
    """What the tools of a pipeline keep is in the log: after kill -9 the next one finds it."""
    program = Program(tmp_path)
    program.write(
        written(
            """
            workflow:
              - step: start
                loop: {in: "{{ [7] }}", iterator: n}
                tool:
                  - a: {kind: python, code: "def main(n): return n + 1",
                        spec: {policy: {rules: [{else: {then: {set_iter: {kept: "{{ outcome.result }}"}}}}]}}}
                  - b: {kind: shell, cmds: ["echo > reached; read line < go; echo {{ iter.kept }}"]}
                  - c: {kind: python, code: "def main(_prev, a, iter): return [_prev, a, iter['kept'], iter['n']]"}
                next: show
              - {step: show, tool: {kind: python, code: "def main(start): return start"}}
            """
        )
    )
    document = killed_and_resumed(program)
    assert document["outputs"]["show"] == [[8, 8, 8, 7]]
    assert {job["attempts"] for job in document["jobs"]} == {1}


@pytest.mark.parametrize(
    ("rules", "runs"),
    [
        ("[{when: '{{ ctx.n > 1 }}', then: {allow: true}}]", True),
        ("[{when: '{{ ctx.n > 9 }}', then: {allow: true}}]", False),
        ("[{when: '{{ ctx.n > 9 }}', then: {allow: false}}]", True),
        ("[{when: ctx.n > 1, then: {allow: false}}, {else: {then: {allow: true}}}]", False),
        ("[{when: ctx.n > 9, then: {allow: false}}, {else: {then: {allow: true}}}]", True),
    ],
)
def test_admission(tmp_path: Path, rules: str, runs: bool) -> None:
    """The first rule that holds decides whether a step runs; one that is not admitted is skipped and leads to `end`."""
    run = Run(
        tmp_path,
        f"""
        workflow:
          - {{step: start, tool: {{kind: noop}}, set: {{ctx.n: 5}}, next: gate}}
          - step: gate
            spec: {{policy: {{admit: {{rules: {rules}}}}}}}
            tool: {{kind: shell, cmds: ['touch ran']}}
            next: after
          - {{step: after, tool: {{kind: noop}}}}
        """,
    )
    status = "completed" if runs else "skipped"
    assert run.statuses() == {"start": "completed", "gate": status, "after": status, "end": "completed"}
    assert (tmp_path / "ran").exists() is runs


ARCS = """
workflow:
  - step: start
    tool: {{kind: shell, cmds: ['{command}']}}
    next:
      arcs:
        - step: mend
          when: "{{{{ event.name == 'step.failed' }}}}"
          args: {{why: "{{{{ error.message }}}}"}}
          set: {{a: 1}}
        - {{step: go, when: "{{{{ event.name == 'step.done' and response == 4 }}}}", set: {{a: 2}}}}
        - {{step: other, set: {{a: 3}}}}
  - {{step: mend, tool: {{kind: python, code: "def main(why, a): return [why, a]"}}}}
  - {{step: go, tool: {{kind: python, code: "def main(a): return a"}}}}
  - {{step: other, tool: {{kind: python, code: "def main(a): return a"}}}}
"""


@pytest.mark.parametrize(
    ("command", "step", "value"),
    [("exit 3", "mend", ["exit code 3", 1]), ("echo 4", "go", 2), ("echo 5", "other", 3)],
)
def test_arcs_speak_of_events_and_set_variables(tmp_path: Path, command: str, step: str, value: object) -> None:
    """Of exclusive arcs the first is taken that holds at one of the step's events, and only its variables are set."""
    run = Run(tmp_path, ARCS.format(command=command))
    assert run.value(step) == value
    reached = [name for name, status in run.statuses().items() if status == "completed" and name != "end"]
    assert reached == ([step] if step == "mend" else ["start", step])
    assert run.lines()[-2:] == COMPLETED


@pytest.mark.parametrize(
    ("tool", "said"),
    [
        ("[]", "there are no tools to run"),
        ("[{a: {kind: noop}}, {a: {kind: noop}}]", "`a` is here twice"),
        ("[{end: {kind: noop}}, {b: {kind: noop}}]", "`end` is no name for a tool"),
        ("[{a: {kind: noop}}, {b: {code: x}}]", "the tool `b` needs `kind`"),
        ("[{a: {kind: noop}}, {kind: iterator}]", "a loop stands on the step, not in one of its tools"),
        ("[{kind: noop}, {kind: spark}]", "there is no tool `spark`"),
        ("{kind: noop, spec: {policy: {rules: [{when: x, then: {do: jump, to: y}}]}}}", "there is no tool `y` here"),
        ("{kind: noop, spec: {policy: {rules: [{when: x, then: {do: fail, to: y}}]}}}",
         "this is for `do: jump`, not for `fail`"),
        ("{kind: noop, spec: {policy: {rules: [{else: {then: {do: fail}}}, {when: x, then: {do: fail}}]}}}",
         "`else` stands alone, and last"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_pipeline(tool: str, said: str) -> None:
    """Each mistake is told in words of its own, with its place."""
    told = errors(f"workflow: [{{step: start, tool: {tool}}}]")
    assert [message for message, _, _ in told] == [said]
    assert all(line == 1 and column for _, line, column in told)
