"""Jinja as playbooks use it: parsed once, checked when a file is loaded, rendered for the position of the text.

    problem(text)              why the template could never be rendered, or an empty text
    expression_of(text)        the text between the braces, or a condition without braces
    value_of(text, find)       the value itself if the text is one `{{ ... }}`, else the rendered text
    render(text, find)         plain text                       render_data(data, find)   data with its texts rendered
    render_command, render_url no value can become code         holds(text, find)      a condition

`find` returns the value of a name, or MISSING; it is only called for names that a template mentions. A MISSING name
raises Unknown. Templates run in Jinja's sandbox, with few statements, and results are bounded. A template whose time
or memory could grow far beyond the size of its values (cost.py) runs in a process with limits (bounded.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from resile.languages.bounded import TooMuch, call_bounded
from resile.languages.braces import Write, quote_outputs
from resile.languages.jinja.cost import Cost, are_small, cost_of, is_wide_format
from resile.languages.jinja.plain_values import plain_data, plain_text, stand_in_for
from resile.languages.references import MISSING, TEMPLATES_KEPT, ValueRefused, refuse_nul, text_of
from resile.languages.urls import encode_value
from resile.model.limits import TEMPLATE_MEMORY_BYTES_MAX, VALUE_BYTES_MAX

if TYPE_CHECKING:
    from jinja2 import Environment, Template
    from jinja2.nodes import Node
    from jinja2.runtime import Context

STATEMENTS = ("if", "for", "set")
"""The statements that are allowed; others load files, define functions, or write text for an unknown position."""
LOOP_DEPTH_MAX = 2
NUMBER_BITS_MAX = 4_096
_NO_MEMORY = f"it needs more than {TEMPLATE_MEMORY_BYTES_MAX >> 20} MB of memory"
# Not a valid name in a template.
_WRITE = "write a value"
_FALSE_TEXTS = ("", "0", "false", "none", "null")
_WORDS: dict[str, Any] = {"true": True, "false": False, "none": None, "null": None}
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})(?:\.(?:0|[0-9]{0,14}[1-9]))?")
_NAME = re.compile(
    r"\s*\{\{-?\s*[A-Za-z_]\w*(?:\.\w+|\[(?:-?[0-9]+|'[^']*'|\"[^\"]*\")\])*\s*"
    r"(?:\|\s*d(?:efault)?\([^()]*\)\s*)?-?\}\}\s*"
)
"""A template that is the name of a value, with or without a default."""
_GROUPED = re.compile(r"\| batch\(\d+\) \| list \}\}$")
_OUTPUT = re.compile(r"\{\{-?(.*?)-?\}\}", re.DOTALL)

# The names of our value types in Python's messages.
_TYPES = {"ResultDict": "dict", "ResultList": "list", "ResultText": "str", "ErrorText": "str", "Lazy": "dict"}
_TYPE = re.compile(rf"'({'|'.join(_TYPES)})'")

Find = Callable[[str], Any]


class Unknown(ValueRefused):
    """A template names something that the step can't see; with `no_result`, a step that has not run."""

    def __init__(self, message: str, *, no_result: bool = False) -> None:
        super().__init__(message)
        self.no_result = no_result


class Parsed(Struct, frozen=True):
    """A parsed template: the names it uses, and whether it is one `{{ ... }}` and nothing else.

    `cost` says whether it needs a process with limits.
    """

    template: Any
    names: frozenset[str]
    is_one: bool
    cost: Cost


@cache
def _environment() -> Environment:
    """The one environment: our filters, our limits, no loader."""
    from jinja2 import pass_context
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    from resile.languages.jinja.undefined import Absent

    class Bounded(ImmutableSandboxedEnvironment):
        """The sandbox, with limits on sizes, and with a mapping's keys before its methods."""

        intercepted_binops = frozenset(("*", "**", "%"))

        def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
            """Compute a product, a power or a format of bounded size."""
            _check_size(operator, left, right)
            return super().call_binop(context, operator, left, right)

        def getattr(self, obj: Any, attribute: str) -> Any:
            """A part of a value by a dot."""
            own = _own_part(obj, attribute)
            return super().getattr(obj, attribute) if own is MISSING else own

        def getitem(self, obj: Any, argument: Any) -> Any:
            """A part of a value by brackets."""
            own = _own_part(obj, argument)
            return super().getitem(obj, argument) if own is MISSING else own

    def _own_part(obj: Any, name: Any) -> Any:
        """A part of an undefined value, of a mapping or of a step's result; else MISSING."""
        if isinstance(obj, Absent):
            return obj.part(name)
        if isinstance(obj, Mapping) and name in obj:
            return obj[name]
        return stand_in_for(obj, name) if isinstance(name, str) else MISSING

    @pass_context
    def finalize(context: Context, value: Any) -> str:
        """Write an output with the renderer's `write` function."""
        if isinstance(value, Absent):
            str(value)
        text: str = context[_WRITE](value)
        return text

    made = Bounded(undefined=Absent, finalize=finalize, optimized=False, keep_trailing_newline=True)
    for name in ("lipsum", "cycler", "joiner", "namespace"):
        del made.globals[name]
    made.filters.update(_filters())
    return made


