"""Visor files, run for real: what their templates, code, memory, questions and workflows come to."""

# ruff: noqa: E501 - a file reads better with one step in a line
from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.dialects.visor.flows import VisorFlows, flow
from tests.runs.ladder.flows import Ran

FILES = Path(__file__).parent.parent / "files" / "visor"


@pytest.fixture
def flows(tmp_path: Path) -> VisorFlows:
    """Visor files in an empty folder, with those of ours beside them."""
    for file in FILES.glob("*.yaml"):
        shutil.copy(file, tmp_path)
    return VisorFlows(tmp_path)


def run(flows: VisorFlows, text: str, code: int = 0, *words: str) -> Ran:
    """Run steps that are written out."""
    return flows.run(f"version: '1'\n{text}", code, *words)


def test_a_file_that_mends_itself(flows: VisorFlows) -> None:
    """Retries, remedies, jumps and what follows a success, all in one file without `depends_on`."""
    ran = flows.run((FILES / "build.yaml").read_text())
    assert ran.order == ["prepare", "checks", "checks", "prepare", "checks", "package", "tidy", "package", "report",
                         "tell", "checks", "package", "report", "tell"]  # fmt: skip
    actions = [(step, action) for step, action, _ in ran.routes()]
    assert actions == [("checks", "retry"), ("checks", "goto"), ("package", "retry"), ("package", "run"),
                       ("report", "run"), ("report", "goto"), ("report", "run")]  # fmt: skip


def test_code_that_works_on_the_memory(flows: VisorFlows) -> None:
    """`exec_js` reads and writes the memory, and what it returns is its output."""
    ran = run(
        flows,
        """steps:
  a: {type: tool, exec: "echo '{\\"issues\\": 3}'"}
  m: {type: memory, operation: exec_js, depends_on: [a], memory_js: "memory.set('n', outputs.a.issues + 1); return {seen: memory.get('n')}"}
  l: {type: command, depends_on: [m], exec: "echo {{ 'n' | memory_get }} {{ outputs.m.seen }} > out"}
""",
    )
    assert set(ran.status.values()) == {"completed"}
    assert (flows.folder / "out").read_text() == "4 4\n"


NASTY = [
    "$(touch hacked)",
    "`touch hacked`",
    "'; touch hacked; '",
    '"; touch hacked; "',
    "a\nb",
    "-n",
    "\\",
    "é ☃",
    "{{ x }}",
]


@pytest.mark.parametrize("value", NASTY)
def test_no_value_becomes_code(flows: VisorFlows, value: str) -> None:
    """Whatever an output holds, a command gets exactly it, in any quotes, in loops and with filters."""
    import json

    (flows.folder / "value.json").write_text(json.dumps({"v": value}))
    shell = """printf '%s\\n' {{ outputs.a.v }} "{{ outputs.a.v }}" '{{ outputs.a.v }}' {{ outputs.a.v | shell_escape }}
      {%- for one in outputs.a.list %} {{ one }}{% endfor %} "$(printf '%s' {{ outputs.a.v }})" > out"""
    text = f"steps:\n  a: {{type: command, exec: cat value.json}}\n  b:\n    type: command\n    depends_on: a\n    exec: |\n      {shell}\n"
    run(flows, text)
    seen = value.rstrip("\n")
    assert (flows.folder / "out").read_text() == "".join(f"{part}\n" for part in [value] * 4 + [seen])
    assert not (flows.folder / "hacked").exists()


def test_a_value_that_fits_nowhere_fails_the_step(flows: VisorFlows) -> None:
    """In arithmetic only numbers are taken, and the step fails before it starts."""
    ran = run(
        flows,
        "steps: {a: {type: command, exec: echo x}, b: {type: command, depends_on: a, exec: 'echo $(({{ outputs.a }}))'}}",
        1,
    )
    assert ran.document["first_failure"]["kind"] == "contract"


