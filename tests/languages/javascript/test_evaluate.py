"""What code sees and what comes back: values, types, forms, time and chance, helper functions, positions."""

from __future__ import annotations

from typing import Any

import pytest

from resile.languages.javascript.evaluate import Form, Sandbox, expand_values, holds
from resile.languages.javascript.limits import VARIABLES_BYTES_MAX

VISOR = {"output": {"ok": False}, "attempt": 1, "outputs": {"lint": {"errors": ["E1", "W2"]}}}


def value(sandbox: Sandbox, code: str, form: Form = "expression", **context: Any) -> Any:
    """The result of code that must work."""
    answer = sandbox.evaluate(code, context, now=1_700_000_000.25, seed="flow/step/1", form=form)
    assert answer.problem == ""
    return answer.value


def problem(sandbox: Sandbox, code: str, form: Form = "expression", **context: Any) -> tuple[str, str]:
    """Kind and text of the problem with code that must not work."""
    answer = sandbox.evaluate(code, context, now=1_700_000_000.25, seed="flow/step/1", form=form)
    assert answer.value is None
    return answer.kind, answer.problem


@pytest.mark.parametrize(
    "data",
    [
        None,
        True,
        0,
        -1.5,
        2**53,
        "",
        "text",
        "a\0b",
        'quotes " and \\ and \n',
        "</script>${x}`",
        "ünïcödé 😀",
        "half a pair \ud800",
        "bytes \udcff",
        [],
        {},
        [1, [2, {"k": [None]}]],
        {"__proto__": {"x": 1}, "constructor": 1, "": 2, "0": 3},
        "x" * 200_000,
    ],
    ids=lambda data: ascii(data)[:24],
)
def test_data_goes_in_and_comes_out_unchanged(sandbox: Sandbox, data: Any) -> None:
    """What JSON can say survives the way into the sandbox and back."""
    assert value(sandbox, "data", data=data) == data
    assert value(sandbox, "return data", "body", data=data) == data


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("undefined", None),
        ("null", None),
        ("void 0", None),
        ("-0", 0),
        ("1e21", 1e21),
        ("[undefined, NaN, () => 1, 1 / 0]", [None, None, None, None]),
        ("({a: undefined, b: () => 1, c: 1})", {"c": 1}),
        ("({toJSON: () => 'mine'})", "mine"),
        ("({toJSON: () => undefined})", None),
        ("new String('boxed')", "boxed"),
        ("Array.from(new Set([1, 1, 2]))", [1, 2]),
    ],
)
def test_results_are_what_json_makes_of_them(sandbox: Sandbox, code: str, expected: Any) -> None:
    """A result becomes data as JSON.stringify does it, and no result at all is null."""
    assert value(sandbox, code) == expected


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("() => 1", "a result of type Function is no data"),
        ("async () => 1", "a result of type AsyncFunction is no data"),
        ("Symbol('x')", "a result of type Symbol is no data"),
        ("10n", "a result of type BigInt is no data"),
        ("new Map([[1, 2]])", "a result of type Map is no data"),
        ("new Set()", "a result of type Set is no data"),
        ("/x/", "a result of type RegExp is no data"),
        ("new TypeError('x')", "a result of type Error is no data"),
        ("(async () => 1)()", "a result of type Promise is no data"),
        ("new Map().keys()", "a result of type Map Iterator is no data"),
        ("(function* () {})()", "a result of type Generator is no data"),
        ("Math", "a result of type Math is no data"),
        ("0 / 0", "the result is not a finite number"),
        ("1 / 0", "the result is not a finite number"),
    ],
)
def test_what_is_no_data_is_no_result(sandbox: Sandbox, code: str, said: str) -> None:
    """A result that JSON would silently lose is a problem of type."""
    assert problem(sandbox, code) == ("type", said)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("'setup'", "setup"),
        ("return 'setup'", "setup"),
        ("return 'setup';", "setup"),
        ("if (attempt === 1) return 'setup';\nreturn null;", "setup"),
        ("return", None),
        ("attempt === 1 ? 'setup' : null", "setup"),
        ("if (attempt === 1) 'setup'; else null", "setup"),
        ("const first = attempt === 1; first && 'setup'", "setup"),
        ("let n = 0; for (const e of outputs.lint.errors) if (e[0] === 'E') n++; n", 1),
        ("outputs.lint.errors.map(function (e) { return e[0]; })", ["E", "W"]),
        ("outputs.lint.errors.map(e => { return e[0] })", ["E", "W"]),
        ("function pick() { return 'setup' } pick()", "setup"),
        ("function pick() { return 'setup' }", None),
        ("const output = 5; output", 5),
        ("let attempt = 7; return attempt", 7),
        ("var outputs = 2; outputs", 2),
        ("{to: 'setup'}", {"to": "setup"}),
        ("{to: 'setup', n: 1}", {"to": "setup", "n": 1}),
        ("{ let a = 1; a + 1 }", 2),
        ("{ return 3 }", 3),
        ("'return'", "return"),
        ("'a' // return nothing", "a"),
        ("'a' // the end", "a"),
        ("/* nothing */", None),
        ("", None),
        ("try { JSON.parse('{') } catch (e) { 'caught' }", "caught"),
    ],
)
def test_a_body_is_read_as_it_is_meant(sandbox: Sandbox, code: str, expected: Any) -> None:
    """A body gives what it returns, else the value of its last statement, else the object that it is."""
    assert value(sandbox, code, "body", **VISOR) == expected
    assert sandbox.check_syntax(code, "body") is None


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("attempt === 1", True),
        (" attempt > 1 // no", False),
        ("{a: attempt}", {"a": 1}),
        ("1, 2", 2),
        ("outputs.lint\n  .errors\n  .length", 2),
        ("typeof nothing", "undefined"),
        ("typeof outputs", "object"),
        ("output?.missing?.deep ?? 'none'", "none"),
    ],
)
def test_an_expression_is_one_expression(sandbox: Sandbox, code: str, expected: Any) -> None:
    """An expression is evaluated as if it stood in parentheses."""
    assert value(sandbox, code, **VISOR) == expected


