"""Loops and sinks of playbooks that really run: which items there are, what follows from one of them, and from each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dialects.noetl.playbooks import Run, errors
from tests.dialects.pages import Pages, serving

KEEP = "def main(data):\\n    open('sunk', 'a').write(f'{data} ')"


@pytest.fixture
def server() -> Iterator[str]:
    """The address of a server on this machine."""
    with serving() as address:
        yield address


def sunk(folder: Path) -> str:
    """What the sinks of a run wrote."""
    return (folder / "sunk").read_text().strip()


@pytest.mark.parametrize(
    ("loop", "found"),
    [
        ('in: "{{ workload.items }}"', [3, 1, 9, 2]),
        ('in: "{{ workload.items }}", where: "{{ x.on and x.n >= floor }}"', [3, 1, 2]),
        ('in: "{{ workload.items }}", where: x.on, order_by: n', [1, 2, 3]),
        ('in: "{{ workload.items }}", order_by: "{{ x.n * -1 }}", limit: 2', [9, 3]),
        ('in: "{{ workload.items }}", order_by: x.n desc', [9, 3, 2, 1]),
        ('in: ["{{ workload.items[0] }}", {n: 7}]', [3, 7]),
        ("in: [{n: 5}, {n: 4}], where: x.n < 5", [4]),
        ("in: \"{{ workload.items | selectattr('on') }}\", limit: 2", [3, 1]),
        ("in: \"{{ workload.items | selectattr('on') }}\", order_by: n, where: x.n > 1, limit: 1", [2]),
    ],
)
def test_which_items_there_are(tmp_path: Path, loop: str, found: list[int]) -> None:
    """Items are chosen, ordered and counted before the loop begins; a list may hold templates."""
    run = Run(
        tmp_path,
        f"""
        workload: {{floor: 1, items: [{{n: 3, on: true}}, {{n: 1, on: true}}, {{n: 9, on: false}}, {{n: 2, on: true}}]}}
        workflow:
          - step: start
            loop: {{iterator: x, {loop}}}
            tool: {{kind: python, code: "def main(x): return x['n']"}}
            next: show
          - {{step: show, tool: {{kind: python, code: "def main(start): return start"}}}}
        """,
    )
    assert run.value("show") == found


def test_items_in_chunks(tmp_path: Path) -> None:
    """With `chunk` so many items are one; the limit counts those before."""
    run = Run(
        tmp_path,
        """
        workflow:
          - step: start
            tool: {kind: iterator, collection: [1, 2, 3, 4, 5, 6], element: x, where: x != 2, limit: 4, chunk: 3,
                   task: {kind: python, code: "def main(x): return x"}}
            next: show
          - {step: show, tool: {kind: python, code: "def main(start): return start"}}
        """,
    )
    assert run.value("show") == [[1, 3, 4], [5]]


def test_chunks_of_what_a_filter_gives(tmp_path: Path) -> None:
    """What a filter gives one by one is counted and cut like any list."""
    run = Run(
        tmp_path,
        """
        workflow:
          - step: start
            loop: {in: "{{ ['1', '2', '3', '4'] | map('int') }}", iterator: x, limit: 3, chunk: 2}
            tool: {kind: python, code: "def main(x): return x"}
            next: show
          - {step: show, tool: {kind: python, code: "def main(start): return start"}}
        """,
    )
    assert run.value("show") == [[1, 2], [3]]


def test_a_case_of_one_item_leads_the_loop_on(tmp_path: Path) -> None:
    """Where a case comes true for an item its arc is taken once, when all items are done, with what they set."""
    run = Run(
        tmp_path,
        """
        workflow:
          - step: start
            loop: {in: "{{ [1, 2, 3] }}", iterator: n}
            tool: {kind: python, code: "def main(n): return {'status': 200 + n}"}
            case:
              - {when: "{{ event.name == 'step.enter' }}", then: {set: {ctx: {seen: [0]}}}}
              - when: "{{ event.name == 'call.done' and response.status == 202 }}"
                then:
                  collect: {from: response.status, into: seen}
                  next: [{step: show, args: {also: "{{ seen }}"}}]
              - {when: "{{ event.name == 'call.done' and response.status == 900 }}", then: {next: never}}
          - {step: show, tool: {kind: python, code: "def main(also, start): return [also, len(start)]"}}
          - {step: never, tool: {kind: noop}}
        """,
    )
    assert run.value("show") == [[0, 202], 3]
    assert run.statuses() == {"start": "completed", "show": "completed", "never": "skipped", "end": "completed"}


CHILD = """
apiVersion: noetl.io/v2
metadata: {name: child}
workload: {n: 0}
workflow:
  - {step: start, tool: {kind: python, code: "def main(n): return 6 / n"}}
  - {step: end, tool: {kind: python, code: "def main(start): return {'six': start}"}}
