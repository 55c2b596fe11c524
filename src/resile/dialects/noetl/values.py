"""Readers of single values in a playbook: templates, data whose texts are templates, conditions, names, numbers.

`NoetlReading` is one playbook being read. `known` are the names that its templates can ask for; one that is not among
them is probably a mistake, and `check` says so.
"""

from __future__ import annotations

import re
from typing import Any

from resile.dialects.formats.nodes import Mapping, Mark, Node, Scalar, Sequence
from resile.dialects.native.keys.programs import read_data
from resile.dialects.native.step import NativeReading
from resile.dialects.reading.context import Reading, Source
from resile.dialects.reading.diagnostics import Diagnostics
from resile.dialects.reading.key_tables import INVALID, Key
from resile.dialects.reading.suggestions import did_you_mean
from resile.dialects.reading.values import boolean, duration, filled, integer, number, text, wrong
from resile.errors import shorten
from resile.languages.jinja.templates import condition_text, is_template, names_in, problem
from resile.model.limits import EXPRESSION_BYTES_MAX, PARALLEL_MAX, RETRIES_MAX
from resile.model.workflow import Workflow

COMMENT = "comment"
BUILT_IN = frozenset((
    "workload", "vars", "ctx", "payload", "args", "env", "keychain", "execution_id", "catalog_id", "job", "execution",
    "failed_steps", "results", "attempt", "now", "result", "response", "event", "error", "this", "data", "page",
    "success", "status_code", "item", "loop", "loop_index", "iter", "range", "dict", "_retry", "token",
    "outcome", "_prev", "_task",
))  # fmt: skip
"""What every template knows."""
_GIVE_NAMES = ("args", "with", "input", "data", "payload", "set", "vars", "ctx", "params", "set_ctx", "set_iter")
_ARE_NAMES = ("into", "iterator", "element")
SECONDS_MAX = 366 * 86_400


class NoetlReading(Reading):
    """A playbook being read: the tools of its workbook, its steps by name, and what its templates can name.

    `fixed` are entries of the workload that hold code or the name of a credential, which a run can't change. `keychain`
    are the entries of the keychain with their fields, `secrets` what the environment must have. `final` is the step
    that runs last and is therefore `end`, where the file names one of another name. `native` reads the native tree;
    `children` are the playbooks that steps run, by their files, and `secrets` has what they need as well.
    """

    def __init__(self, source: Source, report: Diagnostics) -> None:
        super().__init__(source, report)
        self.native = NativeReading(source, report, "noetl", is_checked=True)
        self.children: dict[str, Workflow] = {}
        self.workbook: dict[str, tuple[Scalar, Mapping]] = {}
        self.names: dict[str, Scalar] = {}
        self.final = ""
        self.workload: dict[str, Any] = {}
        self.fixed: set[str] = set()
        self.known: frozenset[str] = frozenset()
        self.keychain: dict[str, dict[str, None]] = {}
        self.secrets: dict[str, dict[str, str]] = {}

    def add_secret(self, entry: str, field: str, place: Node | Mark) -> None:
        """A secret of the environment, under the name of an entry of the keychain and of its field."""
        variable = re.sub(r"\W", "_", f"{entry}_{field}").upper()
        if f"{entry}.{field}" not in self.secrets:
            self.secrets[f"{entry}.{field}"] = {"env": variable}
            self.report.notice("keychain", f"`{shorten(entry)}` is read from ${variable}", place)


def comment(name: str, doc: str) -> Key:
    """A key that says something to people and changes nothing that runs."""
    return Key(name, COMMENT, doc, lambda _, __: INVALID)


def given_names(root: Node) -> frozenset[str]:
    """Every name that a playbook gives to a value: arguments, variables, items."""
    found: set[str] = set()
    nodes: list[Node] = [root]
    while nodes:
        node = nodes.pop()
        if isinstance(node, Sequence):
            nodes += node.items
        elif isinstance(node, Mapping):
            for name, (_, value) in node.entries.items():
                nodes.append(value)
                if name in _ARE_NAMES and isinstance(value, Scalar):
                    found.add(value.text)
                if name in _GIVE_NAMES:
                    found |= _names_under(value)
    return frozenset(name.removeprefix("ctx.").removeprefix("iter.") for name in found)


def _names_under(node: Node) -> set[str]:
    """The names in a mapping of them, or in a list of `name` and `value`."""
    if isinstance(node, Mapping):
        return set(node.entries)
    items = node.items if isinstance(node, Sequence) else []
    entries = [item.entries["name"][1] for item in items if isinstance(item, Mapping) and "name" in item.entries]
    return {entry.text for entry in entries if isinstance(entry, Scalar)}


