"""Liquid templates: parsed once, checked when a file is loaded, rendered for the position of the text.

    problem(text)                     why the template could never be rendered, or an empty text
    render(text, variables)           plain text: prompts, messages, bodies
    render_command(text, variables)   for a shell: no value can become code
    render_url(text, variables)       for a url: values are percent-encoded

A template that could make much of little (loops, captures, most filters) is rendered in a process with limits.
In a command each `{{ ... }}` first becomes a reference with a unique name; the lexer then reads the rendered text
(after `if`, `for`) as shell, and every value is quoted for the position of its reference.
Filters that quote for the shell change nothing there. `{% capture %}` makes a value, which is quoted as a whole.
lenient_syntax.py first rewrites the forms that Visor accepts and Liquid does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from resile.errors import shorten
from resile.languages.bounded import TooMuch, call_bounded
from resile.languages.braces import Lazy, Write, quote_outputs
from resile.languages.liquid.filters import CONTEXT_FILTERS, FILTERS, UNKNOWN_HERE
from resile.languages.liquid.lenient_syntax import EMPTY_LIST, as_liquid
from resile.languages.references import TEMPLATES_KEPT, ValueRefused, refuse_nul, text_of
from resile.languages.urls import encode_value
from resile.model.limits import VALUE_BYTES_MAX

if TYPE_CHECKING:
    from liquid import BoundTemplate, Environment, RenderContext
    from liquid.exceptions import LiquidError

LOOPS_MAX = 100_000
REASON_CHARACTERS_MAX = 300
TAGS = (
    "assign", "capture", "case", "comment", "cycle", "decrement", "echo", "for", "if", "increment", "liquid",
    "tablerow", "unless", "#", "break", "continue", "raw", "doc",
)  # fmt: skip
"""The tags that are allowed; others load files or write text for an unknown position."""
_CHEAP_TAGS = frozenset(("if", "unless", "case", "comment", "raw", "doc", "#"))
_CHEAP_FILTERS = frozenset(
    ("default", "upcase", "downcase", "strip", "lstrip", "rstrip", "size", "first", "last", "abs", "ceil", "floor",
     "round", "at_least", "at_most")
)  # fmt: skip
"""What renders a value no larger than it is."""
SERVER_VARIABLE = r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}"
_SLOT = "slot"


class _Mark(str):
    """Stands in the text for a value, and counts as much."""

    size: int


def _size_of(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))


def _make_environment() -> Environment:
    """An environment class with our limits, in which a text has itself as its `text`."""
    from io import StringIO

    from liquid import BoundTemplate, Environment, RenderContext
    from liquid.exceptions import OutputStreamLimitError

    class Output(StringIO):
        """The output buffer, up to a limit; bytes that were not UTF-8 count as such."""

        size = 0

        def write(self, text: str, /) -> int:
            self.size += text.size if isinstance(text, _Mark) else _size_of(text)
            if self.size > VALUE_BYTES_MAX:
                raise OutputStreamLimitError("output stream limit reached", token=None)
            return super().write(text)

    class Context(RenderContext):
        """Finds values by their paths; a text has itself as its `text`."""

        def get_buffer(self, buf: Any = None) -> StringIO:
            """The buffer of a block, which counts together with the text around it."""
            inner = Output()
            inner.size = buf.size if isinstance(buf, Output) else 0
            return inner

        def get_item(self, obj: Any, key: Any) -> Any:
            return obj if key == "text" and isinstance(obj, str) else super().get_item(obj, key)

    class Template(BoundTemplate):
        """A template with this context and this output buffer."""

        context_class = Context

        def _get_buffer(self) -> StringIO:
            return Output()

    class Bounded(Environment):
        """An environment in which no template runs forever or writes without limit."""

        loop_iteration_limit = LOOPS_MAX
        local_namespace_limit = VALUE_BYTES_MAX
        logical_not_operator = True
        logical_parentheses = True
        shorthand_indexes = True
        string_first_and_last = True
        template_class = Template

    return Bounded(globals={EMPTY_LIST: []})


@cache
def _environment() -> Environment:
    """The one environment: our tags, our filters, our limits."""
    from liquid.builtin.output import Output, OutputNode
    from liquid.builtin.tags.capture_tag import CaptureNode, CaptureTag
    from liquid.builtin.tags.cycle_tag import CycleNode, CycleTag
    from liquid.builtin.tags.echo_tag import EchoNode, EchoTag
    from liquid.filter import with_context

    class Writing(OutputNode):
        """Writes an output with the renderer's `write` function."""

        def render_to_output(self, context: RenderContext, buffer: Any) -> int:
            return int(buffer.write(_writer(context)(self.expression.evaluate(context))))

    class Echoing(Writing, EchoNode):
        """Writes the output of an `echo` tag in the same way."""

    class Cycling(CycleNode):
        """Writes the next value of a `cycle` tag in the same way."""

        def render_to_output(self, context: RenderContext, buffer: Any) -> int:
            turn = context.get_buffer()
            super().render_to_output(context, turn)
            return int(buffer.write(_writer(context)(turn.getvalue())))

    class Capturing(CaptureNode):
        """A part of the template that becomes a value: inside it values are plain text."""

        def render_to_output(self, context: RenderContext, buffer: Any) -> int:
            names = context.tag_namespace
            outer, names[_SLOT] = names.get(_SLOT), plain_text
            try:
                return super().render_to_output(context, buffer)
            finally:
                names[_SLOT] = outer

    made = _make_environment()
    made.tags[Output.name] = type("WritingOutput", (Output,), {"node_class": Writing})(made)
    made.tags["cycle"] = type("WritingCycle", (CycleTag,), {"node_class": Cycling})(made)
    made.tags["echo"] = type("WritingEcho", (EchoTag,), {"node_class": Echoing})(made)
    made.tags["capture"] = type("PlainCapture", (CaptureTag,), {"node_class": Capturing})(made)
    for name, function in FILTERS.items():
        made.add_filter(name, function)
    for name, function in CONTEXT_FILTERS.items():
        made.add_filter(name, with_context(function))
    return made


