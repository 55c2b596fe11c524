"""Playbooks that really run: templates, arguments, code, cases, retries; each test says what happened."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.dialects.noetl.playbooks import Run, ok, written

BAD = "{kind: shell, cmds: ['echo no >&2', 'exit 3']}"
EVIL = "{{ env.HOME }} {{ 7 * 7 }} {{ keychain.api.token }}"


def test_values_keep_their_types_and_their_order_of_precedence(tmp_path: Path) -> None:
    """A whole template keeps its object; arguments of the arc come before the step's, and those before the tool's."""
    run = Run(
        tmp_path,
        """
        workload: {items: [1, {a: 2}], who: you, stamp: "run-{{ execution_id }}"}
        workflow:
          - step: start
            tool: {kind: python, code: "def main(): return {'n': 3, 'data': {'deep': True}}"}
            next: [{step: show, args: {c: "{{ start.n }}", who: "{{ workload.who }}!"}}]
          - step: show
            tool:
              kind: python
              args: {a: tool, b: tool, c: tool}
              code: |
                def main(a, b, c, items, who, stamp, start, whole, text, missing=7, **rest):
                    return [a, b, c, items, who, stamp, start["n"], whole, text, missing, sorted(rest)]
            args: {b: step, whole: "{{ workload.items }}", text: "{{ start.deep }} {{ start.n + 1 }}"}
        """,
    )
    items = [1, {"a": 2}]
    assert run.value("show") == ["tool", "step", 3, items, "you!", "run-1", 3, items, "true 4", 7, []]


def test_a_run_can_be_given_other_values(tmp_path: Path) -> None:
    """The workload is what `--input` can change, and nothing else."""
    text = """
    workload: {who: you, count: 1}
    workflow: [{step: start, tool: {kind: python, code: "def main(who, count): return [who, count]"}}]
    """
    assert Run(tmp_path, text, "--input", "who=me", "--input", "count=4").value("start") == ["me", 4]
    program = Run(tmp_path, text).program
    done = program.call("run", "flow.yaml", "--input", "whom=me")
    assert (done.returncode, "whom" in done.stderr) == (2, True)


def test_what_a_run_is_given_is_no_template(tmp_path: Path) -> None:
    """Given values stay as they are, however deep; defaults are templates, also of given values and of each other."""
    nested = {"a": [EVIL, {"b": EVIL}]}
    run = Run(
        tmp_path,
        """
        keychain: [{name: api, map: {token: x}}]
        workload: {text: "", nested: {}, own: "{{ 6 * 7 }}", said: "<{{ text }}>", six: 6,
                   twice: "{{ workload.six * 2 }}", deep: [{whole: "{{ nested }}"}]}
        workflow:
          - step: start
            tool: {kind: python, code: "def main(text, nested, own, said, twice, deep, w, p): return [text, nested, own,
                   said, twice, deep, w, p]"}
            args: {w: "{{ workload.text }}", p: "{{ ctx.nested.a[0] }}"}
        """,
        *("--input", f"text={EVIL}", "--input", f"nested={msgspec.json.encode(nested).decode()}"),
        API_TOKEN="s3cret",
    )
    found = [EVIL, nested, 42, f"<{EVIL}>", 12, [{"whole": nested}], EVIL, EVIL]
    assert run.value("start") == found


@pytest.mark.parametrize("by_arc", [False, True])
def test_what_a_playbook_is_given_is_no_template(tmp_path: Path, by_arc: bool) -> None:
    """What a step fetched stays text in the playbook that it is handed to, by its arguments or by an arc."""
    (tmp_path / "fetched.txt").write_text(EVIL)
    (tmp_path / "kid.yaml").write_text(
        written(
            """
            workload: {text: "{{ 1 + 1 }}", own: "{{ 6 * 7 }}"}
            workflow: [{step: start, tool: {kind: python, code: "def main(text, own, deep): return [text, own, deep]"}}]
            """
        )
    )
    args = '{text: "{{ start }}", deep: {a: ["{{ start }}"]}}'
    run = Run(
        tmp_path,
        f"""
        workflow:
          - step: start
            tool: {{kind: shell, cmds: [cat fetched.txt]}}
            next: [{{step: kid, args: {args if by_arc else "{}"}}}]
          - step: kid
            tool: {{kind: playbook, path: kid.yaml, return_step: start, args: {"{}" if by_arc else args}}}
            next: show
          - {{step: show, tool: {{kind: python, code: "def main(kid): return kid"}}}}
        """,
    )
    assert run.value("show") == [EVIL, 42, {"a": [EVIL]}]


def test_a_name_that_nobody_knows_is_an_error_that_says_which(tmp_path: Path) -> None:
    """A step whose argument names something unknown fails before it starts; a default makes the name optional."""
    text = """
    workflow:
      - step: start
        tool: {{kind: python, code: "def main(x): return x"}}
        args: {{x: "{value}"}}
    """
    run = Run(tmp_path, text.format(value="{{ wrkload.x }}"), code=1)
    assert run.message() == "the template `{{ wrkload.x }}` can't be rendered: `wrkload.x` is not defined"
    assert Run(tmp_path, text.format(value="{{ nothing | default(5) }}")).value("start") == 5


def test_a_step_that_has_not_run_is_false_and_no_value(tmp_path: Path) -> None:
    """Of two branches the one that was not taken is false in a condition, and an error where its value is needed."""
    text = """
    workflow:
      - step: start
        tool: {{kind: python, code: "def main(): return 5"}}
        next:
          - {{when: "{{{{ start > 9 }}}}", then: [high]}}
          - {{else: [{{step: low, args: {{from: "{{{{ start }}}}"}}}}]}}
      - {{step: high, tool: {{kind: noop}}, next: sum}}
      - {{step: low, tool: {{kind: python, code: "def main(context): return context['from'] + 1"}}, next: sum}}
      - step: sum
        tool: {{kind: python, code: "def main(x): return x"}}
        args: {{x: "{value}"}}
    """
    run = Run(tmp_path, text.format(value="{{ high.v if high else low }}"))
    assert (run.value("sum"), run.statuses()["high"]) == (6, "skipped")
    run = Run(tmp_path, text.format(value="{{ high }}"), code=1)
    assert "the step 'high' has no result here" in run.message()


def test_values_inside_code_are_data(tmp_path: Path) -> None:
    """A template in code is a value there and never more code; braces of Python's own stay."""
    evil = "'); import os; os.system('touch hacked') #"
    run = Run(
        tmp_path,
        f"""
        workload: {{n: 4, text: "{evil}"}}
        workflow:
          - step: start
            tool:
              kind: python
              code: |
                def main():
                    # {{{{ workload.text }}}}
                    number = {{{{ workload.n }}}}
                    name = 'x'
                    return [number + 1, "<{{{{ workload.text }}}}>", f"{{{{name}}}} {{name}} {{{{ workload.n }}}}"]
        """,
    )
    assert run.value("start") == [5, f"<{evil}>", "{name} x 4"]
    assert not (tmp_path / "hacked").exists()