@pytest.mark.parametrize("code", ["return 1", "let a = 1; a", "1; 2", "if (1) 2", "", "/* nothing */"])
def test_statements_are_no_expression(sandbox: Sandbox, code: str) -> None:
    """Statements are a syntax error where an expression is wanted."""
    assert problem(sandbox, code)[0] == "syntax"
    assert sandbox.check_syntax(code, "expression") == problem(sandbox, code)[1]


def test_time_is_the_recorded_time(sandbox: Sandbox) -> None:
    """`Date.now` gives the time of the request in milliseconds, however often it is asked."""
    assert value(sandbox, "[Date.now(), Date.now()]") == [1_700_000_000_250, 1_700_000_000_250]


def test_chance_comes_from_the_seed(sandbox: Sandbox) -> None:
    """The same seed gives the same numbers in another process too, another seed gives others, all within [0, 1)."""
    code = "Array.from({length: 500}, () => Math.random())"
    numbers = value(sandbox, code)
    other = Sandbox()
    assert value(other, code) == numbers
    assert other.evaluate(code, {}, now=0.0, seed="flow/step/2", form="expression").value != numbers
    other.close()
    assert len(set(numbers)) == 500
    assert all(0 <= number < 1 for number in numbers)
    assert 0.4 < sum(numbers) / 500 < 0.6