def output_of(ran: Ran, flows: VisorFlows, step: str) -> str:
    """What the last attempt of a step printed."""
    return flows.program.call("logs", str(ran.document["run"]), step, code=0).stdout.partition("<==\n")[2].rstrip("\n")


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ("exec: 'echo 12'", "12 number"),
        ("exec: 'echo true'", "true boolean"),
        ("exec: 'echo text'", '"text" string'),
        ("exec: 'echo ''{\"a\": [1]}'''", '{"a":[1]} object'),
        ("exec: 'echo 12', output_format: text", '"12" string'),
        ("exec: 'echo 12', schema: plain", '"12" string'),
        ("exec: 'echo ''{\"a\": [1, 2]}''', transform: '{{ output.a | json }}'", "[1,2] object"),
        ("exec: 'echo a,b', transform: '{{ output | split: \",\" | first }}'", '"a" string'),
        ("exec: 'echo 3', transform_js: return output * 2", "6 number"),
        ("exec: 'echo 3', transform: '4{{ output }}', transform_js: output + 1", "44 number"),
        ("exec: 'cat', stdin: 'from {{ inputs.i }}'", '"from x" string'),
    ],
)
def test_values_have_their_types(flows: VisorFlows, keys: str, told: str) -> None:
    """JSON is parsed, a transform makes another value, and code sees what came of it."""
    code = "return JSON.stringify(outputs.a) + ' ' + typeof outputs.a"
    text = f"inputs: {{i: x}}\nsteps:\n  a: {{type: command, {keys}}}\n  b: {{type: script, depends_on: a, content: {code}}}\n"
    text += "  c: {type: command, depends_on: b, exec: 'echo {{ outputs.b }} >> trace'}\n"
    assert run(flows, text).order == [told]


@pytest.mark.parametrize(
    ("keys", "kind", "message"),
    [
        ("exec: echo x, output_format: json", "contract", "the output is not JSON"),
        ("exec: echo 5, schema: {type: string}", "contract", "schema: the value is 5, not string"),
        ("exec: 'echo ''{\"ok\": false}''', guarantee: output.ok", "contract", "guarantee not met: output.ok"),
        ("exec: 'echo ''{\"ok\": false}''', fail_if: '!output.ok'", "check", "failure condition met: !output.ok"),
        ("exec: echo x, failure_conditions: {c: {condition: 'true', message: too bad}}", "check", "too bad"),
        (
            "exec: echo x, transform_js: return nobody.x",
            "contract",
            "transform_js: ReferenceError: nobody is not defined",
        ),
        ("exec: 'true', forEach: true", "contract", "'a' gave nothing to run for"),
    ],
)
def test_a_value_that_is_not_what_it_must_be(flows: VisorFlows, keys: str, kind: str, message: str) -> None:
    """The attempt fails with its kind and says why."""
    ran = run(flows, f"steps:\n  a: {{type: command, {keys}}}\n", 1)
    first = ran.document["first_failure"]
    assert (first["kind"], first["message"][: len(message)]) == (kind, message)


def test_a23_a_failed_condition_of_an_external_step_is_not_tried_again(flows: VisorFlows) -> None:
    """Only what may pass another time is."""
    for criticality, times in (("external", 1), ("internal", 1), ("policy", 3)):
        keys = f"exec: ./step a, criticality: {criticality}, fail_if: 'true', on_fail: {{retry: {{max: 2}}}}"
        assert flows.run(flow(f"a: {keys}"), 1).order == ["a"] * times


def test_code_and_memory(flows: VisorFlows) -> None:
    """Scripts write memory, which the log records; conditions read it; namespaces are apart."""
    text = """
memory: {namespace: main}
steps:
  one: {type: script, content: "memory.set('n', 1); memory.append('l', 'x'); log('said', {a: 1}); return memory.list()"}
  two: {type: memory, depends_on: one, operation: increment, key: n, value: 2}
  three: {type: memory, depends_on: two, operation: append, key: l, value: {deep: "{{ outputs.two }}"}}
  four: {type: memory, depends_on: three, operation: set, key: n, value_js: "memory.get('n') * 10", namespace: other}
  five: {type: memory, depends_on: four, operation: delete, key: nobody}
  gate: {type: command, depends_on: five, if: "memory.get('n') === 3", exec: "echo {{ 'n' | memory_get: 'main' }} >> trace"}
  shut: {type: command, depends_on: five, if: "memory.has('nobody')", exec: "echo never >> trace"}
  said: {type: log, depends_on: gate, message: "{{ outputs.one | join: '-' }} {{ 'n' | memory_get: 'other' }}"}
"""
    ran = run(flows, text)
    assert ran.order == ["3"]
    assert output_of(ran, flows, "said") == "n-l 30"
    written = [
        (event["step"], event["data"]["memory"]) for event in ran.of("attempt_succeeded") if "memory" in event["data"]
    ]
    assert written[0] == ("one", {"main": {"n": 1, "l": ["x"]}})
    assert written[2] == ("three", {"main": {"n": 3, "l": ["x", {"deep": 3}]}})
    assert [event["data"]["remarks"] for event in ran.of("attempt_succeeded") if event["step"] == "one"] == [
        ['said {"a":1}']
    ]