def test_values_in_commands_are_quoted_for_their_place(tmp_path: Path) -> None:
    """Whatever a value holds, it is one word of the command, or a part of the text that it stands in."""
    evil = 'a\'b "$(touch hacked)" `touch hacked`; touch hacked'
    run = Run(
        tmp_path,
        f"""
        workload: {{v: {msgspec.json.encode(evil).decode()}}}
        workflow:
          - step: start
            tool:
              kind: shell
              cmds:
                - printf '%s|' {{{{ workload.v }}}} "{{{{ workload.v }}}}" '{{{{ workload.v }}}}'
                - for i in 1 2; do printf $i; done
        """,
    )
    assert run.value("start") == f"{evil}|{evil}|{evil}|12"
    assert not (tmp_path / "hacked").exists()


def test_commands_stop_at_the_first_that_fails(tmp_path: Path) -> None:
    """Of a list of commands those behind a failure are not run."""
    run = Run(tmp_path, "workflow: [{step: start, tool: {kind: shell, cmds: ['false', 'touch reached']}}]", code=1)
    assert not (tmp_path / "reached").exists()
    assert run.statuses()["start"] == "failed"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def main(): return {'status': 'error', 'error': 'no luck'}", "exit code 1: no luck"),
        ("def main(): return {'data': {'a': 1, 'b': {'status': 'error', 'message': 'no b'}}}", "exit code 1: no b"),
        ("def main(who): return who", "exit code 1: Missing required argument 'who' for Python task 'start'"),
        ("def main(*a): return a", "exit code 1: main of Python task 'start' must take its parameters by name"),
    ],
)
def test_what_python_code_fails_with(tmp_path: Path, code: str, said: str) -> None:
    """A result that says `error`, and a parameter that nobody knows, fail the step with these words."""
    run = Run(tmp_path, f'workflow: [{{step: start, tool: {{kind: python, code: "{code}"}}}}]', code=1)
    assert run.message() == said


