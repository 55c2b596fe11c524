"""Readers of single values: each takes a node, reports its problems, and returns a model value."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence, describe, items_of, plain
from resile.dialects.reading.context import Reading
from resile.dialects.reading.diagnostics import did_you_mean
from resile.dialects.reading.durations import duration_seconds, memory_bytes
from resile.dialects.reading.key_tables import INVALID, Key, Reader, read_mapping, table
from resile.errors import shorten
from resile.languages.references import is_one_reference
from resile.languages.shell.quoting import SHELLS
from resile.model.limits import EXPRESSION_BYTES_MAX, NAME_CHARACTERS_MAX, SCRIPT_BYTES_MAX
from resile.model.workflow import Condition

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD = re.compile(r"[A-Za-z0-9_-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_CONDITION_WORDS = ("true", "false")
_INTEGER_BITS = 63


def wrong(reading: Reading, node: Node, expected: str, hint: str = "") -> Any:
    """Report a value of the wrong kind; a number in quotes is named as what it is."""
    is_quoted = isinstance(node, Scalar) and isinstance(node.value, str) and node.value.isdecimal()
    found = f"the text {describe(node)}" if is_quoted else describe(node)
    hint = hint or ("a number has no quotes" if is_quoted and "number" in expected else "")
    reading.report.error("type", f"expected {expected}, not {found}", node, hint=hint)
    return INVALID


def text(reading: Reading, node: Node) -> Any:
    """Read a text; a number or word is taken as written."""
    if not isinstance(node, Scalar) or node.value is None:
        return wrong(reading, node, "text")
    if "\0" in node.text:
        reading.report.error("value", "a NUL can't be part of a text here", node)
        return INVALID
    return node.text


def template(reading: Reading, node: Node) -> Any:
    """Read a text that may have references."""
    value = text(reading, node)
    if value is not INVALID and "${" in value and isinstance(node, Scalar):
        reading.refers(node)
    return value


def non_empty(read: Reader, what: str) -> Reader:
    """Wrap a reader so that it refuses blank texts."""

    def read_filled(reading: Reading, node: Node) -> Any:
        value = read(reading, node)
        if value is not INVALID and not value.strip():
            reading.report.error("value", f"{what} is empty", node)
            return INVALID
        return value

    return read_filled


def boolean(reading: Reading, node: Node) -> Any:
    """`true` or `false`."""
    if isinstance(node, Scalar) and isinstance(node.value, bool):
        return node.value
    return wrong(reading, node, "true or false")


def only_true(reading: Reading, node: Node) -> Any:
    """Read `true`, the only valid value."""
    return True if isinstance(node, Scalar) and node.value is True else wrong(reading, node, "true")


def integer(low: int, high: int) -> Reader:
    """A whole number within bounds."""

    def read_integer(reading: Reading, node: Node) -> Any:
        if not isinstance(node, Scalar) or isinstance(node.value, bool) or not isinstance(node.value, int):
            return wrong(reading, node, f"a whole number from {low} to {high}")
        if not low <= node.value <= high:
            message = f"{describe(node)} is out of bounds: expected a whole number from {low} to {high}"
            reading.report.error("value", message, node)
            return INVALID
        return node.value

    return read_integer


def number(low: float, high: float) -> Reader:
    """A number within bounds."""

    def read_number(reading: Reading, node: Node) -> Any:
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            return wrong(reading, node, f"a number from {low:g} to {high:g}")
        if not low <= value <= high:
            reading.report.error("value", f"{describe(node)} is out of bounds: from {low:g} to {high:g}", node)
            return INVALID
        return float(value)

    return read_number


def _quantity(parse: Callable[[Any], Any], expected: str, hint: str) -> Reader:
    """Make a reader of quantities that `parse` understands."""

    def read_measured(reading: Reading, node: Node) -> Any:
        if not isinstance(node, Scalar) or node.value is None or isinstance(node.value, bool):
            return wrong(reading, node, expected, hint)
        try:
            return parse(node.value)
        except ValueError as problem:
            reading.report.error("value", f"{describe(node)} {problem}: expected {expected}", node, hint=hint)
            return INVALID

    return read_measured


duration = _quantity(duration_seconds, "a duration", "a number of seconds, or `500ms`, `30s`, `2m`, `1h30m`")
duration_or_zero = _quantity(
    lambda value: duration_seconds(value, zero=True), "a duration", "a number of seconds, or `500ms`, `30s`, `2m`"
)
memory = _quantity(memory_bytes, "a size", "a number of bytes, or `512m`, `4g`, `4GiB`")


def milliseconds(reading: Reading, node: Node) -> Any:
    """A number of milliseconds, as seconds."""
    value = number(0, 366 * 86_400_000)(reading, node)
    return INVALID if value is INVALID else value / 1000


def choice(*words: str, elsewhere: dict[str, str] | None = None) -> Reader:
    """One of a few words; `elsewhere` has words of other systems, each with the one that is meant."""

    def read_choice(reading: Reading, node: Node) -> Any:
        if isinstance(node, Scalar) and node.text in words:
            return node.text
        near = did_you_mean(node.text, words) if isinstance(node, Scalar) else ""
        if isinstance(node, Scalar) and elsewhere and node.text in elsewhere:
            near = f"did you mean `{elsewhere[node.text]}`?"
        return wrong(reading, node, f"one of {', '.join(words)}", near)

    return read_choice


def one_of(name: str, doc: str, *words: str, field: str = "", elsewhere: dict[str, str] | None = None) -> Key:
    """A key whose value is one of these words."""
    return Key(name, ", ".join(words), doc, choice(*words, elsewhere=elsewhere), field, words)


def true_or_false(name: str, doc: str, field: str = "") -> Key:
    """A key whose value is `true` or `false`."""
    return Key(name, "true or false", doc, boolean, field)


def program(reading: Reading, node: Node) -> Any:
    """Read the name of, or a path to, a shell with known quoting rules."""
    value = text(reading, node)
    if value is not INVALID and value.rpartition("/")[2] not in SHELLS:
        hint = "call any other program as the command itself"
        return wrong(reading, node, f"one of {', '.join(SHELLS)} (or a path to one)", hint)
    return value


def texts(read: Reader) -> Reader:
    """One text or a list of them, as a tuple of (value, node)."""

    def read_texts(reading: Reading, node: Node) -> Any:
        return tuple((value, item) for item in items_of(node) if (value := read(reading, item)) is not INVALID)

    return read_texts


def one_or_more(read: Reader) -> Reader:
    """One value or a list of them, as a tuple."""
    read_items = texts(read)
    return lambda reading, node: tuple(value for value, _ in read_items(reading, node))


def read_data(reading: Reading, node: Node, read_text: Reader = template) -> Any:
    """Read data of any shape; `read_text` reads its texts, which may contain references."""
    before = len(reading.report.errors)
    nodes: list[Node] = [node]
    while nodes:
        part = nodes.pop()
        if isinstance(part, Scalar):
            _check_scalar(reading, part, read_text)
        else:
            nodes += part.items if isinstance(part, Sequence) else [value for _, value in part.entries.values()]
    return plain(node) if len(reading.report.errors) == before else INVALID


def _check_scalar(reading: Reading, node: Scalar, read_text: Reader) -> None:
    """Check that JSON can represent a value; a text may contain references."""
    value = node.value
    if isinstance(value, str):
        if not reading.is_checked:
            read_text(reading, node)
    elif isinstance(value, float) and not math.isfinite(value):
        wrong(reading, node, "a finite number")
    elif isinstance(value, int) and value.bit_length() > _INTEGER_BITS:
        wrong(reading, node, f"a number of at most {_INTEGER_BITS} bits", "quote it: a text can be of any length")


def read_inputs(reading: Reading, node: Node) -> Any:
    """Read names of parameters with data."""
    if not isinstance(node, Mapping):
        return wrong(reading, node, "a mapping of names to values")
    result: dict[str, Any] = {}
    for name, (key, value) in node.entries.items():
        data = read_data(reading, value)
        if not reading.is_checked and not IDENTIFIER.fullmatch(name):
            reading.report.error("name", f"`{shorten(name)}` can't be the name of a parameter", key)
        elif data is not INVALID:
            result[name] = data
    return result


def schema(reading: Reading, node: Node) -> Any:
    """Read a JSON schema, which must be a mapping."""
    is_schema = isinstance(node, Mapping) or (isinstance(node, Scalar) and isinstance(node.value, bool))
    return plain(node) if is_schema else wrong(reading, node, "a JSON schema")


def environment(reading: Reading, node: Node) -> Any:
    """Read names and values of the environment; numbers and words are taken as written, null is an empty value."""
    if not isinstance(node, Mapping):
        return wrong(reading, node, "a mapping of names to values")
    result: dict[str, str] = {}
    for name, (key, value) in node.entries.items():
        if not reading.is_checked and (not name or "=" in name or "\0" in name):
            reading.report.error("value", f"`{shorten(name)}` can't be the name of an environment variable", key)
        elif isinstance(value, Scalar) and value.value is None:
            result[name] = ""
        else:
            read = template(reading, value)
            if read is not INVALID:
                result[name] = read
    return result


def condition(reading: Reading, node: Node) -> Any:
    """Read a condition: `true`, `false`, one reference, an expression, or a mapping that names the language."""
    if isinstance(node, Mapping):
        return _read_explicit_condition(reading, node)
    if isinstance(node, Scalar) and isinstance(node.value, bool):
        return Condition(str(node.value).lower(), "value", reading.origin(node))
    source = expression(reading, node)
    if source is INVALID:
        return INVALID
    if "${" in source and isinstance(node, Scalar):
        reading.refers(node)
    is_value = source in _CONDITION_WORDS or is_one_reference(source)
    return Condition(source, "value" if is_value else "js", reading.origin(node))


def _read_explicit_condition(reading: Reading, node: Mapping) -> Any:
    """Read a condition that names its language, with further conditions in `besides`."""
    fields = read_mapping(reading, node, CONDITION)
    given = [word for word in CONDITION.keys if word in node.entries and word != "besides"]
    if len(given) != 1:
        reading.report.error("value", "a condition needs `value`, `js` or another language, one of them", node)
    if len(given) != 1 or given[0] not in fields:
        return INVALID
    word: Any = given[0]
    besides = fields.get("besides", ())
    source = "" if word == "none" else str(fields[word])
    return Condition(source, word, reading.origin(node), besides)


def _conditions(reading: Reading, node: Node) -> Any:
    if not isinstance(node, Sequence):
        return wrong(reading, node, "a list of conditions")
    return tuple(found for item in node.items if (found := condition(reading, item)) is not INVALID)


def _code_reader(what: str, bytes_max: int) -> Reader:
    """Make a reader of code for the sandbox, which checks its syntax later."""
    read_filled = non_empty(text, "the expression")

    def read_code(reading: Reading, node: Node) -> Any:
        source = read_filled(reading, node)
        if source is not INVALID and len(source.encode("utf-8", "surrogateescape")) > bytes_max:
            reading.report.error("limit", f"the {what} has more than {bytes_max} bytes", node)
            return INVALID
        return source

    return read_code


code = _code_reader("code", SCRIPT_BYTES_MAX)
expression = _code_reader("expression", EXPRESSION_BYTES_MAX)


def name_problem(name: str) -> str:
    """Why this can't be the name of a step, or an empty text."""
    if _WORD.fullmatch(name) and len(name) <= NAME_CHARACTERS_MAX and name.lower() != "end":
        return ""
    if not name.strip():
        return "is empty"
    if len(name) > NAME_CHARACTERS_MAX:
        return f"is longer than {NAME_CHARACTERS_MAX} characters"
    if _CONTROL.search(name):
        return "holds a control character"
    if "|" in name:
        return "holds `|`, which separates alternatives in `needs`"
    if name != name.strip():
        return "begins or ends with a blank"
    if name != "end" and name.lower() == "end":
        return "is reserved: the step that runs last is called `end`"
    return ""


CONDITION = table(
    "a condition", "A condition with an explicit language; a plain text is `value` or `js`, by its shape.",
    Key("value", "text", "`true`, `false` or one `${…}`, whose value decides.", non_empty(template, "`value`")),
    Key("js", "expression", "JavaScript; each `${…}` in it is a value.", non_empty(template, "`js`")),
    Key("code", "code", "An expression, or the body of a function, without `${…}`.", code),
    Key("jinja", "template", "A template whose value decides.", non_empty(template, "`jinja`")),
    Key("case", "text", "A case of the step that must hold, by its number in `cases` (from 0) or its word.",
        non_empty(text, "`case`")),
    Key("none", "true", "Holds only if every condition in `besides` is false.", boolean),
    Key("besides", "list of conditions", "More conditions; all must hold too, unless `none` is given.", _conditions),
)  # fmt: skip