"""


def test_cases_of_a_playbook_for_each_item(tmp_path: Path) -> None:
    """What a case says of the result of a playbook is done for each item: values, another result, and a failure."""
    (tmp_path / "child.yaml").write_text(CHILD)
    text = """
    workflow:
      - step: start
        loop: {{in: "{{{{ [1, 2, 3] }}}}", iterator: n}}
        tool: {{kind: playbook, path: child.yaml, args: {{n: "{{{{ n }}}}"}}}}
        case:
          - when: "{{{{ event.name == 'call.done' and response.six }}}}"
            then: {{{then}}}
        next: show
      - {{step: show, tool: {{kind: python, code: "def main(start, last=None): return [start, last]"}}}}
    """
    kept = Run(tmp_path, text.format(then='set: {last: "{{ response.six }}"}, result: "{{ response.six + n }}"'))
    assert kept.value("show") == [[7.0, 5.0, 5.0], 2.0]
    broken = Run(tmp_path, text.format(then='fail: "six is {{ response.six }}"'), code=1)
    assert broken.message() == "six is 6.0"


def test_a_playbook_that_asks_for_one_more_run(tmp_path: Path) -> None:
    """A step whose playbook went well and asks for more runs it again, and has what the last one gave."""
    (tmp_path / "child.yaml").write_text(
        CHILD.replace("return 6 / n", "import os; open('n', 'a').write('x'); return os.path.getsize('n')")
    )
    run = Run(
        tmp_path,
        """
        workflow:
          - step: start
            tool: {kind: playbook, path: child.yaml}
            retry: {max_attempts: 5, backoff: none, retry_when: "{{ result.six < 3 }}"}
            vars: {got: "{{ result.six }}"}
            next: show
          - {step: show, tool: {kind: python, code: "def main(start, got): return [start, got]"}}
        """,
    )
    assert run.value("show") == [{"six": 3}, 3]
    assert run.document["jobs"][0]["attempts"] == 3


def test_the_task_of_an_iterator_and_its_sink(tmp_path: Path) -> None:
    """The sink of a task takes what each item gave, that of the step what all of them gave."""
    Run(
        tmp_path,
        f"""
        workflow:
          - step: start
            type: iterator
            collection: "{{{{ [1, 2] }}}}"
            element: n
            task: {{name: t, type: python, code: "def main(n): return n * 10", save: {{tool: python, code: "{KEEP}"}}}}
            sink: {{tool: python, code: "{KEEP}"}}
        """,
    )
    assert sunk(tmp_path) == "10 20 [10, 20]"
    told = errors(
        "workflow: [{step: start, tool: {kind: iterator, in: '{{ x }}', element: i, task: {kind: noop, zzz: 1}}}]"
    )
    assert [message for message, _, _ in told] == ["a noop tool has no key `zzz`"]


PAGED = """
workload: {{api: "{server}"}}
workflow:
  - step: start
    tool: {{kind: http, url: "{{{{ workload.api }}}}/list", params: {{page: 1}}}}
    {follow}
    next: show
  - {{step: show, tool: {{kind: python, code: "def main(start): return start"}}}}