def _check_size(operator: str, left: Any, right: Any) -> None:
    """Refuse an operation whose result would be too large."""
    from jinja2.exceptions import SecurityError

    numbers = [value for value in (left, right) if isinstance(value, int)]
    if operator == "%":
        too_large = isinstance(left, str) and is_wide_format(left)
    elif operator == "**":
        too_large = len(numbers) == 2 and left.bit_length() * max(right, 0) > NUMBER_BITS_MAX
    elif len(numbers) == 2:
        too_large = left.bit_length() + right.bit_length() > NUMBER_BITS_MAX
    else:
        other = left if isinstance(right, int) else right
        size = len(other) if isinstance(other, str | bytes | list | tuple) else 0
        too_large = bool(numbers) and size * numbers[0] > VALUE_BYTES_MAX
    if too_large:
        raise SecurityError(f"the result of `{operator}` would be too large")


def _filters() -> dict[str, Callable[..., Any]]:
    """The filters in addition to Jinja's own, or replacing them."""
    import base64
    import json

    def tojson(value: Any, indent: int | None = None) -> str:
        """A value as JSON, without escapes for HTML."""
        return json.dumps(plain_data(value), ensure_ascii=False, indent=indent)

    return {
        "tojson": tojson,
        "to_json": tojson,
        "from_json": json.loads,
        "fromjson": json.loads,
        "b64encode": lambda text: base64.b64encode(text_of(text).encode("utf-8", "surrogateescape")).decode(),
        "b64decode": lambda text: base64.b64decode(text).decode("utf-8", "surrogateescape"),
        "chosen": _filter_items,
        "ordered": _sort_items,
    }


def _filter_items(items: Any, name: str, condition: str, **known: Any) -> list[Any]:
    """The items for which a condition holds; it calls the item `name`; `known` has the values of its other names."""
    return [item for item in items if holds(condition, _finder({**known, name: item}))]


def _sort_items(items: Any, name: str, key: str, reverse: bool = False, **known: Any) -> list[Any]:
    return sorted(items, key=lambda item: value_of(key, _finder({**known, name: item})), reverse=reverse)


def _finder(known: Mapping[str, Any]) -> Find:
    return lambda name: known.get(name, MISSING)


def is_template(text: str) -> bool:
    """Does the text contain anything that Jinja would change?"""
    return "{{" in text or "{%" in text or "{#" in text


@lru_cache(maxsize=TEMPLATES_KEPT)
def parse(text: str) -> Parsed:
    """Parse a template; raises Jinja's errors, and ValueError for a statement that is not allowed."""
    from jinja2 import meta, nodes

    environment = _environment()
    tree = environment.parse(text)
    _check(tree, 0)
    template: Template = environment.from_string(text)
    only = tree.body[0] if len(tree.body) == 1 else None
    parts = only.nodes if isinstance(only, nodes.Output) else []
    is_one = len(parts) == 1 and not isinstance(parts[0], nodes.TemplateData)
    tracker = meta.TrackingCodeGenerator(environment)
    # An optimizer would compute what is constant, without limits.
    tracker.optimizer = None
    tracker.visit(tree)
    return Parsed(template, frozenset(tracker.undeclared_identifiers), is_one, cost_of(tree))


