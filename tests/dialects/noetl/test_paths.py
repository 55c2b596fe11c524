"""Where the paths of playbooks go: requests and pages, arcs, loops, playbooks inside playbooks, `end`, secrets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.cli.program import Program
from tests.dialects.noetl.playbooks import Run, killed_and_resumed, written
from tests.dialects.pages import Pages, serving

BAD = "{kind: shell, cmds: ['echo no >&2', 'exit 3']}"


@pytest.fixture
def server() -> Iterator[str]:
    """The address of a server on this machine."""
    with serving() as address:
        yield address


PAGED = """
workload: {{api: "{server}"}}
workflow:
  - step: start
    tool: {{kind: http, url: "{{{{ workload.api }}}}/list/{{{{ 'a b' }}}}", params: {{page: 1, flaky: 2, q: "a&b"}}}}
    {follow}
    next: show
  - {{step: show, tool: {{kind: python, code: "def main(start): return start"}}}}
"""
BY_CASE = """
    case:
      - {when: "{{ event.name == 'call.error' and error.status in [503] }}", then: {retry: {max_attempts: 3, delay: 0}}}
      - when: "{{ event.name == 'call.done' and response.paging.more }}"
        then:
          collect: {strategy: append, path: items, into: pages}
          retry: {max_attempts: 10, params: {page: "{{ response.paging.page + 1 }}"}}
      - when: "{{ event.name == 'call.done' and not response.paging.more }}"
        then: {collect: {strategy: append, path: items, into: pages}, next: show}
"""
BY_POLICY = """
    retry:
      - {when: "{{ error.status == 503 }}", then: {max_attempts: 3, initial_delay: 0}}
      - when: "{{ response.paging.more }}"
        then:
          max_attempts: 10
          next_call: {params: {page: "{{ response.paging.page + 1 }}"}}
          collect: {strategy: append, path: items, into: pages}
"""


@pytest.mark.parametrize("follow", [BY_CASE, BY_POLICY])
def test_pages_are_fetched_one_after_the_other(tmp_path: Path, server: str, follow: str) -> None:
    """A request asks for the next page until there is none; a page that breaks is tried again; all are collected."""
    run = Run(tmp_path, PAGED.format(server=server, follow=follow.strip()))
    assert run.value("show") == [1, 2, 3, 4, 5]
    pages = [parse_qs(urlsplit(path).query)["page"][0] for path in Pages.asked]
    assert pages == ["1", "2", "2", "3"]
    assert Pages.asked[0] == "/list/a%20b?page=1&flaky=2&q=a%26b"


def test_requests_and_what_they_carry(tmp_path: Path, server: str) -> None:
    """JSON, a form and a text are sent as what they are; the answer has its status, and a sink is a request too."""
    run = Run(
        tmp_path,
        f"""
        workload: {{api: "{server}", n: 3}}
        workflow:
          - step: start
            tool: {{kind: http, method: post, endpoint: "{{{{ workload.api }}}}/json",
                    payload: {{n: "{{{{ workload.n }}}}"}}}}
            sink: {{tool: http, url: "{{{{ workload.api }}}}/sink", payload: {{s: "{{{{ response.status_code }}}}"}}}}
            next: form
          - step: form
            tool:
              kind: http
              method: POST
              url: "{{{{ workload.api }}}}/form"
              headers: {{Content-Type: application/x-www-form-urlencoded}}
              data: {{a: "x y", b: 2}}
        """,
    )
    form = "application/x-www-form-urlencoded"
    assert Pages.asked == [
        '/json application/json {"n": 3}',
        '/sink application/json {"s": 201}',
        f"/form {form} a=x+y&b=2",
    ]
    assert run.value("start")["data"] == {"took": True}


def test_paths_meet_once_with_what_each_of_them_carries(tmp_path: Path) -> None:
    """Where two branches meet the slower one is waited for; `end` has what all paths brought."""
    os.mkfifo(tmp_path / "gate")
    run = Run(
        tmp_path,
        """
        workflow:
          - {step: start, tool: {kind: noop}, next: [a, b]}
          - {step: a, tool: {kind: shell, cmds: ["read line < gate"]}, next: [{step: both, args: {x: 1}}]}
          - {step: b, tool: {kind: shell, cmds: ["echo > gate"]}, next: [{step: both, args: {y: 2}}]}
          - step: both
            tool: {kind: python, code: "def main(x=None, y=None): return [x, y]"}
            next: [{step: end, args: {first: 1}}, {step: last}]
          - {step: last, tool: {kind: noop}, next: [{step: end, args: {second: "{{ both[1] }}"}}]}
          - {step: end, tool: {kind: python, code: "def main(first=None, second=None): return [first, second]"}}
        """,
    )
    assert (run.value("both"), run.value("end")) == ([1, 2], [1, 2])
    assert [job["attempts"] for job in run.document["jobs"] if job["step"] == "both"] == [1]


ARCS = """
workflow:
  - step: start
    tool: {{kind: python, code: "def main(): return {{'n': 2}}"}}
    next: {next}
  - {{step: a, tool: {{kind: python, code: "def main(x=0): return x"}}}}
  - {{step: b, tool: {{kind: noop}}}}
  - {{step: c, tool: {{kind: noop}}}}
