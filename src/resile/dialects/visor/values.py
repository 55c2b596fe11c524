"""Readers of single values in a Visor file: templates, code, names, and data whose texts are templates.

`VisorReading` is one file being read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from resile.dialects.formats.nodes import Mapping, Node, Scalar, Sequence
from resile.dialects.native.nodes import Part, WorkflowPart, is_null, items_of
from resile.dialects.reading.context import Reading, Source
from resile.dialects.reading.diagnostics import Diagnostics
from resile.dialects.reading.key_tables import INVALID, Reader, Table, read_keys
from resile.dialects.reading.values import boolean, choice, expression, non_empty, number, read_data, text, texts, wrong
from resile.errors import shorten
from resile.languages.liquid.templates import is_template, problem
from resile.model.limits import SCRIPT_BYTES_MAX

MILLISECONDS_MAX = 366 * 86_400_000
_CRON = r"[\d*/,\-]+(?:\s+[\d*/,\-]+){2}\s+[\d*/,\-A-Za-z]+\s+[\d*/,\-#A-Za-z]+"


class Known(Struct, frozen=True):
    """A workflow that steps can call: its source file and its mapping."""

    source: Source
    root: Mapping


class Lowered(Struct, frozen=True):
    """A workflow lowered to a native tree, with its name and inputs for callers."""

    root: WorkflowPart
    name: str
    inputs: dict[str, Part]


Lower = Callable[["VisorReading", Known, str, tuple[str, ...]], Lowered | None]


class VisorReading(Reading):
    """State of reading a Visor file.

    `tools` and `workflows` are those that steps can call by name, `models` the settings of the agent and `servers` its
    tool servers, `inputs` the native declarations of the inputs, `remedies` the steps that only run when called.
    `fields` are the keys of the file, `conditions` its failure conditions for all steps.
    With `uses_checkout` a text mentions the branch of the caller's folder, or its files.
    `loading` are the workflows around this one, innermost last; `lower` lowers a called workflow.
    """

    def __init__(self, source: Source, report: Diagnostics, lower: Lower, loading: tuple[str, ...] = ()) -> None:
        super().__init__(source, report)
        self.lower = lower
        self.loading = loading
        self.tools: dict[str, tuple[Scalar, Mapping]] = {}
        self.workflows: dict[str, Known] = {}
        self.models: dict[str, str] = {}
        self.servers: dict[str, Any] = {}
        self.inputs: dict[str, Part] = {}
        self.remedies: frozenset[str] = frozenset()
        self.fields: dict[str, Any] = {}
        self.conditions: dict[str, Part] = {}
        self.uses_checkout = False

    @property
    def namespace(self) -> str:
        """The default namespace of the memory."""
        return str(self.fields.get("memory", {}).get("namespace", "default"))


class Call(Struct, frozen=True):
    """One entry of a `run` list: the target, the name for its output, and its arguments, which may be unknown."""

    kind: str
    name: str
    node: Scalar
    args: dict[str, Any] = {}
    alias: str = ""
    is_checked: bool = True


def mapping_reader(known: Table) -> Reader:
    """Make a reader of mappings with the keys of a table."""
    return lambda reading, node: read_keys(reading, node, known)


def path_beside(reading: Reading, name: str) -> str:
    """The path of a file that a file names: beside it, or, as Visor does, in the caller's folder."""
    import os

    path = os.path.join(reading.source.folder, name)
    return name if not os.path.exists(path) and os.path.exists(name) else path


def template(reading: Reading, node: Node) -> Any:
    """Read a text that may have Liquid templates."""
    value = text(reading, node)
    if value is INVALID:
        return INVALID
    reason = problem(value)
    if reason:
        reading.report.error("template", f"this is no template that can be rendered: {reason}", node)
        return INVALID
    return value


filled_template = non_empty(template, "the text")


def code(reading: Reading, node: Node) -> Any:
    """Read JavaScript of a bounded size; `true` and `false` are code as well."""
    if isinstance(node, Scalar) and isinstance(node.value, bool | int | float):
        return node.text.lower() if isinstance(node.value, bool) else node.text
    return expression(reading, node)