def _check(node: Node, depth: int) -> None:
    """Refuse the statements that are not allowed."""
    from jinja2 import nodes

    for part in node.iter_child_nodes():
        if isinstance(part, nodes.Stmt) and not isinstance(part, nodes.If | nodes.For | nodes.Assign | nodes.Output):
            raise ValueError(f"of Jinja's statements only {', '.join(STATEMENTS)} are run here")
        inner = depth + isinstance(part, nodes.For)
        if inner > LOOP_DEPTH_MAX:
            raise ValueError(f"loops in loops go no deeper than {LOOP_DEPTH_MAX} levels")
        _check(part, inner)


@lru_cache(maxsize=TEMPLATES_KEPT)
def problem(text: str) -> str:
    """Why a template could never be rendered, or an empty text."""
    if not is_template(text):
        return ""
    from jinja2.exceptions import TemplateError, TemplateSyntaxError

    try:
        parse(text)
    except TemplateSyntaxError as error:
        return f"{' '.join(str(error.message).split())} (line {error.lineno} of the text)"
    except RecursionError:
        return "it is nested too deeply"
    except (TemplateError, ValueError, SyntaxError, MemoryError, OverflowError) as error:
        return " ".join(str(error).split()) or "it does not parse"
    return ""


def names_in(text: str) -> frozenset[str]:
    """The names that a template without a problem uses."""
    return parse(text).names if is_template(text) and not problem(text) else frozenset()


def is_one_output(text: str) -> bool:
    """Is the text one `{{ ... }}` and nothing else?"""
    text = text.strip()
    return text.startswith("{{") and not problem(text) and parse(text).is_one


def expression_of(text: str) -> str:
    """The expression in a text that is one output, or in one without braces; empty if it is neither."""
    if not is_template(text):
        return text.strip()
    return text.strip()[2:-2].removeprefix("-").removesuffix("-").strip() if is_one_output(text) else ""


def groups_of(expression: str, size: int) -> str:
    """Write the expression for a list that has a list in groups of so many."""
    return f"{expression} | batch({size}) | list"


def is_of_groups(text: str) -> bool:
    """Is a template one list in groups, as `groups_of` writes it?"""
    return _GROUPED.search(text) is not None


def text_expression(text: str) -> str:
    """A text with `{{ ... }}` as one expression; empty if it contains other Jinja syntax."""
    if is_one_output(text):
        return f"({expression_of(text)})"
    parts = _OUTPUT.split(text)
    if any(is_template(literal) for literal in parts[::2]):
        return ""
    return " ~ ".join(f"({part})" if at % 2 else repr(part) for at, part in enumerate(parts) if part)


def render(text: str, find: Find, write: Write = plain_text) -> str:
    """The text with its values; raises ValueRefused if that fails, Unknown for an unknown name."""
    if not is_template(text):
        return text
    refused = problem(text)
    if refused:
        raise ValueRefused(f"the template can't be rendered: {refused}")
    template = parse(text)
    known = {name: value for name in template.names if (value := find(name)) is not MISSING}
    is_cheap = template.cost == "plain" or (template.cost == "linear" and are_small(known.values()))
    rendered = _render_known(text, known, write) if is_cheap else _render_bounded(text, known, write)
    if len(rendered) > VALUE_BYTES_MAX:
        raise ValueRefused(f"the template `{_beginning_of(text)}` gives more than {VALUE_BYTES_MAX} characters")
    return rendered


def _render_known(text: str, known: dict[str, Any], write: Write) -> str:
    """Render a template in this process."""
    from jinja2.exceptions import UndefinedError

    try:
        rendered: str = parse(text).template.render({**known, _WRITE: write})
    except UndefinedError as error:
        from resile.languages.jinja.undefined import NoResult, message_of

        said = message_of(error, text, known, _environment())
        raise Unknown(
            f"the template `{_beginning_of(text)}` can't be rendered: {said}", no_result=isinstance(error, NoResult)
        ) from error
    except ValueRefused:
        raise
    except MemoryError:
        raise ValueRefused(f"the template `{_beginning_of(text)}` can't be rendered: {_NO_MEMORY}") from None
    except Exception as error:
        # Any error of a value that is added, compared or passed to a filter.
        said = " ".join(_TYPE.sub(lambda found: repr(_TYPES[found[1]]), str(error)).split()) or type(error).__name__
        raise ValueRefused(f"the template `{_beginning_of(text)}` can't be rendered: {said}") from error
    return rendered