def test_routing_code_can_not_write_memory(flows: VisorFlows) -> None:
    """The answer is dropped and recorded, and the static key counts."""
    ran = flows.run(flow('s\nm < s\na.1 < m: on_fail: {goto: m, goto_js: \'memory.set("x", 1); return "s"\'}'))
    assert ran.order == ["s", "m", "a", "m", "a"]
    assert "only a script or memory step can write memory" in ran.of("expression_rejected")[0]["data"]["problem"]


def test_what_is_no_number_is_not_incremented(flows: VisorFlows) -> None:
    """The message has the first 60 characters of the value."""
    text = f"""
steps:
  set: {{type: memory, operation: set, key: n, value: {"x" * 70}}}
  add: {{type: memory, depends_on: set, operation: increment, key: n}}
"""
    (event,) = run(flows, text, code=1).of("attempt_failed")
    assert event["data"]["message"] == f"'n' can't be incremented: '{'x' * 60}' is no number"


def test_memory_in_a_file_outlives_the_run(flows: VisorFlows) -> None:
    """The next run begins with what the last one left."""
    text = "memory: {storage: file, file: kept.json}\nsteps:\n  n: {type: memory, operation: increment, key: n}\n"
    text += "  t: {type: command, depends_on: n, exec: 'echo {{ outputs.n }} >> trace'}\n"
    assert [run(flows, text).order for _ in range(3)] == [["1"], ["2"], ["3"]]
    assert (flows.folder / "kept.json").read_text().split() == ["{", '"default":', "{", '"n":', "3", "}", "}"]


def test_a_question_waits_for_its_answer(flows: VisorFlows) -> None:
    """The run is parked with the question; the answer is a value that can't run code."""
    text = """
steps:
  ask: {type: human-input, prompt: "Who is {{ inputs.i }}?", placeholder: a name}
  tell: {type: command, depends_on: ask, exec: "echo {{ outputs.ask.text }} >> trace"}
inputs: {i: it}
"""
    ran = run(flows, text, 4)
    (parked,) = [event for event in ran.of("attempt_failed") if event["step"] == "ask"]
    assert parked["data"]["message"] == "waits for an answer: Who is it? (a name)"
    number = str(ran.document["run"])
    flows.program.call("judge", number, "ask", "skip", "--output", "me; touch hacked", "--resume", code=0)
    assert (flows.folder / "trace").read_text() == "me; touch hacked\n"
    assert not (flows.folder / "hacked").exists()


def test_an_empty_answer_means_the_default(flows: VisorFlows) -> None:
    """A question that nobody answers with words has its default."""
    ran = run(
        flows,
        "steps: {ask: {type: human-input, prompt: who?, default: bob}, t: {type: command, depends_on: ask, exec: 'echo {{ outputs.ask.text }} >> trace'}}",
        4,
    )
    flows.program.call("judge", str(ran.document["run"]), "ask", "skip", "--resume", code=0)
    assert (flows.folder / "trace").read_text() == "bob\n"


def test_a_workflow_runs_as_a_step(flows: VisorFlows) -> None:
    """Its outputs are the step's value, and its memory is its own."""
    text = """
imports: [sums.yaml]
steps:
  mine: {type: memory, operation: set, key: who, value: the parent}
  sum: {type: workflow, workflow: sums, depends_on: mine, args: {a: 40, b: "{{ inputs.more }}"}}
  tell: {type: command, depends_on: sum, exec: "echo {{ outputs.sum.total }} {{ outputs.sum.text }} {{ 'who' | memory_get }} >> trace"}
inputs: {more: 2}
"""
    assert run(flows, text).order == ["42 40 and 2 make 42 the parent"]
    (error,) = flows.refused(
        "version: '1'\nimports: [sums.yaml]\nsteps: {s: {type: workflow, workflow: sums, args: {z: 1}}}"
    )
    assert error == "`sums` has no input `z`"


def test_a_workflow_is_a_file_of_its_own(flows: VisorFlows) -> None:
    """Its inputs are given on the command line and checked against their schema; its outputs are in the document."""
    document = flows.program.json("run", "sums.yaml", "--input", "a=5")
    assert document["outputs"]["total"] == 7
    refused = flows.program.json("run", "sums.yaml", "--input", "a=-1", code=2)
    assert refused["error"]["message"] == "input 'a' is less than 0"