"""
BY_POLICY = """
    retry:
      - when: "{{ response.paging.more }}"
        then:
          max_attempts: %d
          next_call: {params: {page: "{{ response.paging.page + 1 }}"}}
          collect: {path: items, into: pages}
          per_iteration: {sink: {tool: python, data: "{{ _retry.index }}:{{ page['items'] }}", code: "KEEP"}}
    sink: {tool: python, when: "{{ result | length > 3 }}", code: "KEEP"}
"""
BY_CASE = """
    case:
      - when: "{{ event.name == 'call.done' and response.paging.more }}"
        then:
          collect: {path: items, into: pages}
          sink: {tool: python, data: "{{ response.paging.page }}", code: "KEEP"}
          retry: {max_attempts: %d, params: {page: "{{ response.paging.page + 1 }}"}}
      - {when: "{{ event.name == 'call.done' }}", then: {collect: {path: items, into: pages}}}
"""


@pytest.mark.parametrize(
    ("follow", "most", "written", "given"),
    [
        (BY_POLICY, 9, "1:[1,2] 2:[3,4] 3:[5] [1, 2, 3, 4, 5]", [1, 2, 3, 4, 5]),
        (BY_POLICY, 2, "1:[1,2] 2:[3,4] [1, 2, 3, 4]", [1, 2, 3, 4]),
        (BY_CASE, 9, "1 2", [1, 2, 3, 4, 5]),
        (BY_CASE, 1, "1", [1, 2]),
    ],
)
def test_each_page_goes_to_its_sink(
    tmp_path: Path, server: str, follow: str, most: int, written: str, given: list[int]
) -> None:
    """What takes each page runs before the next one is fetched, also where the attempts are spent."""
    run = Run(tmp_path, PAGED.format(server=server, follow=(follow % most).replace("KEEP", KEEP).strip()))
    assert (sunk(tmp_path), run.value("show")) == (written, given)


def test_pages_for_each_item(tmp_path: Path, server: str) -> None:
    """A loop whose items collect pages has all pages of each."""
    run = Run(
        tmp_path,
        f"""
        workflow:
          - step: start
            loop: {{in: ["{server}/a", "{server}/b"], iterator: url}}
            tool: {{kind: http, url: "{{{{ url }}}}", params: {{page: 1}}}}
            retry:
              - when: "{{{{ response.paging.more }}}}"
                then:
                  next_call: {{params: {{page: "{{{{ response.paging.page + 1 }}}}"}}}}
                  collect: {{path: items, into: pages}}
            next: show
          - {{step: show, tool: {{kind: python, code: "def main(start): return start"}}}}
        """,
    )
    assert run.value("show") == [[1, 2, 3, 4, 5]] * 2
    assert [path.partition("?")[0] for path in Pages.asked] == ["/a"] * 3 + ["/b"] * 3


def test_a_failure_that_is_tried_again_and_kept(tmp_path: Path) -> None:
    """A case about errors with a retry and a sink does both."""
    run = Run(
        tmp_path,
        f"""
        workflow:
          - step: start
            tool: {{kind: shell, cmds: ['exit 3']}}
            case:
              - when: "{{{{ event.name == 'call.error' }}}}"
                then:
                  - sink: {{tool: python, data: "{{{{ error.exit_code }}}}", code: "{KEEP}"}}
                  - retry: {{max_attempts: 3, backoff: none}}
        """,
        code=1,
    )
    assert run.document["jobs"][0]["attempts"] == 3
    assert sunk(tmp_path) == "3 3"


def test_who_asks(tmp_path: Path, server: str) -> None:
    """`auth` becomes a header, from a credential in the environment or from its parts; nobody sees the secret."""
    run = Run(
        tmp_path,
        f"""
        workload: {{api: "{server}", who: my-api, n: 1}}
        keychain: [{{name: svc, kind: static, map: {{api_key: x}}}}]
        workflow:
          - {{step: start, tool: {{kind: http, url: "{{{{ api }}}}", auth: "{{{{ workload.who }}}}"}}, next: b}}
          - step: b
            tool: {{kind: http, url: "{{{{ api }}}}", auth: {{type: basic, username: "u{{{{ n }}}}", password: p}}}}
            next: c
          - {{step: c, type: http, url: "{{{{ api }}}}", auth: {{type: api_key, name: svc, header: X-Key}}, next: d}}
          - {{step: d, tool: {{kind: http, url: "{{{{ api }}}}", auth: {{type: api_key, key: k}}}}, next: e}}
          - step: e
            tool: {{kind: http, url: "{{{{ api }}}}", headers: {{Authorization: "Bearer {{{{ token(who) }}}}"}}}}
        """,
        MY_API_TOKEN="first-secret",
        SVC_API_KEY="second-secret",
    )
    told = [{name: value for name, value in known.items() if value is not None} for known in Pages.known]
    assert told == [
        {"Authorization": "Bearer first-secret"},
        {"Authorization": "Basic dTE6cA=="},
        {"X-Key": "second-secret"},
        {"X-API-Key": "k"},
        {"Authorization": "Bearer first-secret"},
    ]
    assert "secret" not in run.program.call("events", "ls", run.id, "--json", code=0).stdout
    del run.program.env["MY_API_TOKEN"]
    missing = run.program.call("run", "flow.yaml")
    assert (missing.returncode, "MY_API_TOKEN" in missing.stderr) == (2, True)


@pytest.mark.parametrize(
    ("auth", "said"),
    [
        ("{type: basic, username: u}", "`auth` of type `basic` needs `password`, or `name`"),
        ("{type: bearer, name: nobody, token: abc}", "a credential gives nothing beside `token`"),
        (
            "{type: basic, credential: c, username: u, password: p}",
            "a credential gives nothing beside `username` and `password`",
        ),
        ("{type: bearer, key: k, token: t}", "`key` means nothing for `type: bearer`"),
        ("'{{ start.who }}'", "`{{ start.who }}` must be known when the file is loaded"),
        ("{type: digest}", "expected one of bearer, basic, api_key, not `digest`"),
    ],
)
def test_who_can_not_ask(auth: str, said: str) -> None:
    """What is missing or means nothing is told with its place."""
    told = errors(f"workflow: [{{step: start, tool: {{kind: http, url: 'http://h', auth: {auth}}}}}]")
    assert [message for message, _, _ in told] == [said]
    assert all(line == 1 and column for _, line, column in told)


ANSWERED = """
    case: [{when: "{{ error is defined and error }}", then: {next: show}}]
    next: show
  - {step: show, tool: {kind: python, code: "def main(start): return start"}}
