"""Readers of single values in a playbook: templates, data whose texts are templates, conditions, names, numbers.

`NoetlReading` is the state of reading one playbook. A template with a name outside of `known` gets a warning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from resile.dialects.formats.nodes import Mapping, Mark, Node, Scalar, Sequence
from resile.dialects.native.context import NativeReading
from resile.dialects.native.nodes import is_null, text_in
from resile.dialects.reading.context import Reading, Source
from resile.dialects.reading.diagnostics import Diagnostics, did_you_mean
from resile.dialects.reading.key_tables import INVALID, Key, Reader, Table, read_keys
from resile.dialects.reading.values import boolean, integer, non_empty, number, read_data, text, wrong
from resile.errors import shorten
from resile.languages.jinja.templates import condition_text, is_template, names_in, problem
from resile.model.limits import EXPRESSION_BYTES_MAX, PARALLEL_MAX, RETRIES_MAX
from resile.model.workflow import Workflow

COMMENT = "comment"
BUILT_IN = frozenset((
    "workload", "vars", "ctx", "payload", "args", "env", "keychain", "execution_id", "catalog_id", "job", "execution",
    "failed_steps", "results", "attempt", "now", "result", "response", "event", "error", "this", "data", "page",
    "success", "status_code", "item", "loop", "loop_index", "iter", "range", "dict", "_retry", "token",
    "outcome", "_prev", "_task", "batch",
))  # fmt: skip
"""Names that every template can use."""
_GIVE_NAMES = ("args", "with", "input", "data", "payload", "set", "vars", "ctx", "params", "set_ctx", "set_iter")
_ARE_NAMES = ("into", "iterator", "element")
SECONDS_MAX = 366 * 86_400


class NoetlReading(Reading):
    """State of reading a playbook: the tools of its workbook, its steps by name, and the names for templates.

    `fixed` are entries of the workload with code or the name of a credential: a run can't change them. `keychain` has
    the entries of the keychain with their fields, `secrets` the environment variables that a run needs. `final` is the
    step that `final_step` names, if it is not called `end`. `native` reads the native tree, `children` are the called
    playbooks, by file.
    """

    def __init__(self, source: Source, report: Diagnostics) -> None:
        super().__init__(source, report)
        self.native = NativeReading(source, report, "noetl", is_checked=True)
        self.native.errexit = False
        self.children: dict[str, Workflow] = {}
        self.workbook: dict[str, Mapping] = {}
        self.names: dict[str, Scalar] = {}
        self.final = ""
        self.workload: dict[str, Any] = {}
        self.fixed: set[str] = set()
        self.known: frozenset[str] = frozenset()
        self.keychain: dict[str, dict[str, None]] = {}
        self.secrets: dict[str, dict[str, Any]] = {}

    def add_secret(self, entry: str, field: str, place: Node | Mark, *, is_optional: bool = False) -> None:
        """Add an environment variable as a secret, under the name of a keychain entry and of its field."""
        variable = re.sub(r"\W", "_", f"{entry}_{field}").upper()
        known = self.secrets.get(f"{entry}.{field}")
        if is_optional:
            self.secrets.setdefault(f"{entry}.{field}", {"env": variable, "optional": True})
        elif known is None or "optional" in known:
            self.secrets[f"{entry}.{field}"] = {"env": variable}
            self.report.notice("keychain", f"`{shorten(entry)}` is read from ${variable}", place)


def comment(name: str, doc: str) -> Key:
    """A key that is a comment for people and has no effect."""
    return Key(name, COMMENT, doc, lambda _, __: INVALID)


def with_aliases(key: Key, *names: str) -> tuple[Key, ...]:
    """A key, and other names for it."""
    field = key.field or key.name
    return (key, *(Key(name, key.kind, f"the same as `{key.name}`", key.read, field) for name in names))


def mapping_of(known: Table) -> Reader:
    """A reader of the fields of a mapping."""
    return lambda reading, node: read_keys(reading, node, known)


def lacks(reading: Reading, node: Node, fields: dict[str, Any], words: set[str], message: str) -> bool:
    """Is one of these keys missing? Report that, unless the key is there with a value that was refused."""
    if words <= fields.keys():
        return False
    if isinstance(node, Mapping) and not words <= node.entries.keys():
        reading.report.error("value", message, node)
    return True


def refuse_keys(reading: Reading, node: Mapping, words: Iterable[str], why: str, hint: str = "") -> None:
    """Report keys of a mapping that have no meaning beside the others."""
    for word in words:
        place = node.entries.get(word, (node,))[0]
        reading.report.error("conflict", f"`{word}` {why}", place, hint=hint or f"take `{word}` out")


def read_rules(reading: Reading, node: Sequence, known: Table) -> Iterator[tuple[Mapping, dict[str, Any]]]:
    """Read the rules of a policy, each with its `when` and `then`; `else` is a last rule that always holds."""
    for item in node.items:
        fields = read_keys(reading, item, known)
        if not isinstance(item, Mapping):
            continue
        if "else" in fields:
            if "when" in fields or "then" in fields or item is not node.items[-1]:
                reading.report.error("conflict", "`else` stands alone, and last", item)
            fields = {**fields["else"], "when": "true"}
        if {"when", "then"} <= fields.keys():
            yield item, fields
        elif "else" not in item.entries and not {"when", "then"} <= item.entries.keys():
            reading.report.error("value", "a rule needs `when` and `then`, or `else`", item)


def names_given_in(root: Node) -> frozenset[str]:
    """Find every name that a playbook gives to a value: arguments, variables, items."""
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
                    found |= _names_of(value)
    return frozenset(name.removeprefix("ctx.").removeprefix("iter.") for name in found)


def _names_of(node: Node) -> set[str]:
    """The names in a mapping of them, or in a list of `name` and `value`."""
    if isinstance(node, Mapping):
        return set(node.entries)
    items = node.items if isinstance(node, Sequence) else []
    entries = [item.entries["name"][1] for item in items if isinstance(item, Mapping) and "name" in item.entries]
    return {entry.text for entry in entries if isinstance(entry, Scalar)}


_OF_WORKLOAD = re.compile(r"\{\{\s*(?:workload\.)?([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")


def find_in_workload(reading: NoetlReading, text: str, *, is_fixed: bool = True) -> str | None:
    """Find the text of the workload that a template names; None if there is none. A run can't change a fixed one."""
    found = _OF_WORKLOAD.fullmatch(text.strip())
    value = reading.workload.get(found[1]) if found is not None else None
    if found is None or not isinstance(value, str):
        return None
    if is_fixed:
        reading.fixed.add(found[1])
    return value