_OF_WORKLOAD = re.compile(r"\{\{\s*(?:workload\.)?([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")


def from_workload(reading: NoetlReading, text: str) -> str | None:
    """The text in the workload that a template stands for, which a run then can't change; None where it is none."""
    found = _OF_WORKLOAD.fullmatch(text.strip())
    value = reading.workload.get(found[1]) if found is not None else None
    if found is None or not isinstance(value, str):
        return None
    reading.fixed.add(found[1])
    return value


def known_text(reading: NoetlReading, text: str, node: Node) -> str:
    """A text that is known when the file is loaded: as it is written, or from the workload; empty after a report."""
    if not is_template(text):
        return text.strip()
    value = from_workload(reading, text)
    if value is None or is_template(value):
        message = f"`{shorten(text)}` must be known when the file is loaded"
        reading.report.error("value", message, node, hint="write the name out, or keep it in the workload as text")
        return ""
    return value.strip()


def template(reading: Reading, node: Node) -> Any:
    """A text that may hold Jinja."""
    value = text(reading, node)
    return INVALID if value is INVALID or not _checked(reading, node, value) else value


def _checked(reading: Reading, node: Node, value: str) -> bool:
    """Can this template be rendered? One that names something unknown is told of."""
    reason = problem(value)
    if reason:
        reading.report.error("template", f"this is no template that can be rendered: {reason}", node)
        return False
    if isinstance(reading, NoetlReading) and "default" not in value and "defined" not in value:
        for name in sorted(names_in(value) - reading.known - BUILT_IN):
            hint = did_you_mean(name, [*reading.known, *BUILT_IN]) or "`| default(…)` makes it optional"
            message = f"nothing in this playbook is called `{shorten(name)}`"
            reading.report.warning("unknown-name", message, node, hint=hint)
    return True


filled_template = filled(template, "the text")


def _check_text(reading: Reading, node: Node) -> Any:
    """A text among data."""
    return _checked(reading, node, node.text) if isinstance(node, Scalar) else INVALID


def data(reading: Reading, node: Node) -> Any:
    """Data of any shape whose texts may hold Jinja."""
    return read_data(reading, node, _check_text)


def arguments(reading: Reading, node: Node) -> Any:
    """Names and data; nothing is none."""
    if isinstance(node, Scalar) and node.value is None:
        return {}
    return data(reading, node) if isinstance(node, Mapping) else wrong(reading, node, "a mapping of names to values")


def arguments_or_template(reading: Reading, node: Node) -> Any:
    """Names and data, or a template that comes to them."""
    if isinstance(node, Scalar) and isinstance(node.value, str):
        return template(reading, node)
    return arguments(reading, node)


def condition(reading: Reading, node: Node) -> Any:
    """An expression, with or without its braces."""
    if isinstance(node, Scalar) and isinstance(node.value, bool | int):
        return "true" if node.value else "false"
    value = filled(text, "the condition")(reading, node)
    if value is INVALID:
        return INVALID
    if len(value.encode("utf-8", "surrogateescape")) > EXPRESSION_BYTES_MAX:
        reading.report.error("limit", f"the condition has more than {EXPRESSION_BYTES_MAX} bytes", node)
        return INVALID
    reason = problem(condition_text(value))
    if reason:
        reading.report.error("template", f"this is no condition that can be asked: {reason}", node)
        return INVALID
    return value


def yes_or_no(reading: Reading, node: Node) -> Any:
    """`true` or `false`."""
    return boolean(reading, node)


attempts = integer(1, RETRIES_MAX + 1)
seconds = number(0, SECONDS_MAX)
factor = number(0.01, 1_000)


def name(reading: Reading, node: Node) -> Any:
    """A name, as it is written."""
    return filled(text, "the name")(reading, node)


def node_itself(_: Reading, node: Node) -> Any:
    """The node itself: whoever asked for it reads it with the rest."""
    return node


def count(reading: Reading, node: Node) -> Any:
    """A number of things at a time."""
    if isinstance(node, Scalar) and type(node.value) is int and 1 <= node.value <= PARALLEL_MAX:
        return node.value
    return wrong(reading, node, f"a whole number from 1 to {PARALLEL_MAX}")


def timeout(reading: Reading, node: Node) -> Any:
    """Seconds, or a duration in words."""
    return duration(reading, node)


def jitter(reading: Reading, node: Node) -> Any:
    """`true`, or a share of the delay."""
    if isinstance(node, Scalar) and isinstance(node.value, bool):
        return 0.5 if node.value else 0.0
    value = factor(reading, node)
    return value if value is INVALID or value <= 1 else wrong(reading, node, "true, false, or a share of at most 1")