"""


@pytest.mark.parametrize(
    ("written", "taken"),
    [
        ("a", "a"),
        ("[a, b]", "ab"),
        ("[{step: a}, {step: b, when: '{{ start.n > 2 }}'}]", "a"),
        ("[{when: 'start.n > 2', then: [a]}, {when: 'start.n > 1', then: [b, c]}]", "bc"),
        ("[{when: 'start.n > 2', then: a}, {else: [b, {step: c}]}]", "bc"),
        ("[{when: 'start.n == 2', then: [{step: a, args: {x: 1}}]}, {else: [b]}]", "a"),
        ("[{when: 'nothing.at.all', then: [a]}, {else: [b]}]", "b"),
        ("{arcs: [{step: a, when: '{{ start.n > 2 }}'}, {step: b}, {step: c}]}", "b"),
        (
            "{spec: {mode: inclusive}, arcs: [{step: a}, {step: b, when: 'start.n == 2'}, {step: c, when: 'false'}]}",
            "ab",
        ),
        ("{spec: {mode: exclusive}, arcs: [{step: a, when: 'start.n == 1'}]}", ""),
        ("{step: a, args: {x: 3}}", "a"),
    ],
)
def test_next_in_all_its_forms(tmp_path: Path, written: str, taken: str) -> None:
    """The arcs that hold are taken, and the steps that none reached are skipped."""
    run = Run(tmp_path, ARCS.format(next=written))
    reached = [name for name, status in run.statuses().items() if status == "completed" and name in "abc"]
    assert "".join(reached) == taken


@pytest.mark.parametrize(
    ("written", "taken"),
    [
        ("[{when: 'n < 3', set: {n: 9}, then: [a], else: [b]}]", "a"),
        ("[{when: 'n < 3', set: {n: 9}, step: a}, {else: [b]}]", "a"),
        ("{arcs: [{step: a, when: 'n < 3', set: {n: 9}}, {step: b}]}", "a"),
        ("{arcs: [{step: a, when: 'n > 3', set: {n: 1}}, {step: b}]}", "b"),
        ("[{step: a, when: 'n < 3', set: {n: 9}}, {step: b, when: 'n < 3'}, {step: c, when: 'n > 3'}]", "ab"),
    ],
)
def test_an_arc_that_sets_a_variable_is_taken(tmp_path: Path, written: str, taken: str) -> None:
    """The variables that taken arcs set change no condition of an arc of the same step."""
    run = Run(tmp_path, "workload: {n: 2}" + ARCS.format(next=written))
    reached = [name for name, status in run.statuses().items() if status == "completed" and name in "abc"]
    assert "".join(reached) == taken


def test_a_case_that_sets_a_variable_has_fired(tmp_path: Path) -> None:
    """Its route is taken although its condition, and that of `else`, would have other answers with the new value."""
    text = """
    workflow:
      - step: start
        tool: {kind: python, code: "def main(): return {'n': 5}"}
        case:
          - when: "{{ event.name == 'call.done' and (top | default(3)) < 5 }}"
            then: {set: {top: 9}, next: [{step: a}]}
          - else: {next: [{step: b}]}
      - {step: a, tool: {kind: python, code: "def main(top): return top"}}
      - {step: b, tool: {kind: noop}}
    """
    run = Run(tmp_path, text)
    assert (run.value("a"), run.statuses()["b"]) == (9, "skipped")


def test_a_counter_of_an_arc_counts_every_round(tmp_path: Path) -> None:
    """Three rounds, as the condition says before the arc counts."""
    text = """
    workload: {n: 0}
    workflow:
      - step: start
        tool: {kind: shell, cmds: ["echo round >> rounds"]}
        next: {arcs: [{step: start, when: "{{ n < 3 }}", set: {n: "{{ n + 1 }}"}}, {step: a}]}
      - {step: a, tool: {kind: python, code: "def main(n): return n"}}
    """
    assert Run(tmp_path, text).value("a") == 3
    assert (tmp_path / "rounds").read_text().split() == ["round"] * 4


def test_an_arc_that_goes_back_spends_the_budget(tmp_path: Path) -> None:
    """A loop of arcs runs a step again with what the arc carries, and is bounded."""
    text = """
    workflow:
      - step: start
        tool: {{kind: python, code: "def main(n=0): return n + 1"}}
        next: [{{when: "start < {most}", then: [{{step: start, args: {{n: "{{{{ start }}}}"}}}}]}}]
    """
    assert Run(tmp_path, text.format(most=4)).value("start") == 4
    run = Run(tmp_path, "executor: {spec: {max_loops: 10}}" + text.format(most=99).replace("\n    ", "\n"), code=1)
    assert run.message() == "Routing loop budget exceeded (max_loops=10) during next goto"


def test_loops_of_tools_playbooks_and_iterators(tmp_path: Path) -> None:
    """A loop gives the results of its items in their order, whatever runs for each."""
    (tmp_path / "double.yaml").write_text(
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: d}\nworkload: {n: 0}\n"
        "workflow: [{step: start, tool: {kind: python, code: 'def main(n): return n * 2'}}]\n"
    )
    run = Run(
        tmp_path,
        """
        workload: {numbers: [3, 1, 2]}
        workbook: [{name: half, tool: {kind: python, args: {by: 2}, code: "def main(n, by): return n / by"}}]
        workflow:
          - step: start
            loop: {in: "{{ workload.numbers }}", iterator: num, mode: parallel, concurrency: 2}
            tool: {kind: python, code: "def main(num, i, last): return [num, i, last]"}
            args: {i: "{{ loop_index }}", last: "{{ loop.last }}"}
            case:
              - {when: "event.name == 'call.done'", then: {collect: {from: response, into: seen}}}
              - {when: "event.name == 'loop.done'", then: {set: {count: "{{ response | length }}"}, next: kids}}
          - step: kids
            tool: {kind: playbook, path: double.yaml, return_step: start, args: {n: "{{ num }}"},
                   loop: {in: workload.numbers, iterator: num}}
            next: halves
          - step: halves
            type: iterator
            collection: "{{ workload.numbers }}"
            element: n
            mode: async
            task: {tool: workbook, name: half}
            next: show
          - step: show
            tool:
              kind: python
              code: |
                def main(start, kids, halves, seen, count):
                    return [start, kids, halves, sorted(seen), count]
        """,
    )
    items = [[3, 0, False], [1, 1, False], [2, 2, True]]
    assert run.value("show") == [items, [6, 2, 4], [1.5, 0.5, 1.0], sorted(items), 3]


def test_the_url_of_a_next_call_is_no_template(tmp_path: Path, server: str) -> None:
    """An address that came from elsewhere is asked as it is, whatever stands between braces in it."""
    Run(
        tmp_path,
        """
        workload: {api: "", more: ""}
        workflow:
          - step: start
            tool: {kind: http, url: "{{ api }}/?page=1"}
            retry: [{when: "{{ response.paging.page == 1 }}", then: {next_call: {url: "{{ more }}"}}}]
        """,
        *("--input", f"api={server}", "--input", f"more={server}/?page=2&x={{{{7*7}}}}{{{{env.HOME}}}}"),
    )
    assert Pages.asked == ["/?page=1", "/?page=2&x=%7B%7B7*7%7D%7D%7B%7Benv.HOME%7D%7D"]


@pytest.mark.parametrize("end", ["", ", {step: end}", ", {step: End, tool: {kind: noop}}"])
def test_a_playbook_gets_what_the_arc_carries(tmp_path: Path, end: str) -> None:
    """A playbook gets the arguments of its step and of the arc; where `end` does nothing it gives all its results."""
    (tmp_path / "kid.yaml").write_text(
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: k}\nworkload: {a: 1, b: 1}\n"
        "workflow: [{step: start, tool: {kind: python, code: 'def main(a, b, c): return [a, b, c]'}}" + end + "]\n"
    )
    run = Run(
        tmp_path,
        """
        workflow:
          - {step: start, tool: {kind: noop}, next: [{step: kid, args: {c: "{{ 1 + 2 }}"}}]}
          - {step: kid, tool: {kind: playbook, path: kid.yaml, payload: {b: 2}}, next: show}
          - {step: show, tool: {kind: python, code: "def main(kid): return kid"}}
        """,
    )
    assert run.value("show") == {"start": [1, 2, 3]}


def test_what_end_is_told_and_may_decide(tmp_path: Path) -> None:
    """`end` knows what failed and what the others gave, and may say that the run went well all the same."""
    run = Run(
        tmp_path,
        f"""
        workflow:
          - {{step: start, tool: {{kind: python, code: "def main(): return 1"}}, next: boom}}
          - {{step: boom, tool: {BAD}}}
          - step: end
            tool:
              kind: python
              code: |
                def main(execution, failed_steps, results):
                    return {{"workflow_status": "completed", "failed": failed_steps, "results": results,
                             "first": execution["original_failed_step"]}}
        """,
    )
    value = run.value("end")
    assert (value["failed"], value["results"]["start"], value["first"]) == (["boom"], 1, "boom")
    assert run.document["status"] == "completed"


def test_the_keychain_is_the_environment(tmp_path: Path) -> None:
    """Secrets come from variables, are hidden wherever text leaves the step, and must be there before a run starts."""
    text = """
    keychain: [{name: api, kind: bearer, map: {token: projects/x/secrets/y}}]
    workflow: [{step: start, tool: {kind: shell, cmds: ["echo <{{ keychain.api.token }}>"]}}]
    """
    run = Run(tmp_path, text.replace("echo <", "echo ").replace("}}>", "}}"), API_TOKEN="hush-hush")
    assert run.value("start") == "***"
    assert "hush-hush" not in run.program.call("logs", run.id, code=0).stdout
    run.program.env.pop("API_TOKEN")
    done = run.program.call("run", "flow.yaml")
    assert (done.returncode, "API_TOKEN" in done.stderr) == (2, True)


def test_steps_that_no_arc_reaches_are_skipped(tmp_path: Path) -> None:
    """A run begins at `start` wherever it stands, and a step to which nothing leads does not begin by itself."""
    run = Run(
        tmp_path,
        """
        workflow:
          - {step: cleanup, tool: {kind: shell, cmds: [touch cleaned]}, next: end}
          - {step: start, tool: {kind: noop}}
        """,
    )
    assert run.statuses() == {"start": "completed", "cleanup": "skipped", "end": "completed"}
    assert not (tmp_path / "cleaned").exists()


def test_another_engine_goes_on_with_the_same_values(tmp_path: Path) -> None:
    """What a run keeps is in its log: after kill -9 variables, arguments and results are what they were."""
    program = Program(tmp_path)
    program.write(
        written(
            """
            workflow:
              - step: start
                tool: {kind: python, code: "def main(): return {'n': 5}"}
                case:
                  - when: event.name == 'call.done'
                    then: {set: {kept: "{{ response.n }}"}, next: [{step: wait, args: {a: "{{ response.n + 1 }}"}}]}
              - step: wait
                tool: {kind: shell, cmds: ["echo > reached; read line < go; echo {{ kept }}"]}
                next: show
              - {step: show, tool: {kind: python, code: "def main(start, kept, wait): return [start, kept, wait]"}}
            """
        )
    )
    document = killed_and_resumed(program)
    assert document["outputs"]["show"] == [{"n": 5}, 5, 5]
    assert [job["attempts"] for job in document["jobs"]] == [1, 1, 1, 1]


def test_a_playbook_of_the_first_version(tmp_path: Path) -> None:
    """Fields of the tool on the step, `type`, `with` and `data`, routers without a tool, `vars` from the result."""
    run = Run(
        tmp_path,
        """
        workload: {who: you}
        workbook: [{name: greet, type: python, code: "def main(name): return 'hello ' + name"}]
        workflow:
          - {step: start, desc: begin, next: [{step: one, data: {extra: 1}}]}
          - step: one
            type: python
            with: {name: "{{ workload.who }}"}
            code: |
              def main(name, extra):
                  return {"name": name, "extra": extra}
            vars: {kept: "{{ result.name }}!"}
            next: [{when: "{{ one.extra == 1 }}", then: [{step: two, with: {n: "{{ vars.kept }}"}}]}, {else: [end]}]
          - {step: two, tool: workbook, task: greet, args: {name: "{{ n }}"}, next: end}
          - {step: end}
        """,
    )
    assert run.value("two") == "hello you!"


def test_a_request_that_fails_names_the_address_it_asked(tmp_path: Path, server: str) -> None:
    """The message has the address with its values, without its query, and no secret, however that is written in it."""
    text = """
    workload: {{base: "{server}"}}
    keychain: [{{name: k, map: {{key: x}}}}]
    workflow:
      - step: start
        tool: {{kind: http, url: "{{{{ workload.base }}}}/{path}?page=1", params: {{flaky: 1}}}}
    """
    run = Run(tmp_path, text.format(server=server, path="{{ 'a b' }}/flaky"), code=1, K_KEY="pass word/1")
    assert run.message() == f"exit code 22: HTTP 503 Service Unavailable from {server}/a%20b/flaky"
    run = Run(tmp_path, text.format(server=server, path="{{ keychain.k.key }}/x"), code=1, K_KEY="pass word/1")
    assert run.message() == f"exit code 22: HTTP 503 Service Unavailable from {server}/***/x"
    nobody = Run(tmp_path, text.format(server="http://127.0.0.1:1", path="x"), code=1, K_KEY="pass word/1")
    assert nobody.message().startswith("exit code 7: no answer from http://127.0.0.1:1/x: ")


FINAL = """
executor: {{spec: {{final_step: summary}}}}
workflow:
  - {{step: start, tool: {start}, next: [a, b]}}
  - {{step: a, tool: {{kind: python, code: "def main(): return 1"}}, next: summary}}
  - {{step: b, tool: {{kind: python, code: "def main(): return 2"}}}}
  - step: summary
    tool: {{kind: python, code: "def main(execution, x=0): return [execution['status'], execution['failed_steps']]"}}
    vars: {{k: "{{{{ summary[0] }}}}"}}
"""


@pytest.mark.parametrize(
    ("start", "given", "code"), [("{kind: noop}", ["completed", []], 0), (BAD, ["failed", ["start"]], 1)]
)
def test_the_step_that_the_file_calls_final_is_the_end(
    tmp_path: Path, start: str, given: list[object], code: int
) -> None:
    """It runs once, after every path, also after a failure, and knows what became of the others."""
    run = Run(tmp_path, FINAL.format(start=start), code=code)
    assert run.value("end") == given
    assert [event["step"] for event in run.events if event["type"] == "step_started"][-1] == "end"
    assert run.lines("summary") == []
