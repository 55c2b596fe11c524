"""Evaluates expressions of workflow files: the engine and the commands use `Sandbox`.

    evaluate(code, context, now, seed, form) -> Evaluation     never raises for an error of the code; positions in
                                                               messages leave out the first `before` characters
    check_syntax(code, form) -> problem or None                when a file is loaded

    form "expression"   one expression: `when`, `transitions`, filters
    form "body"         statements or the body of a function: `goto_js`, `run_js` (prelude.wrappings has the rule)

The code sees frozen copies of the variables it names, `Math` (with `Math.random` from the seed), `JSON`,
`Date.now` (the given time) and the plain types of the language. The same code, context, time and seed give the same
result. Any thread may use a sandbox; its helper processes start with the first request (helpers.py).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from resile.languages.javascript import limits
from resile.languages.javascript.helpers import Helpers, SandboxLost
from resile.model.limits import EXPRESSION_BYTES_MAX

Form = Literal["expression", "body"]
Kind = Literal["", "syntax", "error", "timeout", "memory", "too_large", "type", "lost"]

VALUES = "$v"
"""The variable that passes the values of `${...}` references."""

_DATA = frozenset(("Object", "Array", "String", "Number", "Boolean", "Null", "Undefined"))


class Evaluation(msgspec.Struct, frozen=True):
    """The result of an evaluation: a value, or a problem and its kind; `milliseconds` is how long the caller waited."""

    value: Any = None
    problem: str = ""
    kind: Kind = ""
    milliseconds: float = 0.0


class Refused(Exception):
    """The code or its variables can't be evaluated, or the evaluation failed; has the problem and its kind."""

    def __init__(self, kind: Kind, problem: str) -> None:
        super().__init__(problem)
        self.kind = kind


class Sandbox:
    """Evaluates with helpers of its own, or with `helpers`, which others use as well."""

    def __init__(self, helpers: Helpers | None = None) -> None:
        self._is_owner = helpers is None
        self.helpers = Helpers() if helpers is None else helpers
        self._checked: dict[tuple[str, Form], str | None] = {}

    def evaluate(
        self,
        code: str,
        context: Mapping[str, Any],
        *,
        now: float,
        seed: str,
        form: Form,
        bytes_max: int = EXPRESSION_BYTES_MAX,
        before: int = 0,
    ) -> Evaluation:
        """Evaluate code of at most `bytes_max` bytes with these variables at this time."""
        began = time.monotonic()
        try:
            request = _request(code, context, now, seed, form, bytes_max)
            answer = Evaluation(_value(self._ask(request), code, before))
        except Refused as refused:
            answer = Evaluation(None, str(refused), refused.kind)
        return msgspec.structs.replace(answer, milliseconds=(time.monotonic() - began) * 1e3)

    def check_syntax(self, code: str, form: Form, bytes_max: int = EXPRESSION_BYTES_MAX) -> str | None:
        """Why the code could never run, or None; each text is compiled once."""
        key = code, form
        if key not in self._checked:
            if len(self._checked) >= limits.CHECKS_KEPT:
                self._checked.clear()
            self._checked[key] = self._problem(code, form, bytes_max)
        return self._checked[key]

    def check_condition(self, expression: str, references: Sequence[tuple[str, int]]) -> str | None:
        """`check_syntax` for an expression with `${...}` references, given as (name, offset of its dollar).

        It replaces a reference by a character that JavaScript does not have. If the code still compiles, the reference
        is in a string, a pattern or a comment, where its value would have no effect.
        """
        problem = self.check_syntax(expand_values(expression, references), "expression")
        for name, offset in references if problem is None else ():
            probe = f"{expression[:offset]}@{expression[offset + len(name) + 3 :]}"
            others = [(other, at if at < offset else at - len(name) - 2) for other, at in references if at != offset]
            if self.check_syntax(expand_values(probe, others), "expression") is None:
                return f"`${{{name}}}` stands inside quotes or a comment; it is a value already: write it without"
        return problem

    def close(self) -> None:
        """Kill the helpers, unless others use them; a later request would start another."""
        if self._is_owner:
            self.helpers.close()

    def _problem(self, code: str, form: Form, bytes_max: int) -> str | None:
        """Compile the code and return its problem."""
        try:
            request = b"\0".join((b"C", form.encode(), _encode_code(code, bytes_max)))
            _value(self._ask(request), code)
        except Refused as refused:
            return str(refused)
        return None

    def _ask(self, request: bytes) -> bytes:
        """The answer of a helper; raises SandboxSilent if no helper answers in time."""
        try:
            return self.helpers.ask(request)
        except SandboxLost as lost:
            raise Refused("lost", str(lost)) from None


