"""What playbooks mean where it is easy to get wrong: calls, `from`, pages, batches, loops of arcs, children, `end`."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest

from resile.core.events import AttemptEnded
from resile.dialects.native.writer.compare import differences
from resile.languages.jinja import step_events
from resile.store.open import open_store
from tests.dialects.noetl.playbooks import HEAD, Run, compiled, errors, workflow

SAY = '{kind: python, code: "def main(): return 1"}'


def test_a_call_does_not_take_the_place_of_next(tmp_path: Path) -> None:
    """A case that calls a helper lets the step go on to its `next` as well."""
    run = Run(
        tmp_path,
        f"""
        workflow:
          - step: start
            tool: {SAY}
            case: [{{when: "{{{{ event.name == 'call.done' }}}}", then: {{call: {{step: helper}}}}}}]
            next: after
          - {{step: helper, tool: {SAY}}}
          - {{step: after, tool: {SAY}}}
        """,
    )
    assert run.statuses() == {"start": "completed", "helper": "completed", "after": "completed", "end": "completed"}


PAGES = """
workflow:
  - step: start
    tool: {kind: python, args: {page: 1}, code: "def main(page): return {'page': page, 'more': page < LAST}"}
    FOLLOW
    next: show
  - {step: show, tool: {kind: python, code: "def main(seen, start): return [seen, start['page']]"}}
"""


def test_a_call_without_a_step_calls_the_tool_again(tmp_path: Path) -> None:
    """`call` with other arguments is one more page, until the case no longer holds."""
    case = """case:
      - when: "{{ event.name == 'call.done' and response.more }}"
        then:
          - {collect: {from: "{{ response.page }}", into: seen}}
          - {call: {args: {page: "{{ response.page + 1 }}"}}}"""
    run = Run(tmp_path, PAGES.replace("LAST", "4").replace("FOLLOW", case))
    assert run.value("show") == [[1, 2, 3], 4]


def test_the_error_of_a_success_is_none(tmp_path: Path) -> None:
    """A policy of `retry` that asks for an error does not go on after a success."""
    retry = "retry: [{when: '{{ error is not none }}', then: {max_attempts: 5, initial_delay: 0}}]\n    vars: {seen: 0}"
    run = Run(tmp_path, PAGES.replace("LAST", "4").replace("FOLLOW", retry))
    assert run.value("show") == [0, 1]
    assert [job["attempts"] for job in run.document["jobs"] if job["step"] == "start"] == [1]


CASE = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: t, path: t}
workflow:
- step: start
  tool: {kind: http, method: GET, url: "http://127.0.0.1/x", params: {page: 1}}
  case:
  - {when: "{{ event.name == 'call.done' and response.more }}", then: {THEN}}
"""
COLLECT = """retry:
      - when: "{{ response.more }}"
        then: {LIMITnext_call: {args: {page: "{{ response.page + 1 }}"}}, collect: {path: page, into: seen}}"""


def test_pages_go_on_until_their_condition_ends_them(tmp_path: Path) -> None:
    """Without `max_attempts` more than a hundred pages are read, and all of them are collected."""
    text = PAGES.replace("FOLLOW", COLLECT.replace("LIMIT", "").replace("response.more", "response.page < 103"))
    tool = "{kind: shell, args: {page: 1}, cmds: ['echo ''{\"page\": ''{{ page }}''}''']}"
    text = re.sub(r"tool: .*LAST.*", lambda _: f"tool: {tool}", text)
    text = text.replace("return [seen, start['page']]", "return [len(seen), seen[-1]]")
    assert Run(tmp_path, text).value("show") == [103, 103]


@pytest.mark.parametrize(
    ("then", "limit", "end"),
    [
        ("retry: {params: {page: 2}}", 9_999, "fail"),
        ("collect: {path: data, into: pages}, retry: {}", 9_999, "fail"),
        ("collect: {path: data, into: pages}, retry: {max_attempts: 5, params: {page: 2}}", 4, "recovered"),
        ("retry: {}", 2, "recovered"),
    ],
)
def test_pages_of_a_case_go_on_until_their_condition_ends_them(then: str, limit: int, end: str) -> None:
    """A case that asks for the next page has no limit but that of all pages; one that only tries again has three."""
    more, last = workflow(CASE.replace("THEN", then)).steps[0].rules[:2]
    assert (more.limit, last.then) == (limit, end)


