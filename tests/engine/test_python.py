"""`python` steps: inputs as data, results as output, failures that rules and handlers can read."""

from __future__ import annotations

from typing import Any

import pytest

from resile.dialects.compile import compile_text
from tests.engine.conftest import Place

HOSTILE = "'''); open('pwned', 'w') #\n$(touch pwned) \"`${inputs.x}` \u00e9"


def _run(place: Place, code: str, *words: str, keys: str = "", head: str = "") -> tuple[int, dict[str, Any]]:
    """Run one step with this code and these keys."""
    source = "".join(f"      {line}\n" for line in code.splitlines())
    return place.run(f"resile: 1\n{head}\nsteps:\n  a:\n    python: |\n{source}{keys}", *words)


def _message(document: dict[str, Any]) -> str:
    """Why the step failed."""
    return str(document["first_failure"]["message"])


def test_main_is_called_with_the_inputs_in_their_types(place: Place) -> None:
    """One reference keeps its type, a text with more is text, data stays data."""
    code, document = _run(
        place,
        "def main(n, t, d, *, more='default'):\n    return {'got': [n, t, d, more]}",
        head="inputs: {n: {type: json, default: [1, {k: 1.5}]}, b: {type: bool, default: true}}",
        keys="    inputs: {n: '${inputs.n}', t: 'b=${inputs.b}', d: {x: ['${inputs.b}', null, 3]}}\n"
        "    capture: {result: json}\n",
    )
    got = [[1, {"k": 1.5}], "b=true", {"x": [True, None, 3]}, "default"]
    assert (code, document["outputs"]["result"]) == (0, {"got": got})


@pytest.mark.parametrize(
    ("code", "output"),
    [
        ("def main(): return 'plain \u00e9'", "plain \u00e9"),
        ("def main(): return None", ""),
        ("def main(): return [1, 'x']", '[1, "x"]'),
        ("def main():\n    print('log', end='')\n    return {'a': 1}", 'log\n{"a": 1}'),
        ("import asyncio\nasync def main():\n    await asyncio.sleep(0)\n    return 42", "42"),
        ("print('no main')", "no main"),
        ("import sys\ndef main():\n    print('early')\n    sys.exit(0)", "early"),
        ("if __name__ == '__main__': main()\ndef main(): return 'once'", "once"),
        (
            "import os\nprint('RESILE_STEP' in os.environ, os.environ['V'], os.path.basename(os.getcwd()))",
            "False v sub",
        ),
    ],
)
def test_what_is_returned_is_the_last_line_of_the_output(place: Place, code: str, output: str) -> None:
    """Texts as they are, nothing for None, everything else as JSON on a line of its own."""
    (place.folder / "sub").mkdir()
    ended, document = _run(place, code, keys="    capture: out\n    env: {V: v}\n    working_dir: sub\n")
    assert (ended, document["outputs"]["out"]) == (0, output)