def test_python_code_in_all_its_forms(tmp_path: Path) -> None:
    """`async`, a lone `input_data`, code without a `main`, a file, base64, and a status that is to be ignored."""
    (tmp_path / "script.py").write_text("def main(name, workload):\n    return [name, workload['w']]\n")
    run = Run(
        tmp_path,
        """
        workload: {w: 1, code: "def main(): return 'from the workload'"}
        workflow:
          - {step: start, tool: {kind: python, code: "async def main(input_data): return input_data"}, args: {x: 1},
             next: a}
          - {step: a, tool: {kind: python, code: "result = context['start']['x'] + args['y']"}, args: {y: 2}, next: b}
          - step: b
            tool: {kind: python, script: {uri: "{{ 'script' }}.py", source: {type: file}}, args: {name: n}}
            next: c
          - {step: c, tool: {kind: python, code_b64: ZGVmIG1haW4oKTogcmV0dXJuIDc=}, next: d}
          - step: d
            tool: {kind: python, result_status: ignore, code: "def main(): return {'status': 'error'}"}
            next: e
          - step: e
            tool: {kind: python, script: {uri: inline, source: {type: inline, code: "{{ workload.code }}"}}}
        """,
    )
    found = [run.value(step) for step in ("start", "a", "b", "c", "d", "e")]
    assert found == [{"x": 1}, 3, ["n", 1], 7, {"status": "error"}, "from the workload"]
    done = run.program.call("run", "flow.yaml", "--input", "code=def main(): return 'from outside'")
    assert done.returncode == 2


def test_large_values_are_handed_over_in_a_file(tmp_path: Path) -> None:
    """What is too much for one variable of the environment reaches the code all the same."""
    run = Run(
        tmp_path,
        """
        workflow:
          - {step: start, tool: {kind: python, code: "def main(): return 'x' * 300000"}, next: [{step: two}]}
          - step: two
            tool: {kind: python, code: "def main(start, context): return [len(start), len(context['start'])]"}
        """,
    )
    assert run.value("two") == [300000, 300000]


def test_every_key_of_a_case_runs(tmp_path: Path) -> None:
    """Values are kept before the path goes on, a sink takes the result, and the arc sees what was set."""
    run = Run(
        tmp_path,
        """
        workflow:
          - step: start
            tool: {kind: python, code: "def main(): return {'n': 2, 'list': [1]}"}
            vars: {early: "{{ result.n * 10 }}"}
            case:
              - when: "{{ event.name == 'step.enter' }}"
                then: {set: {seen: [], at: "{{ event.name }}"}}
              - when: "{{ event.name == 'call.done' and response is defined }}"
                then:
                  next: [{step: show, args: {got: "{{ vars.n }}"}}]
                  set: [{name: n, value: "{{ response.n + early }}"}]
                  collect: {from: response.list, into: seen, mode: extend}
                  result: {from: response.n}
                  sink:
                    tool: {kind: python, code: "def main(data):\\n    open('sink', 'w').write(str(data))"}
              - {when: "{{ event.name == 'call.done' }}", then: {fail: never}}
              - when: event.name == 'step.exit'
                then: [{set: {ctx: {exit: "{{ response.n }}"}}}, {collect: {data: 5, into: seen}}]
          - step: show
            tool: {kind: python, code: "def main(got, seen, exit, at, start): return [got, seen, exit, at, start]"}
        """,
    )
    assert run.value("show") == [22, [1, 5], 2, "step.enter", 2]
    assert (tmp_path / "sink").read_text() == "2"
    assert run.lines("show") == ok("show")


@pytest.mark.parametrize("word", ["kind", "type"])
def test_a_sink_may_have_all_keys_in_its_storage(tmp_path: Path, word: str) -> None:
    """The kind of a storage is called `kind` or `type`, and the other keys of the sink may stand beside it."""
    code = "def main(data):\\n    open('sink', 'w').write(str(data))"
    run = Run(
        tmp_path,
        f"""
        workflow:
          - step: start
            tool: {{kind: python, code: "def main(): return 7"}}
            save: {{storage: {{{word}: python, data: "{{{{ this }}}}", code: "{code}"}}}}
        """,
    )
    assert run.statuses()["start"] == "completed"
    assert (tmp_path / "sink").read_text() == "7"