def script(reading: Reading, node: Node) -> Any:
    """Read the JavaScript of a step, which may be longer than an expression."""
    source = non_empty(text, "the code")(reading, node)
    if source is not INVALID and len(source.encode("utf-8", "surrogateescape")) > SCRIPT_BYTES_MAX:
        reading.report.error("limit", f"the code has more than {SCRIPT_BYTES_MAX} bytes", node)
        return INVALID
    return source


def conditions(reading: Reading, node: Node) -> Any:
    """Read one condition or a list of conditions, all of which must hold."""
    items = items_of(node)
    found = [Part(item, code=value) for item in items if (value := code(reading, item)) is not INVALID]
    return tuple(found) if len(found) == len(items) else INVALID


names = texts(non_empty(text, "a name"))


def words(reading: Reading, node: Node) -> Any:
    """A text or a list of texts."""
    return tuple(value for value, _ in names(reading, node))


def dependencies(reading: Reading, node: Node) -> Any:
    """Read names of steps; null means none."""
    return () if is_null(node) else names(reading, node)


def data(reading: Reading, node: Node) -> Any:
    """Read data of any shape whose texts may have Liquid templates."""
    return read_data(reading, node, template)


def arguments(reading: Reading, node: Node) -> Any:
    """Read a mapping of names to data."""
    return data(reading, node) if isinstance(node, Mapping) else wrong(reading, node, "a mapping of names to values")


def milliseconds(reading: Reading, node: Node) -> Any:
    """Read a time in milliseconds, as seconds."""
    value = number(1, MILLISECONDS_MAX)(reading, node)
    return INVALID if value is INVALID else value / 1000


def list_of_texts(reading: Reading, node: Node) -> Any:
    """Read a list of texts, which may be empty."""
    if not isinstance(node, Sequence):
        return wrong(reading, node, "a list of texts")
    found = [text(reading, item) for item in node.items]
    return INVALID if INVALID in found else found


def mapping_of_texts(reading: Reading, node: Node) -> Any:
    """Read a mapping of names to texts, taken as written."""
    if not isinstance(node, Mapping):
        return wrong(reading, node, "a mapping of names to texts")
    found = {name: text(reading, value) for name, (_, value) in node.entries.items()}
    return INVALID if INVALID in found.values() else found


def cron(reading: Reading, node: Node) -> Any:
    """Read the times of a step: five fields, as in a crontab."""
    import re

    value = text(reading, node)
    if value is INVALID or re.fullmatch(_CRON, value.strip()):
        return value
    return wrong(reading, node, 'the five fields of a crontab, such as "0 2 * * *"')


def submodules(reading: Reading, node: Node) -> Any:
    """Read whether submodules are checked out: `true`, `false` or `recursive`, as text."""
    value = (
        choice("true", "false", "recursive")(reading, node)
        if isinstance(node, Scalar) and isinstance(node.value, str)
        else boolean(reading, node)
    )
    return str(value).lower() if isinstance(value, bool) else value


def seconds(reading: Reading, node: Node) -> Any:
    """Read a time in seconds."""
    return number(0.001, MILLISECONDS_MAX / 1000)(reading, node)


def environment(reading: Reading, node: Node) -> Any:
    """Read names and values of the environment; `${NAME}` is the caller's variable, if it is set."""
    if not isinstance(node, Mapping):
        return wrong(reading, node, "a mapping of names to values")
    result: dict[str, str] = {}
    for name, (key, value) in node.entries.items():
        read = "" if is_null(value) else text(reading, value)
        if not name or "=" in name or "\0" in name:
            reading.report.error("value", f"`{shorten(name)}` can't be the name of an environment variable", key)
        elif read is not INVALID:
            result[name] = _variables(read)
    return result


def _variables(value: str) -> str:
    """Turn a value into a template with the caller's variables; the rest stays literal."""
    import re

    if "$" not in value and not is_template(value):
        return value
    parts = re.split(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$([A-Za-z_][A-Za-z0-9_]*)", value)
    out: list[str] = []
    for at in range(0, len(parts), 3):
        literal = parts[at]
        out.append(f"{{% raw %}}{literal}{{% endraw %}}" if is_template(literal) else literal)
        if at + 2 < len(parts):
            name = parts[at + 1] or parts[at + 2]
            out.append(f"{{{{ env['{name}'] | default: '${{{name}}}' }}}}")
    return "".join(out)