@pytest.mark.parametrize(
    ("code", "exit_code", "message"),
    [
        ("def main():\n    raise ValueError('bad\\nnews')", 1, "ValueError: bad news"),
        ("class Odd(Exception): pass\nraise Odd('x')", 1, "Odd: x"),
        ("import json\njson.loads('{')", 1,
         "JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("def main(:", 1, "SyntaxError: invalid syntax (<step a>, line 1)"),
        ("import sys\nsys.exit(3)", 3, ""),
        ("import sys\nsys.exit('gave up')", 1, "gave up"),
        ("def main(): return {'status': 'error', 'message': 'no disk'}", 1, "no disk"),
        ("def main(): return {'status': 'error', 'error': {'code': 5}}", 1, '{"code": 5}'),
        ("def main(): return {'status': 'error'}", 1, "main returned the status `error`"),
        ("def main(): return {1, 2}", 1, "TypeError: Object of type set is not JSON serializable"),
        ("def main(a, b, c=1): pass", 1, "inputs of main: missing a, b"),
    ],
)  # fmt: skip
def test_failures_say_why_in_their_last_line(place: Place, code: str, exit_code: int, message: str) -> None:
    """Exceptions by type and text, statuses by their message, exits by their code."""
    ended, document = _run(place, code)
    failure = document["first_failure"]
    assert (ended, failure["kind"], failure["exit_code"]) == (1, "exit", exit_code)
    assert _message(document) == (f"exit code {exit_code}: {message}" if message else f"exit code {exit_code}")


def test_inputs_must_fit_the_parameters(place: Place) -> None:
    """Missing and unknown ones are named."""
    ended, document = _run(place, "def main(a, b): pass", keys="    inputs: {b: 1, c: 2, d: 3}\n")
    assert (ended, _message(document)) == (1, "exit code 1: inputs of main: missing a; unknown c, d")


def test_an_exception_is_answered_by_type_and_shows_its_line(place: Place) -> None:
    """A rule matches on the type, the handler sees the traceback of the code alone."""
    ended, document = place.run(r"""
resile: 1
failure_handlers: {h: {rules: [{pattern: 'TimeoutError: ', recovery_script: touch fixed, max_retries: 2}]}}
steps:
  a:
    python: |
      import os
      def main():
          if not os.path.exists("fixed"):
              raise TimeoutError("too slow")
    failure_handler: h
  b:
    needs: [a]
    python: 'raise KeyError("k")'
    on_failure: [{write_file: {path: said, content: '${error.stderr}'}}]
""")
    assert (ended, [job["attempts"] for job in document["jobs"][:2]]) == (0, [2, 1])
    assert place.text("said").splitlines() == [
        "Traceback (most recent call last):",
        '  File "<step b>", line 1, in <module>',
        '    raise KeyError("k")',
        "KeyError: 'k'",
    ]


def test_hostile_values_are_data(place: Place) -> None:
    """Text from outside never becomes code, and arrives as it is."""
    (place.folder / "v").write_text(HOSTILE)
    ended, document = _run(
        place,
        "def main(v, w):\n    return [v, w]",
        "--input-file",
        "v=v",
        head="inputs: {v: x}",
        keys="    inputs: {v: '${inputs.v}', w: '<${inputs.v}>'}\n    capture: {out: json}\n",
    )
    assert (ended, document["outputs"]["out"]) == (0, [HOSTILE, f"<{HOSTILE}>"])
    assert not (place.folder / "pwned").exists()


def test_bytes_that_are_no_text_survive(place: Place) -> None:
    """What is not UTF-8 goes in and comes out as the same bytes."""
    ended, _ = place.run(r"""
resile: 1
steps:
  a: {shell: 'printf "a\377b"', capture: v}
  b: {python: 'def main(v): return v', inputs: {v: '${v}'}, needs: [a], capture: w}
  c: {shell: 'printf %s ${w} > out', needs: [b]}
""")
    assert (ended, (place.folder / "out").read_bytes()) == (0, b"a\xffb")


def test_code_in_a_file_of_its_own(place: Place) -> None:
    """The file is found beside the workflow and its neighbours can be imported; a missing one is named."""
    flows = place.folder / "flows"
    flows.mkdir()
    (flows / "near.py").write_text("WORD = 'near'\n")
    (flows / "job.py").write_text(
        "import near\ndef main(x): return near.WORD + str(x)\nif __name__ == '__main__': main(0)\n"
    )
    (flows / "f.yaml").write_text(
        "resile: 1\nsteps:\n"
        "  a: {python: {file: job.py, inputs: {x: 2}}, capture: out}\n"
        "  b: {python: {file: none.py}, needs: [a]}\n"
    )
    ended, document = place.call("run", "flows/f.yaml")
    assert (ended, document["outputs"]["out"]) == (1, "near2")
    assert _message(document) == f"exit code 1: can't read {flows}/none.py: No such file or directory"


def test_a_module_in_the_folder_does_not_stand_in_for_the_library(place: Place) -> None:
    """A file named like a module of Python's is not imported by accident."""
    (place.folder / "sub").mkdir()
    (place.folder / "sub" / "json.py").write_text("raise SystemExit(9)\n")
    assert _run(place, "import json\nprint(json.dumps(1))", keys="    working_dir: sub\n")[0] == 0


def test_much_output_is_kept_whole(place: Place) -> None:
    """Every line is there, the returned value last."""
    ended, _ = _run(place, "def main():\n    for n in range(200_000): print(n)\n    return 'last'")
    lines = (place.state / "output" / "job_stdio" / "job_wf1_j1_r1_a1.o").read_text().splitlines()
    assert (ended, lines) == (0, [*map(str, range(200_000)), "last"])


def test_the_verdict_of_end_can_be_returned(place: Place) -> None:
    """A returned `workflow_status` decides on the run."""
    text = (
        'resile: 1\nsteps:\n  a: {noop: true}\n  end: {python: \'def main(): return {"workflow_status": "failed"}\'}\n'
    )
    assert place.run(text)[0] == 1


def test_an_input_that_is_too_large_for_a_variable_arrives_whole(place: Place) -> None:
    """It is handed over in a file."""
    (place.folder / "v").write_text("x" * 130_000)
    code = "def main(v): open('ran', 'w').write(v)"
    keys = "    inputs: {v: '${inputs.v}'}\n"
    assert _run(place, code, "--input-file", "v=v", head="inputs: {v: x}", keys=keys)[0] == 0
    assert (place.folder / "ran").read_text() == "x" * 130_000


def test_a_value_that_is_unknown_fails_before_anything_runs(place: Place) -> None:
    """A failure of the kind `contract` that says what it lacks."""
    _, unknown = _run(place, "def main(v): open('ran', 'w')", keys="    inputs: {v: '${nobody}'}\n")
    assert unknown["first_failure"]["kind"] == "contract"
    assert _message(unknown) == "nothing is known under `${nobody}`"
    assert not (place.folder / "ran").exists()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("python: 'print(${inputs.h})'", "`${inputs.h}` can't stand here: a value never becomes code"),
        ("python: {file: '${inputs.h}.py'}", "`${inputs.h}` can't stand here: a value never becomes code"),
        ("python: ' '", "the code is empty"),
        ("python: {inputs: {a: 1}}", "`python` needs `source` or `file`, one of them"),
        ("python: {source: x, file: y}", "`python` needs `source` or `file`, one of them"),
        ("python: {source: x, inputs: {a: 1}}, inputs: {b: 1}", "`python` has `inputs` already"),
        ("python: x, inputs: {'a b': 1}", "`a b` can't be the name of a parameter"),
        ("python: x, inputs: [a]", "expected a mapping of names to values, not a list"),
        ("shell: x, inputs: {a: 1}", "`inputs` has no meaning without `python` or `workflow`"),
        (f"python: {'x' * 122_881}", "the code has more than 122880 bytes"),
    ],
)
def test_code_that_cannot_be_right_is_refused_at_load(keys: str, message: str) -> None:
    """One finding, with what is wrong."""
    found = compile_text(f"resile: 1\ninputs: {{h: x}}\nsteps:\n  a: {{{keys}}}\n").diagnostics
    assert [finding.message for finding in found] == [message]