def expand_values(expression: str, references: Sequence[tuple[str, int]]) -> str:
    """The expression with each `${...}`, given as (name, offset of its dollar), as an element of the list `$v`.

    The values go into the context as `{"$v": [...]}`, in the same order, so that no value can become code.
    """
    out: list[str] = []
    at = 0
    for number, (name, offset) in enumerate(references):
        out.append(f"{expression[at:offset]}{VALUES}[{number}]")
        at = offset + len(name) + 3
    return "".join(out) + expression[at:]


def holds(value: Any) -> bool:
    """Is this result true in JavaScript? Empty lists and objects are."""
    return isinstance(value, list | dict) or bool(value)


def _encode_code(code: str, bytes_max: int) -> bytes:
    """Encode the code to send it; raises Refused if it is invalid or too long."""
    try:
        data = code.encode()
    except UnicodeEncodeError:
        raise Refused("syntax", "the code is not valid text") from None
    if len(data) > bytes_max:
        raise Refused("too_large", f"the code has {len(data)} bytes; {bytes_max} are allowed")
    if b"\0" in data:
        raise Refused("syntax", "the code holds a NUL")
    return data


def _request(code: str, context: Mapping[str, Any], now: float, seed: str, form: Form, bytes_max: int) -> bytes:
    """Encode an evaluation request. It contains only the variables whose names occur in the code."""
    source = _encode_code(code, bytes_max)
    variables = _json({name: value for name, value in context.items() if name in code})
    if len(variables) > limits.VARIABLES_BYTES_MAX:
        raise Refused(
            "too_large", f"the variables have {len(variables)} bytes; {limits.VARIABLES_BYTES_MAX} are allowed"
        )
    moment = str(int(now * 1e3)).encode()
    return b"\0".join((b"R", form.encode(), source, variables, moment, seed.encode("utf-8", "surrogatepass")))


def _json(variables: dict[str, Any]) -> bytes:
    """The variables as JSON."""
    try:
        try:
            return msgspec.json.encode(variables)
        except UnicodeEncodeError:
            # Bytes that were not UTF-8 are surrogates here, which only the slower encoder accepts.
            import json

            return json.dumps(msgspec.to_builtins(variables)).encode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Refused("type", f"the variables can't be given as JSON: {error}") from None


def _value(answer: bytes, code: str, before: int = 0) -> Any:
    """The value in an answer; raises Refused for any other answer."""
    letter, rest = answer[:1], answer[1:]
    if letter == b"V":
        name, value = _decode(rest)
        if name not in _DATA:
            raise Refused("type", f"a result of type {_shorten(name)} is no data")
        if name == "Number" and value is None:
            raise Refused("type", "the result is not a finite number")
        return value
    if letter == b"T":
        raise Refused("timeout", f"the code took more than {limits.CODE_CPU_SECONDS_MAX * 1e3:.0f} ms of CPU time")
    if letter == b"L":
        raise Refused("too_large", f"the result has more than {limits.RESULT_BYTES_MAX} bytes")
    if letter == b"D":
        raise Refused("too_large", f"the variables are too large or too deep: {_shorten(rest.decode())}")
    if letter == b"X":
        raise Refused("error", f"the code threw what can't be described: {_shorten(rest.decode())}")
    thrown, stack = _decode(rest)
    if letter == b"S":
        raise Refused("syntax", _add_position(thrown.removeprefix("SyntaxError: "), stack, code, before))
    if thrown == "null" or thrown.endswith("out of memory"):
        # The engine throws null when there is no memory left for an error.
        raise Refused("memory", f"out of memory ({limits.MEMORY_BYTES_MAX >> 20} MB), or null was thrown")
    raise Refused("error", _add_position(thrown if stack else f"thrown: {thrown}", stack, code, before))


def _decode(data: bytes) -> Any:
    """The JSON of an answer."""
    try:
        try:
            return msgspec.json.decode(data)
        except msgspec.DecodeError:
            # JavaScript allows a lone surrogate, and so does the slower decoder.
            import json

            return json.loads(data)
    except RecursionError:
        raise Refused("too_large", "the result is nested too deeply") from None


def _add_position(message: str, stack: str, code: str, before: int) -> str:
    """The message with its position in the user's code, which starts at the second line of the stack's frames.

    A position before that code, such as inside a helper, is not the user's.
    """
    import re

    text = _shorten(message)
    for frame in re.finditer(r"<input>:(\d+):(\d+)", stack):
        line, column = int(frame[1]) - 1, int(frame[2])
        lines = code.split("\n")
        if line > len(lines):
            line, column = len(lines), len(lines[-1]) + 1
            text = "the code ends too early"
        column -= before if line == 1 else 0
        if line and column > 0:
            return f"{text} (line {line}, column {column})"
    return text


def _shorten(message: str) -> str:
    return " ".join(message[: limits.PROBLEM_CHARACTERS_MAX].split())