@pytest.mark.parametrize("mode", ["append", "extend"])
def test_each_collected_page_is_in_the_log_once(tmp_path: Path, mode: str) -> None:
    """However many pages follow it: an attempt writes what it adds, not what was collected before it."""
    collect = COLLECT.replace("LIMIT", "").replace("path: page", f"from: '{{{{ response.word }}}}', mode: {mode}")
    tool = "{'page': page, 'more': page < LAST, 'word': 'word-' + str(page) + '-'}"
    text = PAGES.replace("{'page': page, 'more': page < LAST}", tool).replace("FOLLOW", collect).replace("LAST", "12")
    run = Run(tmp_path, text.replace("main(seen, start): return [seen, start['page']]", "main(seen): return seen"))
    assert run.value("show") == [f"word-{page}-" for page in range(1, 13)]
    (database,) = tmp_path.rglob("*.db")
    with closing(open_store(str(database), readonly=True)) as store:
        ended = [entry for entry in store.entries(1) if isinstance(entry.event, AttemptEnded)][:12]
    pages = [repr((entry.event, entry.notes)) for entry in ended]
    often = [[page.count(f"word-{number}-") for page in pages] for number in range(1, 13)]
    assert [sum(row) for row in often] == [row[number] for number, row in enumerate(often)]


def test_the_limit_of_pages_is_a_failure() -> None:
    """After the last page that may be read the rule fails the step; with `max_attempts` the result counts."""
    for limit, last in (("", ("fail", 9_999)), ("max_attempts: 3, ", ("recovered", 2))):
        text = PAGES.replace("LAST", "4").replace("FOLLOW", COLLECT.replace("LIMIT", limit))
        more, end = workflow(text).steps[0].rules[:2]
        assert (end.then, more.limit) == last
    assert step_events.PAGES_MAX == 10_000


@pytest.mark.parametrize("given", ["start.rows", "{{ start.rows }}", "{{ start.rows | list }}"])
def test_from_takes_a_name_or_a_template(tmp_path: Path, given: str) -> None:
    """`from` of `result`, `collect` and `sink` names a value, with braces or without."""
    if "|" not in given:
        result = f'result: {{from: "{given}"}}, '
    else:
        result = ""
    run = Run(
        tmp_path,
        f"""
        workflow:
          - step: start
            tool: {{kind: python, code: "def main(): return {{'rows': [{{'n': 1}}, {{'n': 2}}]}}"}}
            case:
              - when: "true"
                then:
                  - {{{result}collect: {{from: "{given}", into: kept, mode: extend}}}}
                  - sink: {{tool: python, from: "{given}", code: "def main(data): open('sunk', 'w').write(str(data))"}}
            next: show
          - {{step: show, tool: {{kind: python, code: "def main(kept): return kept"}}}}
        """,
    )
    rows = [{"n": 1}, {"n": 2}]
    assert run.value("show") == rows
    assert (tmp_path / "sunk").read_text() == str(rows)
    assert run.value("start") == (rows if result else {"rows": rows})


def test_a_chunk_is_called_batch(tmp_path: Path) -> None:
    """The task of an iterator with `chunk` gets its items as `batch`, too."""
    run = Run(
        tmp_path,
        """
        workflow:
          - step: start
            tool:
              kind: iterator
              collection: [1, 2, 3]
              element: x
              chunk: 2
              task: {tool: {kind: python, code: "def main(batch, x): return [batch, batch == x]"}}
            next: show
          - {step: show, tool: {kind: python, code: "def main(start): return start"}}
        """,
    )
    assert run.value("show") == [[[1, 2], True], [[3], True]]


@pytest.mark.parametrize(
    ("loop", "args"),
    [("loop: {in: [1, 2, 3], iterator: x, chunk: 2}", "args: {seen: '{{ batch | sum }}'}"), ("", "")],
    ids=["loop", "iterator"],
)
def test_arguments_name_the_batch(tmp_path: Path, loop: str, args: str) -> None:
    """The arguments of a step, or of the task of an iterator, can name the `batch` that a chunk is."""
    task = "tool: {kind: python, args: {seen: '{{ batch | sum }}'}, code: 'def main(seen): return seen'}"
    tool = "tool: {kind: python, code: 'def main(seen): return seen'}"
    iterator = f"tool: {{kind: iterator, collection: [1, 2, 3], element: x, chunk: 2, task: {{{task}}}}}"
    run = Run(
        tmp_path,
        f"""
        workflow:
          - step: start
            {loop}
            {args}
            {tool if loop else iterator}
            next: show
          - {{step: show, tool: {{kind: python, code: "def main(start): return start"}}}}
        """,
    )
    assert run.value("show") == [3, 3]