def test_a_case_can_fail_a_step(tmp_path: Path) -> None:
    """`fail`, and an `assert` that does not hold, fail a step whose tool went well."""
    code = "def main(): return {'n': 1}"
    case = """[{when: "{{ response.n == 1 }}", then: {fail: "n is {{ response.n }}"}}]"""
    run = Run(tmp_path, f'workflow: [{{step: start, tool: {{kind: python, code: "{code}"}}, case: {case}}}]', code=1)
    assert run.message() == "n is 1"
    text = f'workflow: [{{step: start, tool: {{kind: python, code: "{code}"}}, assert: {{returns: [n, m]}}}}]'
    assert Run(tmp_path, text, code=1).message() == "assert: no 'm' in the result"


def test_a_failure_that_a_case_answers(tmp_path: Path) -> None:
    """A case that speaks of `error` and leads on deals with the failure: the path goes on there, with what was set."""
    run = Run(
        tmp_path,
        f"""
        workflow:
          - step: start
            tool: {BAD}
            case:
              - when: "{{{{ event.name == 'call.error' and error.kind == 'unknown' and 'code 3' in error }}}}"
                then:
                  set: {{why: "{{{{ error.message }}}}"}}
                  next: [{{step: mend, args: {{code: "{{{{ error.exit_code }}}}"}}}}]
              - {{when: "event.name == 'step.exit'", then: {{next: other}}}}
          - {{step: mend, tool: {{kind: python, code: "def main(code, why): return [code, why]"}}}}
          - {{step: other, tool: {{kind: noop}}}}
        """,
    )
    assert run.value("mend") == [3, "exit code 3: no"]
    assert run.statuses() == {"start": "failed", "mend": "completed", "other": "skipped", "end": "completed"}
    assert run.document["steps"]["tolerated"] == 1


@pytest.mark.parametrize(
    ("retry", "attempts"),
    [
        ("retry: {max_attempts: 4, initial_delay: 0}", 4),
        ("retry: {max_attempts: 4, backoff: none, retry_when: \"{{ 'code 3' in error }}\"}", 4),
        ("retry: {max_attempts: 4, backoff: none, retry_when: \"{{ 'code 4' in error }}\"}", 1),
        ('retry: {max_attempts: 4, backoff: none, stop_when: "{{ attempt >= 2 }}"}', 2),
        ("retry: [{when: '{{ error is defined and attempt < 3 }}', then: {max_attempts: 9, delay: 0}}]", 3),
        ("retry: {max_attempts: 4, retry_on: [timeout, connection_error], backoff: 0}", 1),
        ("retry: {max_attempts: 4, retry_on: [unknown], backoff: 0}", 4),
        ("case: [{when: 'error is defined', then: {retry: {max_attempts: 3, initial_delay: 0}}}]", 3),
        ("case: [{when: \"event.name == 'call.error'\", then: {retry: {max_attempts: 2, backoff: none}}}]", 2),
    ],
)
def test_failures_are_tried_again(tmp_path: Path, retry: str, attempts: int) -> None:
    """Each form of retry counts every execution, and asks what it is told to ask."""
    run = Run(tmp_path, f"workflow: [{{step: start, tool: {BAD}, {retry}}}]", code=1)
    assert run.document["jobs"][0]["attempts"] == attempts


def test_a_result_can_ask_for_one_more_attempt(tmp_path: Path) -> None:
    """A success for which `retry_when` holds is tried again; the last one counts, whatever it is."""
    text = """
    workflow:
      - step: start
        tool: {{kind: shell, cmds: ['echo x >> tries', 'wc -l < tries']}}
        retry: {{max_attempts: {most}, backoff: none, retry_when: "{{{{ result | int < 3 }}}}"}}
    """
    run = Run(tmp_path, text.format(most=9))
    assert (run.value("start"), run.document["jobs"][0]["attempts"]) == (3, 3)
    (tmp_path / "tries").unlink()
    run = Run(tmp_path, text.format(most=2))
    assert (run.value("start"), run.document["jobs"][0]["attempts"], run.document["exit_code"]) == (2, 2, 0)