def test_a_file_extends_another(flows: VisorFlows) -> None:
    """Mappings are merged, other keys replaced; a finding in the other file names that file."""
    text = "extends: base.yaml\nenv: {FROM: here}\nchecks: {second: {exec: 'echo mine >> trace'}, third: {type: noop, depends_on: second}}\n"
    ran = run(flows, text)
    assert ran.order == ["first-here", "mine"]
    assert ran.status == {"first": "completed", "second": "completed", "third": "completed", "end": "completed"}
    flows.program.write("version: '1'\nsteps: {a: {type: slack}}\n", "other.yaml")
    flows.program.write("version: '1'\ninclude: other.yaml\nsteps: {b: {type: noop}}\n")
    (found,) = flows.program.json("check", "flow.yaml", code=2)["files"][0]["diagnostics"]
    assert (Path(found["file"]).name, found["line"]) == ("other.yaml", 2)


def test_tools_run_before_a_step(flows: VisorFlows) -> None:
    """Each under its name, with its arguments and defaults; their outputs are seen by the step alone."""
    text = """
extends: base.yaml
steps:
  hi:
    type: command
    depends_on: second
    on_init: {run: [{tool: greet, with: {who: Ann}, as: one}, {tool: greet, with: {who: "{{ outputs.one.said }}", how: pal}, as: two}]}
    exec: echo {{ outputs.two.said }} >> trace
"""
    ran = run(flows, text)
    assert ran.order[-1] == "hello hello Ann, friend, pal"
    assert [job["step"] for job in ran.document["jobs"]][:5] == ["first", "second", "hi.one", "hi.two", "hi"]


def test_what_follows_a_success_can_take_arguments(flows: VisorFlows) -> None:
    """A called step finds them as `args`, made of the output of the step that calls it."""
    text = """
steps:
  a: {type: command, exec: "echo '{\\"x\\": \\"one two\\"}'", on_success: {run: [{step: tell, with: {k: "{{ output.x }}"}}]}}
  tell: {type: command, exec: "echo {{ args.k }} >> trace"}
"""
    assert run(flows, text).order == ["one two"]


def test_tags_and_events_choose_steps(flows: VisorFlows) -> None:
    """A tagged step runs where one of its tags is asked for; an event leaves out what is for others."""
    text = "steps:\n  a: {type: command, exec: ./step a, tags: [x, y]}\n  b: {type: command, exec: ./step b}\n"
    text += (
        "  c: {type: command, exec: ./step c, on: [pr_opened]}\n  d: {type: command, exec: ./step d, on: [manual]}\n"
    )
    assert sorted(run(flows, text).order) == ["b", "c", "d"]
    assert sorted(run(flows, text, 0, "--input", "tags=y,z").order) == ["a", "b", "c", "d"]
    assert sorted(run(flows, text, 0, "--input", "tags=y", "--input", "exclude_tags=x").order) == ["b", "c", "d"]
    assert sorted(run(flows, text, 0, "--input", "event=manual").order) == ["b", "d"]
    assert sorted(run(flows, f"tag_filter: {{include: [x]}}\n{text}").order) == ["a", "b", "c", "d"]


def test_items_come_together_again(flows: VisorFlows) -> None:
    """A step after them sees the values of all that succeeded; inside, the whole list is there as well."""
    text = """
steps:
  list: {type: command, exec: "echo '[{\\"n\\": 1}, {\\"n\\": 2}]'", forEach: true}
  each: {type: command, depends_on: list, exec: "echo '{\\"m\\": {{ outputs.list.n }}0}'", transform_js: "return {m: output.m + 1}"}
  next: {type: command, depends_on: each, exec: "echo {{ outputs.each.m }} of {{ outputs['list-raw'] | size }} >> trace"}
  all: {type: script, depends_on: [next], content: "return outputs.each.map((one) => one.m).join('+') + ' ' + outputs.list.length"}
  tell: {type: command, depends_on: all, exec: "echo {{ outputs.all }} >> trace"}
"""
    assert sorted(run(flows, text).order) == ["11 of 2", "11+21 2", "21 of 2"]


def test_a_history_has_every_value(flows: VisorFlows) -> None:
    """Also those of earlier visits, oldest first."""
    text = """
steps:
  n: {type: memory, operation: increment, key: n}
  back: {type: script, depends_on: n, content: "return outputs.history.n", on_success: {goto_js: "return output.length < 3 ? 'n' : null"}}
  tell: {type: command, depends_on: back, exec: "echo {{ outputs.back | json }} {{ outputs_history.n | size }} >> trace"}
"""
    assert run(flows, text).order == ["[1,2,3] 3"]