def test_data_of_an_arc_is_stronger_than_with(tmp_path: Path) -> None:
    """An arc may have `with` and `data`; where both have a name, `data` counts."""
    run = Run(
        tmp_path,
        f"""
        workflow:
          - step: start
            tool: {SAY}
            next: [{{step: show, with: {{a: 1, b: 2}}, data: {{b: 3}}}}]
          - {{step: show, tool: {{kind: python, code: "def main(a, b): return [a, b]"}}}}
        """,
    )
    assert run.value("show") == [1, 3]


def test_a_blank_next_is_no_arc(tmp_path: Path) -> None:
    """`next:` with nothing after it leads to `end`, as if it were not there."""
    run = Run(tmp_path, f"workflow:\n  - step: start\n    tool: {SAY}\n    next:\n")
    assert run.statuses() == {"start": "completed", "end": "completed"}


@pytest.mark.parametrize("then", ["{}", "[]", "[{}]"])
def test_a_case_without_an_action_is_refused(then: str) -> None:
    """A `then` that says nothing is an error where it stands."""
    found = errors(f"workflow: [{{step: start, tool: {SAY}, case: [{{when: 'true', then: {then}}}]}}]")
    assert [message for message, _, _ in found] == ["`then` says nothing that follows"]


LOOPS = """
EXTRA
workflow:
  - step: start
    tool: {kind: python, code: "def main(n=0): return n"}
    case: [{when: "{{ start < LAST }}", then: {next: {step: start, args: {n: "{{ start + 1 }}"}}}}]
"""


def test_arcs_back_have_a_budget_of_a_thousand(tmp_path: Path) -> None:
    """A playbook's arcs may lead back a thousand times, or as often as `max_loops` says."""
    assert workflow(LOOPS.replace("EXTRA", "")).loops_max == 1_000
    assert workflow(LOOPS.replace("EXTRA", "executor: {spec: {max_loops: 7}}")).loops_max == 7
    run = Run(tmp_path, LOOPS.replace("EXTRA", "").replace("LAST", "15"))
    assert run.value("start") == 15
    run = Run(tmp_path, LOOPS.replace("EXTRA", "spec: {max_loops: 3}").replace("LAST", "15"), code=1)
    assert run.message() == "Routing loop budget exceeded (max_loops=3) during next goto"
    assert run.value("start") == 3


def test_the_events_of_a_child_count_its_steps(tmp_path: Path) -> None:
    """The last events of a child playbook have `total_steps`, and the list of a loop over it has no `end` of ours."""
    kid = f"workflow: [{{step: a, tool: {SAY}, next: b}}, {{step: b, tool: {SAY}}}]\n"
    (tmp_path / "kid.yaml").write_text(HEAD + kid)
    run = Run(
        tmp_path,
        """
        workflow:
          - {step: start, tool: {kind: playbook, path: kid.yaml}, loop: {in: [1], iterator: i}, next: show}
          - {step: show, tool: {kind: python, code: "def main(start): return start"}}
        """,
    )
    ends = [event["data"] for event in run.events if event["type"] == "playbook_completed"]
    assert [data["total_steps"] for data in ends] == [2, 2]
    assert run.value("show") == [{"a": 1, "b": 1}]


def test_only_a_step_whose_path_leads_to_end_says_so(tmp_path: Path) -> None:
    """`routed_to_end` is on a step that failed, and neither on `end` itself nor on a tool of a pipeline."""
    bad = "{kind: shell, cmds: ['exit 3']}"
    run = Run(
        tmp_path, f"workflow: [{{step: start, tool: [{{a: {bad}}}, {{b: {bad}}}]}}, {{step: end, tool: {bad}}}]", code=1
    )
    routed = {
        event["step"]: event["data"].get("routed_to_end") for event in run.events if event["type"] == "step_failed"
    }
    assert routed == {"a": None, "start": True, "end": None}


def test_an_unknown_dotted_name_in_code_is_a_warning() -> None:
    """A template in code that names nothing of the playbook stays in the code, and `check` says so."""
    code = "def main():\\n  return '{{ wrkload.x }}'"
    found = compiled(f'workload: {{x: 1}}\nworkflow: [{{step: start, tool: {{kind: python, code: "{code}"}}}}]')
    assert [(finding.severity, finding.message, finding.hint) for finding in found.diagnostics] == [
        ("warning", "nothing in this playbook is called `wrkload`, so `{{ wrkload.x }}` stays in the code",
         "did you mean `workload`?")
    ]  # fmt: skip


