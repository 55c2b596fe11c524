"""What a playbook keeps of its steps: the step by its own name, errors, results that a case changes, and no crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dialects.noetl.playbooks import Run

KEEPING = """
workflow:
  - step: start
    tool: {{kind: python, code: "def main(): {code}"}}
    {follow}
  - {{step: show, tool: {{kind: python, code: "def main(k=None, context=None): return k or context.get('k')"}}}}
"""
GOOD = "return {'n': 3, 'items': [1, 2]}"
BAD = "raise ValueError('boom')"
ON_ERROR = "case: [{{when: '{{{{ error is defined and error }}}}', then: {then}}}]"


@pytest.mark.parametrize(
    ("code", "follow", "kept"),
    [
        (BAD, ON_ERROR.format(then="{set: {k: '{{ error }}'}, next: show}"), "boom"),
        (BAD, ON_ERROR.format(then="{next: {step: show, args: {k: ['{{ error }}']}}}"), "boom"),
        (BAD, ON_ERROR.format(then="{collect: {from: error, into: k, mode: append}, next: show}"), "boom"),
        (BAD, ON_ERROR.format(then="{set: {k: {a: '{{ {error: [error]} }}'}}, next: show}"), "boom"),
        ("return {'n': '<'}", "vars: {k: '{{ result.n | e }}'}\n    next: show", "&lt;"),
        (GOOD, "vars: {k: '{{ outcome.status }}'}\n    next: show", "success"),
    ],
)
def test_what_a_template_gives_is_kept_as_data(tmp_path: Path, code: str, follow: str, kept: str) -> None:
    """An error, text that was made safe for a page, and the word for success are plain text once they are kept."""
    run = Run(tmp_path, KEEPING.format(code=code, follow=follow))
    assert run.document["status"] == "completed"
    assert kept in str(run.value("show"))


def test_what_no_log_could_keep_fails_the_step_alone(tmp_path: Path) -> None:
    """A number that is too large for the log fails its step with a message, and the run ends as it must."""
    follow = "set: {k: '{{ 2 ** 100 }}'}\n    next: show"
    run = Run(tmp_path, KEEPING.format(code=GOOD, follow=follow), code=1)
    assert run.message() == "the template `{{ 2 ** 100 }}` can't be rendered: a whole number has more than 64 bits"
    assert run.lines()[-2:] == ["workflow_failed FAILED", "playbook_failed FAILED"]


@pytest.mark.parametrize(
    "follow",
    [
        "vars: {k: '{{ start.n }}'}\n    next: show",
        "set: {k: '{{ start[\"n\"] }}'}\n    next: show",
        "next: {arcs: [{step: show, when: '{{ start.n == 3 }}', set: {k: '{{ start.n }}'}}]}",
        "case: [{when: '{{ start.n == 3 }}', then: {set: {k: 3}, next: show}}]",
        "case: [{when: 'true', then: {set: {k: '{{ start.n }}'}, next: show}}]",
        "case: [{when: 'start.n == 3', then: {collect: {from: start.n, into: l}, next: "
        "{step: show, args: {k: '{{ l[0] }}'}}}}]",
        "case: [{when: 'true', then: {result: {n: '{{ start.n }}'}, next: {step: show, args: {k: '{{ start.n }}'}}}}]",
        "case: [{when: 'true', then: {call: {step: show, args: {k: '{{ start.n }}'}}}}]",
    ],
)
def test_a_step_is_known_by_its_name_in_what_follows_from_it(tmp_path: Path, follow: str) -> None:
    """What a step gave is there under its own name wherever it speaks of itself."""
    run = Run(tmp_path, KEEPING.format(code=GOOD, follow=follow))
    assert run.value("show") == 3


def test_a_step_that_runs_again_sees_what_it_gives_now(tmp_path: Path) -> None:
    """At its second visit the name of a step is what it has just given, and not what it gave before."""
    run = Run(
        tmp_path,
        """
        workflow:
          - step: start
            tool: {kind: python, code: "def main(n=1): return {'n': n}"}
            vars: {seen: "{{ vars.seen | default([]) + [start.n] }}"}
            case: [{when: "{{ start.n < 3 }}", then: {next: {step: start, args: {n: "{{ start.n + 1 }}"}}}}]
            next: show
          - {step: show, tool: {kind: python, code: "def main(seen): return seen"}}
        """,
    )
    assert run.value("show") == [1, 2, 3]


def test_an_argument_or_a_variable_comes_before_the_name_of_the_step(tmp_path: Path) -> None:
    """Names are looked up in one order everywhere: arguments, then variables, then steps."""
    run = Run(
        tmp_path,
        """
        workflow:
          - step: start
            tool: {kind: python, code: "def main(start): return 5"}
            args: {start: 7}
            vars: {k: "{{ start }}"}
            next: two
          - {step: two, tool: {kind: python, code: "def main(): return 5"}, vars: {two: 8, l: "{{ two }}"}, next: show}
          - {step: show, tool: {kind: python, code: "def main(k, l): return [k, l]"}}
        """,
    )
    assert run.value("show") == [7, 8]


def test_an_item_is_known_by_the_name_of_its_step(tmp_path: Path) -> None:
    """In a loop the name of the step is what the item gave that a case is asked about."""
    run = Run(
        tmp_path,
        """
        workflow:
          - step: start
            loop: {in: [1, 2, 3], iterator: x}
            tool: {kind: python, code: "def main(x): return {'n': x}"}
            case: [{when: "{{ event.name == 'call.done' and start.n == 2 }}", then: {result: "two"}}]
            next: show
          - {step: show, tool: {kind: python, code: "def main(start): return start"}}
        """,
    )
    assert [event["data"]["index"] for event in run.events if event["type"] == "iteration_completed"] == [0, 1, 2]
    assert run.value("show") == [{"n": 1}, "two", {"n": 3}]


@pytest.mark.parametrize("ways", ["[{{result: {0}}}, {{next: {1}}}]", "{{result: {0}, next: {1}}}"])
def test_a_changed_result_leaves_the_answer_as_it_was(tmp_path: Path, ways: str) -> None:
    """`response` is what the tool answered, also for a path that goes on with another result."""
    way = "{step: show, args: {k: ['{{ response.n }}', '{{ result }}', '{{ start }}']}}"
    then = ways.format("\"{{ response['items'] }}\"", way)
    run = Run(tmp_path, KEEPING.format(code=GOOD, follow=f"case: [{{when: 'true', then: {then}}}]"))
    assert run.value("show") == [3, [1, 2], [1, 2]]
    assert run.value("start") == [1, 2]
    assert set(run.document["outputs"]) == {"start", "show"}


def test_a_case_can_say_in_other_words_why_its_step_failed(tmp_path: Path) -> None:
    """`fail` gives a failure its message; what kind it was, and its evidence, stay."""
    text = KEEPING.format(code=BAD, follow=ON_ERROR.format(then="[{fail: 'wrapped: {{ error }}'}]"))
    run = Run(tmp_path, text, code=1)
    first = run.document["first_failure"]
    assert first["message"].startswith("wrapped: exit code 1: ValueError: boom")
    assert (first["kind"], first["exit_code"]) == ("exit", 1)
    assert run.told("action_failed", "start")["error"] == first["message"]
    assert run.told("step_failed", "start")["failure_reason"] == first["message"]


def test_other_words_do_not_change_what_a_case_answers(tmp_path: Path) -> None:
    """A case that speaks of the message it then changes is still the one that tries again, each time."""
    run = Run(
        tmp_path,
        """
        workflow:
          - step: start
            tool: {kind: shell, cmds: ["echo >> tries", "echo boom >&2", "exit 3"]}
            case:
              - when: "{{ error is defined and 'boom' in error }}"
                then: {retry: {max_attempts: 3, delay: 0}, fail: "other words"}
            next: after
          - {step: after, tool: {kind: noop}}
        """,
        code=1,
    )
    assert (tmp_path / "tries").read_text() == "\n\n\n"
    assert run.message() == "other words"
    assert run.value("start")["message"] == "other words"
    assert run.statuses() == {"start": "failed", "after": "skipped", "end": "completed"}


def test_other_words_for_a_playbook_that_failed(tmp_path: Path) -> None:
    """A step whose playbook failed can say so in other words, too."""
    (tmp_path / "kid.yaml").write_text(
        "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: kid}\n"
        "workflow: [{step: inner, tool: {kind: shell, cmds: ['exit 3']}}]\n"
    )
    run = Run(
        tmp_path,
        """
        workflow:
          - step: start
            tool: {kind: playbook, path: kid.yaml}
            case: [{when: "{{ error is defined and error }}", then: {fail: "the kid: {{ error }}"}}]
        """,
        code=1,
    )
    assert run.told("step_failed", "start")["failure_reason"].startswith("the kid: ")


def test_a_step_that_can_not_start_keeps_what_its_case_says(tmp_path: Path) -> None:
    """Where an argument names something unknown all that the case about errors says is done."""
    follow = "args: {x: '{{ nobody.n }}'}\n    " + ON_ERROR.format(then="{set: {k: '{{ error }}'}, next: show}")
    run = Run(tmp_path, KEEPING.format(code=GOOD, follow=follow))
    assert run.value("show") == "the template `{{ nobody.n }}` can't be rendered: `nobody.n` is not defined"


@pytest.mark.parametrize("text", ["workload.typo_here > 1", "start.typo.x > 1", "start['items'].typo_here == 2"])
def test_a_condition_that_is_rejected_says_what_is_not_defined(tmp_path: Path, text: str) -> None:
    """The path that a condition asks for in vain is named, and no type of ours is."""
    follow = 'next: [{when: "{{ ' + text + ' }}", then: [show]}]'
    run = Run(tmp_path, KEEPING.format(code=GOOD, follow=follow))
    said = next(str(event["data"]) for event in run.events if event["type"] == "warning")
    path = text.rpartition(" ")[0].rpartition(" ")[0].replace("start['items']", "start.items")
    assert f"`{path}` is not defined" in said