def test_agents_are_asked(flows: VisorFlows) -> None:
    """The prompt has its values and the schema; the answer is measured by it."""
    program = flows.folder / "claude"
    program.write_text(
        '#!/bin/sh\nfor word; do last=$word; done\nprintf "%s" "$last" > asked\necho \'{"issues": []}\'\n'
    )
    program.chmod(0o755)
    flows.program.env["PATH"] = f"{flows.folder}:{flows.program.env['PATH']}"
    text = "steps: {a: {type: command, exec: 'echo {{ x }}'}, s: {prompt: 'look at {{ outputs.a }} {{ 1 }}', depends_on: a, schema: code-review, fail_if: output.issues.length > 0}}"
    run(flows, text)
    asked = (flows.folder / "asked").read_text()
    assert asked.startswith("look at  1\n\nAnswer with JSON only")
    program.write_text("#!/bin/sh\necho '{}'\n")
    assert run(flows, text, 1).failed == "schema: the value has no `issues`"


def test_remedies_do_not_jump(flows: VisorFlows) -> None:
    """A remedy that names the step it mends says what happens anyway; the user is told."""
    text = "s\na.1 < s: on_fail: {run: [fix]}\nfix: on_success: {goto: a}"
    assert flows.run(flow(text)).order == ["s", "a", "fix", "a"]
    notices = [found["message"] for found in flows.program.json("check", "flow.yaml")["files"][0]["diagnostics"]]
    assert notices == ["`fix` runs as a remedy, so it does not go back"]


def test_retries_and_goto_share_their_counters(flows: VisorFlows) -> None:
    """A jump does not refill a retry."""
    assert flows.run(flow("s\na.3 < s: on_fail: {retry: {max: 1}, goto: s}")).order == [
        "s",
        "a",
        "a",
        "s",
        "a",
        "s",
        "a",
    ]


def test_no_failure_routing_is_needed(flows: VisorFlows) -> None:
    """`--no-failure-routing` turns retries, remedies and jumps off."""
    assert flows.run(flow("a.1: on_fail: {retry: {max: 3}, run: [f]}\nf"), 1, "--no-failure-routing").order == ["a"]


def test_a_failed_item_fails_the_run_and_not_the_others(flows: VisorFlows) -> None:
    """The others run to their end, and the item can be driven again."""
    text = flow(
        "list: type: command, exec: 'echo ''[\"a\",\"b\"]''', forEach: true\np < list: exec: './step p{{ outputs.list }} {% if outputs.list == \"a\" %}9{% endif %}'\nq < p: exec: './step q{{ outputs.list }}'"
    )
    ran = flows.run(text, 1)
    assert sorted(ran.order) == ["pa", "pb", "qb"]
    counts = ran.document["maps"]["p+q"]
    assert (counts["successful"], counts["failed"], counts["dead_letters"]) == (1, 1, 1)


def test_requests_carry_values_as_data(flows: VisorFlows) -> None:
    """In a url, a header and a body; the answer is a value, and a status of 500 fails the step."""
    import threading
    from http.server import BaseHTTPRequestHandler, HTTPServer

    heard: list[tuple[str, str, str, str | None]] = []

    class Answers(BaseHTTPRequestHandler):
        """Keeps what it is asked and answers with JSON."""

        def do_POST(self) -> None:
            """Answer a request."""
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            heard.append((self.path, self.headers["X-Who"], body, self.headers["Content-Type"]))
            self.send_response(500 if "bad" in self.path else 200)
            self.end_headers()
            self.wfile.write(b'{"found": [1, 2]}')

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    flows.program.env |= {"API": f"http://127.0.0.1:{server.server_port}", "WHO": "me"}
    text = """
steps:
  a: {type: command, exec: "echo 'x/../y?z'"}
  get: {type: http_client, depends_on: a, url: "${API}/find/{{ outputs.a }}", headers: {X-Who: "${WHO}"}, body: {q: "{{ outputs.a }}", n: 1}, transform: "{{ data.found | json }}"}
  tell: {type: command, depends_on: get, exec: "echo {{ outputs.get | size }} >> trace"}
  bad: {type: http, depends_on: tell, url: "${API}/bad", headers: {X-Who: you}, body: "say {{ outputs.a }}", continue_on_failure: true}
"""
    try:
        ran = run(flows, text)
    finally:
        server.shutdown()
    assert ran.order == ["2"]
    assert heard == [
        ("/find/x%2F..%2Fy%3Fz", "me", '{"q": "x/../y?z", "n": 1}', "application/json"),
        ("/bad", "you", "say x/../y?z", "text/plain; charset=utf-8"),
    ]
    assert ran.status["bad"] == "tolerated"