def _writer(context: RenderContext) -> Write:
    inner: Write | None = context.tag_namespace.get(_SLOT)
    written: Any = context.globals.get(_SLOT)
    return inner or written or plain_text


def plain_text(value: Any) -> str:
    """A value as text: JSON for lists and mappings, whole numbers without a fraction, empty for None."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if hasattr(value, "__liquid__"):
        value = value.__liquid__()
    if isinstance(value, Mapping):
        value = dict(value)
    if isinstance(value, range | tuple):
        value = list(value)
    return text_of(value)


@lru_cache(maxsize=TEMPLATES_KEPT)
def _parse(text: str) -> BoundTemplate:
    return _environment().from_string(as_liquid(text))


def is_template(text: str) -> bool:
    """Does the text contain anything that Liquid would change?"""
    return "{{" in text or "{%" in text


@lru_cache(maxsize=TEMPLATES_KEPT)
def problem(text: str) -> str:
    """Why a template could never be rendered, or an empty text."""
    if not is_template(text):
        return ""
    from liquid.exceptions import LiquidError

    try:
        analysis = _parse(text).analyze(include_partials=False)
    except LiquidError as error:
        said = " ".join(str(error.message).split()) or "it does not parse"
        return f"{said} (line {_line_of(error, text)} of the text)"
    except RecursionError:
        return "it is nested too deeply"
    for tag in analysis.tags:
        if tag not in TAGS:
            return f"the tag `{tag}` is not run here"
    for name in analysis.filters:
        if name in UNKNOWN_HERE:
            return f"the filter `{name}` needs {UNKNOWN_HERE[name]}"
        if name not in _environment().filters:
            return f"there is no filter `{name}`"
    return ""


def names_in(text: str) -> frozenset[str]:
    """The variables that a template without a problem uses."""
    if not is_template(text) or problem(text):
        return frozenset()
    return frozenset(_parse(text).analyze(include_partials=False).globals)


def _line_of(error: LiquidError, text: str) -> int:
    """The line of an error in the original text, where an escaped line break does not count."""
    from liquid.exceptions import LiquidError

    plain = as_liquid(text, is_resolved=False)
    try:
        _environment().from_string(plain)
    except LiquidError as same:
        error = same
    index = error.token.start_index if error.token is not None else 0
    return plain.count("\n", 0, max(index, 0)) + 1


def render(text: str, variables: Mapping[str, Any], write: Write = plain_text) -> str:
    """The text with its values; raises ValueRefused if that fails."""
    if not is_template(text):
        return text
    refused = problem(text)
    if refused:
        raise ValueRefused(f"the template can't be rendered: {refused}")
    return _render_here(text, variables, write) if _is_cheap(text) else _render_bounded(text, variables, write)


@lru_cache(maxsize=TEMPLATES_KEPT)
def _is_cheap(text: str) -> bool:
    """Is what a template without a problem costs known from the size of its values?"""
    analysis = _parse(text).analyze(include_partials=False)
    # A range is as long as its numbers say.
    return _CHEAP_TAGS.issuperset(analysis.tags) and _CHEAP_FILTERS.issuperset(analysis.filters) and ".." not in text


def _render_here(text: str, variables: Mapping[str, Any], write: Write) -> str:
    """Render a template in this process."""
    from liquid.exceptions import LiquidError

    try:
        return _parse(text).render({**variables, _SLOT: write})
    except (ValueRefused, MemoryError):
        raise
    except Exception as error:
        # Any error of a value that is written, compared or passed to a filter.
        said = str(error.message) if isinstance(error, LiquidError) else _reason(error)
        shown = shorten(said.encode("utf-8", "backslashreplace").decode(), REASON_CHARACTERS_MAX)
        raise ValueRefused(f"the template `{shorten(text)}` can't be rendered: {shown}") from error


def _render_bounded(text: str, variables: Mapping[str, Any], write: Write) -> str:
    """Render a template in a process with limits; the values of its outputs come back, and are written here."""
    refuse_nul(text)
    paths = _parse(text).analyze(include_partials=False).globals
    # The other process must not read the store.
    known = {
        name: _resolve(value, [list(path.segments)[1:] for path in paths.get(name, ())])
        for name, value in variables.items()
    }

    def make() -> tuple[list[Any], str]:
        """Render with a mark for each output: the values and the text, or an error without values."""
        values: list[Any] = []

        def keep(value: Any) -> str:
            mark = _Mark(f"\0{len(values)}\0")
            mark.size = _size_of(plain_text(value))
            values.append(_as_data(value))
            return mark

        try:
            rendered = _render_here(text, known, keep)
            return [True, *values], rendered
        except ValueRefused as refused:
            return [], refused.message

    try:
        values, rendered = call_bounded(make)
    except TooMuch as limit:
        raise ValueRefused(f"the template `{shorten(text)}` can't be rendered: {limit}") from None
    if not values:
        raise ValueRefused(rendered)
    parts = rendered.split("\0")
    return "".join(write(values[int(part) + 1]) if at % 2 else part for at, part in enumerate(parts))


def _resolve(value: Any, paths: list[list[Any]]) -> Any:
    """A value with all that these paths find in it; only the values of lazy mappings are computed."""
    if not isinstance(value, Lazy):
        return value
    names = {path[0] for path in paths if path and isinstance(path[0], str)}
    if any(not path or not isinstance(path[0], str) for path in paths):
        names.update(value)
    return {name: _resolve(value[name], [path[1:] for path in paths]) for name in names if name in value}


def _as_data(value: Any) -> Any:
    """A value as plain data that another process can receive."""
    if hasattr(value, "__liquid__"):
        # What is not defined is none in data and empty in a text.
        return None
    if isinstance(value, Mapping):
        return {str(name): _as_data(item) for name, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [_as_data(item) for item in value]
    return value if value is None or isinstance(value, str | int | float | bool) else plain_text(value)


def _reason(error: Exception) -> str:
    """Why a value can't be used."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeEncodeError):
        code = ord(error.object[error.start])
        return f"a value holds half of a character (U+{code:04X}), which can't be written"
    return str(error) or type(error).__name__