@pytest.mark.parametrize(
    "tool",
    [
        "{kind: shell, cmds: ['echo \"<{{ later.n }}{{ later.n + 1 }}{{ vars.t }}{{ no | default(7) }}>\" > said']}",
        "{kind: python, args: {n: '{{ later.n }}', m: '{{ later.rows | length }}'}, "
        "code: \"def main(n, m, later, k): open('said', 'w').write(f'<{n or later or k or 7}>\\\\n')\"}",
        "[{a: {kind: shell, cmds: ['echo \"<{% for x in later.rows %}x{% endfor %}7>\" > said']}}]",
    ],
)
def test_end_runs_whatever_its_templates_name(tmp_path: Path, tool: str) -> None:
    """What never ran, and variables that nothing set, are empty in `end`, which runs in any case."""
    run = Run(
        tmp_path,
        f"""
        workflow:
          - {{step: start, tool: {{kind: shell, cmds: ['exit 3']}}, next: later}}
          - {{step: later, tool: {SAY}, vars: {{t: 1}}}}
          - step: end
            tool: {tool}
        """,
        code=1,
    )
    assert (tmp_path / "said").read_text() == "<7>\n"
    assert run.statuses() == {"start": "failed", "later": "skipped", "end": "completed"}


def test_a_credential_on_the_step_is_the_tools() -> None:
    """`auth` beside `tool` means the same as inside it; a tool that takes none, or has one, does not take it."""
    inside = "workflow: [{step: start, tool: {kind: postgres, command: select 1, auth: a}}]"
    beside = "workflow: [{step: start, auth: a, tool: {kind: postgres, command: select 1}}]"
    assert list(differences(workflow(inside), workflow(beside))) == []
    for step in ("auth: a, tool: {kind: noop}", "auth: a, tool: {kind: postgres, command: select 1, auth: b}"):
        found = compiled(f"workflow: [{{step: start, {step}}}]").diagnostics
        assert [finding.message for finding in found if finding.severity == "error"] == [
            "`auth` is not run by Resile: only tools that ask a service or a database take it, once"
        ]


ELSE = """
workflow:
  - step: start
    tool: {kind: python, code: "def main(): return {'n': 3}"}
    FOLLOW
  - {step: more, tool: {kind: python, code: "result = 1"}}
  - {step: less, tool: {kind: python, code: "result = 2"}}
"""
WHEN = "when: \"{{ event.name == 'step.exit' and response.n > LIMIT }}\""
CHOICE = 'when: "{{ start.n > LIMIT }}", then: [more]'


@pytest.mark.parametrize(("limit", "taken", "left"), [("2", "more", "less"), ("3", "less", "more")])
@pytest.mark.parametrize(
    "follow",
    [
        f"case: [{{{WHEN}, then: {{next: more}}}}, {{else: {{next: less}}}}]",
        f"case: [{{{WHEN}, then: {{next: more}}}}, {{else: [{{set: {{x: 1}}}}, {{next: [{{step: less}}]}}]}}]",
        f"case: [{{{WHEN}, then: {{next: more}}}}, {{else: {{then: {{next: less}}}}}}]",
        f"case: [{{{WHEN}, then: {{next: more}}, else: {{next: less}}}}]",
        f"next: [{{{CHOICE}}}, {{else: [less]}}]",
        f"next: [{{{CHOICE}, else: [less]}}]",
        f"next: {{{CHOICE}, else: less}}",
        f"next: {{spec: {{mode: exclusive}}, arcs: [{{{CHOICE}, else: [less]}}]}}",
    ],
)
def test_else_is_taken_where_no_condition_holds(tmp_path: Path, follow: str, limit: str, taken: str, left: str) -> None:
    """In every spelling of cases and arcs exactly one of the two ways is gone."""
    statuses = Run(tmp_path, ELSE.replace("FOLLOW", follow.replace("LIMIT", limit))).statuses()
    assert (statuses[taken], statuses[left]) == ("completed", "skipped")


def test_else_is_not_for_failures(tmp_path: Path) -> None:
    """A failed step leads to `end`, not to the `else` of its cases."""
    text = ELSE.replace("return {'n': 3}", "1 / 0").replace("FOLLOW", "case: [{else: {next: less}}]")
    ended = Run(tmp_path, text, code=1).statuses()
    assert ended == {"start": "failed", "more": "skipped", "less": "skipped", "end": "completed"}


def test_a_misplaced_else_is_refused() -> None:
    """`else` is the last case, and a loop has none: what it would be about is not said."""
    first = ELSE.replace("FOLLOW", "case: [{else: {next: less}}, {when: 'true', then: {next: more}}]")
    assert errors(first) == [("`else` is the last of the cases", 4, 13)]
    looped = ELSE.replace("FOLLOW", "loop: {in: [1, 2], iterator: x}\n    case: [{else: {next: less}}]")
    message = "`else` of the cases is not run in a loop: it is not said whether it is for an item or for all"
    assert errors(looped) == [(message, 5, 13)]