@pytest.mark.parametrize("seed", ["", "a\0b", "quote ' \\ \n", "😀 \ud800"])
def test_any_text_is_a_seed(sandbox: Sandbox, seed: str) -> None:
    """No seed can become code or break the request."""
    answer = sandbox.evaluate("Math.random() < 1", {}, now=0.0, seed=seed, form="expression")
    assert (answer.value, answer.problem) == (True, "")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("contains('Hello World', 'WORLD')", True),
        ("contains('Hello', 'x')", False),
        ("contains(null, 'NULL')", True),
        ("startsWith('Hello', 'hE')", True),
        ("endsWith('Hello', 'LO')", True),
        ("endsWith('Hello', 'He')", False),
        ("[length('abc'), length([1, 2]), length({a: 1}), length(null), length(5)]", [3, 2, 1, 0, 0]),
        ("[always(), success(), failure()]", [True, True, False]),
        ("any(list, n => n > 2)", True),
        ("all(list, n => n > 2)", False),
        ("none(list, n => n > 5)", True),
        ("count(list, n => n > 1)", 2),
        ("[any(null, n => n), all(undefined, n => n), none('x', n => n), count({}, n => n)]", [False, True, True, 0]),
        ("'abc'.length + [1].length", 4),
        ("'abc'.startsWith('a') && !'abc'.startsWith('A')", True),
    ],
)
def test_helper_functions(sandbox: Sandbox, code: str, expected: Any) -> None:
    """The helper functions of Visor's files are there and shadow no method."""
    assert value(sandbox, code, list=[1, 2, 3]) == expected


def test_a_variable_wins_over_a_helper_function(sandbox: Sandbox) -> None:
    """A variable that has the name of a helper function is the variable."""
    assert value(sandbox, "count + 1", count=2) == 3


@pytest.mark.parametrize(
    ("code", "form", "said"),
    [
        ("1 +", "expression", "the code ends too early (line 1, column 4)"),
        ("let a = 1;\nlet b = ;", "body", "unexpected token in expression: ';' (line 2, column 9)"),
        ("if (x) {\n  return 1", "body", "the code ends too early (line 2, column 11)"),
        ("foo bar", "body", "expecting ';' (line 1, column 5)"),
        ("'abc", "expression", "unexpected end of string (line 1, column 1)"),
    ],
)
def test_syntax_errors_have_a_position(sandbox: Sandbox, code: str, form: Form, said: str) -> None:
    """A syntax error says where it stands in the user's own text, when the file is loaded and when it runs."""
    assert sandbox.check_syntax(code, form) == said
    assert problem(sandbox, code, form) == ("syntax", said)


@pytest.mark.parametrize(
    ("before", "code", "said"),
    [
        ("const a = 1; ", "a.b.c", "TypeError: cannot read property 'c' of undefined (line 1, column 1)"),
        ("const a = 1; ", "a;\nmissing", "ReferenceError: missing is not defined (line 2, column 1)"),
        ("const f = () => missing; ", "f()", "ReferenceError: missing is not defined (line 1, column 1)"),
    ],
)
def test_what_stands_before_the_code_is_not_counted(sandbox: Sandbox, before: str, code: str, said: str) -> None:
    """Places are those in the code itself; inside of what is before it there is none to point to."""
    answer = sandbox.evaluate(before + code, {}, now=0.0, seed="", form="body", before=len(before))
    assert answer.problem == said


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("null.x", "TypeError: cannot read property 'x' of null (line 1, column 1)"),
        ("\n\n  missing", "ReferenceError: missing is not defined (line 3, column 3)"),
        ("any([1], 5)", "TypeError: not a function (line 1, column 1)"),
        ("JSON.parse('x')", "SyntaxError: unexpected token: 'x' (line 1, column 6)"),
        ("throw 'plain\\ntext'", "thrown: plain text"),
        ("throw undefined", "thrown: undefined"),
        ("throw {a: 1}", "thrown: [object Object]"),
        ("throw {toString() { throw 1 }}", "the code threw what can't be described: 1"),
    ],
)
def test_errors_have_a_position_and_one_line(sandbox: Sandbox, code: str, said: str) -> None:
    """An error of the code is reported in one line with its place."""
    kind, text = problem(sandbox, code, "body")
    assert kind == "error"
    assert text.startswith(said)


def test_checking_runs_nothing(sandbox: Sandbox) -> None:
    """A check compiles code that would loop, throw or need variables, and finds nothing wrong."""
    for code in ("for (;;);", "throw 1", "missing.x", "return missing"):
        assert sandbox.check_syntax(code, "body") is None