def render_command(text: str, variables: Mapping[str, Any], program: str = "sh") -> str:
    """A command with its values, each quoted for its position."""
    if not is_template(text):
        return text
    return quote_outputs(text, lambda write: render(text, variables, write), plain_text, program)


def render_url(text: str, variables: Mapping[str, Any]) -> str:
    """A URL with its values percent-encoded; if the text is one output, its value is the whole URL.

    A variable of the caller's environment at the beginning gives the server.
    """
    import re

    if is_one_output(text):
        return render(text, variables)
    server = re.match(SERVER_VARIABLE, text)
    if server is not None:
        return plain_text(variables["env"].get(server[1], "")) + render_url(text[server.end() :], variables)
    return render(text, variables, lambda value: encode_value(plain_text(value)))


def is_one_output(text: str) -> bool:
    """Is the text one `{{ ... }}` and nothing else?"""
    inner = text.strip()
    return inner.startswith("{{") and inner.endswith("}}") and inner.count("{{") == 1 and "{%" not in inner


def value_of(text: str, variables: Mapping[str, Any]) -> Any:
    """The value itself if the text is one output, else the rendered text."""
    if not is_one_output(text):
        return render(text, variables)
    found: list[Any] = []

    def write(value: Any) -> str:
        found.append(value)
        return ""

    render(text.strip(), variables, write)
    value = found[0] if found else None
    return None if hasattr(value, "__liquid__") else value