def read_known_text(reading: NoetlReading, text: str, node: Node) -> str:
    """Read a text that must be known when the file is loaded, written out or in the workload; empty after a report."""
    if not is_template(text):
        return text.strip()
    value = find_in_workload(reading, text)
    if value is None or is_template(value):
        message = f"`{shorten(text)}` must be known when the file is loaded"
        reading.report.error("value", message, node, hint="write the name out, or keep it in the workload as text")
        return ""
    return value.strip()


def template(reading: Reading, node: Node) -> Any:
    """Read a text that may have Jinja templates."""
    value = text(reading, node)
    return INVALID if value is INVALID or not _check_template(reading, node) else value


def _check_template(reading: Reading, node: Node) -> bool:
    """Report a template that can't be rendered, and warn of unknown names."""
    value = text_in(node)
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


filled_template = non_empty(template, "the text")


def data(reading: Reading, node: Node) -> Any:
    """Read data of any shape whose texts may have Jinja templates."""
    return read_data(reading, node, _check_template)


def arguments(reading: Reading, node: Node) -> Any:
    """Read names with their data; an empty value is an empty mapping."""
    if is_null(node):
        return {}
    return data(reading, node) if isinstance(node, Mapping) else wrong(reading, node, "a mapping of names to values")


def arguments_or_template(reading: Reading, node: Node) -> Any:
    """Read names with their data, or a template whose value is such a mapping."""
    if isinstance(node, Scalar) and isinstance(node.value, str):
        return template(reading, node)
    return arguments(reading, node)


def condition(reading: Reading, node: Node) -> Any:
    """Read an expression, with or without its braces."""
    if isinstance(node, Scalar) and isinstance(node.value, bool | int):
        return "true" if node.value else "false"
    value = non_empty(text, "the condition")(reading, node)
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


def no_next_is_error(reading: Reading, node: Node) -> Any:
    """Read `no_next_is_error`, which must be false."""
    if boolean(reading, node) is True:
        message = "`no_next_is_error` is not run: a step without an arc leads to `end`"
        reading.report.error("not-run", message, node, hint="take it out")
    return INVALID


def always(reading: Reading, node: Node) -> Any:
    """Read a key that can only be true."""
    if boolean(reading, node) is False:
        message = "a step always waits for its playbook, and has its result"
        reading.report.error("not-run", message, node, hint="take it out, or start the playbook by itself")
    return INVALID


attempts = integer(1, RETRIES_MAX + 1)
seconds = number(0, SECONDS_MAX)
factor = number(0.01, 1_000)
name = non_empty(text, "the name")


def count(reading: Reading, node: Node) -> Any:
    """Read the number of items that run, or are taken, at a time."""
    if isinstance(node, Scalar) and type(node.value) is int and 1 <= node.value <= PARALLEL_MAX:
        return node.value
    return wrong(reading, node, f"a whole number from 1 to {PARALLEL_MAX}")


def jitter(reading: Reading, node: Node) -> Any:
    """Read `true`, `false`, or a share of the delay."""
    if isinstance(node, Scalar) and isinstance(node.value, bool):
        return 0.5 if node.value else 0.0
    value = factor(reading, node)
    return value if value is INVALID or value <= 1 else wrong(reading, node, "true, false, or a share of at most 1")