"""


@pytest.mark.parametrize(
    ("loop", "found"),
    [
        ("tool: {kind: python, code: 'def main(n): return 6 // (2 - n)'}", [6, None, -6]),
        ("tool: {kind: playbook, path: child.yaml, args: {n: '{{ 2 - n }}'}, return_step: start}", [6, None, -6]),
        (
            "tool: {kind: playbook, path: child.yaml, args: {n: '{{ 2 - n }}'}}",
            [{"six": 6}, None, {"six": -6}],
        ),
        (
            "tool: [{name: one, kind: python, code: 'def main(n): return n'},"
            " {name: two, kind: python, code: 'def main(n): return 6 // (2 - n)'}]",
            [6, None, -6],
        ),
    ],
)
def test_a_result_has_a_place_for_each_item(tmp_path: Path, loop: str, found: list[object]) -> None:
    """Where an item failed there is nothing in its place, so that the numbers in the list are those of the items."""
    (tmp_path / "child.yaml").write_text(CHILD.replace("6 / n", "6 // n"))
    head = f"workflow:\n  - step: start\n    loop: {{in: [1, 2, 3], iterator: n}}\n    {loop}"
    run = Run(tmp_path, head + ANSWERED)
    assert run.value("show") == found


def test_the_last_place_is_there_too(tmp_path: Path) -> None:
    """Also where the last of the items, or all of them, failed."""
    head = "workflow:\n  - step: start\n    loop: {in: %s, iterator: n}\n"
    tool = "    tool: {kind: python, code: 'def main(n): return 6 // n'}"
    for items, found in (("[1, 2, 0]", [6, 3, None]), ("[0, 0]", [None, None]), ("[]", [])):
        assert Run(tmp_path, head % items + tool + ANSWERED).value("show") == found