def test_the_code_may_have_8192_bytes_and_no_more(sandbox: Sandbox) -> None:
    """The limit counts bytes of UTF-8 and is checked before anything is sent."""
    assert value(sandbox, "1" + " " * 8_191) == 1
    said = "the code has 8193 bytes; 8192 are allowed"
    assert problem(sandbox, "1" + " " * 8_192) == ("too_large", said)
    assert problem(sandbox, "'é'" + " " * 8_189) == ("too_large", said)
    assert sandbox.check_syntax("1" + " " * 8_192, "expression") == said


def test_a_result_may_have_256_kilobytes_and_no_more(sandbox: Sandbox) -> None:
    """A result just below the limit comes back whole; above it nothing comes back."""
    assert value(sandbox, "'x'.repeat(262000)") == "x" * 262_000
    assert problem(sandbox, "'é'.repeat(132000)") == ("too_large", "the result has more than 262144 bytes")


def test_only_variables_that_the_code_names_are_given(sandbox: Sandbox) -> None:
    """A variable that is not named costs nothing, however large; one that is named is refused when too large."""
    huge = "x" * VARIABLES_BYTES_MAX
    assert value(sandbox, "small", small=1, huge=huge) == 1
    kind, said = problem(sandbox, "huge.length", huge=huge)
    assert (kind, said) == ("too_large", "the variables have 524299 bytes; 524288 are allowed")


def test_a_deep_variable_is_given_or_refused(sandbox: Sandbox) -> None:
    """Nesting is either taken in and frozen to the bottom, or a problem; never a crash."""
    deep: list[Any] = []
    for _ in range(200):
        deep = [deep]
    assert problem(sandbox, "let d = deep; while (d.length) d = d[0]; d.push(1)", "body", deep=deep)[0] == "error"
    for _ in range(100_000):
        deep = [deep]
    assert problem(sandbox, "deep", deep=deep)[0] in ("type", "too_large")
    assert value(sandbox, "1 + 1") == 2


def test_a_variable_that_is_no_data_is_refused(sandbox: Sandbox) -> None:
    """What has no JSON is a problem of type, not an exception."""
    assert problem(sandbox, "thing", thing=object())[0] == "type"


def test_references_become_elements_of_a_list(sandbox: Sandbox) -> None:
    """A value put in for `${...}` is data, whatever it says."""
    source = "${a} == 'x' && ${b['k}']} > 1 && ${a} != null"
    references = [("a", 0), ("b['k}']", source.index("${b")), ("a", source.rindex("${a"))]
    code = expand_values(source, references)
    assert code == "$v[0] == 'x' && $v[1] > 1 && $v[2] != null"
    assert value(sandbox, code, **{"$v": ["x", 2, "x"]}) is True
    assert value(sandbox, code, **{"$v": ["'; for (;;); '", 2, "x"]}) is False


@pytest.mark.parametrize(
    ("source", "offset", "good"),
    [
        ("${a} == 'x'", 0, True),
        ("'x' == ${a}", 7, True),
        ("[1, 2].includes(${a})", 16, True),
        ("'${a}' == 'x'", 1, False),
        ('"${a}" == "x"', 1, False),
        ("`${a}` == 'x'", 1, False),
        ("/${a}/.test('x')", 1, False),
        ("1 /* ${a} */", 5, False),
    ],
)
def test_a_reference_in_quotes_is_pointed_out(sandbox: Sandbox, source: str, offset: int, good: bool) -> None:
    """A reference that stands in a string, a pattern or a comment would be text, so the check refuses it."""
    said = "`${a}` stands inside quotes or a comment; it is a value already: write it without"
    assert sandbox.check_condition(source, [("a", offset)]) == (None if good else said)


def test_a_condition_is_checked_for_its_syntax_too(sandbox: Sandbox) -> None:
    """A broken condition gives its syntax error."""
    assert sandbox.check_condition("${a} ==", [("a", 0)]) == "the code ends too early (line 1, column 9)"


def test_truth_is_that_of_javascript() -> None:
    """Null, false, zero and the empty text are false; everything else holds, empty lists and objects too."""
    assert [holds(value) for value in (None, False, 0, 0.0, "")] == [False] * 5
    assert [holds(value) for value in (True, 1, -0.5, "0", "false", " ", [], {}, [0])] == [True] * 9