def _render_bounded(text: str, known: dict[str, Any], write: Write) -> str:
    """Render a template in a process with limits; the values of its outputs come back, and are written here."""

    def make() -> tuple[Any, ...]:
        """Render with a mark for each output: the values and the text, or an error."""
        values: list[Any] = []
        size = 0

        def keep(value: Any) -> str:
            nonlocal size
            # A number can be too large for data and still be written.
            values.append(value if type(value) is int else _data_of(text, value))
            size += len(values[-1]) if isinstance(values[-1], str) else 1
            if size > VALUE_BYTES_MAX:
                raise ValueRefused(f"the template `{_beginning_of(text)}` gives more than {VALUE_BYTES_MAX} characters")
            return f"\0{len(values) - 1}\0"

        try:
            return values, _render_known(text, known, keep)
        except Unknown as unknown:
            return "unknown", unknown.message, unknown.no_result
        except ValueRefused as refused:
            return "refused", refused.message

    refuse_nul(text)
    try:
        first, second, *more = call_bounded(make)
    except TooMuch as limit:
        raise ValueRefused(f"the template `{_beginning_of(text)}` can't be rendered: {limit}") from None
    if first == "unknown":
        raise Unknown(second, no_result=more[0])
    if first == "refused":
        raise ValueRefused(second)
    parts = second.split("\0")
    return "".join(write(first[int(part)]) if at % 2 else part for at, part in enumerate(parts))


def _data_of(text: str, value: Any) -> Any:
    """A value as data, while its errors still count as the template's."""
    try:
        return plain_data(value)
    except ValueRefused as refused:
        raise ValueRefused(f"the template `{_beginning_of(text)}` can't be rendered: {refused.message}") from refused


def _beginning_of(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 80 else line[:79] + "…"


def value_of(text: str, find: Find) -> Any:
    """The value itself if the text is one output, else the rendered text."""
    if not is_one_output(text):
        return render(text, find)
    found: list[Any] = []

    def write(value: Any) -> str:
        """Keep the value."""
        found.append(_data_of(text, value))
        return ""

    render(text.strip(), find, write)
    return found[0]


def render_data(data: Any, find: Find) -> Any:
    """Data with its templates rendered; a name keeps the type of its value, other text is parsed."""
    if isinstance(data, str):
        value = value_of(data, find)
        is_written = isinstance(value, str) and is_template(data) and not _NAME.fullmatch(data)
        return _read_text(value) if is_written else value
    if isinstance(data, list):
        return [render_data(item, find) for item in data]
    if isinstance(data, dict):
        return {name: render_data(value, find) for name, value in data.items()}
    return plain_data(data)


def _read_text(text: str) -> Any:
    """Parse text that a template wrote, as playbooks mean it: JSON, true, false, none or a number; else unchanged."""
    import json

    found = text.strip()
    if found[:1] in ("{", "["):
        try:
            return plain_data(json.loads(found))
        except (ValueError, RecursionError, ValueRefused):
            return text
    if found.lower() in _WORDS:
        return _WORDS[found.lower()]
    # Parse only numbers that are written in the canonical way: leading zeros mean something.
    return json.loads(found) if _NUMBER.fullmatch(found) and found != "-0" else text


def condition_text(text: str) -> str:
    """A condition as a template; its braces are optional."""
    return text.strip() if is_template(text) else f"{{{{ {text.strip()} }}}}"


def holds(text: str, find: Find) -> bool:
    """Does a condition hold? Empty, 0, false, none and null do not, as values and as text."""
    try:
        value = value_of(condition_text(text), find)
    except Unknown as problem:
        if problem.no_result:
            # A condition on a step that has not run does not hold.
            return False
        raise
    return value.strip().lower() not in _FALSE_TEXTS if isinstance(value, str) else bool(value)


def render_command(text: str, find: Find, program: str = "sh") -> str:
    """A command with its values, each quoted for its position."""
    if not is_template(text):
        return text
    return quote_outputs(text, lambda write: render(text, find, write), plain_text, program)


def render_url(text: str, find: Find) -> str:
    """A URL with its values percent-encoded; a value at its beginning gives the address unchanged."""
    count = 0
    starts = text.lstrip().startswith("{{")

    def write(value: Any) -> str:
        """Encode the value for its position."""
        nonlocal count
        count += 1
        if starts and count == 1:
            return plain_text(value)
        # A slash is part of a path, as in `owner/name`; the language's `render_url` checks dots that lead upwards.
        return encode_value(plain_text(value), "/")

    return render(text, find, write).strip()
